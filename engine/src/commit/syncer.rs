//! The thread that waits for the disk, so that the builder need not.

use parking_lot::Mutex;

use crate::commit::queue::CommitQueue;
use crate::commit::writer::Writer;

/// Writes the groups that the builder hands over, and syncs relaxed ones in time, until the builder is gone.
pub(crate) fn run(queue: &CommitQueue, writer: &Mutex<Writer>) {
    loop {
        let due = writer.lock().due();
        match queue.take_group(due) {
            Ok(Some(group)) => writer.lock().write(group),
            Ok(None) => writer.lock().catch_up(),
            Err(_finished) => break,
        }
    }
    writer.lock().sync();
}
