//! The commit queue under loom: every interleaving of callers, builder, syncer, a failure and closing.
//! Builder and writer are stand-ins without a database, which follow the protocol of
//! [`Builder::run`](crate::commit::builder) and [`Writer::write`](crate::commit::writer) towards queue, hub
//! and callers.
//!
//! A hand-over that is lost shows as a deadlock, an answer that is lost as a caller that waits forever.

use std::sync::atomic::{AtomicU64 as Count, Ordering};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use loom::thread::JoinHandle;

use crate::commit::group::Group;
use crate::commit::proposal::Proposal;
use crate::commit::queue::{CommitQueue, Task};
use crate::commit::reply::Committed;
use crate::error::{Error, Result};
use crate::feed::hub::Hub;
use crate::feed::interleavings::{block_on, check, commit};
use crate::health::{refusal, Failed, Failure, Health};
use crate::revision::Revision;
use crate::sync::{Condvar, Mutex};

/// What the writer does with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Works,
    /// The group with this number fails for lack of space, the others succeed.
    FullAt(u64),
    /// The group with this number fails, and with it the engine.
    FailsAt(u64),
    /// The thread that writes the group with this number panics.
    PanicsAt(u64),
}

struct Writer {
    queue: Arc<CommitQueue>,
    hub: Arc<Hub>,
    health: Arc<Health>,
    disk: Disk,
    /// Revisions on the disk.
    written: u64,
    /// Revisions that the watermark covers.
    marked: u64,
}

impl Writer {
    fn write(&mut self, group: Group) {
        let number = group.number;
        let error = match self.disk {
            _ if self.health.check().is_err() => self.health.check().unwrap_err(),
            Disk::FullAt(at) if at == number => Error::OutOfSpace { message: "full".into() },
            Disk::FailsAt(at) if at == number => {
                self.health.fail(Failure::Write { message: "fsync".into() });
                Error::OutcomeUnknown { message: "fsync".into() }
            }
            // As in a thread whose panic is caught: what it held is dropped.
            Disk::PanicsAt(at) if at == number => {
                drop(group);
                return self.health.fail(Failure::Panic { thread: "t".into(), message: "m".into() });
            }
            _ => {
                self.written += group.commits.len() as u64;
                self.queue.group_written(number, group.answers.len(), Duration::ZERO);
                let wakers = self.hub.publish(&group.commits);
                for (reply, answer) in group.answers {
                    reply.send(answer);
                }
                wakers.into_iter().for_each(Waker::wake);
                return self.queue.group_answered();
            }
        };
        self.queue.group_failed(number, error.clone());
        group.fail(&error);
    }
}

fn build(queue: &CommitQueue, hub: &Hub, writer: &Mutex<Writer>) {
    let mut open: Option<Group> = None;
    let (mut last_assigned, mut next_group) = (hub.latest(), 1);
    loop {
        let next = queue.next_work(&mut open, true);
        if let Some(error) = next.failed {
            if let Some(group) = open.take() {
                group.fail(&error);
            }
            last_assigned = hub.latest();
            continue;
        }
        if let Some(group) = next.write {
            writer.lock().write(group);
        }
        for work in next.work {
            let group = open.get_or_insert_with(|| {
                next_group += 1;
                Group::new(next_group - 1)
            });
            last_assigned = last_assigned.next();
            group.sync = true;
            group.commits.push(commit(last_assigned.get(), "a/key"));
            group.answers.push((work.reply, Ok(Committed { revision: last_assigned, commit: None })));
        }
        if next.closing {
            break;
        }
    }
    queue.builder_ended();
}

fn sync(queue: &CommitQueue, writer: &Mutex<Writer>, marked: &Condvar) {
    loop {
        {
            // Syncs that are due are done at once, where the syncer would wait for their time.
            let mut writer = writer.lock();
            writer.marked = writer.written;
            marked.notify_all();
        }
        match queue.take_group(None) {
            Ok(Some(group)) => writer.lock().write(group),
            Ok(None) => {}
            Err(_finished) => break,
        }
    }
}

/// A queue with its two threads.
struct Committer {
    queue: Arc<CommitQueue>,
    hub: Arc<Hub>,
    health: Arc<Health>,
    writer: Arc<Mutex<Writer>>,
    marked: Arc<Condvar>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    fn start(disk: Disk, queue_bytes: usize) -> Committer {
        let (queue, hub) =
            (Arc::new(CommitQueue::new(queue_bytes)), Arc::new(Hub::new(Revision::ZERO, 1 << 20)));
        let health = Arc::new(Health::default());
        let (failing, ending) = (Arc::clone(&queue), Arc::clone(&hub));
        health.on_failure(move |failure| {
            failing.poison(&refusal(failure));
            ending.end(refusal(failure));
        });
        let writer = Writer {
            queue: Arc::clone(&queue),
            hub: Arc::clone(&hub),
            health: Arc::clone(&health),
            disk,
            written: 0,
            marked: 0,
        };
        let writer = Arc::new(Mutex::new(writer));
        let (d, h, w) = (Arc::clone(&queue), Arc::clone(&hub), Arc::clone(&writer));
        let builder = loom::thread::spawn(move || build(&d, &h, &w));
        let marked = Arc::new(Condvar::new());
        let (d, w, m) = (Arc::clone(&queue), Arc::clone(&writer), Arc::clone(&marked));
        let syncer = loom::thread::spawn(move || sync(&d, &w, &m));
        Committer { queue, hub, health, writer, marked, threads: vec![builder, syncer] }
    }

    fn propose(&self) -> Proposal {
        Proposal::submit(&self.queue, Task::SetFloor(Revision::new(1)), 1)
    }

    /// Closes, joins the threads, and compares what was acknowledged with what is on disk.
    fn close(self, acknowledged: u64) {
        self.queue.close();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let written = self.writer.lock().written;
        assert!(acknowledged <= written, "{acknowledged} acknowledged, {written} written");
        assert_eq!(self.hub.latest().get(), written, "what is written is published");
    }
}

fn acknowledged(result: &Result<Committed>) -> u64 {
    u64::from(result.is_ok())
}

#[test]
fn every_caller_is_answered() {
    check(2, || {
        let committer = Committer::start(Disk::Works, 1 << 10);
        let (first, second) = (committer.propose(), committer.propose());
        assert_eq!(block_on(first).unwrap().revision, Revision::new(1));
        assert_eq!(block_on(second).unwrap().revision, Revision::new(2));
        committer.close(2);
    });
}

/// The syncer, which sleeps while nothing is due, is notified of groups that the builder writes itself.
#[test]
fn the_watermark_follows_whoever_writes() {
    check(2, || {
        let committer = Committer::start(Disk::Works, 1 << 10);
        for written in 1..=2 {
            block_on(committer.propose()).unwrap();
            let mut writer = committer.writer.lock();
            while writer.marked < written {
                committer.marked.wait(&mut writer);
            }
        }
        committer.close(2);
    });
}

/// A caller blocked by a full queue is admitted when there is room.
#[test]
fn who_waits_before_a_full_queue_gets_in() {
    check(1, || {
        let committer = Committer::start(Disk::Works, 1);
        let queue = Arc::clone(&committer.queue);
        let other = loom::thread::spawn(move || {
            block_on(Proposal::submit(&queue, Task::SetFloor(Revision::new(1)), 1)).unwrap();
        });
        block_on(committer.propose()).unwrap();
        other.join().unwrap();
        committer.close(2);
    });
}

#[test]
fn closing_does_what_is_queued_and_refuses_the_rest() {
    check(2, || {
        let committer = Committer::start(Disk::Works, 1 << 10);
        let done = Arc::new(Count::new(0));
        let (queue, count) = (Arc::clone(&committer.queue), Arc::clone(&done));
        let other = loom::thread::spawn(move || {
            match block_on(Proposal::submit(&queue, Task::SetFloor(Revision::new(1)), 1)) {
                Ok(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
            }
        });
        let queued = committer.propose();
        committer.queue.close();
        block_on(queued).unwrap();
        other.join().unwrap();
        committer.close(1 + done.load(Ordering::Relaxed));
    });
}

/// A group that fails for lack of space fails with all that was built on it, and the next group continues
/// from the last published revision.
#[test]
fn a_full_disk_fails_what_was_built_on_the_group_and_passes() {
    check(2, || {
        let committer = Committer::start(Disk::FullAt(1), 1 << 10);
        let (first, second) = (committer.propose(), committer.propose());
        let (first, second) = (block_on(first), block_on(second));
        assert!(matches!(first, Err(Error::OutOfSpace { .. })));
        let third = block_on(committer.propose());
        let sum = acknowledged(&second) + acknowledged(&third);
        assert!(third.is_ok());
        assert_eq!(third.unwrap().revision.get(), sum, "no revision is skipped");
        committer.close(sum);
    });
}

/// After a failure every caller gets an error, at once or later, and both threads end when the queue is
/// closed. The write that failed is of unknown outcome; what was not written is refused.
#[test]
fn a_failure_answers_everybody_and_nothing_is_written_after_it() {
    check(2, || {
        let committer = Committer::start(Disk::FailsAt(1), 1 << 10);
        let failed = Failed::new(Arc::clone(&committer.health));
        let (first, second) = (committer.propose(), committer.propose());
        assert!(matches!(block_on(first), Err(Error::OutcomeUnknown { .. })));
        assert!(block_on(second).is_err());
        assert!(matches!(block_on(committer.propose()), Err(Error::Poisoned { .. })));
        assert!(matches!(block_on(failed), Failure::Write { .. }));
        committer.close(0);
    });
}

#[test]
fn a_panic_of_the_writing_thread_answers_everybody() {
    check(2, || {
        let committer = Committer::start(Disk::PanicsAt(1), 1 << 10);
        let (first, second) = (committer.propose(), committer.propose());
        assert!(matches!(block_on(first), Err(Error::OutcomeUnknown { .. })));
        assert!(block_on(second).is_err());
        assert!(matches!(block_on(committer.propose()), Err(Error::Poisoned { .. })));
        committer.close(0);
    });
}

/// A failure reported by another thread, at any moment.
#[test]
fn a_failure_of_another_thread_leaves_nobody_waiting() {
    check(2, || {
        let committer = Committer::start(Disk::Works, 1 << 10);
        let health = Arc::clone(&committer.health);
        let failing =
            loom::thread::spawn(move || health.fail(Failure::Write { message: "compaction".into() }));
        let first = block_on(committer.propose());
        failing.join().unwrap();
        let second = block_on(committer.propose());
        assert!(matches!(second, Err(Error::Poisoned { .. })));
        committer.close(acknowledged(&first));
    });
}
