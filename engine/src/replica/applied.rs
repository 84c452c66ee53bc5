//! What a replica has applied, as it is stored with the state: in the same batch as the changes of each
//! record.
//!
//! All of it are numbers in the `default` column family, so archives and verification know their form:
//!
//! | name | number |
//! |---|---|
//! | `replica.cluster.0`, `.1` | halves of the cluster's id |
//! | `replica.position` | the last position applied |
//! | `replica.hash.0`, `.1` | halves of the hash there |
//! | `replica.checksum` | checksum of the record there; absent before the first one |
//! | `replica.time` | time of the newest commit, in milliseconds since 1970 |
//! | `replica.level` | the level of the cluster, 255 after its journal was closed |
//! | `replica.closed` | the replica that has closed the journal; absent before that |
//! | `replica.session.N`, `replica.sequence.N` | session of replica N, number of its newest record |

use std::collections::BTreeMap;
use std::sync::Arc;

use plinth_journal::record::{self, Anchor, ClusterId, DecodeError, Hash, Record, ReplicaId, Session};
use plinth_journal::{Entry, Error as JournalError, Position};
use rocksdb::{ReadOptions, WriteBatch};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::feed::event::{Commit, EventKind};
use crate::layout::{self, meta, REPLICA_FORMAT_VERSION};
use crate::revision::Revision;
use crate::store::{Family, Store};

const CLUSTER: [&str; 2] = ["cluster.0", "cluster.1"];
const HASH: [&str; 2] = ["hash.0", "hash.1"];

/// Everything that decides what a record does, beside the keys: equal on all replicas at a position.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub cluster: ClusterId,
    pub anchor: Anchor,
    /// Checksum of the record at that position, by which a journal that has lost it and gone on is noticed.
    pub checksum: Option<u32>,
    /// Time of the newest commit: that of a later one is not lower, whatever its proposer's clock shows.
    pub time_ms: u64,
    pub level: u8,
    /// Who has closed the journal at that position.
    pub closed_by: Option<ReplicaId>,
    /// Session and sequence of each replica.
    pub sessions: BTreeMap<ReplicaId, (Session, u64)>,
}

impl Applied {
    /// Before the first record.
    pub(crate) fn nothing(cluster: ClusterId) -> Applied {
        let anchor = Anchor { hash: Hash(cluster.0), ..Anchor::default() };
        Applied::at(cluster, anchor, 0)
    }

    /// Before the first record of a cluster that begins with the data of a single store. The hash is another
    /// one for each cluster and revision: only checkpoints of that store go on from it.
    pub(crate) fn beginning(cluster: ClusterId, latest: Revision, time_ms: u64) -> Applied {
        let mut hasher = Sha256::new();
        hasher.update(cluster.0);
        hasher.update(latest.get().to_le_bytes());
        let mut hash = [0; 16];
        hash.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        let anchor = Anchor { position: Position::ZERO, revision: latest.get(), hash: Hash(hash) };
        Applied::at(cluster, anchor, time_ms)
    }

    fn at(cluster: ClusterId, anchor: Anchor, time_ms: u64) -> Applied {
        let sessions = BTreeMap::new();
        Applied { cluster, anchor, checksum: None, time_ms, level: 1, closed_by: None, sessions }
    }

    /// The error of a journal that was closed.
    pub(crate) fn closed(&self) -> Option<JournalError> {
        let position = self.anchor.position;
        self.closed_by.map(|replica| JournalError::Closed { position, replica })
    }

    /// Adds to `batch` all of it except sessions, and what makes the store that of a replica.
    pub(crate) fn write_beginning(&self, store: &Store, batch: &mut WriteBatch) {
        let mut put = |name: &str, number| store.put_number(batch, &name_of(name), number);
        put("position", self.anchor.position.get());
        put("time", self.time_ms);
        put("level", self.level.into());
        put_halves(&mut put, HASH, self.anchor.hash.0);
        put_halves(&mut put, CLUSTER, self.cluster.0);
        store.put_number(batch, meta::FORMAT, REPLICA_FORMAT_VERSION.into());
    }

    /// Reads what `store`, whose newest revision is `latest`, has applied; none when it is not of a replica.
    pub(crate) fn read(store: &Arc<Store>, latest: Revision) -> Result<Option<Applied>> {
        if !store.is_replica()? {
            return Ok(None);
        }
        let numbers = read_numbers(store)?;
        let number = |name: &str| {
            numbers.get(name).copied().ok_or_else(|| Error::Corrupt {
                key: name_of(name).into(),
                revision: Revision::ZERO,
                reason: "the metadata number is missing",
            })
        };
        let halves = |names: [&str; 2]| -> Result<[u8; 16]> {
            let mut bytes = [0; 16];
            for (half, name) in bytes.chunks_exact_mut(8).zip(names) {
                half.copy_from_slice(&number(name)?.to_le_bytes());
            }
            Ok(bytes)
        };
        let mut applied = Applied {
            cluster: ClusterId(halves(CLUSTER)?),
            anchor: Anchor {
                position: Position::new(number("position")?),
                revision: latest.get(),
                hash: Hash(halves(HASH)?),
            },
            checksum: numbers.get("checksum").and_then(|checksum| u32::try_from(*checksum).ok()),
            time_ms: number("time")?,
            level: u8::try_from(number("level")?).unwrap_or(u8::MAX),
            closed_by: numbers.get("closed").and_then(|id| u16::try_from(*id).ok()).map(ReplicaId),
            sessions: BTreeMap::new(),
        };
        for (name, session) in &numbers {
            let Some(replica) = name.strip_prefix("session.").and_then(|id| id.parse().ok()) else {
                continue;
            };
            let sequence = number(&format!("sequence.{replica}"))?;
            applied.sessions.insert(ReplicaId(replica), (Session(*session), sequence));
        }
        Ok(Some(applied))
    }

    /// Adds to `batch` what the record of `replica` has changed.
    pub(crate) fn write(&self, store: &Store, batch: &mut WriteBatch, replica: ReplicaId) {
        let mut put = |name: &str, number| store.put_number(batch, &name_of(name), number);
        put("position", self.anchor.position.get());
        put("time", self.time_ms);
        put_halves(&mut put, HASH, self.anchor.hash.0);
        if let Some(checksum) = self.checksum {
            put("checksum", checksum.into());
        }
        if self.anchor.position == Position::new(1) {
            put_halves(&mut put, CLUSTER, self.cluster.0);
        }
        put("level", self.level.into());
        if let Some(by) = self.closed_by {
            put("closed", by.0.into());
        }
        if let Some((session, sequence)) = self.sessions.get(&replica) {
            put(&format!("session.{}", replica.0), session.0);
            put(&format!("sequence.{}", replica.0), *sequence);
        }
        if self.anchor.position == Position::new(1) {
            store.put_number(batch, meta::FORMAT, REPLICA_FORMAT_VERSION.into());
        }
    }
}

fn put_halves(put: &mut impl FnMut(&str, u64), names: [&str; 2], bytes: [u8; 16]) {
    for (half, name) in bytes.chunks_exact(8).zip(names) {
        put(name, half.try_into().map_or(0, u64::from_le_bytes));
    }
}

fn name_of(name: &str) -> Vec<u8> {
    [meta::REPLICA, name.as_bytes()].concat()
}

fn read_numbers(store: &Arc<Store>) -> Result<BTreeMap<String, u64>> {
    let mut numbers = BTreeMap::new();
    let mut cursor = store.cursor(Family::Meta, ReadOptions::default());
    cursor.seek(meta::REPLICA);
    while let Some((key, value)) = cursor.item() {
        let Some(name) = key.strip_prefix(meta::REPLICA) else { break };
        let number = layout::decode_number(key, value).ok_or_else(|| Error::Corrupt {
            key: bytes::Bytes::copy_from_slice(key),
            revision: Revision::ZERO,
            reason: "the metadata number is damaged",
        })?;
        numbers.insert(String::from_utf8_lossy(name).into_owned(), number);
        cursor.next();
    }
    cursor.status()?;
    Ok(numbers)
}

/// Adds to `batch` the removal of everything that makes the store that of a replica.
pub(crate) fn remove(store: &Arc<Store>, batch: &mut WriteBatch) -> Result<()> {
    for name in read_numbers(store)?.into_keys() {
        batch.delete_cf(store.family(Family::Meta), name_of(&name));
    }
    Ok(())
}

/// The hash after a record: of the hash before it, the record, and everything that a reader can see of its
/// commits. What only the store sees, such as whether a superseded tombstone was swept already, is left out.
pub(crate) fn next_hash(
    before: Hash,
    position: Position,
    checksum: u32,
    time_ms: u64,
    commits: &[Arc<Commit>],
) -> Hash {
    let mut hash = Sha256::new();
    hash.update(before.0);
    let mut update = |number: u64| hash.update(number.to_le_bytes());
    update(position.get());
    update(checksum.into());
    update(time_ms);
    let mut bytes = Vec::new();
    for commit in commits {
        bytes.extend_from_slice(&commit.revision.get().to_le_bytes());
        bytes.extend_from_slice(&(commit.events.len() as u64).to_le_bytes());
        for event in &commit.events {
            let (kind, value, numbers) = match &event.kind {
                EventKind::Put { value, create_revision, version, expires_at_ms } => {
                    let deadline = expires_at_ms.map_or(0, |at| at.saturating_add(1));
                    (1, &value[..], [create_revision.get(), *version, deadline])
                }
                EventKind::Delete => (2, &[][..], [0; 3]),
            };
            let previous = event.previous.as_ref().map_or(Revision::ZERO, |record| record.mod_revision);
            bytes.push(kind);
            for number in
                numbers.into_iter().chain([previous.get(), event.key.len() as u64, value.len() as u64])
            {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&event.key);
            bytes.extend_from_slice(&crc32fast::hash(value).to_le_bytes());
        }
    }
    hash.update(&bytes);
    let mut out = [0; 16];
    out.copy_from_slice(&hash.finalize()[..16]);
    Hash(out)
}

/// Compares a record with the one that was applied at its position: a journal whose members have lost
/// records, and that went on without them, has another one there.
pub(crate) fn compare_applied(
    entry: &Entry,
    position: Position,
    checksum: u32,
) -> std::result::Result<(), JournalError> {
    if entry.position != position {
        return Err(JournalError::Gap { expected: position, found: entry.position });
    }
    if record::checksum(&entry.bytes) == checksum {
        return Ok(());
    }
    match Record::decode(entry.bytes.clone()) {
        // It may be sound at other members.
        Err(DecodeError::Damaged(reason)) => Err(JournalError::Damaged { position, reason }),
        _ => Err(JournalError::Replaced { position }),
    }
}
