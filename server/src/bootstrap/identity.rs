//! Which replica of which cluster a data directory is: the file `DIR/replica`, written once.

use std::path::{Path, PathBuf};

use plinth_journal::record::{ClusterId, ReplicaId};

use super::files::{self, exists};
use super::pki::{self, PkiError};
use super::{DataDir, Stage};

/// A replica and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster that the data belongs to.
    pub cluster: ClusterId,
    /// The number of this replica in it.
    pub id: ReplicaId,
}

/// The directory is not that of a replica, or not with these flags.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum IdentityError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] PkiError),
    /// The file is damaged.
    #[error("{path} is damaged: expected a line `cluster: ` with 32 hexadecimal digits and a line `replica: ` with a number")]
    Damaged { path: PathBuf },
    /// There is a store that follows no journal.
    #[error("data directory {path} holds a single store, which follows no journal; leave --journal out, or make it the first replica of a cluster with plinth replicate --data-dir {path}")]
    Single { path: PathBuf },
    /// The directory is that of a replica.
    #[error(
        "data directory {path} is that of a replica: start it with --journal and the URL of its journal; if plinth replicate --undo was interrupted, run it again"
    )]
    Replica { path: PathBuf },
}

impl Identity {
    /// Name of the file in a data directory.
    pub const FILE: &str = files::IDENTITY;
    /// Name of the file in an unpacked checkpoint with the identity of the replica that wrote it: such a
    /// directory is not that replica's.
    pub const SOURCE: &str = "source";

    /// The identity of a directory that is to be a replica's; founds a cluster where the directory is new.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn of(dir: &DataDir) -> Result<Identity, IdentityError> {
        match Identity::read(dir.path())? {
            Some(identity) => Ok(identity),
            None if dir.stage() == Stage::New => Identity::ensure(dir),
            None => Err(IdentityError::Single { path: dir.path().to_owned() }),
        }
    }

    /// The identity of a directory; founds a cluster where it has none.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn ensure(dir: &DataDir) -> Result<Identity, IdentityError> {
        if let Some(identity) = Identity::read(dir.path())? {
            return Ok(identity);
        }
        let identity = Identity { cluster: ClusterId(uuid::Uuid::new_v4().into_bytes()), id: random_id() };
        identity.write(dir.path())?;
        Ok(identity)
    }

    /// Checks that a directory that is to be a single store's is no replica's.
    ///
    /// # Errors
    /// [`IdentityError::Replica`], and when that cannot be found out.
    pub fn check_none(dir: &DataDir) -> Result<(), IdentityError> {
        match Identity::read(dir.path())? {
            Some(_) => Err(IdentityError::Replica { path: dir.path().to_owned() }),
            None => Ok(()),
        }
    }

    /// Writes the file, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        Ok(pki::write_secret(&dir.join(Identity::FILE), &self.text())?)
    }

    fn text(&self) -> String {
        format!("cluster: {}\nreplica: {}\n", self.cluster, self.id.0)
    }

    /// The identity of a directory, if it has one.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Option<Identity>, IdentityError> {
        Identity::read_file(dir.join(Identity::FILE))
    }

    /// The identity of the replica that wrote an unpacked checkpoint.
    ///
    /// # Errors
    /// As [`Identity::read`].
    pub fn read_source(unpacked: &Path) -> Result<Option<Identity>, IdentityError> {
        Identity::read_file(unpacked.join(Identity::SOURCE))
    }

    fn read_file(path: PathBuf) -> Result<Option<Identity>, IdentityError> {
        let io = |source| IdentityError::Read { path: path.clone(), source };
        if !exists(&path).map_err(io)? {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(io)?;
        let identity = Identity::parse(&text).ok_or_else(|| IdentityError::Damaged { path: path.clone() })?;
        Ok(Some(identity))
    }

    fn parse(text: &str) -> Option<Identity> {
        let (cluster, rest) = text.strip_prefix("cluster: ")?.split_once('\n')?;
        let id = rest.strip_prefix("replica: ")?.strip_suffix('\n')?.parse().ok().filter(|id| *id > 0)?;
        let identity = Identity { cluster: cluster.parse().ok()?, id: ReplicaId(id) };
        // One encoding.
        (identity.text() == text).then_some(identity)
    }
}

/// An id that no replica of the cluster has, most likely; never zero.
pub fn random_id() -> ReplicaId {
    let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
    ReplicaId(u16::from_be_bytes([a, b]).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_identity() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&parent.path().join("data")).unwrap();
        Identity::check_none(&dir).unwrap();
        let identity = Identity::of(&dir).unwrap();
        assert_eq!(Identity::of(&dir).unwrap(), identity);
        assert!(matches!(Identity::check_none(&dir), Err(IdentityError::Replica { .. })));
        let mut single = DataDir::open(&parent.path().join("single")).unwrap();
        std::fs::create_dir(single.store()).unwrap();
        single.complete().unwrap();
        assert!(matches!(Identity::of(&single), Err(IdentityError::Single { .. })));
        let path = dir.path().join(Identity::FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            assert!(matches!(Identity::of(&dir), Err(IdentityError::Damaged { .. })), "{cut}");
        }
        for bad in ["replica: 0\n", "replica: 70000\n", "replica: +1\n", "replica: 1\n\n"] {
            std::fs::write(&path, format!("{}{bad}", &text[..42])).unwrap();
            assert!(matches!(Identity::of(&dir), Err(IdentityError::Damaged { .. })), "{bad}");
        }
    }
}
