//! The parts of an engine that is being opened.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::commit::queue::CommitQueue;
use crate::commit::writer::Writer;
use crate::compact::Compactor;
use crate::directory_watch::DirectoryWatch;
use crate::feed::feeder::Feeder;
use crate::feed::hub::Hub;
use crate::feed::wake::Wakeup;
use crate::floor::Floor;
use crate::history::LogReader;
use crate::maintenance::MaintenanceTasks;
use crate::maintenance_control::MaintenanceControl;
use crate::options::{Limits, Options};
use crate::replica::shared::Shared;
use crate::start::Start;
use crate::stats::Metrics;
use crate::store::Store;

/// The parts of an engine before its threads run.
pub(super) struct Assembly {
    pub(super) store: Arc<Store>,
    pub(super) hub: Arc<Hub>,
    pub(super) queue: Arc<CommitQueue>,
    pub(super) floor: Arc<Floor>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) maintenance: Arc<MaintenanceControl>,
    pub(super) compactor: Arc<Compactor>,
    pub(super) wakeup: Wakeup,
    pub(super) wake: Box<dyn FnOnce() + Send>,
    pub(super) writer: Arc<Mutex<Writer>>,
    pub(super) tasks: Arc<MaintenanceTasks>,
    /// Whether a [`Stepper`](crate::replica::stepped::Stepper) does what a replica's threads do otherwise.
    pub(super) is_stepped: bool,
    pub(super) limits: Limits,
}

impl Assembly {
    pub(super) fn new(store: Arc<Store>, options: Options, start: Start) -> Assembly {
        let Start { floor, latest, time, watermark, .. } = start;
        let floor = Arc::new(Floor::new(floor));
        let hub = Arc::new(Hub::new(latest, options.limits.ring));
        let queue = Arc::new(CommitQueue::new(options.limits.queue));
        let metrics = Arc::new(Metrics::default());
        let maintenance = Arc::new(MaintenanceControl::default());
        let compactor = Arc::new(Compactor::new(
            Arc::clone(&store),
            Arc::clone(&hub),
            Arc::clone(&queue),
            Arc::clone(&floor),
            Arc::clone(&metrics),
        ));
        let (wakeup, wake) = Wakeup::new();
        let writer = Arc::new(Mutex::new(Writer {
            store: Arc::clone(&store),
            hub: Arc::clone(&hub),
            queue: Arc::clone(&queue),
            wakeup: wakeup.clone(),
            maintenance: Arc::clone(&maintenance),
            metrics: Arc::clone(&metrics),
            relaxed_sync_interval: options.relaxed_sync_interval,
            unsynced: None,
            watermark,
        }));
        let tasks = Arc::new(MaintenanceTasks {
            store: Arc::clone(&store),
            queue: Arc::clone(&queue),
            compactor: Arc::clone(&compactor),
            metrics: Arc::clone(&metrics),
            history_retention: options.history_retention,
            compaction_interval: options.compaction_interval,
            expire: options.expiry,
            time,
            warn: options.warn,
            skipped: Mutex::default(),
        });
        Assembly {
            store,
            hub,
            queue,
            floor,
            metrics,
            maintenance,
            compactor,
            wakeup,
            wake: Box::new(wake),
            writer,
            tasks,
            is_stepped: false,
            limits: options.limits,
        }
    }

    /// What the committer needs.
    pub(super) fn parts(&self) -> (Arc<Store>, Arc<Hub>, Arc<CommitQueue>) {
        (Arc::clone(&self.store), Arc::clone(&self.hub), Arc::clone(&self.queue))
    }

    /// What the handles of the engine share, and what its threads run, but for those that commit.
    pub(super) fn into_inner(self, replica: Option<Arc<Shared>>) -> (Inner, Threads) {
        let (feeder, feed) = Feeder::new(LogReader {
            store: Arc::clone(&self.store),
            hub: Arc::clone(&self.hub),
            floor: Arc::clone(&self.floor),
        });
        let tasks = (!self.is_stepped).then_some(self.tasks);
        let threads = Threads { feed: Box::new(feed), wake: self.wake, tasks };
        let inner = Inner {
            store: self.store,
            hub: self.hub,
            queue: self.queue,
            floor: self.floor,
            feeder,
            wakeup: self.wakeup,
            maintenance: self.maintenance,
            compactor: self.compactor,
            metrics: self.metrics,
            limits: self.limits,
            writer: self.writer,
            directory_watch: Arc::default(),
            replica,
            is_stepped: self.is_stepped,
            threads: Mutex::default(),
        };
        (inner, threads)
    }
}

/// What threads of an engine run.
pub(super) struct Threads {
    pub(super) feed: Box<dyn FnOnce() + Send>,
    pub(super) wake: Box<dyn FnOnce() + Send>,
    /// Maintenance, where a thread does it.
    pub(super) tasks: Option<Arc<MaintenanceTasks>>,
}

/// What the handles of an engine share.
pub(super) struct Inner {
    pub(super) store: Arc<Store>,
    pub(super) hub: Arc<Hub>,
    pub(super) queue: Arc<CommitQueue>,
    pub(super) floor: Arc<Floor>,
    pub(super) feeder: Feeder,
    pub(super) wakeup: Wakeup,
    pub(super) maintenance: Arc<MaintenanceControl>,
    pub(super) compactor: Arc<Compactor>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: Limits,
    pub(super) writer: Arc<Mutex<Writer>>,
    pub(super) directory_watch: Arc<DirectoryWatch>,
    /// Set in a replica.
    pub(super) replica: Option<Arc<Shared>>,
    /// Whether a [`Stepper`](crate::replica::stepped::Stepper) does what a replica's threads do otherwise.
    pub(super) is_stepped: bool,
    /// Emptied when the engine is closed.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}
