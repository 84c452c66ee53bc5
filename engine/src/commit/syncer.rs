//! The thread that writes and syncs, so that the builder does not wait for the disk.

use parking_lot::Mutex;

use crate::commit::queue::CommitQueue;
use crate::commit::writer::Writer;

/// Writes the groups that the builder hands over, and syncs relaxed ones in time, until the builder has
/// ended.
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
