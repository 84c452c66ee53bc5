//! `plinth replicate`: makes the data directory of a single server that of a cluster's first replica, and
//! back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use plinth_engine::{Engine, Failure, Options, Replica, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_journal::Error as JournalError;

use super::output;
use crate::bootstrap::files::{remove_if_exists, sync_parent};
use crate::bootstrap::identity::{Identity, IdentityError};
use crate::bootstrap::{DataDir, DataDirError, Stage};
use crate::members::{self, Member};
use crate::replica::journal::{Connect, JournalOptions, JournalOptionsError};
use plinth_api::ApiError;
use plinth_storage::Store;

/// Longest time until everything that is in the journal is applied.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the records of other replicas are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Options of `plinth replicate`.
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Examples:\n  plinth backup --data-dir ./data --to before.backup\n  plinth replicate --data-dir ./data\n  plinth serve --data-dir ./data --journal etcd://h1:2379,h2:2379,h3:2379/plinth\n\n  plinth replicate --undo --data-dir ./data --journal etcd://h1:2379,h2:2379,h3:2379/plinth\n  plinth serve --data-dir ./data\n\nObjects, resourceVersions, certificates and keys stay, both ways. The journal must be empty at first. For the way back all\nreplicas are stopped; the one that is made a single server applies what is in the journal and closes it, so that the\nothers do not start again."
)]
pub struct ReplicateOptions {
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Make the data directory of a replica that of a single server
    #[arg(long, requires = "journal")]
    pub undo: bool,
    /// The journal of the replicas, for --undo.
    #[command(flatten)]
    pub journal: JournalOptions,
}

/// The directory was not made one of a replica.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ReplicateError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    JournalOptions(#[from] JournalOptionsError),
    #[error("--journal: {0}")]
    Journal(plinth_journal::Error),
    #[error("--journal is for --undo: it is given to plinth serve afterwards")]
    UselessJournal,
    #[error("--undo needs --journal: what is in the journal belongs to the server")]
    NoJournal,
    #[error("{0} holds no data of a server yet; start it with --journal at once")]
    Empty(PathBuf),
    #[error("{0} is that of a single server already")]
    Single(PathBuf),
    #[error("replica {0} is up: stop all of them first")]
    Up(u16),
    #[error("the journal does not answer; nothing was changed")]
    Silent,
    #[error(
        "replica {0} has closed the journal, and is a single server since; where its data is lost, make a backup of \
         the replica that is furthest, and restore it"
    )]
    Closed(u16),
    #[error("the journal could not be closed: {0}; run it again")]
    NotClosed(plinth_engine::Error),
    #[error("cannot read the list of replicas: {}", .0.message)]
    Members(ApiError),
    #[error("cannot use {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot open the store: {0}{remedy}", remedy = super::store::remedy(.0))]
    Engine(#[from] plinth_engine::Error),
}

/// Makes it one. May be repeated after it was interrupted.
///
/// # Errors
/// See [`ReplicateError`].
pub fn replicate(options: ReplicateOptions) -> Result<(), ReplicateError> {
    let connect = options.journal.connector()?;
    match (options.undo, connect) {
        (true, Some(connect)) => return undo(options.data_dir, connect),
        (true, None) => return Err(ReplicateError::NoJournal),
        (false, Some(_)) => return Err(ReplicateError::UselessJournal),
        (false, None) => {}
    }
    DataDir::existing(&options.data_dir)?;
    let dir = DataDir::open(&options.data_dir)?;
    if dir.stage() == Stage::New {
        return Err(ReplicateError::Empty(options.data_dir));
    }
    // Before the store: with an identity and a single store it is started neither as the one nor as the
    // other.
    let identity = Identity::ensure(&dir)?;
    if !plinth_engine::is_replicated(dir.store())? {
        // Of a cluster whose backup it was restored from.
        forget_replicas(Options::new(dir.store()))?;
        remove(&dir, members::peers::FILE)?;
    }
    plinth_engine::replicate(Options::new(dir.store()), identity.cluster)?;
    output::line(format_args!(
        "{}: replica {} of cluster {}",
        dir.path().display(),
        identity.id.0,
        identity.cluster
    ));
    output::line(format_args!(
        "start it with: plinth serve --data-dir {} --journal URL",
        dir.path().display()
    ));
    Ok(())
}

/// Makes the data directory of a replica, none of which runs, that of a single server with everything that is
/// in the journal. May be repeated after it was interrupted.
///
/// # Errors
/// See [`ReplicateError`]; the directory is that of a replica then, and may have applied more of the journal.
pub fn undo(data_dir: PathBuf, connect: Connect) -> Result<(), ReplicateError> {
    DataDir::existing(&data_dir)?;
    let dir = DataDir::open(&data_dir)?;
    let Some(identity) = Identity::read(dir.path())? else { return Err(ReplicateError::Single(data_dir)) };
    let options = Options::new(dir.store());
    if plinth_engine::is_replicated(dir.store())? {
        match plinth_engine::applied_position(dir.store())? {
            // Interrupted after that.
            Some((_, Some(by))) if by == identity.id => {}
            Some((_, Some(by))) => return Err(ReplicateError::Closed(by.0)),
            _ => follow_to_its_end(&options, connect, identity)?,
        }
        plinth_engine::unreplicate(options.clone())?;
    }
    forget_replicas(options)?;
    // Last: until then the directory is started neither as the one nor as the other.
    for name in [members::peers::FILE, Identity::FILE] {
        remove(&dir, name)?;
    }
    let shown = dir.path().display();
    output::line(format_args!("{shown}: a single server. Do not start the other replicas again: they would be another cluster with the same keys"));
    output::line(format_args!("start it with: plinth serve --data-dir {shown}"));
    Ok(())
}

/// Deletes the list of replicas, which are none of the cluster that the single store becomes part of, or are
/// none any more. The store is not changed where there is none.
fn forget_replicas(options: Options) -> Result<(), ReplicateError> {
    let engine = Engine::open(options)?;
    let keys = members::keys(&engine)?;
    let deleted = match keys.is_empty() {
        true => Ok(()),
        false => {
            let transaction = keys.into_iter().fold(Transaction::new(), Transaction::delete);
            engine.transact(transaction).wait().map(drop)
        }
    };
    engine.close()?;
    Ok(deleted?)
}

fn remove(dir: &DataDir, name: &str) -> Result<(), ReplicateError> {
    let path = dir.path().join(name);
    let removed = remove_if_exists(&path).and_then(|_| sync_parent(&path));
    removed.map_err(|source| ReplicateError::File { path, source })
}

/// Applies everything that is in the journal, and closes it: a replica that is up after all, or is started
/// later, stops at that record.
fn follow_to_its_end(options: &Options, connect: Connect, identity: Identity) -> Result<(), ReplicateError> {
    let founding = plinth_engine::check_replica(options, identity.cluster)?;
    let journal = connect(identity.cluster, founding).map_err(ReplicateError::Journal)?;
    let replica = Replica { journal, cluster: identity.cluster, id: identity.id };
    let engine = Engine::open_replicated(options.clone(), replica)?;
    let closed = catch_up(&engine, identity)
        .and_then(|()| engine.close_journal().wait().map(drop).map_err(ReplicateError::NotClosed));
    // The engine of a journal that is closed has failed, and closes with that.
    let ended = engine.close();
    let closed_by = closed_by(&engine);
    // Its lock on the store ends with it.
    drop(engine);
    match closed_by {
        Some(by) if by == identity.id => Ok(()),
        // Before this one.
        Some(by) => Err(ReplicateError::Closed(by.0)),
        None => {
            closed?;
            ended.map_err(ReplicateError::NotClosed)
        }
    }
}

/// Who has closed the journal, as far as this engine has applied it.
fn closed_by(engine: &Engine) -> Option<ReplicaId> {
    match engine.failure()? {
        Failure::Journal { error: JournalError::Closed { replica, .. } } => Some(replica),
        _ => None,
    }
}

/// Applies everything that is in the journal, and checks that no other replica runs.
///
/// Clocks decide nothing: another replica runs if it renews its record while it is watched.
fn catch_up(engine: &Engine, identity: Identity) -> Result<(), ReplicateError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| ReplicateError::File { path: PathBuf::from("runtime"), source })?;
    let store = Store::new(engine.clone(), Default::default());
    let others = || -> Result<Vec<(Member, u64)>, ReplicateError> {
        let barrier = engine.read_barrier().wait_until(Instant::now() + CATCH_UP_TIMEOUT);
        barrier.ok_or(ReplicateError::Silent)??;
        let renewals = runtime.block_on(members::renewals(&store)).map_err(ReplicateError::Members)?;
        let may_be_up = |member: &Member| member.id != identity.id.0 && !member.stopped;
        Ok(renewals.into_iter().filter(|(member, _)| may_be_up(member)).collect())
    };
    let first = others()?;
    if first.is_empty() {
        return Ok(());
    }
    let seconds = members::NOTICED_WITHIN.as_secs();
    output::line(format_args!(
        "other replicas did not stop by themselves; watching for {seconds} s whether one is up"
    ));
    let end = Instant::now() + members::NOTICED_WITHIN;
    while Instant::now() < end {
        // Made inside of the runtime, which has the timer.
        runtime.block_on(async { tokio::time::sleep(WATCH_INTERVAL).await });
        let renewed = others()?.into_iter().find(|renewal| !first.contains(renewal));
        if let Some((member, _)) = renewed {
            return Err(ReplicateError::Up(member.id));
        }
    }
    Ok(())
}
