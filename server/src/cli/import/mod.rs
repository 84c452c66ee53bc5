//! `plinth import`: makes a data directory from the objects of a kube-apiserver's etcd.

mod error;
mod for_etcd;
mod options;
mod target;

pub(super) use error::ImportCommandError;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use clap::{Args, Subcommand};
use plinth_engine::{Engine, Options};
use plinth_http::RemoteWaits;
use plinth_migration::decode::Decoder;
use plinth_migration::follow::{Follower, SwitchOver};
use plinth_migration::import::{self, ImportError};
use plinth_migration::live::{Live, LiveOptions};
use plinth_migration::refusal::Refusal;
use plinth_migration::report::Report;
use plinth_migration::snapshot::Snapshot;
use plinth_migration::source::Source;
use plinth_storage::{Encryption, EncryptionConfigError, EncryptionOptions};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{signal, SignalKind};

use super::output;
use super::serve::{self, ServeError};
use super::store::Bar;
use options::{SnapshotOptions, TargetOptions};
use target::NewDataDir;

/// `plinth import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth import snapshot snapshot.db --data-dir ./data\n  plinth import etcd --endpoints 10.0.0.1:2379 --data-dir ./data\n  plinth import kine /var/lib/rancher/k3s/server/db/state.db --data-dir ./data\n\nThe directory is made whole or not at all: docs/migration.md has the way in and back."
)]
pub struct ImportCommand {
    /// What is imported
    #[command(subcommand)]
    source: ImportSource,
}

/// What is imported.
#[derive(Debug, Subcommand)]
enum ImportSource {
    /// Import a file of etcdctl snapshot save
    Snapshot(SnapshotOptions),
    /// Import from a running etcd, and follow it if asked to
    Etcd(EtcdSourceOptions),
    /// Import from the SQLite database of k3s or kine
    Kine(KineOptions),
}

/// Options of `plinth import etcd`, under the names of etcdctl.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth import etcd --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key --data-dir ./data\n  plinth import etcd --endpoints 10.0.0.1:2379 --data-dir ./data --follow\n\nReads everything at one revision of etcd. With --follow, continues to apply changes until SIGTERM or SIGINT, the command to switch\nover: stop every kube-apiserver before it. Then what is left is applied, and the new directory is compared with etcd."
)]
struct EtcdSourceOptions {
    /// Members of etcd, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1:2379", value_name = "URLS")]
    endpoints: Vec<String>,
    /// Authority of the members' certificates
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
    /// User of etcd; the password is in the environment variable ETCDCTL_PASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Continue to apply changes until SIGTERM or SIGINT
    #[arg(long)]
    follow: bool,
    /// Switch over when etcd has reached this revision
    #[arg(long, requires = "follow", value_name = "REVISION")]
    until_revision: Option<u64>,
    #[command(flatten)]
    target: TargetOptions,
}

/// Options of `plinth import kine`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth import kine /var/lib/rancher/k3s/server/db/state.db --data-dir ./data\n  plinth import kine 'sqlite:///var/lib/rancher/k3s/server/db/state.db?_journal=WAL' --data-dir ./data\n\nReads one state of the database and writes nothing to it, whether k3s runs or not; what it changes afterwards is not imported.\nresourceVersions continue above those of kine. Other databases of kine are not read."
)]
struct KineOptions {
    /// The database, or kine's --endpoint: sqlite://FILE
    #[arg(value_name = "FILE-OR-URL", value_parser = database)]
    database: PathBuf,
    #[command(flatten)]
    target: TargetOptions,
}

/// Runs an import.
///
/// # Errors
/// See [`ImportCommandError`]; no directory was created then.
pub(super) fn run(command: ImportCommand) -> Result<(), ImportCommandError> {
    let runtime = serve::runtime()?;
    match command.source {
        ImportSource::Snapshot(options) if options.for_etcd => for_etcd::run(&options),
        ImportSource::Snapshot(options) => snapshot(&options, &runtime),
        ImportSource::Etcd(options) => etcd(&options, &runtime),
        ImportSource::Kine(options) => kine(&options, &runtime),
    }
}

/// The file of a database, which may be named as kine's `--endpoint` does.
fn database(text: &str) -> Result<PathBuf, String> {
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(PathBuf::from(text)) };
    let path = rest.split('?').next().unwrap_or(rest);
    match (scheme, path) {
        ("sqlite", "") => Err("it names no file".to_owned()),
        ("sqlite", path) => Ok(PathBuf::from(path)),
        _ => Err(format!("{scheme} cannot be read: only SQLite is, as sqlite://FILE")),
    }
}

fn snapshot(options: &SnapshotOptions, runtime: &Runtime) -> Result<(), ImportCommandError> {
    let target = NewDataDir::new(&options.target.data_dir)?;
    let snapshot = Snapshot::open(&options.file, !options.skip_hash_check)?;
    let mut decoder = decoder(&options.target, runtime)?;
    let report = whole(&snapshot, &mut decoder, &target, &options.target)?;
    target.finish()?;
    print(&options.target.data_dir, &report);
    Ok(())
}

fn kine(options: &KineOptions, runtime: &Runtime) -> Result<(), ImportCommandError> {
    let target = NewDataDir::new(&options.target.data_dir)?;
    let mut decoder = decoder(&options.target, runtime)?;
    let (file, path) = target.spool(false)?;
    let bar = Bar::new();
    let spool = plinth_migration::kine::spool(
        &options.database,
        &target.scratch(),
        decoder.prefix(),
        (file, &path),
        &mut |progress| {
            bar.show(progress);
        },
    )?;
    drop(bar);
    let report = whole(&spool, &mut decoder, &target, &options.target)?;
    target.finish()?;
    print(&options.target.data_dir, &report);
    Ok(())
}

fn etcd(options: &EtcdSourceOptions, runtime: &Runtime) -> Result<(), ImportCommandError> {
    let target = NewDataDir::new(&options.target.data_dir)?;
    let mut decoder = decoder(&options.target, runtime)?;
    let mut live = Live::new(&live_options(options)?, runtime.handle().clone())?;
    let is_commanded = Arc::new(AtomicBool::new(false));
    if options.follow {
        on_signals(runtime.handle(), &is_commanded)?;
    }
    let (file, path) = target.spool(false)?;
    let bar = Bar::new();
    let spool = live.spool(decoder.prefix(), file, &path, &mut |progress| bar.show(progress))?;
    drop(bar);
    if !options.follow {
        let report = whole(&spool, &mut decoder, &target, &options.target)?;
        target.finish()?;
        print(&options.target.data_dir, &report);
        return Ok(());
    }
    check(&spool, &mut decoder, &options.target)?;
    let engine = open(&target, spool.revision())?;
    let bar = Bar::new();
    let skips = options.target.skip_unknown;
    let follower = Follower::new(&mut live, &mut decoder, &engine, &spool, skips, &mut |progress| {
        bar.show(progress);
    })?;
    drop(bar);
    output::line(format_args!(
        "imported revision {} of etcd; following. SIGTERM or SIGINT switches over",
        spool.revision()
    ));
    let switch_over = SwitchOver {
        is_commanded: &|| is_commanded.load(Ordering::SeqCst),
        at_revision: options.until_revision,
    };
    let (file, path) = target.spool(true)?;
    let followed = follower.run(&switch_over, &mut list, (file, &path))?;
    engine.close()?;
    drop(engine);
    target.finish()?;
    output::line(format_args!(
        "left etcd at revision {} after {} changes",
        followed.left_at, followed.changes
    ));
    if followed.late_changes > 0 {
        output::error_line(format_args!(
            "note: {} of them arrived after the command to switch over: was every kube-apiserver stopped?",
            followed.late_changes
        ));
    }
    print(&options.target.data_dir, &followed.report);
    Ok(())
}

/// Checks a source, writes it to a store and verifies that.
fn whole(
    source: &impl Source,
    decoder: &mut Decoder,
    target: &NewDataDir,
    options: &TargetOptions,
) -> Result<Report, ImportCommandError> {
    check(source, decoder, options)?;
    let engine = open(target, source.revision())?;
    let bar = Bar::new();
    let report = import::import(source, decoder, &engine, &mut |progress| bar.show(progress))?;
    drop(bar);
    engine.close()?;
    Ok(report)
}

/// Lists what cannot be imported.
fn check(
    source: &impl Source,
    decoder: &mut Decoder,
    options: &TargetOptions,
) -> Result<(), ImportCommandError> {
    let bar = Bar::new();
    let checked = import::check(
        source,
        decoder,
        &mut |key, refusal| bar.suspend(|| list(key, refusal)),
        &mut |progress| {
            bar.show(progress);
        },
    )?;
    if checked.refused > 0 && !options.skip_unknown {
        return Err(ImportError::Refused(checked.refused).into());
    }
    Ok(())
}

fn list(key: &[u8], refusal: &Refusal) {
    output::error_line(format_args!("{}: {refusal}", key.escape_ascii()));
}

fn open(target: &NewDataDir, revision: u64) -> Result<Engine, ImportCommandError> {
    let options = Options::new(target.store()).expire_keys(false);
    Ok(Engine::open(options.continue_above(import::continue_above(revision)?))?)
}

fn print(path: &Path, report: &Report) {
    output::line(format_args!("{report}"));
    output::line(format_args!(
        "{}: made. Certificates and keys are not in etcd: see docs/migration.md before the first start",
        path.display()
    ));
}

fn decoder(options: &TargetOptions, runtime: &Runtime) -> Result<Decoder, ImportCommandError> {
    let encryption = encryption(options.encryption_provider_config.as_deref(), runtime)?;
    Ok(Decoder::new(&options.prefix, encryption))
}

/// Encryption by a configuration, if there is one.
pub(super) fn encryption(
    path: Option<&Path>,
    runtime: &Runtime,
) -> Result<Arc<Encryption>, EncryptionConfigError> {
    let options = EncryptionOptions {
        encryption_provider_config: path.map(Path::to_owned),
        encryption_provider_config_automatic_reload: false,
    };
    runtime.block_on(Encryption::start(&options, &RemoteWaits::default()))
}

fn live_options(options: &EtcdSourceOptions) -> Result<LiveOptions, ImportCommandError> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| ImportCommandError::File { path: path.clone(), source })
    };
    let identity = match (&options.cert, &options.key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let user = match &options.user {
        None => None,
        Some(name) => {
            let password = std::env::var("ETCDCTL_PASSWORD").map_err(|_| ImportCommandError::Password)?;
            Some((name.clone(), password))
        }
    };
    Ok(LiveOptions {
        endpoints: options.endpoints.clone(),
        certificate_authority: options.cacert.as_ref().map(read).transpose()?,
        identity,
        user,
    })
}

/// Notes SIGTERM and SIGINT.
fn on_signals(runtime: &Handle, commanded: &Arc<AtomicBool>) -> Result<(), ServeError> {
    let _entered = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut received =
            signal(kind).map_err(|source| ServeError::Io { what: "cannot handle signals", source })?;
        let commanded = Arc::clone(commanded);
        runtime.spawn(async move {
            received.recv().await;
            commanded.store(true, Ordering::SeqCst);
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_file_or_kines_endpoint() {
        let file = |text: &str| database(text).map(|path| path.display().to_string());
        for (text, expected) in [
            ("/a/state.db", "/a/state.db"),
            ("state.db?x", "state.db?x"),
            ("sqlite:///a/state.db", "/a/state.db"),
            ("sqlite://./db/state.db?_journal=WAL&cache=shared", "./db/state.db"),
        ] {
            assert_eq!(file(text).as_deref(), Ok(expected));
        }
        assert!(file("sqlite://").is_err());
        assert!(file("postgres://user@host/kine").unwrap_err().starts_with("postgres cannot be read"));
    }
}
