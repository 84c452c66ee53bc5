//! `plinth export`: writes the objects of a data directory for a kube-apiserver's etcd.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use plinth_engine::{Continuation, Engine, Options};
use plinth_migration::decode::Decoder;
use plinth_migration::export::{self, ExportError};
use plinth_storage::EncryptionConfigError;

use super::output;
use super::serve::{self, ServeError};
use super::store::{existing, remedy, Bar, StoreError};
use crate::bootstrap::files::{exists, parent};
use crate::unfinished_file::UnfinishedFile;

/// `plinth export`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plinth export etcd-snapshot --data-dir ./data snapshot.db")]
pub struct ExportCommand {
    /// What is written
    #[command(subcommand)]
    target: ExportTarget,
}

/// What is written.
#[derive(Debug, Subcommand)]
enum ExportTarget {
    /// Write a file that etcdutl snapshot restore takes
    EtcdSnapshot(EtcdSnapshotOptions),
}

/// Options of `plinth export etcd-snapshot`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth export etcd-snapshot --data-dir ./data snapshot.db     (server stopped)\n  plinth export etcd-snapshot --backup plinth.backup snapshot.db\n  etcdutl snapshot restore snapshot.db --data-dir ./etcd\n\nThe file has the keys and values that a kube-apiserver v1.36 has in etcd, with their resourceVersions. It is read back and\ncompared object by object. Secrets are in it in plain text unless --encryption-provider-config encrypts them."
)]
struct EtcdSnapshotOptions {
    /// File to write; must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR", required_unless_present = "backup", conflicts_with = "backup")]
    data_dir: Option<PathBuf>,
    /// Archive of plinth backup
    #[arg(long, value_name = "PATH")]
    backup: Option<PathBuf>,
    /// What the keys of the kube-apiserver begin with: its --etcd-prefix
    #[arg(long, default_value = "/registry", value_name = "PREFIX")]
    prefix: String,
    /// The EncryptionConfiguration of the server; values are encrypted by it as a kube-apiserver does
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Leave out what cannot be exported
    #[arg(long)]
    skip_unknown: bool,
}

/// A failed export. No file was left.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ExportCommandError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} exists already, and is not overwritten")]
    Exists { path: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Engine(#[from] plinth_engine::Error),
    #[error(transparent)]
    Encryption(#[from] EncryptionConfigError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs an export.
///
/// # Errors
/// See [`ExportCommandError`]; no file is left then.
pub(super) fn run(command: ExportCommand) -> Result<(), ExportCommandError> {
    let ExportTarget::EtcdSnapshot(options) = command.target;
    let runtime = serve::runtime()?;
    let error = |source| ExportCommandError::File { path: options.file.clone(), source };
    if exists(&options.file).map_err(error)? {
        return Err(ExportCommandError::Exists { path: options.file });
    }
    let encryption = super::import::encryption(options.encryption_provider_config.as_deref(), &runtime)?;
    let mut decoder = Decoder::new(&options.prefix, encryption);
    let opened = open(&options)?;
    let unfinished = UnfinishedFile::create(&options.file).map_err(error)?;
    let file = unfinished.file().map_err(error)?;
    let bar = Bar::new();
    let report = export::export(
        &opened.engine,
        &mut decoder,
        (file, unfinished.path()),
        options.skip_unknown,
        &mut |key, reason| bar.suspend(|| output::error_line(format_args!("{key}: {reason}"))),
        &mut |progress| bar.show(progress),
    )?;
    drop(bar);
    opened.engine.close()?;
    match unfinished.finish(&options.file) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(ExportCommandError::Exists { path: options.file })
        }
        finished => finished.map_err(error)?,
    }
    output::line(format_args!("{report}"));
    output::line(format_args!("{}: written", options.file.display()));
    Ok(())
}

/// An open store, and the directory of one that was restored from a backup.
struct Opened {
    engine: Engine,
    _restored: Option<Restored>,
}

fn open(options: &EtcdSnapshotOptions) -> Result<Opened, ExportCommandError> {
    let (store, restored) = match (&options.backup, &options.data_dir) {
        (Some(archive), _) => {
            let restored = Restored::new(archive, &options.file)?;
            (restored.0.clone(), Some(restored))
        }
        (None, Some(dir)) => (existing(dir)?.store(), None),
        (None, None) => return Err(StoreError::NoSource.into()),
    };
    let engine = Engine::open(Options::new(store).create(false).expire_keys(false).read_replica());
    Ok(Opened { engine: engine.map_err(StoreError::from)?, _restored: restored })
}

/// A backup that was restored beside the file, removed on drop.
struct Restored(PathBuf);

impl Restored {
    fn new(archive: &Path, beside: &Path) -> Result<Restored, ExportCommandError> {
        let error = |source| ExportCommandError::File { path: archive.to_owned(), source };
        let mut from = BufReader::new(File::open(archive).map_err(error)?);
        let name = format!(".plinth-export-{}", std::process::id());
        let path = parent(beside).join(name);
        let error = |source| ExportCommandError::File { path: path.clone(), source };
        if exists(&path).map_err(error)? {
            return Err(ExportCommandError::Exists { path });
        }
        let restored = Restored(path);
        let bar = Bar::new();
        plinth_engine::restore(&mut from, &restored.0, Continuation::Same, |progress| bar.show(progress))?;
        Ok(restored)
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        // It cannot be removed: it is a copy, and its name shows of what.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
