//! The queues of one priority level: who is served next. A pure state machine over virtual time; the clock, the
//! waiting and the waking are its owner's.
//!
//! Fair queuing as in k8s.io/apiserver `pkg/util/flowcontrol/fairqueuing/queueset`: time is measured in seat-seconds
//! that each busy queue would have got if seats were divided evenly (`progress`). Each queue has the point of that
//! progress at which its next request would start; the queue whose head would finish first is served first. A
//! request is charged [`GUESS`] a seat when it starts and what it really took when it ends. A queue that was empty
//! starts at the present, so nobody saves up service for a burst.

use std::collections::VecDeque;

use super::demand::Demand;
use super::shuffle::Dealer;

/// What a request is taken to last before it is known, in nanoseconds.
pub const GUESS: i128 = 3_000_000;

/// Nanoseconds since some beginning; the owner's clock.
pub type Nanos = u64;

/// How a level treats requests for which there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// They are refused.
    Reject,
    /// They wait in one of `queues` queues of at most `length` requests each.
    Queue {
        /// Which queues a flow may use.
        dealer: Dealer,
        /// Number of queues.
        queues: usize,
        /// Most that wait in one queue.
        length: usize,
    },
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The queue of its flow is full.
    QueueFull,
    /// No seat is free, and the level has no queues.
    ConcurrencyLimit,
    /// It waited too long.
    TimeOut,
}

impl Rejected {
    /// The word in `apiserver_flowcontrol_rejected_requests_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejected::QueueFull => "queue-full",
            Rejected::ConcurrencyLimit => "concurrency-limit",
            Rejected::TimeOut => "time-out",
        }
    }
}

/// The seats that a request occupies while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    queue: Option<usize>,
    seats: u32,
    started: Nanos,
}

impl Ticket {
    /// Seats that it occupies.
    pub fn seats(&self) -> u32 {
        self.seats
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    queue: usize,
    id: u64,
}

/// What became of a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is served at once.
    Served(Ticket),
    /// It waits; its token comes out of [`QueueSet::take_ready`] when its turn comes.
    Waits(Place),
}

#[derive(Debug)]
struct Waiting<T> {
    id: u64,
    seats: u32,
    /// Progress when it arrived.
    arrived: i128,
    token: T,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Sum over those that wait.
    seats_waiting: u32,
    executing: u32,
    /// Progress at which the next request of this queue would start.
    next_start: i128,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { waiting: VecDeque::new(), seats_waiting: 0, executing: 0, next_start: 0 }
    }
}

impl<T> Queue<T> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }
}

/// The queues and seats of a level. `T` is what the owner wakes a waiting request by.
#[derive(Debug)]
pub struct QueueSet<T> {
    queuing: Queuing,
    /// Seats that may be occupied at once.
    limit: u32,
    /// May be more than configured while those over it drain.
    queues: Vec<Queue<T>>,
    /// Seat-nanoseconds that each busy queue would have got by now.
    progress: i128,
    synced: Nanos,
    busy_queues: u32,
    executing: u32,
    seats_in_use: u32,
    waiting: u32,
    seats_waiting: u32,
    arrivals: u64,
    /// The queue served last; the search for the next starts behind it.
    robin: usize,
    demand: Demand,
    ready: Vec<(T, Ticket)>,
}

impl<T> QueueSet<T> {
    /// A level with that many seats, nobody in it.
    pub fn new(queuing: Queuing, limit: u32, now: Nanos) -> QueueSet<T> {
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
            robin: 0,
            demand: Demand::new(now),
            ready: Vec::new(),
        };
        set.configure(queuing, now);
        set
    }

    /// Takes over another way of queuing; those that wait stay where they are.
    pub fn configure(&mut self, queuing: Queuing, now: Nanos) {
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
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the number of seats; a larger one lets waiting requests go on.
    pub fn set_limit(&mut self, limit: u32, now: Nanos) {
        self.sync(now);
        self.limit = limit;
        self.dispatch(now);
    }

    /// A request of a flow arrives and wants so many seats. `token` is asked for when it has to wait.
    ///
    /// # Errors
    /// [`Rejected`] when there is no room for it.
    pub fn arrive(
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
            self.queues[at].next_start += GUESS * i128::from(seats);
            self.robin = at;
            return Ok(Arrival::Served(self.occupy(Some(at), seats, now)));
        }
        let id = self.arrivals;
        let waiting = Waiting { id, seats, arrived: self.progress, token: token() };
        let queue = &mut self.queues[at];
        queue.waiting.push_back(waiting);
        queue.seats_waiting += seats;
        self.waiting += 1;
        self.seats_waiting += seats;
        self.note_demand(now);
        self.dispatch(now);
        Ok(Arrival::Waits(Place { queue: at, id }))
    }

    /// The request of that ticket has been served.
    pub fn finish(&mut self, ticket: Ticket, now: Nanos) {
        self.sync(now);
        self.executing -= 1;
        self.seats_in_use -= ticket.seats;
        if let Some(at) = ticket.queue {
            let took = i128::from(now.saturating_sub(ticket.started));
            let queue = &mut self.queues[at];
            queue.executing -= 1;
            queue.next_start -= (GUESS - took) * i128::from(ticket.seats);
            bound(queue);
            self.retire(at);
        }
        self.note_demand(now);
        self.dispatch(now);
    }

    /// A waiting request gives up. `false` when it waits no longer: then it has been served a ticket.
    pub fn leave(&mut self, place: Place, now: Nanos) -> bool {
        self.sync(now);
        let Some(queue) = self.queues.get_mut(place.queue) else { return false };
        let Some(index) = queue.waiting.iter().position(|w| w.id == place.id) else { return false };
        let Some(gone) = queue.waiting.remove(index) else { return false };
        queue.seats_waiting -= gone.seats;
        bound(queue);
        self.waiting -= 1;
        self.seats_waiting -= gone.seats;
        self.retire(place.queue);
        self.note_demand(now);
        self.dispatch(now);
        true
    }

    /// The waiting requests whose turn has come since the last call, in order.
    pub fn take_ready(&mut self) -> Vec<(T, Ticket)> {
        std::mem::take(&mut self.ready)
    }

    /// Whether anybody's turn has come.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Seats that are occupied.
    #[cfg(test)]
    pub fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    /// Requests that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How many wait in the queue of that place.
    pub fn length_at(&self, place: Place) -> usize {
        self.queues.get(place.queue).map_or(0, |queue| queue.waiting.len())
    }

    /// Nobody waits and nobody is served.
    pub fn is_idle(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }

    /// The seats that were wanted since the last call.
    pub fn reset_demand(&mut self, now: Nanos) -> super::demand::Observed {
        self.demand.reset(now)
    }

    /// Moves progress on to the present: seats in use, or wanted where they are fewer, divided among busy queues.
    fn sync(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.synced);
        self.synced = self.synced.max(now);
        if self.busy_queues > 0 {
            let rate = (self.seats_in_use + self.seats_waiting).min(self.limit);
            self.progress += i128::from(passed) * i128::from(rate) / i128::from(self.busy_queues);
        }
    }

    fn note_demand(&mut self, now: Nanos) {
        self.demand.set(self.seats_in_use + self.seats_waiting, now);
    }

    /// Of the flow's queues the one with the least work waiting; ties go round.
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

    /// Whether so many seats are free. A request wider than the level waits until it is alone.
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
        }
        self.note_demand(now);
        Ticket { queue, seats, started: now }
    }

    /// Serves waiting requests as long as seats are free.
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
            queue.next_start += GUESS * i128::from(seats);
            bound(queue);
            self.waiting -= 1;
            self.seats_waiting -= seats;
            self.robin = at;
            let ticket = self.occupy(Some(at), seats, now);
            self.ready.push((head.token, ticket));
        }
    }

    /// The queue whose head would finish first, the one after the last served when several would.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let mut best: Option<(i128, usize)> = None;
        for step in 1..=count {
            let at = (self.robin + step) % count;
            let queue = &self.queues[at];
            let Some(head) = queue.waiting.front() else { continue };
            let finish = queue.next_start + GUESS * i128::from(head.seats);
            if best.is_none_or(|(least, _)| finish < least) {
                best = Some((finish, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// A queue that has become idle counts no longer, and goes when there are more than configured.
    fn retire(&mut self, at: usize) {
        if self.queues[at].is_idle() {
            self.busy_queues -= 1;
        }
        let wanted = match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            Queuing::Reject => 0,
        };
        while self.queues.len() > wanted && self.queues.last().is_some_and(Queue::is_idle) {
            self.queues.pop();
        }
    }
}

/// Service does not start before arrival: a queue that could not use its share does not keep it.
fn bound<T>(queue: &mut Queue<T>) {
    if let Some(head) = queue.waiting.front() {
        queue.next_start = queue.next_start.max(head.arrived);
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
