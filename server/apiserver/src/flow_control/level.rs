//! One priority level at work: its queues behind a lock, its waiting requests asleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::demand::Observed;
use super::queues::{Arrival, Nanos, Place, QueueSet, Queuing, Rejected, Ticket};
use super::retry::RetryAfter;

/// The most seats that one request may take, whatever its width (upstream's `MaximumListSeatsLimit`).
const WIDEST: u32 = 10;

/// A priority level. The queues' mutex is held for the time of a few additions, or of one walk over the queues while
/// requests wait; never across an await. An exempt level has no lock at all.
pub struct Level {
    name: String,
    clock: Instant,
    /// When refused clients should come again.
    pub retry: RetryAfter,
    kind: Kind,
}

enum Kind {
    Exempt {
        executing: AtomicU32,
        most: AtomicU32,
    },
    Limited {
        queues: Box<Mutex<QueueSet<oneshot::Sender<Ticket>>>>,
        widest: AtomicU32,
        /// Seats whose requests wait for bodies that are late.
        late: AtomicU32,
    },
}

/// What a request occupies on a level, for [`Level::finish`].
#[derive(Debug)]
pub enum Occupied {
    /// Nothing that is counted in seats.
    Exempt,
    /// Seats.
    Seats(Ticket),
}

impl Level {
    /// A level whose requests are served whatever happens.
    pub fn exempt(name: &str, clock: Instant) -> Level {
        let kind = Kind::Exempt { executing: AtomicU32::new(0), most: AtomicU32::new(0) };
        Level { name: name.to_owned(), clock, retry: RetryAfter::default(), kind }
    }

    /// A level of so many seats.
    pub fn limited(name: &str, queuing: Queuing, seats: u32, clock: Instant) -> Level {
        let queues = Box::new(Mutex::new(QueueSet::new(queuing, seats, nanos(clock))));
        let kind = Kind::Limited { queues, widest: AtomicU32::new(1), late: AtomicU32::new(0) };
        Level { name: name.to_owned(), clock, retry: RetryAfter::default(), kind }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its requests are served whatever happens.
    pub fn is_exempt(&self) -> bool {
        matches!(self.kind, Kind::Exempt { .. })
    }

    /// The most seats that a request may take here.
    pub fn widest(&self) -> u32 {
        match &self.kind {
            Kind::Exempt { .. } => 1,
            Kind::Limited { widest, .. } => widest.load(Ordering::Relaxed),
        }
    }

    /// Takes over another way of queuing, and what a request may take of the level's nominal seats.
    pub fn configure(&self, queuing: Queuing, nominal: u32, hand: u32) {
        let Kind::Limited { queues, widest, .. } = &self.kind else { return };
        // Upstream's rule: 15% of the level, and so that a hand of such requests still fits.
        let part = (f64::from(nominal) * 0.15).ceil() as u32;
        let fits = part.min(nominal / hand.max(1)).clamp(1, WIDEST);
        widest.store(fits, Ordering::Relaxed);
        let mut queues = queues.lock();
        queues.configure(queuing, nanos(self.clock));
        self.wake(queues);
    }

    /// Sets the number of seats.
    pub fn set_limit(&self, seats: u32) {
        let Kind::Limited { queues, .. } = &self.kind else { return };
        let mut queues = queues.lock();
        queues.set_limit(seats, nanos(self.clock));
        self.wake(queues);
    }

    /// The seats wanted since the last call.
    pub fn reset_demand(&self) -> Observed {
        match &self.kind {
            Kind::Exempt { executing, most } => {
                let now = executing.load(Ordering::Relaxed);
                let most = most.swap(now, Ordering::Relaxed).max(now);
                // Of an exempt level only the peak counts.
                Observed { average: f64::from(now), deviation: 0.0, most }
            }
            Kind::Limited { queues, .. } => queues.lock().reset_demand(nanos(self.clock)),
        }
    }

    /// Whether nobody waits and nobody is served.
    pub fn is_idle(&self) -> bool {
        match &self.kind {
            Kind::Exempt { executing, .. } => executing.load(Ordering::Relaxed) == 0,
            Kind::Limited { queues, .. } => queues.lock().is_idle(),
        }
    }

    /// A request of a flow arrives and wants so many seats.
    ///
    /// # Errors
    /// [`Rejected`] when there is no room.
    pub fn arrive(self: &Arc<Level>, hash: u64, seats: u32) -> Result<Arrived, Rejected> {
        let queues = match &self.kind {
            Kind::Exempt { executing, most } => {
                let now = executing.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if now > most.load(Ordering::Relaxed) {
                    most.fetch_max(now, Ordering::Relaxed);
                }
                return Ok(Arrived::Served(Occupied::Exempt));
            }
            Kind::Limited { queues, .. } => queues,
        };
        let mut turn = None;
        let mut queues = queues.lock();
        let arrival = queues.arrive(hash, seats, nanos(self.clock), || {
            let (send, receive) = oneshot::channel();
            turn = Some(receive);
            send
        })?;
        let arrived = match (arrival, turn) {
            (Arrival::Served(ticket), _) => Arrived::Served(Occupied::Seats(ticket)),
            (Arrival::Waits(place), Some(turn)) => {
                let length = queues.length_at(place);
                Arrived::Waits(Waiter { level: self.clone(), place, turn, length, done: false })
            }
            // A place without a token is never made.
            (Arrival::Waits(_), None) => return Err(Rejected::ConcurrencyLimit),
        };
        self.wake(queues);
        Ok(arrived)
    }

    /// A request has been served.
    pub fn finish(&self, occupied: Occupied) {
        match (&self.kind, occupied) {
            (Kind::Exempt { executing, .. }, _) => {
                executing.fetch_sub(1, Ordering::Relaxed);
            }
            (Kind::Limited { queues, .. }, Occupied::Seats(ticket)) => {
                let mut queues = queues.lock();
                queues.finish(ticket, nanos(self.clock));
                self.wake(queues);
            }
            (Kind::Limited { .. }, Occupied::Exempt) => {}
        }
    }

    /// A request that is served waits for a body that is late. Half of the seats may be taken so, and one in any case: clients that send
    /// slowly, or nothing, leave the others to those who have come with all that they want.
    ///
    /// # Errors
    /// When too many wait so.
    pub fn wait_for_body(&self, occupied: &Occupied) -> Result<Late<'_>, Rejected> {
        let (Kind::Limited { queues, late, .. }, Occupied::Seats(ticket)) = (&self.kind, occupied) else {
            return Ok(Late { late: None, seats: 0 });
        };
        let (seats, limit) = (ticket.seats(), queues.lock().limit());
        let more = |now: u32| now.checked_add(seats).filter(|then| now == 0 || *then <= limit / 2);
        match late.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Late { late: Some(late), seats }),
            Err(_) => Err(Rejected::ConcurrencyLimit),
        }
    }

    /// Wakes those whose turn has come, and gives the seats of those that have gone to the next.
    fn wake(&self, mut queues: parking_lot::MutexGuard<'_, QueueSet<oneshot::Sender<Ticket>>>) {
        while queues.has_ready() {
            for (turn, ticket) in queues.take_ready() {
                if let Err(ticket) = turn.send(ticket) {
                    queues.finish(ticket, nanos(self.clock));
                }
            }
        }
    }
}

/// A request that waits for its body; given back when it is dropped.
#[derive(Debug)]
pub struct Late<'a> {
    late: Option<&'a AtomicU32>,
    seats: u32,
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        if let Some(late) = self.late {
            late.fetch_sub(self.seats, Ordering::Relaxed);
        }
    }
}

/// What became of a request.
pub enum Arrived {
    /// It is served at once.
    Served(Occupied),
    /// It waits.
    Waits(Waiter),
}

/// A request that waits; it leaves its queue when it is dropped.
pub struct Waiter {
    level: Arc<Level>,
    place: Place,
    turn: oneshot::Receiver<Ticket>,
    /// How many waited in its queue when it came, with it.
    pub length: usize,
    done: bool,
}

impl Waiter {
    /// Waits until its turn comes.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn wait(mut self, limit: Duration) -> Result<Occupied, Rejected> {
        match tokio::time::timeout(limit, &mut self.turn).await {
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
        let Kind::Limited { queues, .. } = &self.level.kind else { return };
        if self.done {
            return;
        }
        let mut queues = queues.lock();
        if queues.leave(self.place, nanos(self.level.clock)) {
            self.level.wake(queues);
            return;
        }
        drop(queues);
        // Its turn had come at the same moment: the ticket is here, or comes back to its sender.
        self.turn.close();
        if let Ok(ticket) = self.turn.try_recv() {
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

    fn level(seats: u32) -> Arc<Level> {
        let dealer = Dealer::new(4, 2).unwrap();
        let queuing = Queuing::Queue { dealer, queues: 4, length: 100 };
        Arc::new(Level::limited("test", queuing, seats, Instant::now()))
    }

    fn served(level: &Arc<Level>) -> Occupied {
        match level.arrive(1, 1).unwrap() {
            Arrived::Served(seat) => seat,
            Arrived::Waits(_) => panic!("it should not have to wait"),
        }
    }

    fn waits(level: &Arc<Level>) -> Waiter {
        match level.arrive(1, 1).unwrap() {
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
        for (seats, most) in [(1, 1), (3, 1), (8, 4)] {
            let level = level(seats);
            let all: Vec<Occupied> = (0..seats).map(|_| served(&level)).collect();
            let wait = || level.wait_for_body(&all[0]);
            let mut late: Vec<Late<'_>> = (0..most).map(|_| wait().unwrap()).collect();
            assert_eq!(wait().unwrap_err(), Rejected::ConcurrencyLimit, "{seats} seats");
            late.pop();
            wait().unwrap();
        }
        let exempt = Level::exempt("test", Instant::now());
        let late: Vec<_> = (0..100).map(|_| exempt.wait_for_body(&Occupied::Exempt).unwrap()).collect();
        assert_eq!(late.len(), 100);
    }

    #[tokio::test]
    async fn a_turn_that_comes_too_late_goes_to_the_next() {
        let level = level(1);
        let first = served(&level);
        let (late, next) = (waits(&level), waits(&level));
        // The turn comes while nobody polls; then the waiter goes.
        level.finish(first);
        drop(late);
        let next = next.wait(Duration::from_secs(60)).await.unwrap();
        level.finish(next);
        assert!(level.is_idle());
    }
}
