//! A priority level: its queues behind a lock, and the requests that wait in them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::demand::{DemandStats, Nanos};
use super::queues::{Arrival, QueueDump, QueuePosition, QueueSet, Queuing, Rejected, Ticket};
use super::retry::RetryAfter;
use super::waiting::RequestDump;

/// Maximum seats of one request (upstream's `MaximumListSeatsLimit`).
const MAX_SEATS: u32 = 10;

/// A priority level. The mutex of the queues is held for a few additions, or one pass over the queues while
/// requests wait; never across an await. An exempt level has no lock.
pub struct PriorityLevel {
    name: String,
    clock: Instant,
    /// Retry-After advice for refused clients.
    pub retry: RetryAfter,
    kind: LevelKind,
}

enum LevelKind {
    Exempt {
        executing: AtomicU32,
        peak: AtomicU32,
    },
    Limited {
        queues: Box<Mutex<QueueSet<WaitingRequest>>>,
        max_seats: AtomicU32,
        /// Seats of requests that wait for late bodies.
        late: AtomicU32,
    },
}

/// A queued request: how it is woken, and how it is listed.
struct WaitingRequest {
    sender: oneshot::Sender<Ticket>,
    dump: RequestDump,
}

/// What a request occupies on a level, for [`PriorityLevel::finish`].
#[derive(Debug)]
pub enum Occupied {
    /// No seats.
    Exempt,
    /// Seats of a limited level, until the ticket is given back.
    Seats(Ticket),
}

impl PriorityLevel {
    /// A level without limits.
    pub fn exempt(name: &str, clock: Instant) -> PriorityLevel {
        let kind = LevelKind::Exempt { executing: AtomicU32::new(0), peak: AtomicU32::new(0) };
        PriorityLevel { name: name.to_owned(), clock, retry: RetryAfter::default(), kind }
    }

    /// A level with that many seats.
    pub fn limited(name: &str, queuing: Queuing, seats: u32, clock: Instant) -> PriorityLevel {
        let queues = Box::new(Mutex::new(QueueSet::new(queuing, seats, nanos(clock))));
        let kind = LevelKind::Limited { queues, max_seats: AtomicU32::new(1), late: AtomicU32::new(0) };
        PriorityLevel { name: name.to_owned(), clock, retry: RetryAfter::default(), kind }
    }

    /// Name of the PriorityLevelConfiguration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its requests are exempt from limits.
    pub fn is_exempt(&self) -> bool {
        matches!(self.kind, LevelKind::Exempt { .. })
    }

    /// Maximum seats of one request on this level.
    pub(crate) fn max_seats(&self) -> u32 {
        match &self.kind {
            LevelKind::Exempt { .. } => 1,
            LevelKind::Limited { max_seats, .. } => max_seats.load(Ordering::Relaxed),
        }
    }

    /// Applies a new configuration of queues, and the limit of seats per request.
    pub fn configure(&self, queuing: Queuing, nominal: u32, hand: u32) {
        let LevelKind::Limited { queues, max_seats, .. } = &self.kind else { return };
        // Upstream's rule: 15% of the level, but a hand of such requests must still fit.
        let part = (f64::from(nominal) * 0.15).ceil() as u32;
        let fits = part.min(nominal / hand.max(1)).clamp(1, MAX_SEATS);
        max_seats.store(fits, Ordering::Relaxed);
        let mut queues = queues.lock();
        queues.configure(queuing, nanos(self.clock));
        self.wake(queues);
    }

    /// Sets the number of seats and dispatches waiting requests.
    pub fn set_limit(&self, seats: u32) {
        let LevelKind::Limited { queues, .. } = &self.kind else { return };
        let mut queues = queues.lock();
        queues.set_limit(seats, nanos(self.clock));
        self.wake(queues);
    }

    /// The demand since the last call.
    pub(crate) fn reset_demand(&self) -> DemandStats {
        match &self.kind {
            LevelKind::Exempt { executing, peak } => {
                let now = executing.load(Ordering::Relaxed);
                let peak = peak.swap(now, Ordering::Relaxed).max(now);
                // For an exempt level only the peak is used.
                DemandStats { average: f64::from(now), deviation: 0.0, peak }
            }
            LevelKind::Limited { queues, .. } => queues.lock().reset_demand(nanos(self.clock)),
        }
    }

    /// Whether no request waits or executes.
    pub fn is_idle(&self) -> bool {
        match &self.kind {
            LevelKind::Exempt { executing, .. } => executing.load(Ordering::Relaxed) == 0,
            LevelKind::Limited { queues, .. } => queues.lock().is_idle(),
        }
    }

    /// Admits or enqueues a request of a flow; `dump` is called if it is enqueued.
    ///
    /// # Errors
    /// [`Rejected`] when there is no space.
    pub fn arrive(
        self: &Arc<PriorityLevel>,
        hash: u64,
        seats: u32,
        dump: impl FnOnce() -> RequestDump,
    ) -> Result<Arrived, Rejected> {
        let queues = match &self.kind {
            LevelKind::Exempt { executing, peak } => {
                let now = executing.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if now > peak.load(Ordering::Relaxed) {
                    peak.fetch_max(now, Ordering::Relaxed);
                }
                return Ok(Arrived::Served(Occupied::Exempt));
            }
            LevelKind::Limited { queues, .. } => queues,
        };
        let mut ticket_receiver = None;
        let mut queues = queues.lock();
        let arrival = queues.arrive(hash, seats, nanos(self.clock), || {
            let (send, receive) = oneshot::channel();
            ticket_receiver = Some(receive);
            WaitingRequest { sender: send, dump: dump() }
        })?;
        let arrived = match (arrival, ticket_receiver) {
            (Arrival::Served(ticket), _) => Arrived::Served(Occupied::Seats(ticket)),
            (Arrival::Waits(position), Some(ticket_receiver)) => {
                let length = queues.length_at(position);
                Arrived::Waits(Waiter { level: self.clone(), position, ticket_receiver, length, done: false })
            }
            // A queue position always has a token.
            (Arrival::Waits(_), None) => return Err(Rejected::ConcurrencyLimit),
        };
        self.wake(queues);
        Ok(arrived)
    }

    /// Its queues, for listing.
    pub fn dump(&self) -> Vec<QueueDump> {
        match &self.kind {
            LevelKind::Exempt { .. } => Vec::new(),
            LevelKind::Limited { queues, .. } => queues.lock().dump(),
        }
    }

    /// The requests that wait: queue, place in it, and seats of each.
    pub(crate) fn dump_waiting(&self) -> Vec<(usize, usize, u32, RequestDump)> {
        let LevelKind::Limited { queues, .. } = &self.kind else { return Vec::new() };
        let queues = queues.lock();
        queues.queued().map(|(at, place, seats, w)| (at, place, seats, w.dump.clone())).collect()
    }

    /// Releases the seats of a request.
    pub fn finish(&self, occupied: Occupied) {
        match (&self.kind, occupied) {
            (LevelKind::Exempt { executing, .. }, _) => {
                executing.fetch_sub(1, Ordering::Relaxed);
            }
            (LevelKind::Limited { queues, .. }, Occupied::Seats(ticket)) => {
                let mut queues = queues.lock();
                queues.finish(ticket, nanos(self.clock));
                self.wake(queues);
            }
            (LevelKind::Limited { .. }, Occupied::Exempt) => {}
        }
    }

    /// Called while an executing request waits for a late body. At most half of the seats, but at least one
    /// request, may wait like this: clients that send slowly, or nothing, leave the other seats to requests
    /// that have arrived completely.
    ///
    /// # Errors
    /// When too many requests wait.
    pub(crate) fn wait_for_body(&self, occupied: &Occupied) -> Result<LateBody<'_>, Rejected> {
        let (LevelKind::Limited { queues, late, .. }, Occupied::Seats(ticket)) = (&self.kind, occupied)
        else {
            return Ok(LateBody { late: None, seats: 0 });
        };
        let (seats, limit) = (ticket.seats(), queues.lock().limit());
        let more = |now: u32| now.checked_add(seats).filter(|then| now == 0 || *then <= limit / 2);
        match late.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(LateBody { late: Some(late), seats }),
            Err(_) => Err(Rejected::ConcurrencyLimit),
        }
    }

    /// Wakes dispatched requests; the seats of those that are gone are passed on.
    fn wake(&self, mut queues: parking_lot::MutexGuard<'_, QueueSet<WaitingRequest>>) {
        while queues.has_ready() {
            for (waiting, ticket) in queues.take_ready() {
                if let Err(ticket) = waiting.sender.send(ticket) {
                    queues.finish(ticket, nanos(self.clock));
                }
            }
        }
    }
}

/// A request that waits for its body; released on drop.
#[derive(Debug)]
pub(crate) struct LateBody<'a> {
    late: Option<&'a AtomicU32>,
    seats: u32,
}

impl Drop for LateBody<'_> {
    fn drop(&mut self) {
        if let Some(late) = self.late {
            late.fetch_sub(self.seats, Ordering::Relaxed);
        }
    }
}

/// Outcome of an arrival.
pub enum Arrived {
    /// It executes at once.
    Served(Occupied),
    /// It is queued.
    Waits(Waiter),
}

/// A queued request; it leaves the queue when dropped.
pub struct Waiter {
    level: Arc<PriorityLevel>,
    position: QueuePosition,
    ticket_receiver: oneshot::Receiver<Ticket>,
    /// Length of its queue when it arrived, including it.
    pub length: usize,
    done: bool,
}

impl Waiter {
    /// Waits until the request is dispatched.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn wait(mut self, limit: Duration) -> Result<Occupied, Rejected> {
        match tokio::time::timeout(limit, &mut self.ticket_receiver).await {
            Ok(Ok(ticket)) => {
                self.done = true;
                Ok(Occupied::Seats(ticket))
            }
            _ => Err(Rejected::TimeOut),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let LevelKind::Limited { queues, .. } = &self.level.kind else { return };
        if self.done {
            return;
        }
        let mut queues = queues.lock();
        if queues.leave(self.position, nanos(self.level.clock)) {
            self.level.wake(queues);
            return;
        }
        drop(queues);
        // It has just been dispatched: the ticket is here, or returns to its sender.
        self.ticket_receiver.close();
        if let Ok(ticket) = self.ticket_receiver.try_recv() {
            self.level.finish(Occupied::Seats(ticket));
        }
    }
}

fn nanos(clock: Instant) -> Nanos {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_control::shuffle::Dealer;

    fn level(seats: u32) -> Arc<PriorityLevel> {
        let dealer = Dealer::new(4, 2).unwrap();
        let queuing = Queuing::Queue { dealer, queues: 4, length: 100 };
        Arc::new(PriorityLevel::limited("test", queuing, seats, Instant::now()))
    }

    fn served(level: &Arc<PriorityLevel>) -> Occupied {
        match level.arrive(1, 1, RequestDump::example).unwrap() {
            Arrived::Served(seat) => seat,
            Arrived::Waits(_) => panic!("it should not have to wait"),
        }
    }

    fn waits(level: &Arc<PriorityLevel>) -> Waiter {
        match level.arrive(1, 1, RequestDump::example).unwrap() {
            Arrived::Waits(waiter) => waiter,
            Arrived::Served(_) => panic!("it should have to wait"),
        }
    }

    #[tokio::test]
    async fn a_seat_that_is_given_back_wakes_the_next() {
        let level = level(1);
        let first = served(&level);
        let (gone, second) = (waits(&level), waits(&level));
        drop(gone);
        level.finish(first);
        let second = second.wait(Duration::from_secs(60)).await.unwrap();
        level.finish(second);
        assert!(level.is_idle());
    }

    #[tokio::test]
    async fn who_waits_too_long_is_refused_and_leaves_nothing_behind() {
        let level = level(1);
        let first = served(&level);
        assert_eq!(waits(&level).wait(Duration::ZERO).await.unwrap_err(), Rejected::TimeOut);
        level.finish(first);
        assert!(level.is_idle());
    }

    #[test]
    fn bodies_that_are_late_take_half_of_the_seats() {
        for (seats, peak) in [(1, 1), (3, 1), (8, 4)] {
            let level = level(seats);
            let all: Vec<Occupied> = (0..seats).map(|_| served(&level)).collect();
            let wait = || level.wait_for_body(&all[0]);
            let mut late: Vec<LateBody<'_>> = (0..peak).map(|_| wait().unwrap()).collect();
            assert_eq!(wait().unwrap_err(), Rejected::ConcurrencyLimit, "{seats} seats");
            late.pop();
            wait().unwrap();
        }
        let exempt = PriorityLevel::exempt("test", Instant::now());
        let late: Vec<_> = (0..100).map(|_| exempt.wait_for_body(&Occupied::Exempt).unwrap()).collect();
        assert_eq!(late.len(), 100);
    }

    #[tokio::test]
    async fn a_ticket_that_comes_too_late_passes_to_the_next() {
        let level = level(1);
        let first = served(&level);
        let (late, next) = (waits(&level), waits(&level));
        // The request is dispatched while its waiter is not polled; then the waiter is dropped.
        level.finish(first);
        drop(late);
        let next = next.wait(Duration::from_secs(60)).await.unwrap();
        level.finish(next);
        assert!(level.is_idle());
    }
}
