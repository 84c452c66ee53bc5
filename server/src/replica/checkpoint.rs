//! What a joining replica gets: a tar stream with the store at one moment, the cluster's keys, and who is a
//! replica already.
//!
//! | entry | content |
//! |---|---|
//! | `members` | ids of the replicas, JSON |
//! | `replica` | the identity of the replica that wrote it |
//! | `pki/*`, `continue.key` | authorities and keys of the cluster |
//! | `store/*` | a checkpoint of the store, with its position in the journal |
//! | `complete` | empty: nothing is missing |

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;

use plinth_api::api_error::ApiError;
use plinth_apiserver::context::ReplicaInfo;
use plinth_apiserver::private_files;
use plinth_journal::record::ReplicaId;
use plinth_storage::Store;

use super::members;

/// Directory below the data directory in which checkpoints are made while they are sent.
pub const SCRATCH: &str = "checkpoints";
const MEMBERS: &str = "members";
const COMPLETE: &str = "complete";
const STORE: &str = "store";
const PKI: &str = "pki";
/// The serving certificate and its key: each replica has its own.
const OWN: [&str; 2] = ["apiserver.crt", "apiserver.key"];
/// Files that are copied beside the keys.
const FILES: [&str; 2] = ["replica", "continue.key"];
/// Most bytes of the list of members.
const MAX_MEMBERS_BYTES: u64 = 16 << 20;

/// A replica's own data directory and store, for those who join.
pub struct Source {
    /// The data directory.
    pub dir: PathBuf,
    /// The store.
    pub store: Store,
    /// This replica.
    pub id: ReplicaId,
}

impl ReplicaInfo for Source {
    fn members(&self) -> Pin<Box<dyn std::future::Future<Output = Result<Vec<u8>, ApiError>> + Send + '_>> {
        Box::pin(async {
            let all = members::all(&self.store).await?;
            serde_json::to_vec(&all).map_err(ApiError::internal)
        })
    }

    fn remove(
        &self,
        id: u16,
    ) -> Pin<Box<dyn std::future::Future<Output = Result<(), ApiError>> + Send + '_>> {
        Box::pin(members::remove(&self.store, ReplicaId(id)))
    }

    fn write_checkpoint(&self, out: &mut dyn Write) -> io::Result<()> {
        let scratch = Scratch::create(&self.dir)?;
        let mut tar = tar::Builder::new(out);
        tar.mode(tar::HeaderMode::Deterministic);
        let mut ids: BTreeSet<u16> = members::ids(&self.store).map_err(io::Error::other)?;
        ids.insert(self.id.0);
        append(&mut tar, MEMBERS, &serde_json::to_vec(&ids)?)?;
        for name in FILES {
            append(&mut tar, name, &fs::read(self.dir.join(name))?)?;
        }
        let mut keys: Vec<_> = fs::read_dir(self.dir.join(PKI))?.collect::<io::Result<_>>()?;
        keys.sort_by_key(fs::DirEntry::file_name);
        for key in keys {
            let name = key.file_name();
            let name = name.to_str().ok_or(io::ErrorKind::InvalidData)?;
            if !OWN.contains(&name) && fs::metadata(key.path())?.is_file() {
                append(&mut tar, &format!("{PKI}/{name}"), &fs::read(key.path())?)?;
            }
        }
        let store = scratch.0.join(STORE);
        self.store.engine().checkpoint(&store).map_err(io::Error::other)?;
        tar.append_dir_all(STORE, &store)?;
        append(&mut tar, COMPLETE, b"")?;
        tar.finish()
    }
}

fn append(tar: &mut tar::Builder<&mut dyn Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    tar.append_data(&mut header, name, bytes)
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
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut ids, mut is_complete) = (None, false);
    let mut directories = BTreeSet::from([to.to_owned()]);
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        if is_complete {
            return Err(invalid(format!("{} follows the end", name.display())));
        }
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        let is_known = FILES.iter().any(|file| name == Path::new(file))
            || name.starts_with(PKI)
            || name.starts_with(STORE)
            || name == Path::new(MEMBERS)
            || name == Path::new(COMPLETE);
        if !is_plain || !is_known {
            return Err(invalid(format!("{} is no part of a checkpoint", name.display())));
        }
        let path = to.join(&name);
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                private_files::create_dir_all(&path)?;
                directories.insert(path);
            }
            tar::EntryType::Regular if name == Path::new(MEMBERS) => {
                let mut text = Vec::new();
                (&mut entry).take(MAX_MEMBERS_BYTES).read_to_end(&mut text)?;
                ids = Some(serde_json::from_slice(&text)?);
            }
            tar::EntryType::Regular if name == Path::new(COMPLETE) => is_complete = true,
            tar::EntryType::Regular => {
                let parent = path.parent().unwrap_or(to);
                private_files::create_dir_all(parent)?;
                directories.insert(parent.to_owned());
                let mut file = private_files::create_new(&path)?;
                io::copy(&mut entry, &mut file)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out: &mut dyn Write = &mut bytes;
        let mut tar = tar::Builder::new(out);
        for (name, text) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            // Not by a path, which the library would refuse to write.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, text.as_bytes()).unwrap();
        }
        tar.finish().unwrap();
        drop(tar);
        bytes
    }

    #[test]
    fn what_is_no_checkpoint_is_refused() {
        let whole =
            [("members", "[1,7]"), ("pki/ca.crt", "PEM"), ("store/db/CURRENT", "x"), ("complete", "")];
        let dir = tempfile::tempdir().unwrap();
        let bytes = tar_of(&whole);
        assert_eq!(unpack(&bytes[..], dir.path()).unwrap(), BTreeSet::from([1, 7]));
        assert_eq!(fs::read_to_string(dir.path().join("pki/ca.crt")).unwrap(), "PEM");
        // The two blocks at the end of an archive say nothing.
        for cut in (0..bytes.len() - 1024).step_by(64) {
            let dir = tempfile::tempdir().unwrap();
            assert!(unpack(&bytes[..cut], dir.path()).is_err(), "{cut}");
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
