//! The thread that checks conditions, assigns revisions and builds commit groups.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::clock::Timeline;
use crate::commit::group::Group;
use crate::commit::queue::{CommitQueue, Task, Work};
use crate::commit::reply::Committed;
use crate::commit::state::StateMachine;
use crate::commit::writer::Writer;
use crate::error::{Error, Result};
use crate::feed::hub::Hub;
use crate::layout::meta;
use crate::revision::Revision;
use crate::stats::Metrics;
use crate::store::Store;
use crate::transaction::Transaction;

/// Revisions that are reserved at a time for transactions with relaxed durability.
const RESERVE: u64 = 10_000;

/// The state of the builder thread, owned by that thread alone.
pub(crate) struct Builder {
    store: Arc<Store>,
    hub: Arc<Hub>,
    queue: Arc<CommitQueue>,
    /// For groups that the builder writes itself.
    writer: Arc<Mutex<Writer>>,
    state: StateMachine,
    /// Keys of groups in flight, to clear the overlay once they are written.
    in_flight: VecDeque<(u64, Vec<Bytes>)>,
    open: Option<Group>,
    next_group: u64,
    group_limit: usize,
    relaxed: Relaxed,
    time: Arc<Timeline>,
}

/// Configuration of the builder.
pub(crate) struct Settings {
    pub group_limit: usize,
    pub relaxed: Relaxed,
    pub time: Arc<Timeline>,
}

/// State of relaxed durability.
pub(crate) struct Relaxed {
    /// Key prefixes that are committed with relaxed durability.
    pub prefixes: Vec<Bytes>,
    /// Revisions up to this one are never assigned again after a power failure.
    pub reserved: Revision,
}

/// Signals on drop that there will be no more groups.
struct BuilderExit(Arc<CommitQueue>);

impl Drop for BuilderExit {
    fn drop(&mut self) {
        self.0.builder_ended();
    }
}

impl Builder {
    pub(crate) fn new(
        store: Arc<Store>,
        hub: Arc<Hub>,
        queue: Arc<CommitQueue>,
        writer: Arc<Mutex<Writer>>,
        metrics: Arc<Metrics>,
        settings: Settings,
    ) -> Builder {
        let Settings { group_limit, relaxed, time } = settings;
        Builder {
            state: StateMachine::new(Arc::clone(&store), metrics, hub.latest()),
            store,
            hub,
            queue,
            writer,
            in_flight: VecDeque::new(),
            open: None,
            next_group: 1,
            group_limit,
            relaxed,
            time,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        // However this thread ends, the syncer must not wait for it forever.
        let _exit = BuilderExit(Arc::clone(&self.queue));
        loop {
            let room = self.open.as_ref().is_none_or(|group| group.bytes < self.group_limit);
            let was_open = self.open.is_some();
            if let Some(group) = &mut self.open {
                // The keys stay here: the overlay is cleared by them once the group is written.
                let keys = std::mem::take(&mut group.keys);
                match self.in_flight.back_mut().filter(|(number, _)| *number == group.number) {
                    Some((_, known)) => known.extend(keys),
                    None => self.in_flight.push_back((group.number, keys)),
                }
            }
            let next = self.queue.next_work(&mut self.open, room);
            debug_assert!(was_open || self.open.is_none());
            if let Some(error) = next.failed {
                self.reset_after_failure(&error);
                continue;
            }
            self.retire(next.finished);
            if let Some(group) = next.write {
                self.writer.lock().write(group);
            }
            for work in next.work {
                self.process(work, next.idle);
            }
            if next.closing {
                break;
            }
        }
    }

    /// A group failed: everything built on top of it fails too.
    fn reset_after_failure(&mut self, error: &Error) {
        if let Some(group) = self.open.take() {
            group.fail(error);
        }
        self.state.reset(self.hub.latest());
        self.in_flight.clear();
        self.relaxed.reserved = Revision::ZERO;
    }

    /// Removes groups that are in the database from the overlay.
    fn retire(&mut self, finished: u64) {
        while self.in_flight.front().is_some_and(|(number, _)| *number <= finished) {
            let Some((number, keys)) = self.in_flight.pop_front() else { break };
            self.state.written(number, keys);
        }
    }

    fn process(&mut self, work: Work, idle: bool) {
        let result = match work.task {
            Task::Transact(transaction) => self.transact(transaction),
            Task::Purge(tombstones) => self.purge(tombstones),
            Task::SetFloor(floor) => {
                let group = open_group(&mut self.open, &mut self.next_group);
                self.store.put_number(&mut group.batch, meta::FLOOR, floor.get());
                group.sync = true;
                Ok(self.state.unchanged())
            }
            // A single store has none.
            Task::RaiseLevel(_) | Task::CloseJournal => Ok(self.state.unchanged()),
        };
        match &mut self.open {
            Some(group) => {
                group.bytes += work.size;
                group.answers.push((work.reply, result));
            }
            // The answer does not depend on anything unpublished.
            None if idle && self.hub.latest() == self.state.last_assigned() => work.reply.send(result),
            None => open_group(&mut self.open, &mut self.next_group).answers.push((work.reply, result)),
        }
    }

    fn transact(&mut self, mut transaction: Transaction) -> Result<Committed> {
        let numbers = std::mem::take(&mut transaction.numbers);
        let plan = self.state.plan(transaction)?;
        if !numbers.is_empty() {
            let group = open_group(&mut self.open, &mut self.next_group);
            self.store.put_application_numbers(&mut group.batch, &numbers);
            group.sync = true;
        }
        if plan.is_empty() {
            return Ok(self.state.unchanged());
        }
        let relaxed = plan.keys().all(|key| self.relaxed.covers(key));
        let time_ms = self.time.now_ms();
        let group = open_group(&mut self.open, &mut self.next_group);
        let committed = self.state.apply(plan, time_ms, group);
        let reserve = relaxed && committed.revision > self.relaxed.reserved;
        if reserve {
            self.relaxed.reserved = Revision::new(committed.revision.get().saturating_add(RESERVE));
            self.store.put_number(&mut group.batch, meta::RESERVED, self.relaxed.reserved.get());
        }
        group.sync |= !relaxed || reserve;
        Ok(committed)
    }

    fn purge(&mut self, tombstones: Vec<(Bytes, Revision)>) -> Result<Committed> {
        let keys = self.state.purgeable(tombstones)?;
        if !keys.is_empty() {
            self.state.purge(keys, open_group(&mut self.open, &mut self.next_group));
        }
        Ok(self.state.unchanged())
    }
}

/// The group that is being built.
fn open_group<'a>(open: &'a mut Option<Group>, next: &mut u64) -> &'a mut Group {
    open.get_or_insert_with(|| {
        let group = Group::new(*next);
        *next += 1;
        group
    })
}

impl Relaxed {
    fn covers(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}
