//! The replicas of the cluster. Each records in the store that they share who it is and how far it has come:
//!
//! | key | value | ends |
//! |---|---|---|
//! | `replicas/members/ID` | [`Member`] | when the replica is removed |
//! | `replicas/live/ID` | the same | some seconds after it was last renewed, or when the replica stops |
//! | `replicas/kept/NAME` | a position: what follows it is kept for a checkpoint | after a while |
//! | `replicas/compared` | a position: each replica records its hash there | after a while |
//!
//! No API shows these keys. They are written like objects, through the journal, so every replica knows the
//! same.

mod member;
mod needs;
pub mod peers;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_api::{ApiError, Reason};
use plinth_apiserver::context::Server;
use plinth_engine::{At, Condition, Engine, Options, Record, Transaction};
use plinth_journal::record::{self, ReplicaId};
use plinth_journal::Position;
use plinth_registry::prefix_range;
use plinth_storage::{unchanged, Store};

pub use self::member::{ComparedHash, Member, SharedFlags};

use self::member::{now_ms, FlagDifference};
use self::needs::{Needs, KEPT_FOR};
use crate::reconciler::{self, Action, Reconciler, Settings, Start};

const MEMBERS: &str = "replicas/members/";
const LIVE: &str = "replicas/live/";
const KEPT: &str = "replicas/kept/";
const COMPARED: &str = "replicas/compared";

/// Interval at which a replica renews its record.
const PERIOD: Duration = Duration::from_secs(5);
/// Whoever watches the records for this long has seen each replica that is up renew its own: with one try
/// that failed.
pub const NOTICED_WITHIN: Duration = Duration::from_secs(16);
/// A replica that has not renewed its record for this long is not live: upstream's time for the endpoints of
/// its servers (kubernetes `pkg/controlplane/instance.go`, `DefaultEndpointReconcilerTTL`).
const LIVE_FOR: Duration = Duration::from_secs(15);

/// How long replicas record their hash at the position that they are compared at: as long as whoever compares
/// them waits for that.
const COMPARED_FOR: Duration = NOTICED_WITHIN;

/// The membership of this server.
pub struct Membership {
    /// This server.
    pub server: Arc<Server>,
    /// This replica.
    pub id: ReplicaId,
    /// Where clients reach it.
    pub address: SocketAddr,
    /// The data directory.
    pub dir: PathBuf,
    /// Flags that have to be those of the others.
    pub flags: SharedFlags,
}

impl Membership {
    /// Renews the record of this replica, and trims the journal behind all of them, until the server stops.
    pub fn start(self) {
        let server = self.server.clone();
        let (needs, is_warned, differing) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        reconciler::spawn(&server, Renewal { membership: self, needs, is_warned, differing });
    }

    /// Takes and returns whether it was warned that the journal cannot be trimmed.
    async fn round(
        &self,
        needs: &Mutex<Needs>,
        differing: &Mutex<BTreeSet<FlagDifference>>,
        is_warned: bool,
    ) -> Result<bool, ApiError> {
        let store = &self.server.store;
        let Some(status) = store.engine().replica_status() else { return Ok(is_warned) };
        let synced = store.read(Engine::sync_applied).await?;
        let member = Member {
            id: self.id.0,
            address: self.address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            record_version: record::VERSION,
            position: synced.map_or(0, Position::get),
            revision: status.revision.get(),
            applied: status.position.get(),
            hash: status.hash.to_string(),
            renewed_ms: now_ms(),
            stopped: false,
            flags: self.flags.clone(),
            compared: self.compared().await?,
        };
        let value = serde_json::to_vec(&member).map_err(ApiError::internal)?;
        let transaction = Transaction::new().put(key_of(MEMBERS, self.id), value.clone()).put_expiring(
            key_of(LIVE, self.id),
            value,
            LIVE_FOR,
        );
        let renewed = store.commit_by(transaction, Instant::now().checked_add(PERIOD)).await;
        let (members, kept) = (all(store).await?, kept(store).await?);
        if let Err(error) = renewed {
            // A journal that is full takes no record before it is trimmed.
            self.trim(needs::before_all(&members, &kept), is_warned).await;
            return Err(error);
        }
        // Everything before the renewal is applied: who was up meanwhile has been seen.
        let (live, now) = (live(store).await?, Instant::now());
        let before = {
            let mut needs = needs.lock();
            needs.see(&members, &kept, now);
            needs.before(&live, now)
        };
        self.remember(&members).await;
        self.compare_flags(&live, &mut differing.lock());
        if let Some(level) = raised_level(&members, status.level, record::VERSION) {
            tracing::warn!(level, "all replicas were upgraded; the level of the cluster is raised, and earlier versions cannot join any more");
            store.engine().raise_level(level).await?;
        }
        Ok(self.trim(before, is_warned).await)
    }

    /// Trims the journal. Takes and returns whether it was warned that it cannot be.
    async fn trim(&self, before: Option<u64>, is_warned: bool) -> bool {
        let Some(before) = before else { return is_warned };
        let engine = self.server.store.engine().clone();
        let trimmed = tokio::task::spawn_blocking(move || engine.trim_journal(Position::new(before))).await;
        match trimmed {
            Ok(Err(error)) if !error.is_transient() && !is_warned => {
                tracing::warn!(%error, "the journal cannot be trimmed, it grows");
                true
            }
            Ok(Ok(())) => false,
            _ => is_warned,
        }
    }
}

impl Membership {
    /// The hash of this replica where they are to be compared.
    async fn compared(&self) -> Result<Option<ComparedHash>, ApiError> {
        let Some(position) = compared_position(&self.server.store).await? else { return Ok(None) };
        let hash = self.server.store.engine().hash_at(Position::new(position));
        Ok(Some(ComparedHash { position, hash: hash.map(|hash| hash.to_string()) }))
    }

    /// Warns of flags of others that differ, once for each difference.
    fn compare_flags(&self, live: &[Member], warned: &mut BTreeSet<FlagDifference>) {
        let others = live.iter().filter(|member| member.id != self.id.0);
        let found: BTreeSet<FlagDifference> =
            others.flat_map(|member| self.flags.differences(member)).collect();
        for FlagDifference { replica, flag, own, other } in found.difference(warned) {
            tracing::warn!(
                flag,
                own,
                other,
                replica,
                "another replica has another value of a flag that acts on all: start all with the same"
            );
        }
        *warned = found;
    }

    /// Notes where the others are. Failures are for the next round, or for whoever needs it.
    async fn remember(&self, members: &[Member]) {
        let others = members.iter().filter(|member| member.id != self.id.0 && member.address != self.address);
        let others: BTreeSet<SocketAddr> = others.map(|member| member.address).collect();
        let dir = self.dir.clone();
        // The server's stop waits for it: the directory may be another process's then.
        let written = self.server.tasks.spawn_blocking(move || peers::write(&dir, &others)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "the addresses of the other replicas could not be written");
        }
    }
}

/// The renewal of the record, and the trimming of the journal.
struct Renewal {
    membership: Membership,
    needs: Mutex<Needs>,
    /// Whether it was warned that the journal cannot be trimmed.
    is_warned: AtomicBool,
    /// Flags of others that it was warned of.
    differing: Mutex<BTreeSet<FlagDifference>>,
}

impl Reconciler for Renewal {
    type Key = ();

    fn settings(&self) -> Settings {
        // No longer: a record that is not renewed ends.
        Settings { name: "replica-record", workers: 1, retry: (PERIOD, PERIOD), gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        let is_warned = self.is_warned.load(Ordering::Relaxed);
        let is_warned = self.membership.round(&self.needs, &self.differing, is_warned).await?;
        self.is_warned.store(is_warned, Ordering::Relaxed);
        Ok(Action::RequeueAfter(PERIOD))
    }
}

/// Records that a replica has stopped: its address is no endpoint any more.
///
/// # Errors
/// When the journal does not answer in time.
pub async fn leave(store: &Store, id: ReplicaId, deadline: Instant) -> Result<(), ApiError> {
    let mut transaction = Transaction::new().delete(key_of(LIVE, id));
    if let Some(record) = newest(store, key_of(MEMBERS, id)).await? {
        let mut member = decode(&record)?;
        member.stopped = true;
        let value = serde_json::to_vec(&member).map_err(ApiError::internal)?;
        transaction = transaction.put(key_of(MEMBERS, id), value);
    }
    store.commit_by(transaction, Some(deadline)).await.map(|_| ())
}

/// Forgets a replica that is gone: the journal is not kept for it, and its id is free.
///
/// # Errors
/// 404 of an id that no replica has, 409 of a replica that is up; 503 when the journal does not answer.
pub async fn remove(store: &Store, id: ReplicaId) -> Result<(), ApiError> {
    let deadline = Instant::now().checked_add(PERIOD);
    store.reach_most_recent(deadline).await?;
    let Some(member) = newest(store, key_of(MEMBERS, id)).await? else {
        let message = format!("no replica has the id {}; \"plinth replicas\" lists them", id.0);
        return Err(ApiError::new(404, Reason::NotFound, message));
    };
    let transaction = Transaction::new()
        .require(unchanged(&member))
        .require(Condition::Absent(key_of(LIVE, id).into()))
        .delete(key_of(MEMBERS, id));
    match store.commit_by(transaction, deadline).await? {
        Some(_) => Ok(()),
        None => {
            let message =
                format!("replica {} is up, or was {} seconds ago: stop it first", id.0, LIVE_FOR.as_secs());
            Err(ApiError::new(409, Reason::Conflict, message))
        }
    }
}

/// Has each replica record its hash at one position, which is returned, with the next renewal of its record.
/// While some have yet to do so, whoever else compares them gets the same one.
///
/// # Errors
/// 503 when the journal does not answer.
pub async fn compare(store: &Store) -> Result<u64, ApiError> {
    let before = newest(store, COMPARED.into()).await?;
    let chosen = before.as_ref().map(position_of).transpose()?;
    if let Some(chosen) = chosen {
        let has_recorded =
            |member: &Member| member.compared.as_ref().is_some_and(|own| own.position == chosen);
        if all(store).await?.iter().any(|member| !member.stopped && !has_recorded(member)) {
            return Ok(chosen);
        }
    }
    let position = store.engine().replica_status().map_or(0, |status| status.position.get());
    let alone = before.as_ref().map_or_else(|| Condition::Absent(COMPARED.into()), unchanged);
    let transaction =
        Transaction::new().require(alone).put_expiring(COMPARED, position.to_string(), COMPARED_FOR);
    match store.commit_by(transaction, Instant::now().checked_add(PERIOD)).await? {
        Some(_) => Ok(position),
        // Somebody else was first.
        None => Ok(compared_position(store).await?.unwrap_or(position)),
    }
}

/// The position at which replicas are compared now.
async fn compared_position(store: &Store) -> Result<Option<u64>, ApiError> {
    newest(store, COMPARED.into()).await?.as_ref().map(position_of).transpose()
}

fn position_of(record: &Record) -> Result<u64, ApiError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| ApiError::internal(format!("position of a comparison: {error}")))
}

/// Keeps the journal, from what this replica has applied on, for one that takes a checkpoint of it now.
///
/// # Errors
/// 503 when the journal does not answer.
pub async fn keep_for_checkpoint(store: &Store) -> Result<(), ApiError> {
    let Some(status) = store.engine().replica_status() else { return Ok(()) };
    keep(store, &uuid::Uuid::new_v4().to_string(), status.position, KEPT_FOR).await
}

/// Keeps the journal after a position, until the time is over or another position has the name.
///
/// # Errors
/// 503 when the journal does not answer.
pub async fn keep(store: &Store, name: &str, after: Position, time: Duration) -> Result<(), ApiError> {
    let key = format!("{KEPT}{name}").into_bytes();
    let transaction = Transaction::new().put_expiring(key, after.get().to_string(), time);
    store.commit_by(transaction, Instant::now().checked_add(PERIOD)).await.map(|_| ())
}

/// The positions after which the journal is kept, with their names.
async fn kept(store: &Store) -> Result<Vec<(String, u64)>, ApiError> {
    let records = records(store, KEPT).await?;
    let positions = records.iter().map(|record| {
        let name = record.key.strip_prefix(KEPT.as_bytes()).unwrap_or(&record.key);
        let position = serde_json::from_slice(&record.value)?;
        Ok((String::from_utf8_lossy(name).into_owned(), position))
    });
    positions
        .collect::<Result<_, serde_json::Error>>()
        .map_err(|error| ApiError::internal(format!("kept position: {error}")))
}

/// All replicas that have not been removed, by id.
///
/// # Errors
/// When they cannot be read.
pub async fn all(store: &Store) -> Result<Vec<Member>, ApiError> {
    below(store, MEMBERS).await
}

/// The replicas that are up, by id.
///
/// # Errors
/// When they cannot be read.
pub async fn live(store: &Store) -> Result<Vec<Member>, ApiError> {
    below(store, LIVE).await
}

/// The replicas that have not been removed, and the revisions at which they last recorded themselves.
///
/// # Errors
/// When they cannot be read.
pub async fn renewals(store: &Store) -> Result<Vec<(Member, u64)>, ApiError> {
    let records = records(store, MEMBERS).await?;
    records.iter().map(|record| Ok((decode(record)?, record.mod_revision.get()))).collect()
}

fn decode(record: &Record) -> Result<Member, ApiError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| ApiError::internal(format!("record of a replica: {error}")))
}

/// Every key that is kept of replicas. Blocks.
///
/// # Errors
/// When they cannot be read.
pub fn keys(engine: &Engine) -> Result<Vec<Vec<u8>>, plinth_engine::Error> {
    let snapshot = engine.snapshot(At::Latest)?;
    let range = prefix_range(b"replicas/");
    let mut entries = snapshot.range(&range);
    let mut keys = Vec::new();
    while let Some(entry) = entries.next()? {
        keys.push(entry.key.to_vec());
    }
    Ok(keys)
}

/// The ids of all replicas that have not been removed. Blocks.
///
/// # Errors
/// When they cannot be read.
pub fn ids(store: &Store) -> Result<BTreeSet<u16>, plinth_engine::Error> {
    let snapshot = store.engine().snapshot(At::Latest)?;
    let range = prefix_range(MEMBERS.as_bytes());
    let mut entries = snapshot.range(&range);
    let mut ids = BTreeSet::new();
    while let Some(entry) = entries.next()? {
        let id = entry.key.strip_prefix(MEMBERS.as_bytes()).and_then(|id| std::str::from_utf8(id).ok());
        ids.extend(id.and_then(|id| id.parse::<u16>().ok()));
    }
    Ok(ids)
}

/// Where the replicas in the list of a store that nobody has open are reached. Blocks.
///
/// # Errors
/// When it cannot be read.
pub fn addresses(store: &Path) -> Result<BTreeSet<SocketAddr>, plinth_engine::Error> {
    let options = Options::new(store).create(false).expire_keys(false).read_replica().any_mark();
    let engine = Engine::open(options)?;
    let read = || {
        let snapshot = engine.snapshot(At::Latest)?;
        let range = prefix_range(MEMBERS.as_bytes());
        let mut entries = snapshot.range(&range);
        let mut addresses = BTreeSet::new();
        while let Some(entry) = entries.next()? {
            // They are but hints: what cannot be read is left out.
            addresses.extend(serde_json::from_slice::<Member>(entry.value).ok().map(|member| member.address));
        }
        Ok(addresses)
    };
    let addresses = read();
    engine.close()?;
    addresses
}

/// What is stored of replicas is no object: it is not encrypted, and not read as one that is.
async fn records(store: &Store, prefix: &str) -> Result<Vec<Record>, ApiError> {
    Ok(store.scan(prefix_range(prefix.as_bytes()), |entry| Some(entry.to_record())).await?.0)
}

/// The newest record of a key of replicas.
pub(crate) async fn newest(store: &Store, key: Vec<u8>) -> Result<Option<Record>, ApiError> {
    store.read(move |engine| engine.get(&key, At::Latest)).await
}

async fn below(store: &Store, prefix: &str) -> Result<Vec<Member>, ApiError> {
    records(store, prefix).await?.iter().map(decode).collect()
}

/// The level to which the cluster is raised: the newest version of records that every replica reads, those
/// that are down and not removed among them.
fn raised_level(members: &[Member], level: u8, newest: u8) -> Option<u8> {
    let known = members.iter().map(|member| member.record_version).min()?.min(newest);
    (known > level).then_some(known)
}

fn key_of(prefix: &str, id: ReplicaId) -> Vec<u8> {
    // Ids in their order.
    format!("{prefix}{:05}", id.0).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn member(id: u16, position: u64, renewed_ms: u64) -> Member {
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        let (version, hash) = (String::new(), String::new());
        Member {
            id,
            address,
            version,
            record_version: 1,
            position,
            revision: 0,
            applied: 0,
            hash,
            renewed_ms,
            stopped: false,
            flags: SharedFlags::default(),
            compared: None,
        }
    }

    #[test]
    fn the_level_is_raised_when_all_read_it() {
        let at = |versions: &[u8]| -> Vec<Member> {
            versions.iter().map(|version| Member { record_version: *version, ..member(1, 1, 0) }).collect()
        };
        for (versions, level, newest, raised) in [
            (&[1, 1, 1][..], 1, 2, None),
            (&[2, 2, 1], 1, 2, None),
            (&[2, 2, 2], 1, 2, Some(2)),
            (&[2, 2, 2], 2, 2, None),
            (&[3, 3], 1, 2, Some(2)),
            (&[3, 2], 1, 3, Some(2)),
            (&[], 1, 2, None),
        ] {
            assert_eq!(raised_level(&at(versions), level, newest), raised, "{versions:?}");
        }
        // A replica that does not say so is of the first version.
        let mut text = serde_json::to_value(member(1, 1, 0)).unwrap();
        text.as_object_mut().unwrap().remove("recordVersion");
        let member: Member = serde_json::from_value(text).unwrap();
        assert_eq!(member.record_version, 1);
    }
}
