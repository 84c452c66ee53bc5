//! The thread that waits for the disk, so that the builder need not.

use parking_lot::Mutex;

use crate::commit::desk::Desk;
use crate::commit::writer::Writer;
use crate::watermark::INTERVAL;

/// Writes the groups that the builder hands over, and syncs relaxed ones in time, until the builder is gone.
pub(crate) fn run(desk: &Desk, writer: &Mutex<Writer>) {
    loop {
        // No longer than the watermark may wait: groups that the builder writes itself wake nobody here.
        let due = writer.lock().due().unwrap_or(INTERVAL);
        match desk.take_group(Some(due)) {
            Ok(Some(group)) => writer.lock().write(group),
            Ok(None) => writer.lock().catch_up(),
            Err(_finished) => break,
        }
    }
    writer.lock().sync();
}
