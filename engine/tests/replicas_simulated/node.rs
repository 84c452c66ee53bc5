//! A replica that is stepped, killed and restarted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_engine::{Clock, Engine, Options, Replica, Stepper};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::Position;

use crate::common::{scratch, wal_files, Random};

const CLUSTER: ClusterId = ClusterId(*b"simulated-------");

/// Seconds by the monotonic and by the machine's clock.
#[derive(Debug)]
pub struct FakeClock(pub Mutex<(u64, u64)>);

impl Clock for FakeClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.lock().0)
    }
    fn wall(&self) -> Duration {
        Duration::from_millis(self.0.lock().1)
    }
}

/// A replica and the directory that it runs in.
pub struct Node {
    pub id: u16,
    pub clock: Arc<FakeClock>,
    // Dropped before the engine.
    pub stepper: Option<Stepper>,
    pub engine: Option<Engine>,
    pub paused: bool,
    /// What it has reported to be durable, and how much of which log that was.
    pub durable: (Position, Option<(PathBuf, u64)>),
    /// Dropped after the engine, which leaves the database of a removed directory open.
    pub dir: tempfile::TempDir,
}

impl Node {
    pub fn open(&mut self, journal: &SimulatedJournal) {
        // A small ring, so that watches also read the log on disk.
        let options = Options::new(self.dir.path())
            .expire_keys(false)
            .event_ring_bytes(4000)
            .block_cache_bytes(1 << 20)
            .clock(Arc::clone(&self.clock) as Arc<dyn Clock>);
        let client = Arc::new(journal.client(self.id));
        let replica = Replica { journal: client, cluster: CLUSTER, id: ReplicaId(self.id) };
        let (engine, stepper) = Engine::open_stepped(options, replica).unwrap();
        let position = engine.replica_status().unwrap().position;
        assert!(position >= self.durable.0, "{position} was durable up to {}", self.durable.0);
        (self.engine, self.stepper) = (Some(engine), Some(stepper));
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub fn sync(&mut self) {
        let position = self.engine().sync_applied().unwrap().unwrap();
        let log = wal_files(self.dir.path()).pop().map(|path| {
            let name = path.file_name().unwrap().into();
            (name, path.metadata().unwrap().len())
        });
        self.durable = (position, log);
    }

    /// Kills the replica: what it has not synced may be lost from some point on.
    pub fn crash(&mut self, random: &mut Random) {
        let copy = copy_live(self.dir.path());
        if let Some(log) = wal_files(copy.path()).pop() {
            let length = log.metadata().unwrap().len();
            let name: PathBuf = log.file_name().unwrap().into();
            let synced =
                self.durable.1.as_ref().filter(|(synced, _)| *synced == name).map_or(0, |found| found.1);
            // A log that this run has not synced holds nothing but unsynced writes.
            let marked = marked_bytes(copy.path());
            let least = synced.max(marked).min(length);
            if random.below(2) == 0 {
                let cut = least + random.below(length - least + 1);
                std::fs::File::options().write(true).open(&log).unwrap().set_len(cut).unwrap();
            }
        }
        self.stepper = None;
        self.engine = None;
        self.dir = copy;
    }

    pub fn restart(&mut self) {
        self.stepper = None;
        self.engine.take().unwrap().close().unwrap();
    }
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
