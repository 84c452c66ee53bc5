//! Options of an engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::health::{Warning, WarningHandler};
use crate::revision::Revision;
use crate::store_mark;

/// How to open an engine. The defaults keep the whole engine under 100 MiB with a million keys; each value
/// can be changed.
///
/// ```
/// use std::time::Duration;
/// use plinth_engine::Options;
///
/// let options = Options::new("/tmp/data").history_retention(Some(Duration::from_secs(300)));
/// assert_eq!(options.dir().to_str(), Some("/tmp/data"));
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) dir: PathBuf,
    pub(crate) create: bool,
    pub(crate) reads_replica: bool,
    /// The mark of the store; zero for one without a mark, none for any.
    pub(crate) mark: Option<u64>,
    /// Where the revisions of a new store begin.
    pub(crate) continues_above: Option<Revision>,
    pub(crate) limits: Limits,
    pub(crate) history_retention: Option<Duration>,
    pub(crate) compaction_interval: Duration,
    pub(crate) relaxed: Vec<Bytes>,
    pub(crate) relaxed_sync_interval: Duration,
    pub(crate) agreement_timeout: Duration,
    pub(crate) memory: Memory,
    /// Bytes of the room that is kept for deletions.
    pub(crate) reserve: u64,
    pub(crate) expiry: bool,
    /// None for the system's clocks.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) warn: WarningHandler,
}

/// Size limits of requests and queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of all keys and values of a transaction.
    pub transaction: usize,
    /// Operations and conditions of a transaction.
    pub operations: usize,
    /// Bytes of queued transactions. Further callers block.
    pub queue: usize,
    /// Bytes of a group of transactions that are written and synced together.
    pub group: usize,
    /// Bytes of recent events kept in memory for subscribers.
    pub ring: usize,
}

/// Resources of RocksDB. See `docs/storage-format.md` for the reasons behind the defaults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub block_cache: usize,
    pub write_buffer: usize,
    pub max_wal: u64,
    pub background_jobs: i32,
    pub max_open_files: i32,
    /// Whether RocksDB's own log begins with all its options at each start, and is rotated.
    pub full_database_log: bool,
}

impl Options {
    /// Opens the data directory `dir`, creating it when it is missing or empty.
    pub fn new(dir: impl AsRef<Path>) -> Options {
        Options {
            dir: dir.as_ref().to_owned(),
            create: true,
            reads_replica: false,
            mark: Some(0),
            continues_above: None,
            limits: Limits {
                key: 4 << 10,
                value: 8 << 20,
                transaction: 16 << 20,
                operations: 10_000,
                queue: 32 << 20,
                group: 4 << 20,
                ring: 8 << 20,
            },
            history_retention: None,
            compaction_interval: Duration::from_secs(60),
            relaxed: Vec::new(),
            relaxed_sync_interval: Duration::from_millis(100),
            agreement_timeout: Duration::from_secs(10),
            memory: Memory {
                block_cache: 24 << 20,
                write_buffer: 8 << 20,
                max_wal: 64 << 20,
                background_jobs: 2,
                max_open_files: 512,
                full_database_log: true,
            },
            reserve: 0,
            expiry: true,
            clock: None,
            warn: WarningHandler::default(),
        }
    }

    /// Opens the store of a replica, too, without its journal and to be read only: writes are refused with
    /// [`crate::Error::Replica`]. Default: it is refused.
    #[must_use]
    pub fn read_replica(mut self) -> Options {
        self.reads_replica = true;
        self
    }

    /// Marks what the application keeps in the store, with up to eight characters. A new store gets the mark;
    /// a store with another one, or with data and none, is refused with [`crate::Error::Mark`]. Default: a
    /// store without a mark.
    #[must_use]
    pub fn mark(mut self, mark: &str) -> Options {
        self.mark = Some(store_mark::encode_mark(mark));
        self
    }

    /// Opens the store whatever its mark. For tools that only copy or check it.
    #[must_use]
    pub fn any_mark(mut self) -> Options {
        self.mark = None;
        self
    }

    /// Lets a new store continue above the revisions of another one, whose data it imports: its first
    /// transaction has the revision after this one, and earlier revisions count as compacted. At most half of
    /// the range of revisions. No effect on a store that has a revision. Default: a new store begins with 1.
    #[must_use]
    pub fn continue_above(mut self, revision: Revision) -> Options {
        self.continues_above = Some(revision.min(Revision::HIGHEST_RESTORED));
        self
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether to create the store when the directory is missing or empty. Default: yes.
    #[must_use]
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Compacts automatically: every [`Options::compaction_interval`], to the newest revision older than
    /// `age`. Default: none, only [`crate::Engine::compact`] does it.
    #[must_use]
    pub fn history_retention(mut self, age: Option<Duration>) -> Options {
        self.history_retention = age;
        self
    }

    /// Interval of automatic compaction. Default: one minute.
    #[must_use]
    pub fn compaction_interval(mut self, interval: Duration) -> Options {
        self.compaction_interval = interval;
        self
    }

    /// Transactions that touch only keys under `prefix` are acknowledged before they are synced: a crash of
    /// the process loses none of them, a power failure may lose those of the last
    /// [`Options::relaxed_sync_interval`]. After a power failure the assigned revisions are skipped, not
    /// reused. May be called for several prefixes. Default: none.
    #[must_use]
    pub fn relaxed_durability(mut self, prefix: impl Into<Bytes>) -> Options {
        self.relaxed.push(prefix.into());
        self
    }

    /// Longest time for which relaxed transactions stay unsynced. Default: 100 ms.
    #[must_use]
    pub fn relaxed_sync_interval(mut self, interval: Duration) -> Options {
        self.relaxed_sync_interval = interval;
        self
    }

    /// How long a replica continues while as many of the others differ from it as agree with it, itself
    /// included: then it stops with [`crate::Failure::Diverged`]. Default: 10 s.
    #[must_use]
    pub fn agreement_timeout(mut self, timeout: Duration) -> Options {
        self.agreement_timeout = timeout;
        self
    }

    /// Whether this engine deletes expired keys. Default: yes. Off for tools that only read.
    #[must_use]
    pub fn expire_keys(mut self, expire: bool) -> Options {
        self.expiry = expire;
        self
    }

    /// Bytes of room that are kept on the disk for [`crate::Transaction::reclaiming`] transactions, which are
    /// the only ones accepted while the disk is full. Default: none.
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Options {
        self.reserve = bytes;
        self
    }

    /// The clock of the engine. Default: the system's clocks. For tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Options {
        self.clock = Some(clock);
        self
    }

    /// Sets the handler of warnings, which is called on a thread of the engine with conditions that no caller
    /// gets as an error. Each is reported once. Default: none.
    #[must_use]
    pub fn on_warning(mut self, warn: impl Fn(&Warning) + Send + Sync + 'static) -> Options {
        self.warn = WarningHandler::new(warn);
        self
    }

    /// Bytes of uncompressed blocks, indexes and filters kept in memory. Default: 24 MiB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: usize) -> Options {
        self.memory.block_cache = bytes;
        self
    }

    /// Bytes of the write buffer of each of the two large column families. Default: 8 MiB.
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: usize) -> Options {
        self.memory.write_buffer = bytes;
        self
    }

    /// Bytes of write-ahead logs at which RocksDB flushes, so that the oldest can be removed. Default: 64
    /// MiB.
    #[must_use]
    pub fn max_wal_bytes(mut self, bytes: u64) -> Options {
        self.memory.max_wal = bytes;
        self
    }

    /// Threads of background flushes and compactions. Default: 2.
    #[must_use]
    pub fn background_jobs(mut self, jobs: i32) -> Options {
        self.memory.background_jobs = jobs;
        self
    }

    /// Keeps all of RocksDB's options out of its own log, where each start writes them. For tests that open
    /// very many stores: a seventh of what a start costs.
    #[doc(hidden)]
    #[must_use]
    pub fn short_database_log(mut self) -> Options {
        self.memory.full_database_log = false;
        self
    }

    /// Bytes of recent events kept in memory. A subscriber that lags further reads from disk. Default: 8 MiB.
    #[must_use]
    pub fn event_ring_bytes(mut self, bytes: usize) -> Options {
        self.limits.ring = bytes;
        self
    }

    /// Bytes of transactions in the commit queue; further callers block. Default: 32 MiB.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Options {
        self.limits.queue = bytes;
        self
    }

    /// Largest value in bytes. Default: 8 MiB.
    #[must_use]
    pub fn max_value_bytes(mut self, bytes: usize) -> Options {
        self.limits.value = bytes;
        self
    }

    /// Largest key in bytes. Default: 4 KiB.
    #[must_use]
    pub fn max_key_bytes(mut self, bytes: usize) -> Options {
        self.limits.key = bytes;
        self
    }

    /// Largest transaction: bytes of its keys and values, and number of its operations and conditions.
    /// Default: 16 MiB and 10,000.
    #[must_use]
    pub fn max_transaction(mut self, bytes: usize, operations: usize) -> Options {
        self.limits.transaction = bytes;
        self.limits.operations = operations;
        self
    }
}
