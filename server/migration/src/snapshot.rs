//! [`Snapshot`]: a file that `etcdctl snapshot save` wrote.
//!
//! That is a bbolt file and the SHA-256 of it. The bucket `key` has a record for each revision: its key is
//! the main revision (i64, big endian), `_` and the sub revision, and a `t` behind it for a deletion; its
//! value is `mvccpb.KeyValue`. The bucket `lease` has the leases by id, `meta` the revision up to which etcd
//! has compacted. Facts of etcd's `server/storage/mvcc` and `server/lease`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use plinth_etcd_wire::kv::KeyValue;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::source::{Source, SourceEntry, SourceError, Visit};
use plinth_bolt::{BoltError, BoltFile, Place};
use plinth_etcd_wire::lease::Lease;

/// Bytes of the hash at the end, and what the length of a bbolt file is a multiple of.
const HASH: u64 = 32;
const SECTOR: u64 = 512;
/// Bytes of a revision as a key; a deletion has one more.
const REVISION: usize = 17;
const DELETED: u8 = b't';
/// Names in the bucket `meta` of the revisions that a compaction has reached.
const COMPACTED: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];

/// The newest version of each key in the file.
#[derive(Debug)]
pub struct Snapshot {
    path: String,
    file: BoltFile,
    revision: u64,
    /// Where the newest value of each key is.
    keys: BTreeMap<Vec<u8>, Place>,
    leases: HashMap<i64, Lease>,
}

/// A record of the bucket `key`.
struct Revision {
    main: u64,
    text: String,
    is_deletion: bool,
}

impl Snapshot {
    /// Opens a snapshot and reads its keys. `requires_hash`: refuses a file without the hash at its end, as
    /// the file of a member is.
    ///
    /// # Errors
    /// When the hash does not match, or a page or record is damaged.
    pub fn open(path: &Path, requires_hash: bool) -> Result<Snapshot, SourceError> {
        let name = path.display().to_string();
        let io = |source| SourceError::Io { path: name.clone(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let mut length = metadata.len();
        let refused = |reason: &str| SourceError::File { path: name.clone(), reason: reason.to_owned() };
        if !metadata.is_file() {
            return Err(refused("it is not a file"));
        }
        match length % SECTOR {
            HASH => {
                length -= HASH;
                if !hash_matches(&file, length).map_err(io)? {
                    return Err(refused(
                        "the hash at its end does not match: the file is damaged or cut. Take a snapshot again",
                    ));
                }
            }
            _ if requires_hash => {
                return Err(refused(
                    "it has no hash at its end: it is cut, or not a file of etcdctl snapshot save. The file of a stopped member \
                     (member/snap/db) is read with --skip-hash-check",
                ))
            }
            _ => {}
        }
        let bolt = |source| SourceError::Bolt { path: name.clone(), source };
        let file = BoltFile::open(file, length).map_err(bolt)?;
        let mut snapshot =
            Snapshot { path: name.clone(), file, revision: 1, keys: BTreeMap::new(), leases: HashMap::new() };
        snapshot.read_keys()?;
        snapshot.read_compacted().map_err(bolt)?;
        snapshot.read_leases().map_err(bolt)?;
        Ok(snapshot)
    }

    /// Visits all keys as etcd has them, in order.
    ///
    /// # Errors
    /// When they cannot be read, or the first error of `visit`.
    pub fn records<E: From<SourceError>>(
        &self,
        visit: &mut dyn FnMut(KeyValue) -> Result<(), E>,
    ) -> Result<(), E> {
        self.keys.iter().try_for_each(|(key, place)| visit(self.record(key, *place)?))
    }

    /// The leases, as they were granted.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Visits what a bucket has beside keys and leases; nothing where there is none of this name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn bucket(&self, name: &str, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), SourceError> {
        let bolt = |source| SourceError::Bolt { path: self.path.clone(), source };
        if !self.file.has_bucket(name.as_bytes()).map_err(bolt)? {
            return Ok(());
        }
        let visited = self.file.bucket::<BoltError>(name.as_bytes(), &mut |key, value, _| {
            visit(key, value);
            Ok(())
        });
        visited.map_err(bolt)
    }

    fn record(&self, key: &[u8], place: Place) -> Result<KeyValue, SourceError> {
        let read = self.file.value(place);
        let record = read.map_err(|source| SourceError::Bolt { path: self.path.clone(), source })?;
        KeyValue::decode(Bytes::from(record)).map_err(|_| SourceError::File {
            path: self.path.clone(),
            reason: format!("the value of {} was changed while it was read", key.escape_ascii()),
        })
    }

    fn read_keys(&mut self) -> Result<(), SourceError> {
        let (mut keys, mut newest) = (BTreeMap::new(), self.revision);
        let name = &self.path;
        self.file
            .bucket(b"key", &mut |key, value, place| {
                let revision = parse_revision(key).ok_or_else(|| Error::Record {
                    revision: key.escape_ascii().to_string(),
                    reason: "its key is no revision",
                })?;
                newest = newest.max(revision.main);
                let damaged = |reason| Error::Record { revision: revision.text.clone(), reason };
                let record = KeyValue::decode(value).map_err(|_| damaged("it cannot be decoded"))?;
                match revision.is_deletion {
                    true => drop(keys.remove(&record.key[..])),
                    false if u64::try_from(record.mod_revision) != Ok(revision.main) => {
                        return Err(damaged("it has another revision"));
                    }
                    false => drop(keys.insert(record.key.to_vec(), place)),
                }
                Ok::<(), Error>(())
            })
            .map_err(|error| error.of(name))?;
        (self.keys, self.revision) = (keys, newest);
        Ok(())
    }

    /// The newest revision may be one whose keys were all deleted and compacted.
    fn read_compacted(&mut self) -> Result<(), BoltError> {
        if !self.file.has_bucket(b"meta")? {
            return Ok(());
        }
        let mut compacted = 0;
        self.file.bucket::<BoltError>(b"meta", &mut |key, value, _| {
            if COMPACTED.contains(&key) {
                compacted = compacted.max(parse_revision(value).map_or(0, |revision| revision.main));
            }
            Ok(())
        })?;
        self.revision = self.revision.max(compacted);
        Ok(())
    }

    fn read_leases(&mut self) -> Result<(), BoltError> {
        if !self.file.has_bucket(b"lease")? {
            return Ok(());
        }
        let mut leases = HashMap::new();
        self.file.bucket::<BoltError>(b"lease", &mut |_, value, place| {
            let lease = Lease::decode(value).map_err(|_| BoltError::Page {
                page: place.at / 4096,
                reason: "a lease cannot be decoded",
            })?;
            leases.insert(lease.id, lease);
            Ok(())
        })?;
        self.leases = leases;
        Ok(())
    }
}

impl Source for Snapshot {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn len(&self) -> u64 {
        self.keys.len() as u64
    }

    fn visit<E: From<SourceError>>(&self, prefix: &[u8], visit: Visit<'_, E>) -> Result<(), E> {
        for (key, place) in self.keys.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix))
        {
            let record = self.record(key, *place)?;
            let ttl = self.leases.get(&record.lease).map(time_to_live);
            visit(SourceEntry { key: key.clone(), value: record.value.to_vec(), ttl })?;
        }
        Ok(())
    }
}

/// What is left of a lease.
fn time_to_live(lease: &Lease) -> Duration {
    let ttl = if lease.remaining_ttl > 0 { lease.remaining_ttl } else { lease.ttl };
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0).max(1))
}

/// An error of a visit, which does not name the file.
enum Error {
    Bolt(BoltError),
    Record { revision: String, reason: &'static str },
}

impl From<BoltError> for Error {
    fn from(error: BoltError) -> Error {
        Error::Bolt(error)
    }
}

impl Error {
    fn of(self, path: &str) -> SourceError {
        let path = path.to_owned();
        match self {
            Error::Bolt(source) => SourceError::Bolt { path, source },
            Error::Record { revision, reason } => SourceError::Record { path, revision, reason },
        }
    }
}

fn parse_revision(key: &[u8]) -> Option<Revision> {
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let (main, sub) = (number(key)?, number(key.get(9..)?)?);
    let is_deletion = match key.get(REVISION..)? {
        [] => false,
        [DELETED] => true,
        _ => return None,
    };
    let is_one = key.get(8) == Some(&b'_') && i64::try_from(main).is_ok();
    is_one.then(|| Revision { main, text: format!("{main}/{sub}"), is_deletion })
}

/// Whether the SHA-256 of the first `length` bytes is what follows them.
fn hash_matches(file: &File, length: u64) -> std::io::Result<bool> {
    let mut reader = file;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let read = reader.read(&mut buffer[..most])?;
        if read == 0 {
            return Ok(false);
        }
        hash.update(&buffer[..read]);
        left -= read as u64;
    }
    let mut expected = [0; HASH as usize];
    reader.read_exact(&mut expected)?;
    Ok(hash.finalize()[..] == expected)
}
