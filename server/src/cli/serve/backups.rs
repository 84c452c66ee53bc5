//! Scheduled backups of a running server into a directory.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_apiserver::flags::duration;
use plinth_apiserver::private_files;
use plinth_engine::Engine;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use crate::unfinished_file::UnfinishedFile;

/// Names are sorted as their times are.
const NAME: &[BorrowedFormatItem<'_>] =
    format_description!("plinth-[year][month][day]T[hour][minute][second]Z.backup");
/// Longest time until a failed backup is tried again.
const MAX_RETRY: Duration = Duration::from_secs(10 * 60);

/// Options of scheduled backups.
#[derive(Debug, Args)]
pub struct BackupScheduleOptions {
    /// Directory for scheduled backups; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// Interval between scheduled backups
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = positive)]
    pub backup_interval: Duration,
    /// Number of scheduled backups to keep; older ones are deleted
    #[arg(long, default_value_t = 7, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub backup_keep: u32,
}

fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        interval if interval < Duration::from_secs(1) => Err("less than a second".to_owned()),
        interval => Ok(interval),
    }
}

/// Starts the schedule, if there is a directory for it. It goes on where the last start left it: the next
/// backup is due an interval after the newest in the directory.
pub(super) fn start(server: &Arc<Server>, options: BackupScheduleOptions) {
    let Some(dir) = options.backup_dir else { return };
    let backups = Backups {
        engine: server.store.engine().clone(),
        dir,
        interval: options.backup_interval,
        keep: options.backup_keep as usize,
        is_scheduled: AtomicBool::new(false),
    };
    reconciler::spawn(server, backups);
}

/// The controller that writes them.
struct Backups {
    engine: Engine,
    dir: PathBuf,
    interval: Duration,
    keep: usize,
    /// Whether the first one since the start was scheduled.
    is_scheduled: AtomicBool,
}

impl Reconciler for Backups {
    type Key = ();

    fn settings(&self) -> Settings {
        let retry = self.interval.min(MAX_RETRY);
        Settings { name: "backups", workers: 1, retry: (retry, retry), gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        if !self.is_scheduled.swap(true, Ordering::Relaxed) {
            return Ok(Action::RequeueAfter(until_due(&self.dir, self.interval, OffsetDateTime::now_utc())));
        }
        let (target, engine, keep) = (self.dir.clone(), self.engine.clone(), self.keep);
        let written = tokio::task::spawn_blocking(move || back_up(&engine, &target, keep)).await;
        let path = written.map_err(io::Error::other).and_then(|written| written).map_err(|error| {
            let dir = self.dir.display();
            ApiError::internal(format!(
                "scheduled backup to {dir} failed: {error}; check free space and permissions of the directory"
            ))
        })?;
        tracing::info!(path = %path.display(), "scheduled backup written");
        Ok(Action::RequeueAfter(self.interval))
    }
}

/// The time until the next backup.
fn until_due(dir: &Path, interval: Duration, now: OffsetDateTime) -> Duration {
    let newest = existing(dir).ok().and_then(|backups| backups.last().map(|(time, _)| *time));
    // A backup of the future, as after the clock was set back, postpones nothing for longer than the
    // interval.
    let age = newest.map(|time| Duration::try_from(now - time).unwrap_or_default());
    age.map_or(Duration::ZERO, |age| interval.saturating_sub(age))
}

/// The scheduled backups in a directory, oldest first. Other files are ignored.
fn existing(dir: &Path) -> io::Result<Vec<(OffsetDateTime, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let time = name.to_str().and_then(|name| PrimitiveDateTime::parse(name, NAME).ok());
        found.extend(time.map(|time| (time.assume_utc(), entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Writes a backup, and deletes the oldest beyond those to keep once it is complete. Those of the future, as
/// after the clock was set back, are left alone: they must not take the place of the one just written.
fn back_up(engine: &Engine, dir: &Path, keep: usize) -> io::Result<PathBuf> {
    private_files::create_dir_all(dir)?;
    let now = OffsetDateTime::now_utc();
    let name = now.format(NAME).map_err(io::Error::other)?;
    let path = dir.join(name);
    let unfinished = UnfinishedFile::create(&path)?;
    let mut out = BufWriter::new(unfinished.file()?);
    engine.backup(&mut out, |_| {}).map_err(io::Error::other)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    unfinished.finish(&path)?;
    let mut backups = existing(dir)?;
    backups.retain(|(time, _)| *time <= now);
    for (_, old) in &backups[..backups.len().saturating_sub(keep)] {
        fs::remove_file(old)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use plinth_engine::Options;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn the_newest_are_kept_and_other_files_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(root.path().join("store"))).unwrap();
        let dir = root.path().join("backups");
        fs::create_dir(&dir).unwrap();
        let future = ["plinth-29990101T000000Z.backup", "plinth-29990102T000000Z.backup"];
        let past = ["plinth-20250101T000000Z.backup", "plinth-20250102T000000Z.backup"];
        for name in past.into_iter().chain(future).chain(["plinth-mine.backup"]) {
            fs::write(dir.join(name), "").unwrap();
        }
        let written = back_up(&engine, &dir, 2).unwrap();
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut expected = vec![dir.join(past[1]), written, dir.join("plinth-mine.backup")];
        expected.extend(future.map(|name| dir.join(name)));
        expected.sort();
        assert_eq!(names, expected);
        engine.close().unwrap();
    }

    #[test]
    fn a_restart_does_not_change_the_schedule() {
        let dir = tempfile::tempdir().unwrap();
        let (day, now) = (Duration::from_secs(86_400), datetime!(2025-01-02 06:00 UTC));
        assert_eq!(until_due(dir.path(), day, now), Duration::ZERO);
        assert_eq!(until_due(&dir.path().join("none"), day, now), Duration::ZERO);
        fs::write(dir.path().join("plinth-20250101T180000Z.backup"), "").unwrap();
        assert_eq!(until_due(dir.path(), day, now), day / 2);
        fs::write(dir.path().join("plinth-20250301T000000Z.backup"), "").unwrap();
        assert_eq!(until_due(dir.path(), day, now), day);
    }
}
