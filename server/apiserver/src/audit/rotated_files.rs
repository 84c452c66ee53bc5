//! Rotated audit log files: their names, and the thread that compresses and removes them, beside the one that
//! writes the log. Names are those of upstream's log backend (lumberjack).

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::options::AuditOptions;
use crate::private_files;

/// Default size of a log file, in megabytes.
const DEFAULT_MEGABYTES: u64 = 100;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// When a file is rotated and how long rotated ones are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotationLimits {
    pub size: u64,
    pub age: Option<Duration>,
    pub count: Option<usize>,
    pub compress: bool,
}

impl RotationLimits {
    pub(super) fn of(options: &AuditOptions) -> RotationLimits {
        let megabytes =
            if options.audit_log_maxsize == 0 { DEFAULT_MEGABYTES } else { options.audit_log_maxsize };
        RotationLimits {
            size: megabytes.saturating_mul(1 << 20),
            age: (options.audit_log_maxage > 0)
                .then(|| DAY.saturating_mul(u32::try_from(options.audit_log_maxage).unwrap_or(u32::MAX))),
            count: (options.audit_log_maxbackup > 0).then_some(options.audit_log_maxbackup),
            compress: options.audit_log_compress,
        }
    }
}

/// Compresses and removes rotated files on a thread of its own. Rotations do not wait for it: one that comes
/// while it works has it look again afterwards, and no more than that is queued.
///
/// When this is dropped, the thread ends with the file that it has begun; dropping waits for that. A process
/// that ends before leaves the file as it was, for the next one.
pub(super) struct Cleaner {
    /// None once the thread is to end.
    rotated: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    /// Starts the thread for the rotated files of the log at `path`.
    ///
    /// # Errors
    /// When no thread can be created.
    pub(super) fn start(path: &Path, limits: RotationLimits) -> io::Result<Cleaner> {
        let (rotated, rotations) = mpsc::sync_channel(1);
        let path = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("audit-rotated".into())
            .spawn(move || clean_up_after(&rotations, &path, limits))?;
        Ok(Cleaner { rotated: Some(rotated), thread: Some(thread) })
    }

    /// Notes that there may be something to compress or remove.
    pub(super) fn rotated(&self) {
        if let Some(rotated) = &self.rotated {
            // It is full where the thread will look anyway, and closed where it has panicked.
            let _ = rotated.try_send(());
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(self.rotated.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread.
            let _ = thread.join();
        }
    }
}

fn clean_up_after(rotations: &Receiver<()>, path: &Path, limits: RotationLimits) {
    let mut failures = Failures::default();
    while rotations.recv().is_ok() {
        failures.tried.clear();
        while clean_up(path, limits, SystemTime::now(), &mut failures) {}
    }
}

/// What could not be compressed or removed. It must neither stop the log nor keep other files: it is left as
/// it is until the next rotation.
#[derive(Debug, Default)]
struct Failures {
    /// Since the last rotation.
    tried: HashSet<PathBuf>,
    /// Each is logged once, however often it is tried.
    logged: HashSet<PathBuf>,
}

impl Failures {
    fn add(&mut self, path: &Path, error: &io::Error) {
        self.tried.insert(path.to_owned());
        if self.logged.insert(path.to_owned()) {
            let path = path.display();
            tracing::warn!(%error, %path, "rotated audit log cannot be compressed or removed");
        }
    }
}

/// Removes the rotated files that are too many or too old, then compresses the newest that is not compressed
/// and has not failed. Returns whether there was one.
fn clean_up(path: &Path, limits: RotationLimits, now: SystemTime, failures: &mut Failures) -> bool {
    let mut old = match backups(path) {
        Ok(old) => old,
        Err(error) => {
            failures.add(path, &error);
            return false;
        }
    };
    // Newest first.
    old.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let is_there = |failed: &PathBuf| failed == path || old.iter().any(|(_, path)| path == failed);
    failures.logged.retain(is_there);
    let mut uncompressed = None;
    for (index, (time, path)) in old.into_iter().enumerate() {
        let too_many = limits.count.is_some_and(|most| index >= most);
        let too_old = limits.age.is_some_and(|most| now.duration_since(time).is_ok_and(|age| age > most));
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        if failures.tried.contains(&path) {
            continue;
        }
        if too_many || too_old {
            if let Err(error) = remove(&path, is_compressed) {
                failures.add(&path, &error);
            }
        } else if limits.compress && !is_compressed && uncompressed.is_none() {
            uncompressed = Some(path);
        }
    }
    let Some(path) = uncompressed else { return false };
    if let Err(error) = compress(&path) {
        failures.add(&path, &error);
    }
    true
}

/// Removes a rotated file, and what a process has left that ended while it compressed it.
fn remove(path: &Path, is_compressed: bool) -> io::Result<()> {
    std::fs::remove_file(path)?;
    match is_compressed {
        true => Ok(()),
        false => remove_if_there(&compressed_names(path).1),
    }
}

const TIMESTAMP: &[time::format_description::BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]");

/// Stem and extension, with a dot: `audit`, `.log`.
fn name_parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    (text(path.file_stem()), extension)
}

/// An unused name for the file rotated at that time.
pub(super) fn backup_name(path: &Path, mut time: SystemTime) -> PathBuf {
    let (stem, extension) = name_parts(path);
    loop {
        let stamp = OffsetDateTime::from(time).format(TIMESTAMP).unwrap_or_default();
        let name = path.with_file_name(format!("{stem}-{stamp}{extension}"));
        let compressed = PathBuf::from(format!("{}.gz", name.display()));
        if !name.exists() && !compressed.exists() {
            return name;
        }
        // Two rotations in one millisecond: the second gets the next millisecond.
        time += Duration::from_millis(1);
    }
}

/// Rotated files with the times in their names.
fn backups(path: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let (stem, extension) = name_parts(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stamp = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(&extension);
        let stamp = stamp.and_then(|s| s.strip_prefix(&stem)).and_then(|s| s.strip_prefix('-'));
        let Some(time) = stamp.and_then(|s| PrimitiveDateTime::parse(s, TIMESTAMP).ok()) else { continue };
        found.push((SystemTime::from(time.assume_utc()), path));
    }
    Ok(found)
}

/// The file that a rotated one is compressed to, and the one that it is while it is written.
fn compressed_names(path: &Path) -> (PathBuf, PathBuf) {
    let target = PathBuf::from(format!("{}.gz", path.display()));
    let temporary = PathBuf::from(format!("{}.new", target.display()));
    (target, temporary)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Compresses a file. What an earlier process has not finished is begun again.
fn compress(path: &Path) -> io::Result<()> {
    let (target, temporary) = compressed_names(path);
    remove_if_there(&temporary)?;
    let written = write_compressed(path, &temporary);
    if written.is_err() {
        // Its room may be what is missing.
        remove_if_there(&temporary)?;
    }
    written?;
    std::fs::rename(&temporary, &target)?;
    std::fs::remove_file(path)
}

fn write_compressed(path: &Path, temporary: &Path) -> io::Result<()> {
    let file = private_files::create_new(temporary)?;
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    io::copy(&mut File::open(path)?, &mut gzip)?;
    gzip.finish()?.sync_all()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const LIMITS: RotationLimits = RotationLimits { size: 100, age: None, count: None, compress: false };

    /// The names of the files in a directory, in order.
    pub(in super::super) fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_cannot_be_compressed_leaves_nothing_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit-2020-01-01T00-00-00.000.log");
        // It can be opened, and not read.
        std::fs::create_dir(&path).unwrap();
        assert!(compress(&path).is_err());
        assert_eq!(names(dir.path()), ["audit-2020-01-01T00-00-00.000.log"]);
    }

    #[test]
    fn old_files_go_by_count_and_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        for day in ["01", "02", "03", "04"] {
            std::fs::write(dir.path().join(format!("audit-2020-01-{day}T00-00-00.000.log")), "x").unwrap();
        }
        std::fs::write(dir.path().join("audit-other.log"), "x").unwrap();
        // What a process has left that ended while it compressed.
        std::fs::write(dir.path().join("audit-2020-01-01T00-00-00.000.log.gz.new"), "x").unwrap();
        let now = SystemTime::from(time::macros::datetime!(2020-01-05 12:00 UTC));
        let clean_up = |limits| clean_up(&path, limits, now, &mut Failures::default());
        assert!(!clean_up(RotationLimits { count: Some(3), ..LIMITS }));
        assert_eq!(names(dir.path()).len(), 4, "the oldest has gone: {:?}", names(dir.path()));
        assert!(!clean_up(RotationLimits { age: Some(2 * DAY), ..LIMITS }));
        assert_eq!(names(dir.path()), ["audit-2020-01-04T00-00-00.000.log", "audit-other.log"]);
        assert!(clean_up(RotationLimits { compress: true, ..LIMITS }));
        assert_eq!(names(dir.path()), ["audit-2020-01-04T00-00-00.000.log.gz", "audit-other.log"]);
        assert!(!clean_up(RotationLimits { compress: true, ..LIMITS }));
    }

    /// Directories with the names of rotated files can neither be read nor removed as files, by root either.
    #[test]
    fn what_cannot_be_compressed_or_removed_keeps_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let name = |day: &str| format!("audit-2020-01-{day}T00-00-00.000.log");
        for day in ["01", "02", "03", "05"] {
            std::fs::write(dir.path().join(name(day)), "x").unwrap();
        }
        for day in ["04", "06"] {
            std::fs::create_dir(dir.path().join(name(day))).unwrap();
        }
        let now = SystemTime::from(time::macros::datetime!(2020-01-06 12:00 UTC));
        let limits = RotationLimits { compress: true, ..LIMITS };
        let mut failures = Failures::default();
        while clean_up(&path, limits, now, &mut failures) {}
        let gz = |day| name(day) + ".gz";
        assert_eq!(names(dir.path()), [gz("01"), gz("02"), gz("03"), name("04"), gz("05"), name("06")]);
        // The two newest stay; of the others, one cannot go.
        failures.tried.clear();
        let logged = failures.logged.clone();
        while clean_up(&path, RotationLimits { count: Some(2), ..limits }, now, &mut failures) {}
        assert_eq!(names(dir.path()), [name("04"), gz("05"), name("06")]);
        assert_eq!(failures.logged, logged, "each is logged once");
        std::fs::remove_dir(dir.path().join(name("06"))).unwrap();
        failures.tried.clear();
        while clean_up(&path, limits, now, &mut failures) {}
        assert_eq!(failures.logged.len(), 1, "what has gone may be logged again");
    }
}
