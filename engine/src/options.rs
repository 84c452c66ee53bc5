//! What can be set when an engine is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::health::{Warn, Warning};

/// How to open an engine. The defaults hold the whole engine under 100 MiB with a million keys; each
/// figure can be changed.
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
    pub(crate) limits: Limits,
    pub(crate) history_retention: Option<Duration>,
    pub(crate) compaction_interval: Duration,
    pub(crate) relaxed: Vec<Bytes>,
    pub(crate) relaxed_sync_interval: Duration,
    pub(crate) memory: Memory,
    pub(crate) expiry: bool,
    /// None for the system's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) warn: Warn,
}

/// Bounds of what callers may hand in and of what waits.
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
    /// Bytes of transactions that wait for the committer. More wait at the callers.
    pub queue: usize,
    /// Bytes of a group of transactions that are written and synced together.
    pub group: usize,
    /// Bytes of events kept in memory for subscribers that are not far behind.
    pub ring: usize,
}

/// What RocksDB may use. See `docs/storage-format.md` for the reasons behind the defaults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub block_cache: usize,
    pub write_buffer: usize,
    pub max_wal: u64,
    pub background_jobs: i32,
    pub max_open_files: i32,
}

impl Options {
    /// Opens the data directory `dir`, creating it when it is missing or empty.
    pub fn new(dir: impl AsRef<Path>) -> Options {
        Options {
            dir: dir.as_ref().to_owned(),
            create: true,
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
            memory: Memory {
                block_cache: 24 << 20,
                write_buffer: 8 << 20,
                max_wal: 64 << 20,
                background_jobs: 2,
                max_open_files: 512,
            },
            expiry: true,
            clock: None,
            warn: Warn::default(),
        }
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

    /// Lets go of history by itself: every [`Options::compaction_interval`] the store is compacted to
    /// the newest revision older than `age`. Default: none, only [`crate::Engine::compact`] does it.
    #[must_use]
    pub fn history_retention(mut self, age: Option<Duration>) -> Options {
        self.history_retention = age;
        self
    }

    /// How often retention is looked at. Default: one minute.
    #[must_use]
    pub fn compaction_interval(mut self, interval: Duration) -> Options {
        self.compaction_interval = interval;
        self
    }

    /// Transactions that touch only keys under `prefix` are acknowledged before they are synced:
    /// a crash of the process loses none of them, a power cut may lose those of the last
    /// [`Options::relaxed_sync_interval`]. After a power cut the revisions given out are skipped, not
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

    /// Whether this engine deletes expired keys. Default: yes. Off for tools that only look.
    #[must_use]
    pub fn expire_keys(mut self, expire: bool) -> Options {
        self.expiry = expire;
        self
    }

    /// Where the engine reads the time. Default: the system's clocks. For tests of what time does.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Options {
        self.clock = Some(clock);
        self
    }

    /// Has `warn` called, on a thread of the engine, with what an operator should know and no caller gets
    /// as an error. The same thing is reported once. Default: nobody is told.
    #[must_use]
    pub fn on_warning(mut self, warn: impl Fn(&Warning) + Send + Sync + 'static) -> Options {
        self.warn = Warn::new(warn);
        self
    }

    /// Bytes of uncompressed blocks, indexes and filters kept in memory. Default: 24 MiB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: usize) -> Options {
        self.memory.block_cache = bytes;
        self
    }

    /// Bytes of recent writes kept in memory for each of the two large column families before they
    /// are written out. Default: 8 MiB.
    #[must_use]
    pub fn write_buffer_bytes(mut self, bytes: usize) -> Options {
        self.memory.write_buffer = bytes;
        self
    }

    /// Bytes of write-ahead log at which the oldest part is made superfluous. Default: 64 MiB.
    #[must_use]
    pub fn max_wal_bytes(mut self, bytes: u64) -> Options {
        self.memory.max_wal = bytes;
        self
    }

    /// Threads that write out and merge files in the background. Default: 2.
    #[must_use]
    pub fn background_jobs(mut self, jobs: i32) -> Options {
        self.memory.background_jobs = jobs;
        self
    }

    /// Bytes of recent events kept in memory. A subscriber that is further behind reads from disk.
    /// Default: 8 MiB.
    #[must_use]
    pub fn event_ring_bytes(mut self, bytes: usize) -> Options {
        self.limits.ring = bytes;
        self
    }

    /// Bytes of transactions that may wait for the committer; more wait at their callers.
    /// Default: 32 MiB.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Options {
        self.limits.queue = bytes;
        self
    }

    /// Bytes of transactions that are written and synced together. Default: 4 MiB.
    #[must_use]
    pub fn group_bytes(mut self, bytes: usize) -> Options {
        self.limits.group = bytes;
        self
    }

    /// Largest value in bytes. Default: 8 MiB.
    #[must_use]
    pub fn max_value_bytes(mut self, bytes: usize) -> Options {
        self.limits.value = bytes;
        self
    }
}
