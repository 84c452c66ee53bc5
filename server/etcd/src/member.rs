//! [`Member`]: the store as etcd sees it, a cluster of one.
//!
//! What etcd keeps beside its keys are numbers of the engine ([`plinth_engine::Transaction::set_number`]),
//! which take no revision:
//!
//! | name | number |
//! |---|---|
//! | `cluster`, `member` | ids in every response header |
//! | `term` | number of the start |
//! | `compacted` | the compacted revision, as etcd counts |
//! | `alarm.N`, `alarm.N.ID` | 1: alarm N is raised, of another member (`alarms.rs`) |
//! | `lease.ID` | time to live of a lease, in seconds |
//! | `attached.ID KEY` | the key was attached to the lease (`leases.rs`) |
//! | `auth.` and more | users, roles and whether they are needed (`auth/mod.rs`) |

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use plinth_engine::{At, Committed, Engine, Error, KeyCounts, Options, Revision, Snapshot, Transaction};
use tokio::sync::{Mutex, RwLock, Semaphore};
use tonic::Status;

use crate::alarms::Alarms;
use crate::answers::Answers;
use crate::auth::{Auth, AuthOptions};
use crate::errors;
use crate::leases::Leases;
use crate::metrics::{Figures, Metrics};
use crate::numbers::number;
use crate::value::{to_engine, to_etcd, MAX_HEADER};
use crate::wire::maintenance::{alarm, AlarmMember};
use crate::wire::ResponseHeader;

/// The mark of the stores of this crate.
pub const STORE_MARK: &str = "etcd";

/// Most keys that one transaction changes: a deletion of more is refused, since it is one revision and one
/// write.
const MAX_CHANGES: usize = 1 << 20;
/// Bytes of the keys and values of one transaction, likewise.
const MAX_TRANSACTION: usize = 256 << 20;

/// Snapshots that are sent at a time; others wait.
const SNAPSHOTS: usize = 2;

/// Limits of requests and of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Bytes of the responses that are in memory at a time.
    pub response_bytes: usize,
    /// Operations of a transaction.
    pub txn_operations: usize,
    /// Bytes of the store; zero or less for no limit.
    pub quota_bytes: i64,
}

/// A store that is served.
pub(crate) struct Member {
    pub engine: Engine,
    /// Numbers of keys, for ranges with a limit.
    pub counts: KeyCounts,
    pub limits: Limits,
    pub leases: Leases,
    pub auth: Auth,
    pub metrics: Metrics,
    pub answers: Arc<Answers>,
    /// Held shared while a transaction of single keys is evaluated and committed, exclusively by transactions
    /// that read ranges and by revocations of leases. See [`Member::barrier`] for callers that have left.
    pub writes: Arc<RwLock<()>>,
    /// A permit for each snapshot that is being sent.
    pub snapshots: Arc<Semaphore>,
    cluster_id: u64,
    member_id: u64,
    term: u64,
    /// Reads below it are refused; -1 before the first compaction.
    compacted: AtomicI64,
    /// The compacted revision before that, since the start.
    compacted_before: AtomicI64,
    compacting: Mutex<()>,
    pub alarms: Alarms,
    /// Bytes of the store, as of the last look.
    size: AtomicU64,
}

impl Member {
    /// A store of a test in `dir`, with this cost of hashes of passwords.
    #[cfg(test)]
    pub(crate) fn of_test(dir: &Path, bcrypt_cost: u32) -> Member {
        let limits =
            Limits { request_bytes: 1 << 20, response_bytes: 1 << 20, txn_operations: 128, quota_bytes: 0 };
        let tokens = crate::auth::TokenKind::Simple(std::time::Duration::from_secs(300));
        let auth = AuthOptions { tokens, bcrypt_cost, uses_certificates: false };
        Member::open(dir, limits, auth, false).unwrap()
    }

    /// Opens the store in `dir`, creating it when the directory is missing or empty. Reads from disk.
    ///
    /// # Errors
    /// Those of [`Engine::open`].
    pub(crate) fn open(
        dir: &Path,
        limits: Limits,
        auth: AuthOptions,
        has_extensive_metrics: bool,
    ) -> Result<Member, Error> {
        let options = Options::new(dir)
            .mark(STORE_MARK)
            .max_key_bytes(limits.request_bytes)
            .max_value_bytes(limits.request_bytes.saturating_add(MAX_HEADER))
            .max_transaction(MAX_TRANSACTION.max(limits.request_bytes.saturating_mul(2)), MAX_CHANGES)
            .queue_bytes(64 << 20)
            .on_warning(|warning| {
                tracing::warn!(error = %warning, "storage engine needs attention: {}", warning.advice());
            });
        let engine = Engine::open(options)?;
        for dropped in engine.dropped() {
            tracing::warn!(
                path = %dropped.path.display(),
                bytes = dropped.bytes,
                "dropped the end of a log that was written incompletely, as after a crash before a write was acknowledged"
            );
        }
        let number = |name| number(&engine, name);
        let id = |name| Ok::<_, Error>(number(name)?.unwrap_or_else(random_id));
        let (cluster_id, member_id) = (id("cluster")?, id("member")?);
        let term = number("term")?.unwrap_or(1).saturating_add(1);
        let stored = number("compacted")?.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX));
        // The engine's floor is one below, so that a watch may begin at the compacted revision. It is above
        // after a restore.
        let floor = engine.compacted_revision();
        let compacted = if floor.is_set() { stored.max(to_etcd(floor)) } else { stored };
        engine.compact(to_engine(compacted).previous().max(floor))?;
        let start = Transaction::new()
            .set_number("cluster", cluster_id)
            .set_number("member", member_id)
            .set_number("term", term);
        engine.transact(start).wait()?;
        let leases = Leases::load(&engine)?;
        let member = Member {
            leases,
            auth: Auth::load(&engine, auth)?,
            metrics: Metrics::new(member_id, has_extensive_metrics),
            answers: Answers::new(limits.response_bytes),
            writes: Arc::default(),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS)),
            cluster_id,
            member_id,
            term,
            compacted: AtomicI64::new(compacted),
            compacted_before: AtomicI64::new(compacted),
            compacting: Mutex::new(()),
            alarms: Alarms::load(&engine, member_id)?,
            size: AtomicU64::new(0),
            limits,
            counts: KeyCounts::new(&engine),
            engine,
        };
        member.measure();
        Ok(member)
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> i64 {
        to_etcd(self.engine.current_revision())
    }

    /// The compacted revision; -1 before the first compaction.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted.load(Ordering::Acquire)
    }

    /// The compacted revision that a hash at `revision` is reported with: a compaction changes nothing that
    /// can be read at its own revision, so what etcd reports of it is the same before and after.
    pub(crate) fn compacted_below(&self, revision: i64) -> i64 {
        let compacted = self.compacted();
        match revision == compacted {
            true => self.compacted_before.load(Ordering::Acquire),
            false => compacted,
        }
    }

    /// The id of the member.
    pub(crate) fn id(&self) -> u64 {
        self.member_id
    }

    /// The number of the start.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// A response header with this revision.
    pub(crate) fn header_at(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision,
            raft_term: self.term,
        }
    }

    /// A response header with the newest revision.
    pub(crate) fn header(&self) -> ResponseHeader {
        self.header_at(self.revision())
    }

    /// Completes the header of a response, of which only the revision is set.
    pub(crate) fn fill(&self, header: &mut Option<ResponseHeader>) {
        let revision = header.map_or(0, |header| header.revision);
        *header = Some(self.header_at(revision));
    }

    /// A snapshot of the newest state.
    pub(crate) fn latest(&self) -> Result<Snapshot, Status> {
        self.engine.snapshot(At::Latest).map_err(|error| errors::from_engine(&error))
    }

    /// A snapshot of the state at `revision`, which is one of those up to `current`; below one for `current`.
    pub(crate) fn snapshot_at(&self, revision: i64, current: i64) -> Result<Snapshot, Status> {
        if revision > current {
            return Err(errors::future_revision());
        }
        let revision = if revision <= 0 { current } else { revision };
        if revision < self.compacted() {
            return Err(errors::compacted());
        }
        let at = At::Exact(to_engine(revision));
        self.engine.snapshot(at).map_err(|error| errors::from_engine(&error))
    }

    /// Waits until everything that was queued before is committed, and visible to snapshots: a caller that
    /// has left may have released the lock while its transaction is queued.
    pub(crate) async fn barrier(&self) -> Result<(), Status> {
        let passed = self.engine.transact(Transaction::new()).await;
        passed.map(|_| ()).map_err(|error| errors::from_engine(&error))
    }

    /// Queues a transaction and waits for its outcome, which is counted.
    pub(crate) async fn transact(&self, transaction: Transaction) -> Result<Committed, Error> {
        let start = Instant::now();
        let outcome = self.engine.transact(transaction).await;
        self.metrics.proposed(&outcome, start.elapsed());
        outcome
    }

    /// Commits a transaction without conditions. The caller holds the lock of writes.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Committed, Status> {
        let committed = self.transact(transaction).await.map_err(|error| errors::from_engine(&error))?;
        self.committed(&committed);
        Ok(committed)
    }

    /// Notes what a commit has changed.
    pub(crate) fn committed(&self, committed: &Committed) {
        if let Some(commit) = &committed.commit {
            self.metrics.changed(&commit.events);
            self.leases.note(&commit.events);
        }
    }

    /// Compacts to `revision`; with `physical`, returns once the space is free.
    pub(crate) async fn compact(&self, revision: i64, physical: bool) -> Result<(), Status> {
        let _one_at_a_time = self.compacting.lock().await;
        if revision <= self.compacted() {
            return Err(errors::compacted());
        }
        if revision > self.revision() {
            return Err(errors::future_revision());
        }
        let number = u64::try_from(revision).unwrap_or(0);
        let stored = self.transact(Transaction::new().set_number("compacted", number)).await;
        stored.map_err(|error| errors::from_engine(&error))?;
        self.compacted_before.store(self.compacted(), Ordering::Release);
        self.compacted.store(revision, Ordering::Release);
        let floor = match self.alarms.is_full() {
            true => to_engine(revision),
            false => to_engine(revision).previous(),
        };
        self.compact_engine(floor, physical).await
    }

    /// Removes what the compacted revision itself has superseded, where the alarm NOSPACE is raised: that is
    /// kept for watches which begin at the revision, and may be all that fills the store.
    pub(crate) async fn compact_for_space(&self) -> Result<(), Status> {
        let _one_at_a_time = self.compacting.lock().await;
        match self.alarms.is_full() && self.compacted() > 0 {
            true => self.compact_engine(to_engine(self.compacted()), false).await,
            false => Ok(()),
        }
    }

    async fn compact_engine(&self, floor: Revision, physical: bool) -> Result<(), Status> {
        let (engine, start) = (self.engine.clone(), Instant::now());
        let compacted = tokio::task::spawn_blocking(move || {
            engine.compact(floor)?;
            if physical {
                engine.wait_compacted()?;
            }
            Ok(())
        });
        let compacted = compacted.await.map_err(errors::from_task)?;
        compacted.map_err(|error: Error| errors::from_engine(&error))?;
        self.metrics.timings.compacted(start);
        Ok(())
    }

    /// The engine's revision after which a watch from `start` is subscribed to. None for one that is
    /// compacted: below the compacted revision, or at it, where space was made
    /// ([`Member::compact_for_space`]).
    pub(crate) fn position_before(&self, start: i64) -> Option<Revision> {
        let position = to_engine(start).previous();
        (start >= self.compacted() && position >= self.engine.compacted_revision()).then_some(position)
    }

    /// Looks how large the store is. May read from disk.
    pub(crate) fn measure(&self) {
        let size = self
            .engine
            .stats()
            .families
            .iter()
            .map(|family| family.file_bytes.saturating_add(family.memory_bytes))
            .sum();
        self.size.store(size, Ordering::Relaxed);
    }

    /// All metrics in Prometheus' text format. May read from disk.
    pub(crate) fn render_metrics(&self) -> Vec<u8> {
        self.metrics.render(&Figures {
            stats: self.engine.stats(),
            is_serving: !self.engine.is_over(),
            revision: self.revision(),
            compacted: self.compacted(),
            size: self.size(),
            quota: self.limits.quota_bytes,
            auth_revision: self.auth.state().revision,
            alarms: self.alarms.list(alarm::NONE),
        })
    }

    /// Bytes of the store.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Raises or disarms an alarm, durably. Returns whether that changed anything.
    pub(crate) async fn set_alarm(&self, alarm: AlarmMember, is_raised: bool) -> Result<bool, Status> {
        let Some((change, transaction)) = self.alarms.change(alarm, is_raised).await? else {
            return Ok(false);
        };
        self.transact(transaction).await.map_err(|error| errors::from_engine(&error))?;
        change.committed();
        Ok(true)
    }

    /// Refuses a request that adds `cost` bytes to a store that has no room for them, and raises the alarm.
    pub(crate) async fn check_space(&self, cost: usize) -> Result<(), Status> {
        if cost == 0 {
            return Ok(());
        }
        if self.alarms.is_full() {
            return Err(errors::no_space());
        }
        let quota = u64::try_from(self.limits.quota_bytes).unwrap_or(0);
        if quota == 0 || self.size().saturating_add(cost as u64) < quota {
            return Ok(());
        }
        tracing::warn!(
            bytes = self.size(),
            quota_bytes = quota,
            "store has reached its quota; compact it, then disarm the alarm"
        );
        let raised = AlarmMember { member_id: self.member_id, alarm: alarm::NOSPACE };
        self.set_alarm(raised, true).await?;
        Err(errors::no_space())
    }

    /// Refuses what etcd passes to its log while the alarm CORRUPT is raised: whatever changes keys, history
    /// or leases. What only reads is answered.
    pub(crate) fn check_not_corrupt(&self) -> Result<(), Status> {
        match self.alarms.is_corrupt() {
            true => Err(errors::corrupt()),
            false => Ok(()),
        }
    }
}

/// An id that is no one's else.
pub(crate) fn random_id() -> u64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    high.max(1)
}
