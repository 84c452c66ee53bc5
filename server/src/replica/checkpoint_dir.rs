//! Checkpoints in a directory or a bucket (`--checkpoint-dir`): on a file system or in an S3-compatible store
//! that outlives the replicas, so that one can join, and one that was away for long go on, while no other
//! runs.
//!
//! The replica that runs the controllers writes them. Each is an archive `plinth-CLUSTER-POSITION.checkpoint`
//! with what a joining replica gets, the keys of the cluster among it, and gets its name when it is whole and
//! on disk. The last `KEPT` stay, and the journal is kept from the oldest of them on.
//!
//! A checkpoint whose position lies after the end of the journal is of another history of the cluster: the
//! journal was replaced, or its members have lost records, since it was written. It is marked by an archive
//! of the same name with another suffix, which stays: nobody begins from it, also when the journal is longer.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use plinth_api::ApiError;
use plinth_apiserver::context::{ReplicaInfo, Server};
use plinth_apiserver::flags::duration;
use plinth_journal::record::ClusterId;
use plinth_journal::Position;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::checkpoint::Source;
use crate::archives::{ArchiveError, ArchiveLocation, Archives};
use crate::members;
use crate::reconciler::{self, Action, Reconciler, Settings, Start};

/// Checkpoints that stay.
const KEPT: usize = 2;
/// Suffix of their names.
const SUFFIX: &str = ".checkpoint";
/// Suffix of the mark of a checkpoint of another history.
const OTHER_HISTORY: &str = ".other-history";
/// What is in the mark.
const OTHER_HISTORY_TEXT: &[u8] =
    b"The checkpoint of this name lies after the end of the journal: it is of another history of the cluster.\n";
/// The name under which the journal is kept for them.
const KEPT_NAME: &str = "checkpoints";
/// Time for which the journal is kept for the checkpoints, at least, after one was last written: an
/// unwritable directory does not fill the journal for ever.
const SHORTEST_KEEP: Duration = Duration::from_secs(3600);

/// Longest wait for the end of the journal.
const SOON: Duration = Duration::from_secs(30);

/// Flags of checkpoints in a directory or a bucket.
#[derive(Clone, Debug, Args)]
pub struct CheckpointOptions {
    /// Directory for checkpoints, the same for all replicas, on a file system that outlives them, or
    /// s3://BUCKET/PREFIX: replicas join from it, and go on from it after they were away for long.
    /// Checkpoints hold the cluster's keys
    #[arg(long, value_name = "DIR", value_parser = ArchiveLocation::value_parser())]
    pub checkpoint_dir: Option<ArchiveLocation>,
    /// Interval of checkpoints
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub checkpoint_interval: Duration,
}

/// A checkpoint in a directory or a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// The cluster that its name states.
    pub cluster: ClusterId,
    /// A position that it has, at least: it needs the journal after that.
    pub position: Position,
}

impl StoredCheckpoint {
    /// Name of the archive.
    pub fn name(&self) -> String {
        // As long as the largest number, so that names are in the order of positions.
        format!("plinth-{}-{:020}{SUFFIX}", self.cluster, self.position.get())
    }

    /// Name of the mark that it is of another history.
    fn mark(&self) -> String {
        format!("{}{OTHER_HISTORY}", self.name())
    }

    fn parse(name: &str) -> Option<StoredCheckpoint> {
        let (cluster, position) = name.strip_prefix("plinth-")?.strip_suffix(SUFFIX)?.split_once('-')?;
        let (cluster, position) = (cluster.parse().ok()?, Position::new(position.parse().ok()?));
        let checkpoint = StoredCheckpoint { cluster, position };
        (checkpoint.name() == name).then_some(checkpoint)
    }

    fn parse_mark(name: &str) -> Option<StoredCheckpoint> {
        StoredCheckpoint::parse(name.strip_suffix(OTHER_HISTORY)?)
    }

    fn is_name(name: &str) -> bool {
        StoredCheckpoint::parse(name).or_else(|| StoredCheckpoint::parse_mark(name)).is_some()
    }
}

/// Opens a directory or bucket of checkpoints; see [`ArchiveLocation::open`].
///
/// # Errors
/// When settings or credentials of a bucket cannot be used.
pub fn open(
    location: &ArchiveLocation,
    stopping: Option<watch::Receiver<bool>>,
) -> Result<Archives, ArchiveError> {
    location.open(StoredCheckpoint::is_name, stopping)
}

/// What is in a directory or bucket.
#[derive(Debug, Default)]
pub struct Listing {
    /// Checkpoints, the newest of each cluster first.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// Those that were found to be of another history, in no order.
    pub of_other_histories: Vec<StoredCheckpoint>,
}

/// The checkpoints there.
///
/// # Errors
/// When they cannot be listed.
pub fn list(archives: &Archives) -> Result<Listing, ArchiveError> {
    let names = archives.names()?;
    let marked: Vec<_> = names.iter().filter_map(|name| StoredCheckpoint::parse_mark(name)).collect();
    let found = names.iter().filter_map(|name| StoredCheckpoint::parse(name));
    let (of_other_histories, mut checkpoints): (Vec<_>, Vec<_>) =
        found.partition(|checkpoint| marked.contains(checkpoint));
    checkpoints.sort_by_key(|checkpoint| (checkpoint.cluster.0, std::cmp::Reverse(checkpoint.position)));
    Ok(Listing { checkpoints, of_other_histories })
}

/// The controller that writes them.
struct Checkpoints(Arc<CheckpointWriter>);

impl Reconciler for Checkpoints {
    type Key = ();

    fn settings(&self) -> Settings {
        let retry = (self.0.interval, self.0.interval);
        Settings { name: "checkpoints", workers: 1, retry, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        let CheckpointWriter { location, interval, .. } = &*self.0;
        let written = self.0.round().await.map_err(|error| {
            ApiError::internal(format!(
                "no checkpoint could be written to {location}: {error}; check --checkpoint-dir"
            ))
        })?;
        tracing::info!(path = %written, "checkpoint written");
        Ok(Action::RequeueAfter(*interval))
    }
}

/// Writes checkpoints of a replica.
pub struct CheckpointWriter {
    /// Runs the task; it ends with the server.
    pub server: Arc<Server>,
    /// What is copied.
    pub source: Arc<Source>,
    /// Checkpoints of other clusters beside them are left alone.
    pub cluster: ClusterId,
    /// `--checkpoint-dir`.
    pub location: ArchiveLocation,
    /// From the end of one checkpoint to the next.
    pub interval: Duration,
}

impl CheckpointWriter {
    /// Writes checkpoints until the task is aborted or the server stops.
    pub fn start(self: &Arc<Self>) -> JoinHandle<()> {
        reconciler::spawn(&self.server, Checkpoints(self.clone()))
    }

    async fn round(self: &Arc<Self>) -> Result<ArchiveLocation, Box<dyn Error + Send + Sync>> {
        let store = &self.source.store;
        // Before anything is written: it is not trimmed behind what is just being copied.
        self.source.keep_for_checkpoint().await.map_err(|error| error.message)?;
        let written = self.on_a_thread(|writer| {
            let archives = writer.open()?;
            let written = writer.write(&archives);
            Ok::<_, ArchiveError>((written, list(&archives)?.checkpoints))
        });
        let (written, mut all) = written.await??;
        all.retain(|checkpoint| checkpoint.cluster == self.cluster);
        self.set_other_histories_aside(&mut all).await?;
        if let Some(oldest) = all.iter().take(KEPT).next_back() {
            let time = SHORTEST_KEEP.max(self.interval.saturating_mul(3));
            let kept = members::keep(store, KEPT_NAME, oldest.position, time).await;
            kept.map_err(|error| error.message)?;
        }
        let written = written?;
        let removed = self.on_a_thread(move |writer| {
            let archives = writer.open()?;
            all.iter().skip(KEPT).try_for_each(|obsolete| archives.remove(&obsolete.name()))
        });
        removed.await??;
        Ok(written)
    }

    /// Runs what blocks. The server's stop waits for it, so that nothing is written behind it.
    fn on_a_thread<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&CheckpointWriter) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let writer = self.clone();
        self.server.tasks.spawn_blocking(move || work(&writer))
    }

    /// Marks the checkpoints that lie after the end of the journal, which no other replica can have written
    /// in this history, and removes them from `all`, which was listed before.
    async fn set_other_histories_aside(
        self: &Arc<Self>,
        all: &mut Vec<StoredCheckpoint>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let store = &self.source.store;
        let deadline = Instant::now().checked_add(SOON);
        store.reach_most_recent(deadline).await.map_err(|error| error.message)?;
        let Some(status) = store.engine().replica_status() else { return Ok(()) };
        let others = others_than_until(all, status.position);
        if others.is_empty() {
            return Ok(());
        }
        let marked = self.on_a_thread(move |writer| {
            let archives = writer.open()?;
            others.iter().try_for_each(|checkpoint| {
                tracing::warn!(
                    path = %archives.location(&checkpoint.name()),
                    "a checkpoint lies after the end of the journal, so it is of another history of this cluster: it is marked, and nobody begins from it; move it away where it is of no use"
                );
                let written =
                    archives.write(&checkpoint.mark(), |out| Ok(out.write_all(OTHER_HISTORY_TEXT)?));
                match written {
                    Ok(()) | Err(WriteError::Archive(ArchiveError::Exists(_))) => Ok(()),
                    Err(error) => Err(io::Error::from(error)),
                }
            })
        });
        Ok(marked.await??)
    }

    fn open(&self) -> Result<Archives, ArchiveError> {
        open(&self.location, Some(self.server.stopping.clone()))
    }

    /// Writes one. Blocks.
    fn write(&self, archives: &Archives) -> io::Result<ArchiveLocation> {
        let status = self.source.store.engine().replica_status();
        // The checkpoint is made after this, and has this at least.
        let position = status.ok_or(io::ErrorKind::Unsupported)?.position;
        let name = StoredCheckpoint { cluster: self.cluster, position }.name();
        let written = archives.write(&name, |out| Ok(self.source.make_checkpoint()?(out)?));
        match written {
            Err(WriteError::Archive(ArchiveError::Exists(_))) | Ok(()) => Ok(archives.location(&name)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes those out of `all` that lie after a position.
fn others_than_until(all: &mut Vec<StoredCheckpoint>, end: Position) -> Vec<StoredCheckpoint> {
    let (others, these) = std::mem::take(all).into_iter().partition(|checkpoint| checkpoint.position > end);
    *all = these;
    others
}

/// A checkpoint was not written.
enum WriteError {
    /// Where it belongs.
    Archive(ArchiveError),
    /// It was not made, or not all of it was taken.
    Source(io::Error),
}

impl From<ArchiveError> for WriteError {
    fn from(error: ArchiveError) -> WriteError {
        WriteError::Archive(error)
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> io::Error {
        match error {
            WriteError::Archive(error) => error.into(),
            WriteError::Source(error) => error,
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Source(error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn checkpoints_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (ClusterId([1; 16]), ClusterId([0xfe; 16]));
        let name = |cluster, position| StoredCheckpoint { cluster, position: Position::new(position) }.name();
        for (cluster, position) in [(one, 9), (other, 5), (one, 10), (one, 2)] {
            fs::write(dir.path().join(name(cluster, position)), "").unwrap();
        }
        let name = name(one, 77);
        for foreign in [
            "notes".to_owned(),
            format!("{name}.unfinished-1-0"),
            name.replace("77", "7x"),
            name.replace("0000077", "77"),
            name.to_uppercase(),
        ] {
            fs::write(dir.path().join(foreign), "").unwrap();
        }
        let archives = open(&dir.path().to_owned().into(), None).unwrap();
        let found = list(&archives).unwrap();
        assert!(found.of_other_histories.is_empty());
        let found: Vec<_> = found
            .checkpoints
            .iter()
            .map(|checkpoint| (checkpoint.cluster, checkpoint.position.get()))
            .collect();
        assert_eq!(found, [(one, 10), (one, 9), (one, 2), (other, 5)]);
        // Those that are marked are apart, whatever the end of the journal is by now.
        let mut all = list(&archives).unwrap().checkpoints;
        all.retain(|checkpoint| checkpoint.cluster == one);
        let others = others_than_until(&mut all, Position::new(9));
        assert_eq!(others, [StoredCheckpoint { cluster: one, position: Position::new(10) }]);
        assert_eq!(all.len(), 2);
        fs::write(dir.path().join(others[0].mark()), "").unwrap();
        let found = list(&archives).unwrap();
        assert_eq!(found.of_other_histories, others);
        assert!(found.checkpoints.len() == 3 && !found.checkpoints.contains(&others[0]));
    }
}
