//! Scheduled backups of a running server into a directory or a bucket.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plinth_api::{ApiError, Reason};
use plinth_apiserver::context::Server;
use plinth_apiserver::flags::duration;
use plinth_engine::Engine;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::archives::{ArchiveError, ArchiveLocation, Archives};
use crate::reconciler::{self, Action, Reconciler, Settings, Start};

/// Names are sorted as their times are.
const NAME: &[BorrowedFormatItem<'_>] =
    format_description!("plinth-[year][month][day]T[hour][minute][second]Z.backup");
/// Longest time until a failed backup is tried again.
const MAX_RETRY: Duration = Duration::from_secs(10 * 60);

/// Options of scheduled backups.
#[derive(Debug, Args)]
pub struct BackupScheduleOptions {
    /// Directory for scheduled backups, created if it does not exist, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR", value_parser = ArchiveLocation::value_parser())]
    pub backup_dir: Option<ArchiveLocation>,
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

/// Starts the schedule, if there is a place for it. It goes on where the last start left it: the next
/// backup is due an interval after the newest there.
pub(super) fn start(server: &Arc<Server>, options: BackupScheduleOptions) {
    let Some(location) = options.backup_dir else { return };
    let backups = Backups {
        engine: server.store.engine().clone(),
        location,
        interval: options.backup_interval,
        keep: options.backup_keep as usize,
        stopping: server.stopping.clone(),
        tasks: server.tasks.clone(),
        is_scheduled: AtomicBool::new(false),
    };
    reconciler::spawn(server, backups);
}

/// The controller that writes them.
struct Backups {
    engine: Engine,
    location: ArchiveLocation,
    interval: Duration,
    keep: usize,
    stopping: watch::Receiver<bool>,
    tasks: TaskTracker,
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
        let is_first = !self.is_scheduled.swap(true, Ordering::Relaxed);
        let (location, engine) = (self.location.clone(), self.engine.clone());
        let (interval, keep, stopping) = (self.interval, self.keep, self.stopping.clone());
        let run = move || {
            let archives = location.open(is_name, Some(stopping))?;
            let now = OffsetDateTime::now_utc();
            match is_first {
                true => Ok(until_due(&archives, interval, now)),
                false => {
                    let written = back_up(&engine, &archives, keep, now)?;
                    tracing::info!(path = %written, "scheduled backup written");
                    Ok(interval)
                }
            }
        };
        // The server's stop waits for it, so that nothing is written behind it.
        let run = self.tasks.spawn_blocking(run).await.map_err(io::Error::other);
        run.and_then(|run: Result<Duration, io::Error>| run).map(Action::RequeueAfter).map_err(|error| {
            let location = &self.location;
            let why = format!(
                "scheduled backup to {location} failed: {error}; check free space and permissions there"
            );
            ApiError::new(500, Reason::InternalError, why)
        })
    }
}

fn time_of(name: &str) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(name, NAME).ok().map(PrimitiveDateTime::assume_utc)
}

fn is_name(name: &str) -> bool {
    time_of(name).is_some()
}

/// The time until the next backup.
fn until_due(archives: &Archives, interval: Duration, now: OffsetDateTime) -> Duration {
    // What cannot be listed is tried, and reported, as the next backup is written.
    let newest = archives.names().ok().and_then(|names| time_of(names.last()?));
    // A backup of the future, as after the clock was set back, postpones nothing for longer than the
    // interval.
    let age = newest.map(|time| Duration::try_from(now - time).unwrap_or_default());
    age.map_or(Duration::ZERO, |age| interval.saturating_sub(age))
}

/// Writes a backup, and deletes the oldest beyond those to keep once it is complete. Those of the future, as
/// after the clock was set back, are left alone: they must not take the place of the one just written.
fn back_up(
    engine: &Engine,
    archives: &Archives,
    keep: usize,
    now: OffsetDateTime,
) -> io::Result<ArchiveLocation> {
    let name = now.format(NAME).map_err(io::Error::other)?;
    archives.create()?;
    archives.write(&name, |mut out| engine.backup(&mut out, |_| {}).map_err(io::Error::other))?;
    // The backup is there: what cannot be deleted is deleted after the next one.
    if let Err(error) = delete_oldest(archives, &name, keep, now) {
        tracing::warn!(location = %archives.location(&name), %error, "older backups could not be deleted");
    }
    Ok(archives.location(&name))
}

/// Deletes the oldest backups beyond those to keep, but not the one just written.
fn delete_oldest(
    archives: &Archives,
    written: &str,
    keep: usize,
    now: OffsetDateTime,
) -> Result<(), ArchiveError> {
    let mut names = archives.names()?;
    names.retain(|name| name != written && time_of(name).is_some_and(|time| time <= now));
    for old in &names[..names.len().saturating_sub(keep.saturating_sub(1))] {
        archives.remove(old)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let archives = ArchiveLocation::from(dir.clone()).open(is_name, None).unwrap();
        let written = back_up(&engine, &archives, 2, OffsetDateTime::now_utc()).unwrap();
        let ArchiveLocation::Path(written) = written else { panic!("{written}") };
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut expected = vec![dir.join(past[1]), written, dir.join("plinth-mine.backup")];
        expected.extend(future.map(|name| dir.join(name)));
        expected.sort();
        assert_eq!(names, expected);
        engine.close().unwrap();
    }

    #[test]
    fn a_backup_is_written_where_an_older_one_cannot_be_deleted() {
        let root = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(root.path().join("store"))).unwrap();
        let dir = root.path().join("backups");
        // A directory is not removed.
        fs::create_dir_all(dir.join("plinth-20250101T000000Z.backup")).unwrap();
        let archives = ArchiveLocation::from(dir.clone()).open(is_name, None).unwrap();
        let now = OffsetDateTime::now_utc();
        let written = back_up(&engine, &archives, 1, now).unwrap();
        assert!(delete_oldest(&archives, "", 1, now).is_err());
        assert_eq!(written, archives.location(archives.names().unwrap().last().unwrap()));
        engine.close().unwrap();
    }

    #[test]
    fn a_restart_does_not_change_the_schedule() {
        let dir = tempfile::tempdir().unwrap();
        let (day, now) = (Duration::from_secs(86_400), datetime!(2025-01-02 06:00 UTC));
        let until_due = |dir: &std::path::Path| {
            until_due(&ArchiveLocation::from(dir.to_owned()).open(is_name, None).unwrap(), day, now)
        };
        assert_eq!(until_due(dir.path()), Duration::ZERO);
        assert_eq!(until_due(&dir.path().join("none")), Duration::ZERO);
        fs::write(dir.path().join("plinth-20250101T180000Z.backup"), "").unwrap();
        assert_eq!(until_due(dir.path()), day / 2);
        fs::write(dir.path().join("plinth-20250301T000000Z.backup"), "").unwrap();
        assert_eq!(until_due(dir.path()), day);
    }
}
