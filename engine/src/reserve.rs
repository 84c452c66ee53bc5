//! The reserve: a file that takes room on the disk and is removed when the disk is full, so that deletions
//! still have some. Without it a full store could not be emptied: a deletion is a write, too.
//!
//! While it is released, only transactions that were marked as [`crate::Transaction::reclaiming`] are
//! accepted. As soon as there is room for it again, it is taken again, and everything is accepted.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::directory::RESERVE;

/// Shortest time between two attempts to take it again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Bytes that must be free beside it before everything is accepted again.
const MARGIN: u64 = 4 << 20;

/// The reserve of one store.
pub(crate) struct Reserve {
    path: PathBuf,
    /// Zero for none.
    bytes: AtomicU64,
    is_released: AtomicBool,
    /// When it was last tried to take it.
    tried: Mutex<Option<Instant>>,
}

impl Reserve {
    /// The reserve in the data directory `dir`, not taken yet: until [`Reserve::take`] a start has its room.
    pub(crate) fn open(dir: &Path) -> Reserve {
        let path = dir.join(RESERVE);
        remove(&path);
        Reserve { path, ..Reserve::none() }
    }

    /// Takes its room, where there is enough. On a file system that cannot allocate room there is none.
    pub(crate) fn take(&self, bytes: u64) {
        let allocated = if bytes == 0 { Ok(()) } else { allocate(&self.path, bytes, MARGIN) };
        let (bytes, is_full) = match allocated.map_err(|error| error.kind()) {
            Ok(()) => (bytes, false),
            Err(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => (bytes, true),
            Err(_) => (0, false),
        };
        self.bytes.store(bytes, Ordering::Relaxed);
        self.is_released.store(is_full, Ordering::Relaxed);
    }

    /// For a store that is not written to.
    pub(crate) fn none() -> Reserve {
        Reserve {
            path: PathBuf::new(),
            bytes: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
            tried: Mutex::new(None),
        }
    }

    /// Whether its room is in use.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    /// Gives its room to the store: a write failed for want of it.
    pub(crate) fn release(&self) {
        if self.bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut tried = self.tried.lock();
        if !self.is_released.swap(true, Ordering::Relaxed) {
            *tried = Some(Instant::now());
            remove(&self.path);
        }
    }

    /// Takes its room again where there is enough, and returns whether only deletions are to be accepted.
    /// Looks at the disk once a second at most.
    pub(crate) fn is_exclusive(&self) -> bool {
        if !self.is_released() {
            return false;
        }
        let mut tried = self.tried.lock();
        if tried.is_some_and(|last| last.elapsed() < RETRY_DELAY) {
            return self.is_released();
        }
        *tried = Some(Instant::now());
        match allocate(&self.path, self.bytes.load(Ordering::Relaxed), MARGIN) {
            Ok(()) => self.is_released.store(false, Ordering::Relaxed),
            Err(_) => remove(&self.path),
        }
        self.is_released()
    }
}

/// What cannot be removed keeps its room, which is all that is lost.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Makes the file and allocates its room; fails where `margin` more bytes are not free.
fn allocate(path: &Path, bytes: u64, margin: u64) -> std::io::Result<()> {
    // It was removed: what lies there is another's.
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let outcome = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes + margin)
        .map_err(std::io::Error::from)
        .and_then(|()| file.set_len(bytes));
    if outcome.is_err() {
        remove(path);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_released_and_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESERVE);
        let reserve = Reserve::open(dir.path());
        reserve.take(1 << 20);
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        assert!(!reserve.is_released() && !reserve.is_exclusive());
        reserve.release();
        assert!(reserve.is_released() && !path.exists());
        // Not at once: the disk was full a moment ago.
        assert!(reserve.is_exclusive());
        *reserve.tried.lock() = None;
        assert!(!reserve.is_exclusive());
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    }

    #[test]
    fn without_one_nothing_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(dir.path());
        reserve.take(0);
        reserve.release();
        assert!(!reserve.is_released() && !reserve.is_exclusive());
        assert!(!dir.path().join(RESERVE).exists());
    }

    #[test]
    fn one_of_another_size_is_replaced_and_what_cannot_be_allocated_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESERVE);
        for bytes in [1 << 20, 2 << 20, 1 << 19] {
            let reserve = Reserve::open(dir.path());
            assert!(!path.exists(), "a start has its room");
            reserve.take(bytes);
            assert!(!reserve.is_released());
            assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        }
        // No file is so large.
        Reserve::open(dir.path()).take(1 << 62);
        assert!(!path.exists());
    }
}
