//! What a joining replica gets: a tar stream with the store at one moment, the cluster's keys, and who is a
//! replica already.
//!
//! | entry | content |
//! |---|---|
//! | `members` | ids of the replicas, JSON |
//! | `replica` | the identity of the replica that wrote it; unpacked as `source` |
//! | `pki/*`, `continue.key` | authorities and keys of the cluster |
//! | `encryption.yaml` | the configuration of encryption at rest, if there is one |
//! | `store/*` | a checkpoint of the store, with its position in the journal |
//! | `complete` | SHA-256 of the names and contents before it: nothing is missing, and nothing was changed |

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;

use plinth_api::ApiError;
use plinth_apiserver::context::{ReplicaInfo, WriteCheckpoint};
use plinth_apiserver::private_files;
use plinth_journal::record::ReplicaId;
use plinth_storage::Store;
use sha2::{Digest, Sha256};

use super::pace::Paced;
use crate::bootstrap::identity::Identity;
use crate::members;

/// Directory below the data directory in which checkpoints are made while they are sent.
pub const SCRATCH: &str = "checkpoints";
const MEMBERS: &str = "members";
const COMPLETE: &str = "complete";
/// Directory of the store in an unpacked checkpoint.
pub const STORE: &str = "store";
const PKI: &str = "pki";
/// The serving certificate and its key: each replica has its own.
const OWN: [&str; 2] = ["apiserver.crt", "apiserver.key"];
/// Files that are copied beside the keys.
const FILES: [&str; 2] = ["replica", "continue.key"];
/// The configuration of encryption at rest. A joining replica gets it under this name.
pub const ENCRYPTION: &str = "encryption.yaml";
/// Bytes per second of a store that are sent: to read, hash, encrypt and send it takes processors that also
/// serve requests, and without a limit as much of them as the receiver can take.
const RATE: u64 = 32 << 20;
/// A store that would take longer than this many seconds is sent as fast as that takes: the journal is kept
/// for the receiver for ten minutes.
const LONGEST_SECONDS: u64 = 120;
/// Most bytes of the list of members.
const MAX_MEMBERS_BYTES: u64 = 16 << 20;

/// A replica's own data directory and store, for those who join.
pub struct Source {
    /// The data directory.
    pub dir: PathBuf,
    /// The store that is copied.
    pub store: Store,
    /// This replica.
    pub id: ReplicaId,
    /// The certificate of the authority, PEM.
    pub authority: Vec<u8>,
    /// The configuration of encryption at rest (`--encryption-provider-config`).
    pub encryption: Option<PathBuf>,
}

impl ReplicaInfo for Source {
    fn members(&self) -> Pin<Box<dyn std::future::Future<Output = Result<Vec<u8>, ApiError>> + Send + '_>> {
        Box::pin(async {
            let all = members::all(&self.store).await?;
            serde_json::to_vec(&all).map_err(ApiError::internal)
        })
    }

    fn compare(&self) -> Pin<Box<dyn std::future::Future<Output = Result<u64, ApiError>> + Send + '_>> {
        Box::pin(members::compare(&self.store))
    }

    fn remove(
        &self,
        id: u16,
    ) -> Pin<Box<dyn std::future::Future<Output = Result<(), ApiError>> + Send + '_>> {
        Box::pin(members::remove(&self.store, ReplicaId(id)))
    }

    fn keep_for_checkpoint(
        &self,
    ) -> Pin<Box<dyn std::future::Future<Output = Result<(), ApiError>> + Send + '_>> {
        Box::pin(members::keep_for_checkpoint(&self.store))
    }

    fn authority(&self) -> &[u8] {
        &self.authority
    }

    fn make_checkpoint(&self) -> io::Result<WriteCheckpoint> {
        let scratch = Scratch::create(&self.dir)?;
        let mut ids: BTreeSet<u16> = members::ids(&self.store).map_err(io::Error::other)?;
        ids.insert(self.id.0);
        let mut files = vec![(MEMBERS.to_owned(), serde_json::to_vec(&ids)?)];
        for name in FILES {
            files.push((name.to_owned(), fs::read(self.dir.join(name))?));
        }
        let mut keys: Vec<_> = fs::read_dir(self.dir.join(PKI))?.collect::<io::Result<_>>()?;
        keys.sort_by_key(fs::DirEntry::file_name);
        for key in keys {
            let name = key.file_name();
            let name = name.to_str().ok_or(io::ErrorKind::InvalidData)?;
            if !OWN.contains(&name) && fs::metadata(key.path())?.is_file() {
                files.push((format!("{PKI}/{name}"), fs::read(key.path())?));
            }
        }
        if let Some(path) = &self.encryption {
            files.push((ENCRYPTION.to_owned(), fs::read(path)?));
        }
        let store = scratch.0.join(STORE);
        self.store.engine().checkpoint(&store).map_err(io::Error::other)?;
        let rate = rate_of(bytes_below(&store)?);
        Ok(Box::new(move |out| {
            // Removed when it was written, or is not wanted any more.
            let store = scratch.0.join(STORE);
            let mut tar = Packer { tar: tar::Builder::new(Paced::new(out)), digest: Sha256::new() };
            for (name, content) in &files {
                tar.add(name, content)?;
            }
            tar.tar.get_mut().set_rate(rate);
            tar.add_directory(STORE, &store)?;
            tar.finish()
        }))
    }
}

/// Writes entries, and a digest of them at the end.
struct Packer<'a> {
    tar: tar::Builder<Paced<&'a mut dyn Write>>,
    digest: Sha256,
}

impl Packer<'_> {
    fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.add_from(name, bytes, bytes.len() as u64)
    }

    fn add_from(&mut self, name: &str, from: impl Read, length: u64) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o600);
        begin_entry(&mut self.digest, name, length);
        let content = Digesting { inner: from.take(length), digest: &mut self.digest };
        self.tar.append_data(&mut header, name, content)
    }

    /// Adds a directory with everything in it.
    fn add_directory(&mut self, name: &str, path: &Path) -> io::Result<()> {
        self.tar.append_dir(name, path)?;
        let mut entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let file_name = entry.file_name();
            let name = format!("{name}/{}", file_name.to_str().ok_or(io::ErrorKind::InvalidData)?);
            match entry.file_type()?.is_dir() {
                true => self.add_directory(&name, &entry.path())?,
                false => {
                    let file = File::open(entry.path())?;
                    let length = file.metadata()?.len();
                    self.add_from(&name, file, length)?;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let digest = self.digest.clone().finalize();
        self.add(COMPLETE, &digest)?;
        self.tar.finish()
    }
}

fn begin_entry(digest: &mut Sha256, name: &str, length: u64) {
    digest.update((name.len() as u64).to_le_bytes());
    digest.update(name);
    digest.update(length.to_le_bytes());
}

/// Adds what is read to a digest.
struct Digesting<'a, R> {
    inner: R,
    digest: &'a mut Sha256,
}

impl<R: Read> Read for Digesting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

/// Bytes per second at which a store of so many bytes is sent.
fn rate_of(bytes: u64) -> u64 {
    RATE.max(bytes / LONGEST_SECONDS)
}

/// Bytes of all files below a directory.
fn bytes_below(path: &Path) -> io::Result<u64> {
    let mut bytes = 0u64;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes = bytes.saturating_add(match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        });
    }
    Ok(bytes)
}

/// A directory for one checkpoint, removed when it has been sent.
struct Scratch(PathBuf);

impl Scratch {
    fn create(dir: &Path) -> io::Result<Scratch> {
        let path = dir.join(SCRATCH).join(uuid::Uuid::new_v4().to_string());
        private_files::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains is removed at the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes checkpoints that an earlier process left: they are copies.
///
/// # Errors
/// When they cannot be removed.
pub fn remove_leftovers(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir.join(SCRATCH)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Unpacks a checkpoint into a directory, synced, and returns the ids of the replicas that there are.
///
/// # Errors
/// When it is incomplete or holds what no replica writes, and when a file cannot be written.
pub fn unpack(stream: impl Read, to: &Path) -> io::Result<BTreeSet<u16>> {
    let has_ended = Cell::new(false);
    let unpacked = unpack_entries(EndNoting { inner: stream, has_ended: &has_ended }, to);
    unpacked.map_err(|error| match error.kind() {
        // The archive's own words are about its blocks.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::Other if has_ended.get() => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the checkpoint ends too early")
        }
        _ => error,
    })
}

/// A reader that notes that it has ended.
struct EndNoting<'a, R> {
    inner: R,
    has_ended: &'a Cell<bool>,
}

impl<R: Read> Read for EndNoting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.has_ended.set(self.has_ended.get() || (read == 0 && !buffer.is_empty()));
        Ok(read)
    }
}

fn unpack_entries(stream: impl Read, to: &Path) -> io::Result<BTreeSet<u16>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut ids, mut is_complete) = (None, false);
    let mut digest = Sha256::new();
    let mut directories = BTreeSet::from([to.to_owned()]);
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        if is_complete {
            return Err(invalid(format!("{} follows the end", name.display())));
        }
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        let is_known = FILES.iter().chain([&ENCRYPTION]).any(|file| name == Path::new(file))
            || name.starts_with(PKI)
            || name.starts_with(STORE)
            || name == Path::new(MEMBERS)
            || name == Path::new(COMPLETE);
        if !is_plain || !is_known {
            return Err(invalid(format!("{} is no part of a checkpoint", name.display())));
        }
        // Nowhere is a directory that another replica's identity belongs to.
        let path = match name == Path::new(Identity::FILE) {
            true => to.join(Identity::SOURCE),
            false => to.join(&name),
        };
        let shown = name.to_str().ok_or(io::ErrorKind::InvalidData)?;
        if name == Path::new(COMPLETE) {
            let mut text = Vec::new();
            (&mut entry).take(MAX_MEMBERS_BYTES).read_to_end(&mut text)?;
            if text != digest.clone().finalize()[..] {
                return Err(invalid("the checkpoint is damaged: it is not what was written".to_owned()));
            }
            is_complete = true;
            continue;
        }
        if entry.header().entry_type() == tar::EntryType::Regular {
            begin_entry(&mut digest, shown, entry.size());
        }
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                private_files::create_dir_all(&path)?;
                directories.insert(path);
            }
            tar::EntryType::Regular if name == Path::new(MEMBERS) => {
                let mut text = Vec::new();
                let content = Digesting { inner: (&mut entry).take(MAX_MEMBERS_BYTES), digest: &mut digest };
                { content }.read_to_end(&mut text)?;
                ids = Some(serde_json::from_slice(&text)?);
            }
            tar::EntryType::Regular => {
                let parent = path.parent().unwrap_or(to);
                private_files::create_dir_all(parent)?;
                directories.insert(parent.to_owned());
                let mut file = private_files::create_new(&path)?;
                io::copy(&mut Digesting { inner: &mut entry, digest: &mut digest }, &mut file)?;
                file.sync_all()?;
            }
            other => return Err(invalid(format!("{} is of type {other:?}", name.display()))),
        }
    }
    for directory in directories {
        File::open(directory)?.sync_all()?;
    }
    match ids {
        Some(ids) if is_complete => Ok(ids),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the checkpoint ends too early")),
    }
}

/// The store of a checkpoint is damaged, or cannot be checked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum UnverifiedError {
    /// It cannot be read.
    #[error("the checkpoint cannot be verified: {0}")]
    Unreadable(#[from] plinth_engine::Error),
    /// Records are damaged.
    #[error("the checkpoint has {findings} errors, the first: {first}")]
    Damaged {
        findings: u64,
        /// The first one.
        first: String,
    },
}

/// Checks every record of the store in an unpacked checkpoint. Blocks.
///
/// # Errors
/// See [`UnverifiedError`].
pub fn verify(unpacked: &Path) -> Result<(), UnverifiedError> {
    let mut first = None;
    let finding = |finding: plinth_engine::Finding| {
        first.get_or_insert_with(|| finding.to_string());
    };
    let report = plinth_engine::verify(unpacked.join(STORE), |_| {}, finding)?;
    match report.findings {
        0 => Ok(()),
        findings => Err(UnverifiedError::Damaged { findings, first: first.unwrap_or_default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out: &mut dyn Write = &mut bytes;
        let mut tar = tar::Builder::new(out);
        let mut digest = Sha256::new();
        for (name, text) in entries {
            let sum = digest.clone().finalize();
            let text = if *name == COMPLETE { &sum[..] } else { text.as_bytes() };
            begin_entry(&mut digest, name, text.len() as u64);
            digest.update(text);
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            // Not by a path, which the library would refuse to write.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, text).unwrap();
        }
        tar.finish().unwrap();
        drop(tar);
        bytes
    }

    #[test]
    fn a_large_store_is_sent_faster() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("db")).unwrap();
        fs::write(dir.path().join("db/1.sst"), [0; 1000]).unwrap();
        fs::write(dir.path().join("marker"), [0; 24]).unwrap();
        assert_eq!(bytes_below(dir.path()).unwrap(), 1024);
        assert_eq!(rate_of(1024), 32 << 20);
        assert_eq!(rate_of(12 << 30), (12 << 30) / 120);
        assert!(bytes_below(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn what_is_no_checkpoint_is_refused() {
        let whole =
            [("members", "[1,7]"), ("pki/ca.crt", "PEM"), ("store/db/CURRENT", "x"), ("complete", "")];
        let dir = tempfile::tempdir().unwrap();
        let bytes = tar_of(&whole);
        assert_eq!(unpack(&bytes[..], dir.path()).unwrap(), BTreeSet::from([1, 7]));
        assert_eq!(fs::read_to_string(dir.path().join("pki/ca.crt")).unwrap(), "PEM");
        // The two blocks at the end of an archive say nothing, nor does the padding before them.
        for cut in (0..bytes.len() - 1024 - 512).step_by(64) {
            let dir = tempfile::tempdir().unwrap();
            let error = unpack(&bytes[..cut], dir.path()).unwrap_err();
            assert_eq!(error.to_string(), "the checkpoint ends too early", "{cut}");
        }
        // One bit of a content; padding and times are not part of it.
        for entry in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let mut changed = bytes.clone();
            changed[entry * 1024 + 512] ^= 1;
            assert!(unpack(&changed[..], dir.path()).is_err(), "{entry}");
        }
        for name in ["../escaped", "/absolute", "pki/../../escaped", "unknown", "pki/../store/../../x"] {
            let outer = tempfile::tempdir().unwrap();
            let dir = outer.path().join("inner");
            fs::create_dir(&dir).unwrap();
            let bytes = tar_of(&[("members", "[]"), (name, "x"), ("complete", "")]);
            assert!(unpack(&bytes[..], &dir).is_err(), "{name}");
            assert!(!outer.path().join("escaped").exists());
        }
    }
}
