//! Reads of the most recent state: they wait until the replica has applied the journal up to where it ended
//! when they began. The end is asked for once for all readers that wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use plinth_journal::{Error as JournalError, Journal};

use crate::block::block_until;
use crate::error::{Error, Result};
use crate::health::Failure;
use crate::replica::outage::Call;
use crate::replica::shared::{Awaited, Shared};
use crate::replica::ticket::Ticket;
use crate::revision::Revision;

/// Pause after the journal could not be asked.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long the journal is left alone after its end was answered, for each reader that waited for it, and at
/// most. As long as these are being served others come, for whom one question is enough; where few wait there
/// is no pause.
const PAUSE_PER_READER: Duration = Duration::from_micros(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
const FEW_READERS: u32 = 8;

/// A future that resolves when the engine's newest state is at least as new as everything that was committed
/// when it was made. Returned by [`crate::Engine::read_barrier`].
#[must_use = "futures do nothing unless awaited"]
pub struct ReadBarrier(Barrier);

enum Barrier {
    /// A single store: its newest state is the newest there is.
    Passed(Revision),
    Waiting(Arc<Ticket>),
}

impl ReadBarrier {
    pub(crate) fn passed(latest: Revision) -> ReadBarrier {
        ReadBarrier(Barrier::Passed(latest))
    }

    pub(crate) fn new(shared: &Shared) -> ReadBarrier {
        let ticket = Arc::default();
        shared.ask(&ticket);
        ReadBarrier(Barrier::Waiting(ticket))
    }

    /// Blocks the thread until it resolves; none when it has not at `deadline`.
    pub fn wait_until(self, deadline: Instant) -> Option<Result<Revision>> {
        block_until(self, Some(deadline))
    }
}

impl Future for ReadBarrier {
    type Output = Result<Revision>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.0 {
            Barrier::Passed(latest) => Poll::Ready(Ok(*latest)),
            Barrier::Waiting(ticket) => ticket.poll(cx.waker()).map(|end| end.map(Revision::new)),
        }
    }
}

/// Asks the journal for its end on behalf of all readers that wait; false when the replica ends.
///
/// # Errors
/// A failure for good where the journal ends before what was applied: its members have lost records.
pub(crate) fn ask(shared: &Shared, journal: &dyn Journal, block: bool) -> Result<bool, Failure> {
    let Some(tickets) = shared.take_asking(block) else { return Ok(false) };
    if tickets.is_empty() {
        return Ok(true);
    }
    if !shared.is_checked() {
        // Its end may be that of another journal.
        shared.ask_later(tickets);
        if block {
            shared.wait_for_check(RETRY_DELAY);
        }
        return Ok(true);
    }
    let (applied, losses) = (shared.anchor().position, shared.losses());
    // The end is read after they arrived and before the next ones do: those are in the next round.
    let begun = Instant::now();
    let end = journal.end().inspect(|_| shared.times.end.record(begun.elapsed()));
    shared.heard(Call::Read, end.as_ref().err());
    match end {
        // The journal was lost meanwhile: it may be another one that has answered, also where it ends before
        // what was applied. Who follows it finds out.
        Ok(_) if !shared.is_checked() || shared.losses() != losses => shared.ask_later(tickets),
        Ok(end) if end < applied => {
            let error = JournalError::Behind { applied, end };
            tickets.iter().for_each(|ticket| ticket.answer(Err(Error::from(error.clone()))));
            return Err(Failure::Journal { error });
        }
        Ok(end) => {
            let pause = pause_after(tickets.len()).filter(|_| block);
            shared.confirm(tickets, end, losses);
            if let Some(pause) = pause {
                shared.rest(pause, Awaited::Nothing);
            }
        }
        Err(error) if error.is_transient() => {
            shared.ask_later(tickets);
            if block {
                shared.rest(RETRY_DELAY, Awaited::Nothing);
            }
        }
        Err(error) => {
            let error = Error::from(error);
            tickets.iter().for_each(|ticket| ticket.answer(Err(error.clone())));
        }
    }
    Ok(true)
}

/// How long the journal is left alone after an answer for so many readers.
fn pause_after(readers: usize) -> Option<Duration> {
    let readers = u32::try_from(readers).unwrap_or(u32::MAX);
    (readers > FEW_READERS).then(|| PAUSE_PER_READER.saturating_mul(readers).min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_readers_share_a_question() {
        let pauses = [0, 8, 9, 100, 1000, usize::MAX].map(pause_after);
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!(pauses, [None, None, micros(225), micros(2500), micros(5000), micros(5000)]);
    }
}
