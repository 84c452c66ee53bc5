//! `plinth backup`, `plinth restore`, `plinth verify`: the store of a data directory, offline, and backup of
//! a running server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use plinth_engine::{ArchiveSummary, Continuation, Engine, Options, Progress};

use super::output;
use crate::archives::{ArchiveError, ArchiveLocation};
use crate::bootstrap::files::exists;
use crate::bootstrap::pki::Pki;
use crate::bootstrap::{DataDir, DataDirError};
use crate::client::{ClientError, ServerClient};
use plinth_apiserver::private_files;

/// The path of a running server that returns an archive.
pub(super) const BACKUP_PATH: &str = "/plinth/backup";

/// A failed command.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum StoreError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("{0}; a running server is backed up with --kubeconfig")]
    BackupOfRunning(plinth_engine::Error),
    #[error("{0}; stop the server that uses it first")]
    Running(plinth_engine::Error),
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Engine(plinth_engine::Error),
    #[error("{0}\nIt cannot be repaired, and nothing was changed. Restore a backup into another directory")]
    BeyondRepair(plinth_engine::Error),
    #[error(
        "{0}\nThe system failed a file operation. This is not damage, and nothing is lost. Check the disk, its free space and the \
         kernel's log, then run plinth repair again; if it fails again, restore a backup into another directory"
    )]
    RepairFailed(plinth_engine::Error),
    #[error(
        "{source}\nNothing was restored. {path} is marked as unfinished, and no server starts there. Run plinth restore again with the \
         same --data-dir and a sound archive"
    )]
    Restore { path: PathBuf, source: plinth_engine::Error },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("give either --data-dir or --kubeconfig")]
    NoSource,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the store or the keys are damaged: {0} findings")]
    Damaged(u64),
    #[error(transparent)]
    Pki(#[from] crate::bootstrap::pki::PkiError),
    #[error(
        "{0} needs a repair; nothing was changed\nRestore a backup, or add --yes to apply what is listed above"
    )]
    RepairNeeded(PathBuf),
}

/// Advice on a store that cannot be opened, on its own line.
pub(super) fn remedy(error: &plinth_engine::Error) -> &'static str {
    use plinth_engine::Error;
    match error {
        Error::Rocks { .. } if error.is_system_failure() => {
            "\nThe system failed an operation on files, and nothing was removed. Check the disk and the kernel's log, then try again; if it fails \
             again, restore a backup into another directory"
        }
        Error::Incomplete { .. }
        | Error::Corrupt { .. }
        | Error::LostCommits { .. }
        | Error::Rocks { .. } => {
            "\nNothing was removed. Restore a backup into another directory, or see with plinth repair --data-dir DIR what can be kept"
        }
        Error::UnfinishedRestore { .. } => "\nRun plinth restore again with the same --data-dir",
        Error::Mark { .. } => {
            "\nplinth etcd serves a store of \"etcd\", plinth serve one without a mark; each needs a directory of its own"
        }
        Error::NotReplica { .. } => {
            "\nIf plinth replicate, with or without --undo, was interrupted here, run it again"
        }
        Error::FormatVersion { .. } => "\nStart the version of plinth that wrote it",
        Error::Journal { source: plinth_journal::Error::Trimmed { .. } } => {
            "\nThis replica was away for longer than the journal is kept. Keep its data directory: it may have what others lack. Move it aside, and make the replica again with plinth join"
        }
        Error::Journal { source: plinth_journal::Error::Version { .. } } => {
            "\nThe other replicas were upgraded, and nothing was written. Start a version of plinth that is as new as theirs"
        }
        Error::Journal { source: plinth_journal::Error::Closed { .. } } => {
            "\nNothing was removed. Use the server of that replica, and remove this data directory. Where that server's data is lost, make a backup of \
             the replica that is furthest, and restore it (docs/replication.md)"
        }
        Error::Journal {
            source: plinth_journal::Error::Damaged { .. } | plinth_journal::Error::OtherCluster { .. },
        } => {
            "\nThe journal has a record that no replica of this cluster has written, or one that is damaged, at each member that a warning above names; \
             if --journal lacks members, name them all. Nothing was removed. Otherwise make a \
             backup of the replica that is furthest, restore it into an empty directory, and begin a new journal with plinth replicate (docs/replication.md)"
        }
        Error::Journal {
            source: plinth_journal::Error::Behind { .. } | plinth_journal::Error::Replaced { .. },
        } => {
            "\nThe journal is another one, or its members have lost what they had on disk. Nothing was removed. Check --journal and the members; \
             if the journal is lost, continue from a backup (docs/replication.md)"
        }
        _ => "",
    }
}

impl From<plinth_engine::Error> for StoreError {
    fn from(error: plinth_engine::Error) -> StoreError {
        match error {
            plinth_engine::Error::Locked { .. } => StoreError::Running(error),
            error => StoreError::Engine(error),
        }
    }
}

/// Options of `plinth backup`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth backup --data-dir ./data --to plinth.backup                    (server stopped)\n  plinth backup --kubeconfig ./data/admin.kubeconfig --to plinth.backup  (server running)\n  plinth backup --kubeconfig ./data/admin.kubeconfig --to s3://bucket/plinth.backup\n\nThe archive holds all objects and their history at one revision. Certificates and keys (DATA_DIR/pki) are not included:\ncopy that directory separately."
)]
pub struct BackupOptions {
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    pub data_dir: Option<PathBuf>,
    /// Kubeconfig for a running server; its user must be in system:masters
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Archive to write, a file or s3://BUCKET/KEY; must not exist
    #[arg(long, value_name = "PATH", value_parser = ArchiveLocation::value_parser())]
    pub to: ArchiveLocation,
}

/// Options of `plinth restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  plinth restore --from plinth.backup --data-dir ./restored\n\nThe restored server continues at a resourceVersion above all of the old one, so that watches end with 410 and clients list\nagain. Certificates and keys (DATA_DIR/pki) are not in the archive: copy that directory, or new ones are created."
)]
pub struct RestoreOptions {
    /// Archive to restore, a file or s3://BUCKET/KEY
    #[arg(long, value_name = "PATH", value_parser = ArchiveLocation::value_parser())]
    pub from: ArchiveLocation,
    /// Data directory to create; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
}

/// Options of `plinth verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  plinth verify --data-dir ./data\n\nVerifies all checksums and cross-references of a stopped server's store, and its certificates and keys. Prints a line per\nerror and exits with 1 if there is any."
)]
pub struct VerifyOptions {
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
}

/// A progress bar on a terminal; otherwise nothing.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Bar {
        let bar = ProgressBar::new(0);
        // The template is constant and valid; otherwise the default style is used.
        if let Ok(style) =
            ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} entries, {eta} left")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }

    /// Prints a line above the bar.
    pub(super) fn print(&self, line: &str) {
        self.0.suspend(|| output::line(format_args!("{line}")));
    }

    /// Runs something that prints, with the bar out of the way.
    pub(super) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    pub(super) fn show(&self, progress: Progress) {
        self.0.set_length(progress.total.max(progress.done));
        self.0.set_position(progress.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Writes an archive.
///
/// # Errors
/// See [`StoreError`]; no archive is left then.
pub(super) fn backup(options: BackupOptions) -> Result<(), StoreError> {
    let summary = options.to.write(|out| match (&options.data_dir, &options.kubeconfig) {
        (Some(dir), _) => backup_offline(dir, out),
        (None, Some(kubeconfig)) => backup_online(kubeconfig, out),
        (None, None) => Err(StoreError::NoSource),
    })?;
    output::line(format_args!("{}: {summary}", options.to));
    Ok(())
}

fn summary(archived: ArchiveSummary) -> String {
    format!("revision {}, {} entries", archived.revision, archived.entries)
}

pub(super) fn existing(path: &Path) -> Result<DataDir, StoreError> {
    let dir = DataDir::existing(path)?;
    let store = dir.store();
    match exists(&store) {
        Ok(true) => Ok(dir),
        Ok(false) => Err(DataDirError::NotOurs { path: path.to_owned() }.into()),
        Err(source) => Err(StoreError::File { path: store, source }),
    }
}

fn backup_offline(dir: &Path, mut out: &mut dyn Write) -> Result<String, StoreError> {
    let dir = existing(dir)?;
    let engine =
        Engine::open(Options::new(dir.store()).create(false).expire_keys(false).read_replica().any_mark())
            .map_err(|error| match error {
                plinth_engine::Error::Locked { .. } => StoreError::BackupOfRunning(error),
                error => StoreError::Engine(error),
            })?;
    let bar = Bar::new();
    let archived = engine.backup(&mut out, |progress| bar.show(progress))?;
    engine.close()?;
    Ok(summary(archived))
}

fn backup_online(kubeconfig: &Path, mut out: &mut dyn Write) -> Result<String, StoreError> {
    let bytes = ServerClient::of_kubeconfig(kubeconfig)?.get(BACKUP_PATH, &mut out)?;
    Ok(format!("{bytes} bytes"))
}

/// Restores a data directory from an archive.
///
/// # Errors
/// See `StoreError`.
pub fn restore(options: RestoreOptions) -> Result<(), StoreError> {
    let archive = &mut options.from.read()?;
    let mut dir = DataDir::for_restore(&options.data_dir)?;
    let bar = Bar::new();
    let restored = plinth_engine::prepare_restore(archive, dir.store(), Continuation::Beyond, |progress| {
        bar.show(progress)
    });
    drop(bar);
    let restored = restored.map_err(|source| match source {
        plinth_engine::Error::InvalidArchive { .. } | plinth_engine::Error::Io { .. } => {
            StoreError::Restore { path: options.data_dir.clone(), source }
        }
        source => source.into(),
    })?;
    // An existing directory may be accessible to others.
    private_files::narrow(dir.path())
        .map_err(|source| StoreError::File { path: options.data_dir.clone(), source })?;
    // The store gets its name last: an interrupted restore never leaves a store with that name.
    dir.restored()?;
    let archived = restored.finish()?;
    output::line(format_args!("{}: {}", options.data_dir.display(), summary(archived)));
    Ok(())
}

/// Verifies a data directory.
///
/// # Errors
/// [`StoreError::Damaged`] if damage was found; see [`StoreError`].
pub(super) fn verify(options: VerifyOptions) -> Result<(), StoreError> {
    let dir = existing(&options.data_dir)?;
    let bar = Bar::new();
    let verified = plinth_engine::verify(
        dir.store(),
        |progress| bar.show(progress),
        |error| bar.print(&error.to_string()),
    )?;
    drop(bar);
    let mut findings = verified.findings;
    let pki = Pki::at(dir.path());
    for error in pki.verify(dir.stage()) {
        output::line(format_args!("{error}"));
        findings += 1;
    }
    if let Err(error) = dir.continue_key() {
        output::line(format_args!("{error}"));
        findings += 1;
    }
    // Not damage, and possibly intended: clients may trust another authority.
    for rejected in pki.rejected() {
        output::line(format_args!("note: {rejected}"));
    }
    output::line(format_args!("{} entries up to revision {}", verified.entries, verified.revision));
    match findings {
        0 => Ok(()),
        findings => Err(StoreError::Damaged(findings)),
    }
}
