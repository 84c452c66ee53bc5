//! A replica: an engine that follows a journal which several of them share.
//!
//! ```text
//! callers ── Transaction ──> commit queue ──> proposer ── record ──> journal
//!                                                                      │ records of all replicas
//! callers <── answers ── hub <── store <── applier <───────────────────┘
//! ```
//!
//! - [`proposer`]: one thread that appends what callers submit.
//! - [`applier`]: one thread that applies what all replicas have appended.
//! - [`barrier`]: one thread that asks for the end of the journal, for reads of the most recent state.
//! - [`outage`]: since when the journal does not answer as it should, and why.
//! - [`ticket`]: a reader that waits for it.
//! - [`agreement`]: what the hashes in records say about this replica.
//! - [`suspect`]: records that one member has damaged and others may not.
//! - [`unapplied`]: records that the journal has answered for, until they are applied.
//! - [`shared`]: what these threads share.
//! - [`applied`]: what is stored of how far the journal was applied.
//! - [`stepped`]: the same work without the threads, step by step, for simulations.
//!
//! Why there is no leader, and what determinism rests on: `docs/design/0029-proposals-over-one-log.md`.

pub(crate) mod agreement;
pub(crate) mod applied;
pub(crate) mod applier;
pub(crate) mod barrier;
pub(crate) mod outage;
pub(crate) mod proposer;
pub(crate) mod shared;
pub(crate) mod stepped;
pub(crate) mod suspect;
pub(crate) mod ticket;
pub(crate) mod unapplied;

use std::path::Path;
use std::sync::Arc;

use plinth_journal::record::{Anchor, ClusterId, Hash, ReplicaId};
use plinth_journal::{Entry, Error as JournalError, Founding, Journal, Position};
use rocksdb::WriteBatch;

use crate::error::{Error, Result};
use crate::layout::{meta, FORMAT_VERSION};
use crate::options::Options;
use crate::replica::applied::{compare_applied, Applied};
use crate::replica::suspect::Suspects;
use crate::revision::Revision;
use crate::start::{check_and_mark, check_mark, newest_revision};
use crate::store::Store;

/// The place of an engine in a cluster. See [`crate::Engine::open_replicated`].
#[derive(Clone)]
pub struct Replica {
    /// The log that all replicas of the cluster share.
    pub journal: Arc<dyn Journal>,
    /// The cluster. Records of another one are refused.
    pub cluster: ClusterId,
    /// This replica. Each replica that runs has an id of its own.
    pub id: ReplicaId,
}

/// How far a replica has applied the journal. Returned by [`crate::Engine::replica_status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The last position that it has applied.
    pub position: Position,
    /// Its revision there.
    pub revision: Revision,
    /// Its hash there: equal on all replicas.
    pub hash: Hash,
    /// The level of the cluster: the newest version of records that may be appended.
    pub level: u8,
}

impl ReplicaStatus {
    pub(crate) fn new(anchor: Anchor, level: u8) -> ReplicaStatus {
        ReplicaStatus {
            position: anchor.position,
            revision: Revision::new(anchor.revision),
            hash: anchor.hash,
            level,
        }
    }
}

/// Makes a single store, which nobody has open, that of the first replica of a cluster: its data and
/// revisions stay, its history goes on with the first record of the journal. Nothing happens to the store of
/// a replica of that cluster. The way back is [`unreplicate`], or a backup, which restores as a single store.
///
/// # Errors
/// Those of [`crate::Engine::open`], and [`Error::NotReplica`] for a replica of another cluster.
pub fn replicate(options: Options, cluster: ClusterId) -> Result<()> {
    let store = Arc::new(Store::open(&options.clone().create(false))?);
    let start = check_and_mark(&store, &options)?;
    match Applied::read(&store, start.latest)? {
        Some(applied) if applied.cluster == cluster => return Ok(()),
        Some(_) => {
            return Err(Error::NotReplica { dir: options.dir, reason: "it belongs to another cluster" });
        }
        None => {}
    }
    let mut batch = WriteBatch::default();
    Applied::beginning(cluster, start.latest, start.time.now_ms()).write_beginning(&store, &mut batch);
    // A replica reserves no revisions, and skips none.
    store.put_number(&mut batch, meta::RESERVED, start.latest.get());
    store.write(batch, true)?;
    store.flush()?;
    let mut watermark = start.watermark;
    watermark.close(start.latest)
}

/// Makes the store of a replica, which nobody has open, a single one: data, revisions and history stay, and
/// the journal is followed no more. What the replica has not applied is not in it. Nothing happens to a
/// single store.
///
/// # Errors
/// Those of [`crate::Engine::open`].
pub fn unreplicate(options: Options) -> Result<()> {
    let store = Arc::new(Store::open(&options.clone().create(false))?);
    let start = check_and_mark(&store, &options)?;
    if store.is_replica()? {
        let mut batch = WriteBatch::default();
        applied::remove(&store, &mut batch)?;
        store.put_number(&mut batch, meta::FORMAT, FORMAT_VERSION.into());
        store.put_number(&mut batch, meta::RESERVED, start.latest.get());
        store.write(batch, true)?;
        store.flush()?;
    }
    let mut watermark = start.watermark;
    watermark.close(start.latest)
}

/// Whether the directory, which nobody has open, holds the store of a replica.
///
/// # Errors
/// When it cannot be read.
pub fn is_replicated(dir: impl AsRef<Path>) -> Result<bool> {
    Store::open_read_only(&Options::new(dir.as_ref()))?.is_replica()
}

/// The last position that the store of a replica has applied, and who has closed the journal there; none for
/// a single store. Nobody has it open. Changes nothing.
///
/// # Errors
/// When it cannot be read.
pub fn applied_position(dir: impl AsRef<Path>) -> Result<Option<(Position, Option<ReplicaId>)>> {
    let store = Arc::new(Store::open_read_only(&Options::new(dir.as_ref()))?);
    let applied = Applied::read(&store, newest_revision(&store)?)?;
    Ok(applied.map(|applied| (applied.anchor.position, applied.closed_by)))
}

/// What the store of a replica has applied of the journal, compared with that of another one. Returned by
/// [`applied_records`].
pub struct AppliedRecords(Applied);

impl AppliedRecords {
    /// The last position that was applied.
    pub fn position(&self) -> Position {
        self.0.anchor.position
    }

    /// What an older store of the same cluster has and this one has not, in words: it is of a history in
    /// which records were lost. None where it has all of it, as far as that can be known: of a session that a
    /// later one has replaced it shows no more than that it was before.
    pub fn lacks(&self, older: &AppliedRecords) -> Option<String> {
        let (new, old) = (&self.0, &older.0);
        if new.anchor.position < old.anchor.position {
            return Some(format!("it ends at position {}", new.anchor.position));
        }
        if new.anchor.revision < old.anchor.revision {
            let (found, had) = (new.anchor.revision, old.anchor.revision);
            return Some(format!("its revision is {found}, here it is {had}"));
        }
        if new.anchor.position == old.anchor.position && new.anchor.hash != old.anchor.hash {
            return Some("it has another state there".to_owned());
        }
        old.sessions.iter().find_map(|(replica, (session, sequence))| match new.sessions.get(replica) {
            None => Some(format!("it has no record of replica {}", replica.0)),
            Some((found, newest)) if found == session && newest < sequence => {
                Some(format!("it lacks records of replica {}", replica.0))
            }
            Some((found, _)) if found != session && !found.follows(*session) => {
                Some(format!("it lacks the last start of replica {}", replica.0))
            }
            Some(_) => None,
        })
    }
}

/// What the store of a replica, which nobody has open, has applied; none for a single store. Changes nothing.
///
/// # Errors
/// When it cannot be read.
pub fn applied_records(dir: impl AsRef<Path>) -> Result<Option<AppliedRecords>> {
    let store = Arc::new(Store::open_read_only(&Options::new(dir.as_ref()))?);
    Ok(Applied::read(&store, newest_revision(&store)?)?.map(AppliedRecords))
}

/// Opens the store of a replica and checks that it can follow the journal, before anything is written. A
/// journal that does not answer is checked when it does.
pub(crate) fn open_store(
    options: &Options,
    replica: &Replica,
    newest: u8,
) -> Result<(Arc<Store>, Option<Applied>)> {
    if !Store::exists(options)? {
        check_journal(options, replica, &Applied::nothing(replica.cluster), newest)?;
    }
    let store = Arc::new(Store::open(options)?);
    let applied = read_applied(options, &store, replica.cluster, newest)?;
    check_journal(options, replica, applied.as_ref().unwrap_or(&Applied::nothing(replica.cluster)), newest)?;
    Ok((store, applied))
}

/// Reads what a store has applied, and refuses one that is of no replica of the cluster.
fn read_applied(
    options: &Options,
    store: &Arc<Store>,
    cluster: ClusterId,
    newest: u8,
) -> Result<Option<Applied>> {
    let latest = newest_revision(store)?;
    check_mark(store, options, latest)?;
    let applied = Applied::read(store, latest)?;
    let refused = |reason| Err(Error::NotReplica { dir: options.dir.clone(), reason });
    match &applied {
        None if latest.is_set() => refused("it holds data of a single store"),
        Some(applied) if applied.cluster != cluster => refused("it belongs to another cluster"),
        Some(applied) if applied.level > newest => {
            let (position, found) = (applied.anchor.position.next(), applied.level);
            let error = applied.closed().unwrap_or(JournalError::Version { position, found, newest });
            Err(error.into())
        }
        _ => Ok(applied),
    }
}

/// Checks that a directory, which nobody has open, is absent, empty or that of a replica of the cluster. To
/// be done before its journal is connected to, since an empty one is the first cluster's that connects:
/// whether this one may found it depends on what it has applied. Changes nothing.
///
/// # Errors
/// Those of [`crate::Engine::open_replicated`], except for what the journal is needed for.
pub fn check_replica(options: &Options, cluster: ClusterId) -> Result<Founding> {
    if !Store::exists(options)? {
        return Ok(Founding::Allowed);
    }
    let store = Arc::new(Store::open_read_only(options)?);
    let applied = read_applied(options, &store, cluster, plinth_journal::record::VERSION)?;
    Ok(match applied {
        Some(applied) if applied.anchor.position > Position::ZERO => Founding::Forbidden,
        _ => Founding::Allowed,
    })
}

/// Checks that the journal continues what was applied, at each of its members where one has a record damaged.
/// Where others do not answer, whoever follows the journal finds out.
fn check_journal(options: &Options, replica: &Replica, applied: &Applied, newest: u8) -> Result<()> {
    let mut suspects = Suspects::default();
    for _ in 0..suspect::most_reads(&*replica.journal) {
        let given_up = replica.journal.given_up();
        match continues(options, replica, applied, newest, &mut suspects) {
            Err(error) if error.is_transient() || replica.journal.given_up() != given_up => return Ok(()),
            Err(error) if suspect::may_pass(&error) && !suspects.agree(&error, &*replica.journal) => {}
            checked => return checked.map_err(Error::from),
        }
    }
    Ok(())
}

/// Checks that the journal does not end before what was applied, has the record that was applied last where
/// that is not trimmed, and that the next one, if there is one, is sound and of this cluster.
fn continues(
    options: &Options,
    replica: &Replica,
    applied: &Applied,
    newest: u8,
    suspects: &mut Suspects,
) -> Result<(), JournalError> {
    let (journal, position) = (&*replica.journal, applied.anchor.position);
    let mut end = journal.end()?;
    if end < position {
        // It may be the end of one member that has lost what others have. A reader reports what is expected.
        drop(journal.read(position.next())?);
        end = journal.end()?;
    }
    if end < position {
        return Err(JournalError::Behind { applied: position, end });
    }
    if let Some(checksum) = applied.checksum {
        let compare = |entry: Entry| compare_applied(&entry, position, checksum);
        match suspect::judge(journal, position, (suspects, &options.warn), compare) {
            Ok(()) | Err(JournalError::Trimmed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if end == position {
        return Ok(());
    }
    let expected = position.next();
    suspect::judge(journal, expected, (suspects, &options.warn), |entry| match entry.position == expected {
        true => applier::decode(replica.cluster, expected, &entry.bytes, newest).map(drop),
        false => Err(JournalError::Gap { expected, found: entry.position }),
    })
}
