//! The file `DIR/peers`: where the other replicas were last seen. A replica whose store cannot be opened any
//! more, since the journal does not go back to it, asks them for a checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use crate::bootstrap::files::{self, remove_if_exists};
use plinth_apiserver::private_files;

/// Name of the file in a data directory.
pub const FILE: &str = files::PEERS;

/// Writes the file, unless it has that content already.
///
/// # Errors
/// When it cannot be written.
pub fn write(dir: &Path, peers: &BTreeSet<SocketAddr>) -> io::Result<()> {
    let text: String = peers.iter().map(|peer| format!("{peer}\n")).collect();
    let path = dir.join(FILE);
    match fs::read_to_string(&path).is_ok_and(|present| present == text) {
        true => Ok(()),
        false => {
            // Not synced: they are but hints. Never half written.
            let new = dir.join("peers.new");
            remove_if_exists(&new)?;
            private_files::create_new(&new)?.write_all(text.as_bytes())?;
            fs::rename(new, path)
        }
    }
}

/// The addresses in the file; none where there is no file.
///
/// # Errors
/// When it cannot be read.
pub fn read(dir: &Path) -> io::Result<BTreeSet<SocketAddr>> {
    match fs::read_to_string(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        // They are but hints: a line that is none is left out.
        text => Ok(text?.lines().filter_map(|line| line.parse().ok()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        let peers: BTreeSet<SocketAddr> =
            ["10.0.0.2:6443", "[fd00::1]:6443"].iter().map(|peer| peer.parse().unwrap()).collect();
        for _ in 0..2 {
            write(dir.path(), &peers).unwrap();
            assert_eq!(read(dir.path()).unwrap(), peers);
        }
        fs::write(dir.path().join(FILE), "10.0.0.2:6443\nhere\n\n").unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 1);
        fs::write(dir.path().join(FILE), b"\xff").unwrap();
        assert!(read(dir.path()).is_err());
    }
}
