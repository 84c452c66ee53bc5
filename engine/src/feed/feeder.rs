//! The thread that reads the log on disk for subscribers who are behind.
//!
//! Requests are served in turn, each a bounded piece, so subscribers that lag share the thread
//! fairly; a subscriber asks for the next piece when it has taken the last one, so at most one piece for each is
//! in memory. No lock is held while reading.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use rocksdb::ReadOptions;

use crate::compact::decode_entry;
use crate::error::{Error, Result};
use crate::feed::event::{Event, EventKind};
use crate::feed::hub::Hub;
use crate::floor::Floor;
use crate::layout;
use crate::log::{LogEntry, LoggedOperation};
use crate::range::KeyRange;
use crate::read;
use crate::record::{Kind, Stored};
use crate::revision::Revision;
use crate::store::{Family, Pinned, Store};

/// Most log entries that are looked at for one piece.
const STEP_ENTRIES: usize = 4096;
/// Bytes of events after which a piece ends.
const STEP_BYTES: usize = 512 << 10;

/// Asks the feeder's thread for work. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Feeder {
    jobs: Sender<Job>,
}

enum Job {
    Read(Arc<CatchUp>),
    Wake(Vec<Waker>),
    Stop,
}

/// A piece of the log that is being read for one subscriber.
pub(crate) struct CatchUp {
    range: KeyRange,
    after: Revision,
    previous: bool,
    answer: Mutex<Answer>,
}

struct Answer {
    chunk: Option<Result<Chunk>>,
    waker: Waker,
}

/// A piece of history for one subscriber.
pub(crate) struct Chunk {
    pub events: Vec<Arc<Event>>,
    /// The events are all that happened in the range up to here.
    pub through: Revision,
}

impl CatchUp {
    /// The answer when it is there; otherwise `waker` is called when it is.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<Chunk>> {
        let mut answer = self.answer.lock();
        if answer.chunk.is_none() {
            answer.waker.clone_from(waker);
        }
        answer.chunk.take()
    }
}

impl Feeder {
    /// A feeder and what its thread has to run.
    pub(crate) fn new(
        store: Arc<Store>,
        hub: Arc<Hub>,
        floor: Arc<Floor>,
    ) -> (Feeder, impl FnOnce() + Send + 'static) {
        let (jobs, receiver) = mpsc::channel();
        (Feeder { jobs }, move || run(&store, &hub, &floor, &receiver))
    }

    /// Has a piece of the log behind `after` read.
    pub(crate) fn read(
        &self,
        range: &KeyRange,
        after: Revision,
        previous: bool,
        waker: &Waker,
    ) -> Arc<CatchUp> {
        let answer = Mutex::new(Answer { chunk: None, waker: waker.clone() });
        let catch_up = Arc::new(CatchUp { range: range.clone(), after, previous, answer });
        if self.jobs.send(Job::Read(Arc::clone(&catch_up))).is_err() {
            catch_up.answer.lock().chunk = Some(Err(Error::Closed));
        }
        catch_up
    }

    /// Wakes many subscribers without keeping the committing thread.
    pub(crate) fn wake(&self, wakers: Vec<Waker>) {
        if let Err(mpsc::SendError(Job::Wake(wakers))) = self.jobs.send(Job::Wake(wakers)) {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the thread after what was asked for before.
    pub(crate) fn stop(&self) {
        // A thread that is gone already needs no stopping.
        let _ = self.jobs.send(Job::Stop);
    }
}

fn run(store: &Arc<Store>, hub: &Hub, floor: &Floor, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Read(catch_up) => {
                // The subscriber may have gone away while it waited for its turn.
                if Arc::strong_count(&catch_up) > 1 {
                    let chunk = read_chunk(store, hub, floor, &catch_up);
                    let mut answer = catch_up.answer.lock();
                    answer.chunk = Some(chunk);
                    let waker = answer.waker.clone();
                    drop(answer);
                    waker.wake();
                }
            }
            Job::Wake(wakers) => wakers.into_iter().for_each(Waker::wake),
            Job::Stop => return,
        }
    }
}

fn read_chunk(store: &Arc<Store>, hub: &Hub, floor: &Floor, request: &CatchUp) -> Result<Chunk> {
    // The head before the pin: the pinned state holds all that the head covers.
    let head = hub.head();
    let pinned = store.pin();
    floor.check(request.after)?;

    let mut read = ReadOptions::default();
    read.set_iterate_lower_bound(layout::log_key(request.after.next()).to_vec());
    read.set_iterate_upper_bound(layout::log_key(head.next()).to_vec());
    read.fill_cache(false);
    let mut cursor = pinned.cursor(Family::Log, read);
    cursor.seek_to_first();

    let mut events = Vec::new();
    let (mut entries, mut bytes) = (0, 0);
    while let Some((key, value)) = cursor.item() {
        let LogEntry { revision, operations, .. } = decode_entry(key, value)?;
        for operation in operations {
            if request.range.contains(&operation.key) {
                let event = read_event(&pinned, revision, operation, request.previous)?;
                bytes += event.size();
                events.push(Arc::new(event));
            }
        }
        entries += 1;
        if entries >= STEP_ENTRIES || bytes >= STEP_BYTES {
            return Ok(Chunk { events, through: revision });
        }
        cursor.next();
    }
    cursor.status()?;
    Ok(Chunk { events, through: head.max(request.after) })
}

/// Builds the event of a logged operation from the versions that it names.
fn read_event(
    pinned: &Pinned,
    revision: Revision,
    operation: LoggedOperation,
    with_previous: bool,
) -> Result<Event> {
    let version = |revision| -> Result<Stored> {
        read::version(pinned, &operation.key, revision)?.ok_or_else(|| Error::Corrupt {
            key: operation.key.clone(),
            revision,
            reason: "the log names a version that is missing",
        })
    };
    let kind = match operation.kind {
        Kind::Tombstone => EventKind::Delete,
        Kind::Put | Kind::PutExpiring => {
            let stored = version(revision)?;
            EventKind::Put {
                expires_at_ms: stored.header.expires_at_ms(),
                value: stored.value,
                create_revision: operation.create_revision,
                version: operation.version,
            }
        }
    };
    let previous = if with_previous && operation.has_previous() {
        version(operation.superseded)?.record(operation.key.clone())
    } else {
        None
    };
    Ok(Event::new(revision, operation.key, kind, previous))
}
