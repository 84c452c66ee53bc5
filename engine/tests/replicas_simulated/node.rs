//! A replica that is stepped, killed and restarted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{Clock, Engine, Options, Replica, Stepper};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::Position;

use crate::common::{scratch, wal_files, Random};

pub(crate) const CLUSTER: ClusterId = ClusterId(*b"simulated-------");

/// Milliseconds by the monotonic and by the machine's clock.
#[derive(Debug)]
pub(crate) struct FakeClock(pub Mutex<(u64, u64)>);

impl FakeClock {
    /// Time passes by both clocks.
    pub(crate) fn pass(&self, milliseconds: u64) {
        let mut clock = self.0.lock();
        clock.0 += milliseconds;
        clock.1 += milliseconds;
    }
}

impl Clock for FakeClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.lock().0)
    }
    fn wall(&self) -> Duration {
        Duration::from_millis(self.0.lock().1)
    }
}

/// A replica and the directory that it runs in.
pub(crate) struct Node {
    pub id: u16,
    pub clock: Arc<FakeClock>,
    // Dropped before the engine.
    pub stepper: Option<Stepper>,
    pub engine: Option<Engine>,
    pub paused: bool,
    /// It applies less often than the others.
    pub is_slow: bool,
    /// What it has reported to be durable, and how much of which log that was.
    pub durable: (Position, Option<(PathBuf, u64)>),
    /// Dropped after the engine, which leaves the database of a removed directory open.
    pub dir: tempfile::TempDir,
}

impl Node {
    pub(crate) fn open(&mut self, journal: &SimulatedJournal) {
        let options = options(self.dir.path()).clock(Arc::clone(&self.clock) as Arc<dyn Clock>);
        let client = Arc::new(journal.client(self.id));
        let replica = Replica { journal: client, cluster: CLUSTER, id: ReplicaId(self.id) };
        let (engine, stepper) = Engine::open_stepped(options, replica).unwrap();
        let position = engine.replica_status().unwrap().position;
        assert!(position >= self.durable.0, "{position} was durable up to {}", self.durable.0);
        (self.engine, self.stepper) = (Some(engine), Some(stepper));
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub(crate) fn sync(&mut self) {
        let position = self.engine().sync_applied().unwrap().unwrap();
        let log = wal_files(self.dir.path()).pop().map(|path| {
            let name = path.file_name().unwrap().into();
            (name, path.metadata().unwrap().len())
        });
        self.durable = (position, log);
    }

    pub(crate) fn stepper(&mut self) -> &mut Stepper {
        self.stepper.as_mut().unwrap()
    }

    /// Kills the replica, and returns how. After a power cut, what it has not synced may be lost from some
    /// point on, or in any of its sectors.
    pub(crate) fn crash(&mut self, random: &mut Random) -> &'static str {
        let copy = copy_live(self.dir.path());
        let mut how = "kills";
        if let Some(log) = wal_files(copy.path()).pop() {
            let length = log.metadata().unwrap().len();
            let name: PathBuf = log.file_name().unwrap().into();
            let synced =
                self.durable.1.as_ref().filter(|(synced, _)| *synced == name).map_or(0, |found| found.1);
            // A log that this run has not synced holds nothing but unsynced writes.
            let marked = marked_bytes(copy.path());
            let least = synced.max(marked).min(length);
            match random.below(4) {
                0 => {
                    how = "cut logs";
                    let cut = least + random.below(length - least + 1);
                    std::fs::File::options().write(true).open(&log).unwrap().set_len(cut).unwrap();
                }
                1 => {
                    how = "torn logs";
                    lose_sectors(&log, least as usize, random);
                }
                _ => {}
            }
        }
        // What it would write when it is closed is lost with its directory.
        self.stepper.take().unwrap().kill();
        self.engine = None;
        self.dir = copy;
        how
    }

    pub(crate) fn restart(&mut self) {
        self.stepper = None;
        self.engine.take().unwrap().close().unwrap();
    }
}

/// The directory of a replica that has applied nothing: a copy of one that was made once.
pub(crate) fn new_store() -> tempfile::TempDir {
    static EMPTY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let empty = EMPTY.get_or_init(|| {
        let dir = scratch();
        Engine::open(options(dir.path())).unwrap().close().unwrap();
        dir
    });
    let dir = scratch();
    try_copy(empty.path(), dir.path()).unwrap();
    dir
}

fn options(dir: &Path) -> Options {
    // A small ring, so that watches also read the log on disk; small buffers, because logs are allocated by
    // their size, which in memory costs more than all else of a start.
    Options::new(dir)
        .expire_keys(false)
        .event_ring_bytes(4000)
        .block_cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .short_database_log()
}

/// Some of the sectors of a file were not written, where they hold nothing of its first `synced` bytes.
fn lose_sectors(log: &Path, synced: usize, random: &mut Random) {
    const SECTOR: usize = 512;
    let mut bytes = std::fs::read(log).unwrap();
    let mut from = synced;
    while from < bytes.len() {
        let to = (from + 1).next_multiple_of(SECTOR).min(bytes.len());
        if random.below(4) == 0 {
            bytes[from..to].fill(0);
        }
        from = to;
    }
    std::fs::write(log, bytes).unwrap();
}

/// A copy of a directory in use. RocksDB may be removing files that it has no use for: a copy across which
/// more than the logs has changed is made again.
fn copy_live(dir: &Path) -> tempfile::TempDir {
    let files = || -> Option<Vec<(PathBuf, u64)>> {
        let entries = std::fs::read_dir(dir.join("db")).ok()?;
        let entries = entries.map(|entry| entry.ok().map(|entry| entry.path()));
        let mut files = entries
            .map(|path| {
                let path = path?;
                let length = path.metadata().ok()?.len();
                let is_log = path.extension().is_some_and(|extension| extension == "log");
                Some((path, if is_log { 0 } else { length }))
            })
            .collect::<Option<Vec<_>>>()?;
        files.sort();
        Some(files)
    };
    loop {
        let (before, copy) = (files(), scratch());
        let copied = before.is_some() && try_copy(dir, copy.path()).is_ok();
        if copied && before == files() {
            return copy;
        }
    }
}

fn try_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            try_copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Bytes of the newest log that the watermark names: both slots, the higher of each field, which is enough
/// here.
fn marked_bytes(dir: &Path) -> u64 {
    let bytes = std::fs::read(dir.join("WATERMARK")).unwrap();
    let field = |slot: usize, at: usize| {
        let bytes = bytes.get(slot * 4096 + at..slot * 4096 + at + 8);
        bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    };
    field(0, 24).max(field(1, 24))
}
