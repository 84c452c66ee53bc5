//! The queues of a priority level and their dispatching order. A pure state machine over virtual time; clock,
//! waiting and waking are up to its owner.
//!
//! Fair queuing as in k8s.io/apiserver `pkg/util/flowcontrol/fairqueuing/queueset`: virtual time is the
//! seat-seconds that each busy queue would have received if seats were divided evenly (`progress`). Each
//! queue has the virtual time at which its next request would start; the queue whose first request would
//! finish earliest is dispatched first. A request is charged [`ESTIMATED_DURATION`] per seat when it starts
//! and its actual duration when it ends. A queue that was idle starts at the current virtual time, so idle
//! time does not add up to a burst.

use std::collections::VecDeque;

use super::demand::{Demand, Nanos};
use super::shuffle::Dealer;

/// Assumed duration of a request until it ends, in nanoseconds.
pub(crate) const ESTIMATED_DURATION: i128 = 3_000_000;

/// How a level treats requests without a free seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// They are refused.
    Reject,
    /// They are put into one of `queues` queues of at most `length` requests each.
    Queue {
        /// Assigns queues to flows.
        dealer: Dealer,
        /// Number of queues.
        queues: usize,
        /// Maximum length of a queue.
        length: usize,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The queue of its flow is full.
    QueueFull,
    /// No seat is free, and the level has no queues.
    ConcurrencyLimit,
    /// It was in the queue for too long.
    TimeOut,
    /// Its client left while it was in the queue.
    Cancelled,
}

impl Rejected {
    /// The label in `apiserver_flowcontrol_rejected_requests_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejected::QueueFull => "queue-full",
            Rejected::ConcurrencyLimit => "concurrency-limit",
            Rejected::TimeOut => "time-out",
            Rejected::Cancelled => "cancelled",
        }
    }
}

/// A queue, as it is listed. Seat-seconds are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDump {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests of this queue that are served.
    pub executing: u32,
    /// Seats of the requests that are served.
    pub seats_in_use: u32,
    /// Seats that waiting requests want.
    pub seats_waiting: u32,
    /// Virtual time at which its next request would start.
    pub next_start: i128,
    /// Seat-seconds that waiting requests are assumed to need.
    pub work: i128,
}

/// The seats of an executing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    queue: Option<usize>,
    seats: u32,
    started: Nanos,
}

impl Ticket {
    /// Number of seats.
    pub fn seats(&self) -> u32 {
        self.seats
    }
}

/// The position of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePosition {
    queue: usize,
    id: u64,
}

/// Outcome of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It executes at once.
    Served(Ticket),
    /// It is queued; [`QueueSet::take_ready`] returns its token when it is dispatched.
    Waits(QueuePosition),
}

#[derive(Debug)]
struct QueuedRequest<T> {
    id: u64,
    seats: u32,
    /// Virtual time of its arrival.
    arrived: i128,
    token: T,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<QueuedRequest<T>>,
    /// Sum over the queued requests.
    seats_waiting: u32,
    executing: u32,
    /// Seats of the executing requests.
    seats_in_use: u32,
    /// Virtual time at which the next request of this queue would start.
    next_start: i128,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { waiting: VecDeque::new(), seats_waiting: 0, executing: 0, seats_in_use: 0, next_start: 0 }
    }
}

impl<T> Queue<T> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }
}

/// The queues and seats of a level. `T` is the token with which the owner wakes a queued request.
#[derive(Debug)]
pub(super) struct QueueSet<T> {
    queuing: Queuing,
    /// Total number of seats.
    limit: u32,
    /// May be more than configured until surplus queues are empty.
    queues: Vec<Queue<T>>,
    /// Virtual time: seat-nanoseconds that each busy queue would have received.
    progress: i128,
    synced: Nanos,
    busy_queues: u32,
    executing: u32,
    seats_in_use: u32,
    waiting: u32,
    seats_waiting: u32,
    arrivals: u64,
    /// The queue dispatched last; the search for the next starts after it.
    last_served: usize,
    demand: Demand,
    ready: Vec<(T, Ticket)>,
}

impl<T> QueueSet<T> {
    /// An idle level with that many seats.
    pub(super) fn new(queuing: Queuing, limit: u32, now: Nanos) -> QueueSet<T> {
        let mut set = QueueSet {
            queuing: Queuing::Reject,
            limit,
            queues: Vec::new(),
            progress: 0,
            synced: now,
            busy_queues: 0,
            executing: 0,
            seats_in_use: 0,
            waiting: 0,
            seats_waiting: 0,
            arrivals: 0,
            last_served: 0,
            demand: Demand::new(now),
            ready: Vec::new(),
        };
        set.configure(queuing, now);
        set
    }

    /// Applies a new configuration; queued requests keep their position.
    pub(super) fn configure(&mut self, queuing: Queuing, now: Nanos) {
        self.sync(now);
        if let Queuing::Queue { queues, .. } = queuing {
            while self.queues.len() < queues {
                self.queues.push(Queue::default());
            }
        }
        self.queuing = queuing;
        self.dispatch(now);
    }

    /// The number of seats.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the number of seats and dispatches requests.
    pub(super) fn set_limit(&mut self, limit: u32, now: Nanos) {
        self.sync(now);
        self.limit = limit;
        self.dispatch(now);
    }

    /// Admits or enqueues a request of a flow. `token` is called if it is enqueued.
    ///
    /// # Errors
    /// [`Rejected`] when there is no space.
    pub(super) fn arrive(
        &mut self,
        hash: u64,
        seats: u32,
        now: Nanos,
        token: impl FnOnce() -> T,
    ) -> Result<Arrival, Rejected> {
        self.sync(now);
        let (dealer, length) = match self.queuing {
            Queuing::Queue { dealer, length, .. } => (dealer, length),
            Queuing::Reject if self.fits(seats) => {
                return Ok(Arrival::Served(self.occupy(None, seats, now)));
            }
            Queuing::Reject => return Err(Rejected::ConcurrencyLimit),
        };
        let at = self.shortest(&dealer, hash);
        if self.seats_in_use >= self.limit && self.queues[at].waiting.len() >= length {
            return Err(Rejected::QueueFull);
        }
        if self.queues[at].is_idle() {
            self.queues[at].next_start = self.progress;
            self.busy_queues += 1;
        }
        if self.waiting == 0 && self.fits(seats) {
            self.queues[at].next_start += ESTIMATED_DURATION * i128::from(seats);
            self.last_served = at;
            return Ok(Arrival::Served(self.occupy(Some(at), seats, now)));
        }
        let id = self.arrivals;
        let waiting = QueuedRequest { id, seats, arrived: self.progress, token: token() };
        let queue = &mut self.queues[at];
        queue.waiting.push_back(waiting);
        queue.seats_waiting += seats;
        self.waiting += 1;
        self.seats_waiting += seats;
        self.update_demand(now);
        self.dispatch(now);
        Ok(Arrival::Waits(QueuePosition { queue: at, id }))
    }

    /// Releases the seats of a request.
    pub(super) fn finish(&mut self, ticket: Ticket, now: Nanos) {
        self.sync(now);
        self.executing -= 1;
        self.seats_in_use -= ticket.seats;
        if let Some(at) = ticket.queue {
            let took = i128::from(now.saturating_sub(ticket.started));
            let queue = &mut self.queues[at];
            queue.executing -= 1;
            queue.seats_in_use -= ticket.seats;
            queue.next_start -= (ESTIMATED_DURATION - took) * i128::from(ticket.seats);
            bound_start(queue);
            self.remove_if_idle(at);
        }
        self.update_demand(now);
        self.dispatch(now);
    }

    /// Removes a queued request. `false` when it is no longer queued: then its ticket has been issued.
    pub(super) fn leave(&mut self, position: QueuePosition, now: Nanos) -> bool {
        self.sync(now);
        let Some(queue) = self.queues.get_mut(position.queue) else { return false };
        let Some(index) = queue.waiting.iter().position(|w| w.id == position.id) else { return false };
        let Some(removed) = queue.waiting.remove(index) else { return false };
        queue.seats_waiting -= removed.seats;
        bound_start(queue);
        self.waiting -= 1;
        self.seats_waiting -= removed.seats;
        self.remove_if_idle(position.queue);
        self.update_demand(now);
        self.dispatch(now);
        true
    }

    /// Requests dispatched since the last call, in order.
    pub(crate) fn take_ready(&mut self) -> Vec<(T, Ticket)> {
        std::mem::take(&mut self.ready)
    }

    /// Whether any request has been dispatched.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Occupied seats.
    #[cfg(test)]
    pub(crate) fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// Queued requests.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The queues, for listing.
    pub(super) fn dump(&self) -> Vec<QueueDump> {
        let dump = |queue: &Queue<T>| QueueDump {
            waiting: queue.waiting.len(),
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            seats_waiting: queue.seats_waiting,
            next_start: queue.next_start,
            work: ESTIMATED_DURATION * i128::from(queue.seats_waiting),
        };
        self.queues.iter().map(dump).collect()
    }

    /// The queued requests: queue, place in it, seats and token.
    pub(super) fn queued(&self) -> impl Iterator<Item = (usize, usize, u32, &T)> {
        self.queues.iter().enumerate().flat_map(|(at, queue)| {
            queue.waiting.iter().enumerate().map(move |(place, w)| (at, place, w.seats, &w.token))
        })
    }

    /// Length of the queue of that position.
    pub(super) fn length_at(&self, position: QueuePosition) -> usize {
        self.queues.get(position.queue).map_or(0, |queue| queue.waiting.len())
    }

    /// Whether no request is queued or executing.
    pub(super) fn is_idle(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }

    /// The demand since the last call.
    pub(crate) fn reset_demand(&mut self, now: Nanos) -> super::demand::DemandStats {
        self.demand.reset(now)
    }

    /// Advances virtual time: seats in use, or requested if fewer, divided among busy queues.
    fn sync(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.synced);
        self.synced = self.synced.max(now);
        if self.busy_queues > 0 {
            let rate = (self.seats_in_use + self.seats_waiting).min(self.limit);
            self.progress += i128::from(passed) * i128::from(rate) / i128::from(self.busy_queues);
        }
    }

    fn update_demand(&mut self, now: Nanos) {
        self.demand.set(self.seats_in_use + self.seats_waiting, now);
    }

    /// The flow's queue with the fewest waiting seats; ties are broken round-robin.
    fn shortest(&mut self, dealer: &Dealer, hash: u64) -> usize {
        let (cards, len) = dealer.deal(hash);
        let offset = (self.arrivals % len as u64) as usize;
        self.arrivals += 1;
        let mut best = cards[offset];
        for i in 1..len {
            let at = cards[(offset + i) % len];
            if self.queues[at].seats_waiting < self.queues[best].seats_waiting {
                best = at;
            }
        }
        best
    }

    /// Whether so many seats are free. A request for more seats than the level has waits until it is alone.
    fn fits(&self, seats: u32) -> bool {
        match seats > self.limit {
            true => self.executing == 0,
            false => self.seats_in_use + seats <= self.limit,
        }
    }

    fn occupy(&mut self, queue: Option<usize>, seats: u32, now: Nanos) -> Ticket {
        self.executing += 1;
        self.seats_in_use += seats;
        if let Some(at) = queue {
            self.queues[at].executing += 1;
            self.queues[at].seats_in_use += seats;
        }
        self.update_demand(now);
        Ticket { queue, seats, started: now }
    }

    /// Dispatches queued requests while seats are free.
    fn dispatch(&mut self, now: Nanos) {
        while self.waiting > 0 {
            let Some(at) = self.next_queue() else { return };
            let Some(head) = self.queues[at].waiting.front() else { return };
            let seats = head.seats;
            if !self.fits(seats) {
                return;
            }
            let queue = &mut self.queues[at];
            let Some(head) = queue.waiting.pop_front() else { return };
            queue.seats_waiting -= seats;
            queue.next_start += ESTIMATED_DURATION * i128::from(seats);
            bound_start(queue);
            self.waiting -= 1;
            self.seats_waiting -= seats;
            self.last_served = at;
            let ticket = self.occupy(Some(at), seats, now);
            self.ready.push((head.token, ticket));
        }
    }

    /// The queue whose first request would finish earliest; ties are broken round-robin.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let mut best: Option<(i128, usize)> = None;
        for step in 1..=count {
            let at = (self.last_served + step) % count;
            let queue = &self.queues[at];
            let Some(head) = queue.waiting.front() else { continue };
            let finish = queue.next_start + ESTIMATED_DURATION * i128::from(head.seats);
            if best.is_none_or(|(least, _)| finish < least) {
                best = Some((finish, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// Stops counting a queue that has become idle, and removes surplus idle queues.
    fn remove_if_idle(&mut self, at: usize) {
        if self.queues[at].is_idle() {
            self.busy_queues -= 1;
        }
        let configured = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            Queuing::Reject => 0,
        };
        while self.queues.len() > configured && self.queues.last().is_some_and(Queue::is_idle) {
            self.queues.pop();
        }
    }
}

/// A request does not start before its arrival: a queue cannot keep a share that it did not use.
fn bound_start<T>(queue: &mut Queue<T>) {
    if let Some(head) = queue.waiting.front() {
        queue.next_start = queue.next_start.max(head.arrived);
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
