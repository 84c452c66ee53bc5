//! Checkpoints in a directory (`--checkpoint-dir`): on a file system that outlives the replicas, so that one
//! can join, and one that was away for long go on, while no other runs.
//!
//! The replica that runs the controllers writes them. Each is a file `plinth-CLUSTER-POSITION.checkpoint`
//! with what a joining replica gets, the keys of the cluster among it, and gets its name when it is whole and
//! on disk. The last `KEPT` stay, and the journal is kept from the oldest of them on.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plinth_api::ApiError;
use plinth_apiserver::context::{ReplicaInfo, Server};
use plinth_apiserver::flags::duration;
use plinth_journal::record::ClusterId;
use plinth_journal::Position;
use tokio::task::JoinHandle;

use super::checkpoint::Source;
use crate::members;
use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use crate::unfinished_file::UnfinishedFile;

/// Checkpoints that stay.
const KEPT: usize = 2;
/// Suffix of their names.
const SUFFIX: &str = ".checkpoint";
/// The name under which the journal is kept for them.
const KEPT_NAME: &str = "checkpoints";
/// Time for which the journal is kept for the checkpoints, at least, after one was last written: an
/// unwritable directory does not fill the journal for ever.
const SHORTEST_KEEP: Duration = Duration::from_secs(3600);

/// Flags of checkpoints in a directory.
#[derive(Clone, Debug, Args)]
pub struct CheckpointOptions {
    /// Directory for checkpoints, the same for all replicas, on a file system that outlives them: replicas
    /// join from it, and go on from it after they were away for long. The files hold the cluster's keys
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<PathBuf>,
    /// Interval of checkpoints
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub checkpoint_interval: Duration,
}

/// A checkpoint in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The cluster that its name states.
    pub cluster: ClusterId,
    /// A position that it has, at least: it needs the journal after that.
    pub position: Position,
}

impl CheckpointFile {
    fn name(cluster: ClusterId, position: Position) -> String {
        // As long as the largest number, so that names are in the order of positions.
        format!("plinth-{cluster}-{:020}{SUFFIX}", position.get())
    }

    fn parse(path: PathBuf) -> Option<CheckpointFile> {
        let name = path.file_name()?.to_str()?;
        let (cluster, position) = name.strip_prefix("plinth-")?.strip_suffix(SUFFIX)?.split_once('-')?;
        let cluster = u128::from_str_radix(cluster, 16).ok()?.to_be_bytes();
        let checkpoint = CheckpointFile {
            cluster: ClusterId(cluster),
            position: Position::new(position.parse().ok()?),
            path: path.clone(),
        };
        (CheckpointFile::name(checkpoint.cluster, checkpoint.position) == name).then_some(checkpoint)
    }
}

/// The checkpoints in a directory, the newest of each cluster first.
///
/// # Errors
/// When it cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<CheckpointFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        found.extend(CheckpointFile::parse(entry?.path()));
    }
    found.sort_by_key(|checkpoint| (checkpoint.cluster.0, std::cmp::Reverse(checkpoint.position)));
    Ok(found)
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
        let CheckpointWriter { dir, interval, .. } = &*self.0;
        let written = self.0.round().await.map_err(|error| {
            let dir = dir.display();
            ApiError::internal(format!(
                "no checkpoint could be written to {dir}: {error}; check --checkpoint-dir"
            ))
        })?;
        tracing::info!(path = %written.path.display(), "checkpoint written");
        Ok(Action::RequeueAfter(*interval))
    }
}

/// Writes checkpoints of a replica.
pub struct CheckpointWriter {
    /// Runs the task; it ends with the server.
    pub server: Arc<Server>,
    /// What is copied.
    pub source: Arc<Source>,
    /// Files of other clusters in the directory are left alone.
    pub cluster: ClusterId,
    /// `--checkpoint-dir`.
    pub dir: PathBuf,
    /// From the end of one checkpoint to the next.
    pub interval: Duration,
}

impl CheckpointWriter {
    /// Writes checkpoints until the task is aborted or the server stops.
    pub fn start(self: &Arc<Self>) -> JoinHandle<()> {
        reconciler::spawn(&self.server, Checkpoints(self.clone()))
    }

    async fn round(self: &Arc<Self>) -> Result<CheckpointFile, Box<dyn std::error::Error + Send + Sync>> {
        let store = &self.source.store;
        // Before anything is written: it is not trimmed behind what is just being copied.
        self.source.keep_for_checkpoint().await.map_err(|error| error.message)?;
        let checkpoint_writer = self.clone();
        let written = tokio::task::spawn_blocking(move || checkpoint_writer.write()).await?;
        let dir = self.dir.clone();
        let all = tokio::task::spawn_blocking(move || list(&dir)).await??;
        let oldest = all.iter().filter(|checkpoint| checkpoint.cluster == self.cluster).take(KEPT).last();
        if let Some(oldest) = oldest {
            let time = SHORTEST_KEEP.max(self.interval.saturating_mul(3));
            let kept = members::keep(store, KEPT_NAME, oldest.position, time).await;
            kept.map_err(|error| error.message)?;
        }
        let checkpoint = written?;
        let obsolete = all.into_iter().filter(|checkpoint| checkpoint.cluster == self.cluster).skip(KEPT);
        for checkpoint in obsolete {
            fs::remove_file(&checkpoint.path)?;
        }
        Ok(checkpoint)
    }

    /// Writes one. Blocks.
    fn write(&self) -> io::Result<CheckpointFile> {
        let status = self.source.store.engine().replica_status();
        // The checkpoint is made after this, and has this at least.
        let position = status.ok_or(io::ErrorKind::Unsupported)?.position;
        let path = self.dir.join(CheckpointFile::name(self.cluster, position));
        let checkpoint = CheckpointFile { path, cluster: self.cluster, position };
        if fs::exists(&checkpoint.path)? {
            return Ok(checkpoint);
        }
        remove_unfinished(&self.dir)?;
        let unfinished = UnfinishedFile::create(&checkpoint.path)?;
        let mut out = BufWriter::with_capacity(1 << 20, unfinished.file()?);
        self.source.write_checkpoint(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        match unfinished.finish(&checkpoint.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(checkpoint),
        }
    }
}

/// Removes what a killed writer has left.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let of = name.split_once(UnfinishedFile::SUFFIX).map(|(of, _)| dir.join(of));
        if of.and_then(CheckpointFile::parse).is_none() {
            continue;
        }
        // One that is being written is locked; on a file system without locks its writer starts over.
        if File::open(&path)?.try_lock().is_ok() {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (ClusterId([1; 16]), ClusterId([0xfe; 16]));
        for (cluster, position) in [(one, 9), (other, 5), (one, 10), (one, 2)] {
            fs::write(dir.path().join(CheckpointFile::name(cluster, Position::new(position))), "").unwrap();
        }
        let name = CheckpointFile::name(one, Position::new(77));
        for foreign in [
            "notes".to_owned(),
            format!("{name}.unfinished-1-0"),
            name.replace("77", "7x"),
            name.replace("0000077", "77"),
            name.to_uppercase(),
        ] {
            fs::write(dir.path().join(foreign), "").unwrap();
        }
        let found = list(dir.path()).unwrap();
        let found: Vec<_> =
            found.iter().map(|checkpoint| (checkpoint.cluster, checkpoint.position.get())).collect();
        assert_eq!(found, [(one, 10), (one, 9), (one, 2), (other, 5)]);
        remove_unfinished(dir.path()).unwrap();
        assert!(!dir.path().join(format!("{name}.unfinished-1-0")).exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 8);
    }
}
