//! A replica after a power cut. It syncs no group, since the journal has them: of what was written behind its
//! watermark any part may be on disk. It opens, and applies the rest once more.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{copy_dir, dump, noise, scratch, wal_files, Random, Version};
use plinth_engine::{At, Engine, Error, KeyRange, Options, Replica, Stepper, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::{Error as JournalError, Journal, Position};

const SECTOR: usize = 512;
const PAGE: usize = 4096;

type State = std::collections::BTreeMap<Vec<u8>, Version>;

/// Nothing is synced by itself.
fn open(dir: &Path, journal: &SimulatedJournal) -> plinth_engine::Result<(Engine, Stepper)> {
    let options = Options::new(dir)
        .expire_keys(false)
        .write_buffer_bytes(64 << 10)
        .block_cache_bytes(1 << 20)
        .relaxed_sync_interval(Duration::from_secs(3600));
    let replica = Replica {
        journal: Arc::new(journal.client(1)),
        cluster: ClusterId(*b"torn------------"),
        id: ReplicaId(1),
    };
    Engine::open_stepped(options, replica)
}

fn apply_all(stepper: &mut Stepper) {
    while stepper.propose() || stepper.apply().unwrap() {}
}

fn write(engine: &Engine, stepper: &mut Stepper, n: u64, bytes: usize) {
    let transaction = Transaction::new().put(format!("key/{}", n % 5), noise(n, bytes));
    let proposal = engine.transact(transaction);
    apply_all(stepper);
    proposal.wait().unwrap();
}

/// A replica as a power cut found it: `count` groups that are not synced, of values of `bytes`.
struct Image {
    journal: SimulatedJournal,
    dir: tempfile::TempDir,
    log: PathBuf,
    /// The bytes of its log, and how many of them were synced.
    bytes: Vec<u8>,
    synced: usize,
    /// What was applied then.
    position: Position,
    end: Position,
    state: State,
}

fn image(count: u64, bytes: usize) -> Image {
    let journal = SimulatedJournal::new(1);
    let live = scratch();
    let (engine, mut stepper) = open(live.path(), &journal).unwrap();
    for n in 0..3 {
        write(&engine, &mut stepper, n, 50);
    }
    let position = engine.sync_applied().unwrap().unwrap();
    let synced = wal_files(live.path()).pop().unwrap().metadata().unwrap().len() as usize;
    for n in 3..3 + count {
        write(&engine, &mut stepper, n, bytes);
    }
    let dir = scratch();
    copy_dir(live.path(), dir.path());
    let log = wal_files(dir.path()).pop().unwrap();
    let (end, bytes) = (engine.replica_status().unwrap().position, fs::read(&log).unwrap());
    let state = dump(&engine, &KeyRange::all(), At::Latest);
    assert!(synced < bytes.len(), "something is not synced");
    Image { journal, log: log.file_name().unwrap().into(), dir, bytes, synced, position, end, state }
}

impl Image {
    /// Opens the replica with other bytes in its log; returns how far it had applied the journal then.
    fn open_with(&self, log: &[u8], what: &str) -> Position {
        let dir = scratch();
        copy_dir(self.dir.path(), dir.path());
        fs::write(dir.path().join("db").join(&self.log), log).unwrap();
        let (engine, mut stepper) = open(dir.path(), &self.journal).unwrap_or_else(|e| panic!("{what}: {e}"));
        let position = engine.replica_status().unwrap().position;
        assert!(position >= self.position && position <= self.end, "{what}: {position}");
        while stepper.apply().unwrap() {}
        let status = engine.replica_status().unwrap();
        assert!(status.position >= self.end, "{what}: {}", status.position);
        assert_eq!(dump(&engine, &KeyRange::all(), At::Latest), self.state, "{what}");
        position
    }
}

#[test]
fn a_log_cut_at_any_byte_that_was_not_synced_is_continued_from_the_journal() {
    let image = image(3, 40);
    let mut positions = Vec::new();
    for cut in image.synced..=image.bytes.len() {
        positions.push(image.open_with(&image.bytes[..cut], &format!("cut at {cut}")));
    }
    assert!(positions.is_sorted(), "the longer the log, the more is left");
    assert_eq!((positions[0], positions[positions.len() - 1]), (image.position, image.end));
    positions.dedup();
    assert_eq!(positions.len(), 4, "each group was lost and kept");
}

/// Later groups are whole behind the sectors that were lost, any number of them.
#[test]
fn lost_sectors_before_whole_groups_are_no_damage() {
    let image = image(12, 700);
    let lose = |log: &mut [u8], from: usize, to: usize| {
        let (from, to) = (from.max(image.synced).min(log.len()), to.min(log.len()));
        log[from..to].fill(0);
    };
    for unit in [SECTOR, PAGE] {
        for first in image.synced / unit..image.bytes.len().div_ceil(unit) {
            let mut log = image.bytes.clone();
            lose(&mut log, first * unit, (first + 1) * unit);
            image.open_with(&log, &format!("bytes {} to {} lost", first * unit, (first + 1) * unit));
        }
    }
    let mut random = Random(7);
    for round in 0..40 {
        let mut log = image.bytes.clone();
        for sector in image.synced / SECTOR..log.len().div_ceil(SECTOR) {
            if random.below(3) == 0 {
                lose(&mut log, sector * SECTOR, (sector + 1) * SECTOR);
            }
        }
        image.open_with(&log, &format!("round {round}"));
    }
}

/// What was dropped and is in no journal any more comes from a checkpoint.
#[test]
fn what_the_journal_no_longer_has_is_missed() {
    let image = image(3, 40);
    image.journal.client(1).trim(image.end).unwrap();
    fs::write(image.dir.path().join("db").join(&image.log), &image.bytes[..image.synced]).unwrap();
    match open(image.dir.path(), &image.journal).err() {
        Some(Error::Journal { source: JournalError::Trimmed { requested, oldest } }) => {
            assert_eq!((requested, oldest), (image.position.next(), image.end));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_changed_bit_before_whole_groups_is_damage() {
    let image = image(4, 700);
    let mut log = image.bytes.clone();
    log[image.synced + 100] ^= 1;
    fs::write(image.dir.path().join("db").join(&image.log), log).unwrap();
    let refused = open(image.dir.path(), &image.journal).err();
    assert!(matches!(refused, Some(Error::Corrupt { .. })), "{refused:?}");
}
