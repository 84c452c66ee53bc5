//! The file of the audit log: it is locked, appended to, and rotated by size.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::rotated_files::{backup_name, Cleaner, RotationLimits};
use crate::private_files;

/// How often a start tries to lock the log, and the time between: a server that ends may still have it.
const LOCK_ATTEMPTS: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A file with rotation. Owned by the writing thread.
pub(super) struct RotatingFile {
    path: PathBuf,
    limits: RotationLimits,
    file: BufWriter<LogFile>,
    /// The last attempt to rotate failed, which was logged.
    is_stuck: bool,
    /// The last line was written in part: the next one must not continue it.
    is_cut: bool,
    cleaner: Cleaner,
}

/// A file that is appended to.
struct LogFile {
    file: File,
    /// With what was appended by this process.
    length: u64,
    /// A device or a pipe is not rotated: it has no contents, and is used by others.
    is_regular: bool,
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl RotatingFile {
    /// Opens it for the only server that writes to it.
    ///
    /// # Errors
    /// When it cannot be opened, or another server writes to it.
    pub(super) fn open(path: &Path, limits: RotationLimits) -> io::Result<RotatingFile> {
        let file = open_locked(path)?;
        let cleaner = Cleaner::start(path, limits)?;
        cleaner.rotated();
        let (path, file) = (path.to_owned(), BufWriter::new(file));
        Ok(RotatingFile { path, limits, file, is_stuck: false, is_cut: false, cleaner })
    }

    /// Bytes of the file and of what is buffered for it.
    fn length(&self) -> u64 {
        self.file.get_ref().length + self.file.buffer().len() as u64
    }

    /// Renames the file after the current time and opens a new one. One that is not there was renamed or
    /// removed before.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let old = backup_name(&self.path, SystemTime::now());
        match std::fs::rename(&self.path, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = open(&self.path)?;
        if is_locked_by_another(&file) {
            // It has begun since: no event is lost as long as it does not rotate.
            tracing::error!(path = %self.path.display(), "another server writes to the audit log");
        }
        (self.file, self.is_cut) = (BufWriter::new(file), false);
        self.cleaner.rotated();
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (len, length) = (bytes.len() as u64, self.length());
        if self.file.get_ref().is_regular && length > 0 && length + len > self.limits.size {
            // Until it can be rotated the file that is open grows: no event is lost for that.
            match self.rotate() {
                Ok(()) => self.is_stuck = false,
                Err(_) if self.is_stuck => {}
                Err(error) => {
                    self.is_stuck = true;
                    tracing::error!(%error, path = %self.path.display(), "audit log cannot be rotated");
                }
            }
        }
        if self.is_cut {
            self.file.write_all(b"\n")?;
            self.is_cut = false;
        }
        let length = self.length();
        if let Err(error) = self.file.write_all(bytes) {
            self.is_cut = self.length() > length;
            return Err(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file for appending. A new file is readable by its owner only, an existing one keeps its mode: an
/// administrator may have widened it for a log shipper.
fn open(path: &Path) -> io::Result<LogFile> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        private_files::create_dir_all(dir)?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let found = file.metadata()?;
    Ok(LogFile { file, length: found.len(), is_regular: found.is_file() })
}

/// Opens a file that no other server writes to. It is opened again for each attempt: the other one may rename
/// it.
fn open_locked(path: &Path) -> io::Result<LogFile> {
    for _ in 1..LOCK_ATTEMPTS {
        let file = open(path)?;
        if !is_locked_by_another(&file) {
            return Ok(file);
        }
        std::thread::park_timeout(LOCK_PAUSE);
    }
    let file = open(path)?;
    match is_locked_by_another(&file) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, "another server writes to it")),
        false => Ok(file),
    }
}

/// Locks a file for as long as it is open, unless another server has: each of two would compress and remove
/// files that the other still writes to. Not every file system has locks.
fn is_locked_by_another(file: &LogFile) -> bool {
    file.is_regular && matches!(file.file.try_lock(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;

    use super::super::rotated_files::tests::names;
    use super::*;

    #[test]
    fn a_full_file_makes_room_between_lines_and_nothing_is_lost() {
        for compress in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("audit.log");
            let limits = RotationLimits { size: 100, age: None, count: None, compress };
            let mut file = RotatingFile::open(&path, limits).unwrap();
            for n in 0..50 {
                file.write_all(format!("line {n:03}........\n").as_bytes()).unwrap();
            }
            file.flush().unwrap();
            // What is under way is finished.
            drop(file);
            let mut all = Vec::new();
            for name in names(dir.path()) {
                let bytes = std::fs::read(dir.path().join(&name)).unwrap();
                let text = match name.ends_with(".gz") {
                    true => {
                        let mut text = String::new();
                        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
                        text
                    }
                    false => String::from_utf8(bytes).unwrap(),
                };
                assert_eq!(name.ends_with(".gz"), compress && name != "audit.log", "{name}");
                assert!(text.len() <= 100 && text.ends_with('\n'), "{name}");
                all.extend(text.lines().map(str::to_owned));
            }
            all.sort();
            assert_eq!(all.len(), 50);
            assert!((0..50).all(|n| all[n] == format!("line {n:03}........")));
        }
    }

    #[test]
    fn a_log_that_cannot_be_rotated_goes_on_and_is_rotated_later() {
        let dir = tempfile::tempdir().unwrap();
        let (place, kept) = (dir.path().join("audit"), dir.path().join("kept"));
        let path = place.join("audit.log");
        let limits = RotationLimits { size: 100, age: None, count: None, compress: false };
        let mut file = RotatingFile::open(&path, limits).unwrap();
        std::fs::hard_link(&path, &kept).unwrap();
        let mut write = |numbers: std::ops::Range<usize>| {
            for n in numbers {
                file.write_all(format!("line {n:03}........\n").as_bytes()).unwrap();
            }
            file.flush().unwrap();
        };
        write(0..5);
        // Neither can it be renamed nor a new one be made.
        std::fs::remove_dir_all(&place).unwrap();
        std::fs::write(&place, "in the way").unwrap();
        write(5..20);
        std::fs::remove_file(&place).unwrap();
        write(20..22);
        // One that was removed by somebody is made again.
        std::fs::remove_file(&path).unwrap();
        write(22..28);
        let old = std::fs::read_to_string(&kept).unwrap();
        assert!(old.lines().eq((0..20).map(|n| format!("line {n:03}........"))), "{old}");
        assert_eq!(names(&place).len(), 1, "{:?}", names(&place));
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("line 027........\n"));
    }

    #[test]
    fn a_line_that_was_written_in_part_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = RotationLimits { size: 1 << 30, age: None, count: None, compress: false };
        let mut log = RotatingFile::open(&path, limits).unwrap();
        // In the place of a disk: it takes so much, and then nothing until somebody reads.
        let (disk, mut reader) = std::os::unix::net::UnixStream::pair().unwrap();
        disk.set_nonblocking(true).unwrap();
        reader.set_nonblocking(true).unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(disk));
        log.file = BufWriter::new(LogFile { file, length: 0, is_regular: true });
        let line = |n: usize| [n.to_string().repeat(100_000).as_bytes(), b"\n"].concat();
        let mut read = Vec::new();
        let mut lost = Vec::new();
        for n in 0..60 {
            let written = log.write_all(&line(n)).and_then(|()| log.flush());
            if written.is_err() {
                lost.push(n);
                assert_eq!(reader.read_to_end(&mut read).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            }
        }
        log.flush().unwrap();
        let _ = reader.read_to_end(&mut read);
        assert!(lost.len() > 1 && lost.len() < 30, "{lost:?}");
        let whole = read.split_inclusive(|byte| *byte == b'\n').filter(|found| {
            let digits = found.iter().take_while(|byte| byte.is_ascii_digit()).count();
            digits + 1 == found.len() && (0..60).any(|n| **found == line(n)[..])
        });
        assert_eq!(whole.count(), 60 - lost.len());
    }

    #[test]
    fn a_log_is_that_of_one_server_until_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = RotationLimits { size: 10, age: None, count: None, compress: false };
        let mut first = RotatingFile::open(&path, limits).unwrap();
        let refused = RotatingFile::open(&path, limits).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        // What it rotates to is as well.
        first.write_all(b"one line\n").unwrap();
        first.write_all(b"another line\n").unwrap();
        first.flush().unwrap();
        assert!(RotatingFile::open(&path, limits).is_err());
        let next = std::thread::spawn(move || RotatingFile::open(&path, limits).map(drop));
        drop(first);
        next.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_not_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let limits = RotationLimits { size: 10, age: None, count: None, compress: false };
        // Two may use a device.
        let mut files = [(); 2].map(|()| RotatingFile::open(&path, limits).unwrap());
        for file in &mut files {
            for _ in 0..5 {
                file.write_all(b"a line\n").unwrap();
            }
            file.flush().unwrap();
        }
        assert_eq!(names(dir.path()), ["audit.log"]);
        assert!(path.is_symlink());
    }

    #[test]
    fn compression_does_not_hold_up_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        // Whoever compresses this waits until somebody writes to it.
        let rotated = dir.path().join("audit-2020-01-01T00-00-00.000.log");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &rotated,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (done, written) = mpsc::channel();
        let (log, limits) =
            (path.clone(), RotationLimits { size: 100, age: None, count: None, compress: true });
        let writer = std::thread::spawn(move || {
            let mut file = RotatingFile::open(&log, limits).unwrap();
            for n in 0..50 {
                file.write_all(format!("line {n:03}........\n").as_bytes()).unwrap();
            }
            file.flush().unwrap();
            done.send(()).unwrap();
            drop(file);
        });
        // Without end if it is compressed by the thread that writes.
        written.recv_timeout(Duration::from_secs(60)).expect("the lines are written");
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("line 049........\n"));
        assert!(names(dir.path()).iter().filter(|name| name.ends_with(".log")).count() > 5);
        std::fs::write(&rotated, "x").unwrap();
        writer.join().unwrap();
        let names = names(dir.path());
        assert!(names.iter().all(|name| name == "audit.log" || name.ends_with(".gz")), "{names:?}");
    }
}
