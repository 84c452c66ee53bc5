//! A journal in memory that fails in every way that a real one may.
//!
//! All decisions come from one seed and the order of the calls; time is the number of calls. So a test that
//! makes its calls from one thread is reproduced by its seed. With [`FailureRates::latency`] the calls take
//! time as well, for tests with threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::journal::{Entry, Journal, Reader};
use crate::position::Position;

/// How often a simulated journal fails: each is the number of calls in a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailureRates {
    /// Appends that are refused.
    pub refused: u32,
    /// Appends that are refused for the size of the record: a limit that is lowered for a moment.
    pub too_large: u32,
    /// Appends that are lost on the way, with an unknown outcome.
    pub lost: u32,
    /// Appends that are made, and whose answers are lost.
    pub lost_answers: u32,
    /// Appends that are made later, after [`FailureRates::longest_delay`] further calls at most, with an
    /// unknown outcome.
    pub delayed: u32,
    /// Appends that are answered, and made once more later.
    pub repeated: u32,
    /// Appends that another journal answers, which a review gives up then: they are not made. A later call
    /// fails, the next one that is not an append at the latest, or it was one of somebody else, which only
    /// [`Journal::given_up`] shows. Readers that were opened before fail. What a journal promises is not
    /// kept, so [`FailureRates::all`] has none.
    pub misled: u32,
    /// Calls after which a delayed append has been made.
    pub longest_delay: u64,
    /// Reads that find nothing although there is more: a member of the journal that lags.
    pub stale_reads: u32,
    /// Reads that fail, and calls for the end that do.
    pub failed_reads: u32,
    /// Longest duration of a call.
    pub latency: Duration,
}

impl FailureRates {
    /// Some of each.
    pub fn all() -> FailureRates {
        FailureRates {
            refused: 30,
            too_large: 20,
            lost: 40,
            lost_answers: 40,
            delayed: 40,
            repeated: 30,
            misled: 0,
            longest_delay: 200,
            stale_reads: 200,
            failed_reads: 30,
            latency: Duration::ZERO,
        }
    }
}

/// A journal in memory. Cheap to clone; each replica uses a [`SimulatedJournal::client`] of its own.
#[derive(Clone)]
pub struct SimulatedJournal(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    appended: Condvar,
}

struct State {
    random: u64,
    /// Number of calls so far.
    time: u64,
    failures: FailureRates,
    /// Every record ever, those before `oldest` included.
    records: Vec<Bytes>,
    oldest: Position,
    /// Appends that are still on their way, by the time at which they are made.
    delayed: BTreeMap<(u64, u64), Bytes>,
    unreachable: HashSet<u16>,
    /// Clients that another journal answers.
    misled: HashSet<u16>,
    /// How often each client has given up another journal.
    given_up: HashMap<u16, u64>,
    /// Positions that readers do not get.
    missing: HashSet<Position>,
    max_record_bytes: usize,
}

impl SimulatedJournal {
    /// An empty journal without failures.
    pub fn new(seed: u64) -> SimulatedJournal {
        let state = State {
            random: seed,
            time: 0,
            failures: FailureRates::default(),
            records: Vec::new(),
            oldest: Position::new(1),
            delayed: BTreeMap::new(),
            unreachable: HashSet::new(),
            misled: HashSet::new(),
            given_up: HashMap::new(),
            missing: HashSet::new(),
            max_record_bytes: 1 << 20,
        };
        SimulatedJournal(Arc::new(Shared { state: Mutex::new(state), appended: Condvar::new() }))
    }

    /// The journal as one replica sees it.
    pub fn client(&self, number: u16) -> SimulatedClient {
        SimulatedClient { journal: self.clone(), number }
    }

    /// Sets how often it fails from now on.
    pub fn set_failures(&self, failures: FailureRates) {
        self.0.state.lock().failures = failures;
    }

    /// Whether a client can reach the journal.
    pub fn set_reachable(&self, client: u16, reachable: bool) {
        let mut state = self.0.state.lock();
        if reachable {
            state.unreachable.remove(&client);
        } else {
            state.unreachable.insert(client);
        }
    }

    /// Ends all failures and partitions, and makes every delayed append.
    pub fn heal(&self) {
        let mut state = self.0.state.lock();
        state.failures = FailureRates::default();
        state.unreachable.clear();
        for bytes in std::mem::take(&mut state.delayed).into_values() {
            state.records.push(bytes);
        }
        self.0.appended.notify_all();
    }

    /// Sets the size of the largest record that it takes.
    pub fn set_max_record_bytes(&self, bytes: usize) {
        self.0.state.lock().max_record_bytes = bytes;
    }

    /// Every record that was ever appended, trimmed ones included, from position 1 on.
    pub fn records(&self) -> Vec<Bytes> {
        self.0.state.lock().records.clone()
    }

    /// Appends without failures.
    pub fn push(&self, record: Bytes) -> Position {
        let mut state = self.0.state.lock();
        state.records.push(record);
        self.0.appended.notify_all();
        state.end()
    }

    /// Replaces a record, as damage would.
    pub fn replace(&self, position: Position, record: Bytes) {
        let mut state = self.0.state.lock();
        if let Some(place) = index(position).and_then(|at| state.records.get_mut(at)) {
            *place = record;
        }
    }

    /// Hides a record from readers, as a journal that has lost it would.
    pub fn lose(&self, position: Position) {
        self.0.state.lock().missing.insert(position);
    }

    /// Removes all records after `position`, as a journal restored from an old copy would.
    pub fn truncate(&self, position: Position) {
        let length = usize::try_from(position.get()).unwrap_or(usize::MAX);
        self.0.state.lock().records.truncate(length);
    }
}

fn index(position: Position) -> Option<usize> {
    usize::try_from(position.get().checked_sub(1)?).ok()
}

impl State {
    fn next_random(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn end(&self) -> Position {
        Position::new(self.records.len() as u64)
    }

    /// A call begins: time passes, and delayed appends are made.
    fn call(&mut self) {
        self.time += 1;
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= self.time) {
            let bytes = first.remove();
            self.records.push(bytes);
        }
    }

    fn happens(&mut self, per_thousand: u32) -> bool {
        per_thousand > 0 && self.next_random() % 1000 < u64::from(per_thousand)
    }

    fn delay(&mut self, record: Bytes) {
        let after = 1 + self.next_random() % self.failures.longest_delay.max(1);
        let tie = self.next_random();
        self.delayed.insert((self.time + after, tie), record);
    }

    fn reachable(&self, client: u16) -> Result<()> {
        if self.unreachable.contains(&client) {
            return Err(Error::Unavailable { message: "partitioned".to_owned() });
        }
        Ok(())
    }

    /// Whether another journal answers an append of the client, until that is given up.
    fn misleads(&mut self, client: u16) -> Result<bool> {
        let misled = self.failures.misled;
        let begins = self.happens(misled);
        if !self.misled.contains(&client) {
            return Ok(begins && self.misled.insert(client));
        }
        if self.next_random().is_multiple_of(2) {
            self.give_up(client)?;
        }
        Ok(true)
    }

    /// Somebody else has found out that another journal answers the client, before its call.
    fn overtake(&mut self, client: u16) {
        if self.misled.contains(&client) && self.next_random().is_multiple_of(4) {
            let _ = self.give_up(client);
        }
    }

    /// Gives up the other journal, where there is one that answers the client.
    fn give_up(&mut self, client: u16) -> Result<()> {
        if !self.misled.remove(&client) {
            return Ok(());
        }
        *self.given_up.entry(client).or_default() += 1;
        Err(Error::Unavailable { message: "most members have another journal".to_owned() })
    }

    fn given_up(&self, client: u16) -> u64 {
        self.given_up.get(&client).copied().unwrap_or(0)
    }

    fn pause(&mut self) -> Duration {
        let longest = u64::try_from(self.failures.latency.as_nanos()).unwrap_or(u64::MAX);
        if longest == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.next_random() % longest)
    }
}

/// A [`SimulatedJournal`] as one replica sees it.
#[derive(Clone)]
pub struct SimulatedClient {
    journal: SimulatedJournal,
    number: u16,
}

impl SimulatedClient {
    /// Begins a call that is not an append.
    fn call(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.begin()?;
        state.give_up(self.number)?;
        Ok(state)
    }

    /// Begins a call; before and after it, latency passes.
    fn begin(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.journal.0.state.lock();
        state.call();
        let pause = state.pause();
        if !pause.is_zero() {
            drop(state);
            thread::park_timeout(pause);
            state = self.journal.0.state.lock();
        }
        state.reachable(self.number)?;
        state.overtake(self.number);
        Ok(state)
    }
}

fn unknown(message: &str) -> Error {
    Error::OutcomeUnknown { message: message.to_owned() }
}

impl Journal for SimulatedClient {
    fn append(&self, record: Bytes) -> Result<Position> {
        let mut state = self.begin()?;
        let limit = state.max_record_bytes;
        if record.len() > limit {
            return Err(Error::TooLarge { size: record.len(), limit });
        }
        let failures = state.failures;
        if state.happens(failures.too_large) {
            return Err(Error::TooLarge { size: record.len(), limit: record.len().saturating_sub(1) });
        }
        if state.happens(failures.refused) {
            return Err(Error::Unavailable { message: "refused".to_owned() });
        }
        if state.misleads(self.number)? {
            let further = state.next_random() % 5;
            return Ok(Position::new(state.end().get() + further));
        }
        if state.happens(failures.lost) {
            return Err(unknown("the request was lost"));
        }
        if state.happens(failures.delayed) {
            state.delay(record);
            return Err(unknown("the request is delayed"));
        }
        if state.happens(failures.repeated) {
            state.delay(record.clone());
        }
        state.records.push(record);
        let position = state.end();
        self.journal.0.appended.notify_all();
        if state.happens(failures.lost_answers) {
            return Err(unknown("the answer was lost"));
        }
        let pause = state.pause();
        drop(state);
        thread::park_timeout(pause);
        Ok(position)
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        let state = self.call()?;
        let (oldest, given_up) = (state.oldest, state.given_up(self.number));
        drop(state);
        if from < oldest {
            return Err(Error::Trimmed { requested: from, oldest });
        }
        Ok(Box::new(SimulatedReader { client: self.clone(), next: from, given_up }))
    }

    fn end(&self) -> Result<Position> {
        let mut state = self.call()?;
        let failures = state.failures;
        if state.happens(failures.failed_reads) {
            return Err(Error::Unavailable { message: "no quorum".to_owned() });
        }
        Ok(state.end())
    }

    fn trim(&self, before: Position) -> Result<()> {
        let mut state = self.call()?;
        state.oldest = state.oldest.max(before.min(state.end().next()));
        Ok(())
    }

    fn given_up(&self) -> u64 {
        self.journal.0.state.lock().given_up(self.number)
    }

    fn max_record_bytes(&self) -> usize {
        self.journal.0.state.lock().max_record_bytes
    }
}

struct SimulatedReader {
    client: SimulatedClient,
    next: Position,
    /// How often its client had given up a journal when it was opened.
    given_up: u64,
}

impl Reader for SimulatedReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let deadline = Instant::now() + timeout;
        let mut state = self.client.call()?;
        let failures = state.failures;
        if state.happens(failures.failed_reads) || state.given_up(self.client.number) != self.given_up {
            return Err(Error::Unavailable { message: "the connection was lost".to_owned() });
        }
        if state.happens(failures.stale_reads) {
            return Ok(None);
        }
        loop {
            if self.next < state.oldest {
                return Err(Error::Trimmed { requested: self.next, oldest: state.oldest });
            }
            while state.missing.contains(&self.next) {
                self.next = self.next.next();
            }
            if let Some(bytes) = index(self.next).and_then(|at| state.records.get(at)) {
                let entry = Entry { position: self.next, bytes: bytes.clone() };
                self.next = self.next.next();
                return Ok(Some(entry));
            }
            if timeout.is_zero()
                || self.client.journal.0.appended.wait_until(&mut state, deadline).timed_out()
            {
                return Ok(None);
            }
            state.reachable(self.client.number)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(client: &SimulatedClient) -> Vec<Bytes> {
        let mut reader = client.read(Position::new(1)).unwrap();
        std::iter::from_fn(|| reader.next(Duration::ZERO).unwrap()).map(|entry| entry.bytes).collect()
    }

    #[test]
    fn records_are_read_in_the_order_of_their_positions() {
        let journal = SimulatedJournal::new(1);
        let (a, b) = (journal.client(1), journal.client(2));
        assert_eq!(a.append(Bytes::from("x")), Ok(Position::new(1)));
        assert_eq!(b.append(Bytes::from("y")), Ok(Position::new(2)));
        assert_eq!(a.end(), Ok(Position::new(2)));
        assert_eq!(all(&b), ["x", "y"]);
        a.trim(Position::new(2)).unwrap();
        assert!(matches!(b.read(Position::new(1)), Err(Error::Trimmed { oldest, .. }) if oldest.get() == 2));
    }

    #[test]
    fn what_was_answered_is_there_and_what_was_refused_is_not() {
        let journal = SimulatedJournal::new(7);
        journal.set_failures(FailureRates::all());
        let client = journal.client(1);
        let outcomes: Vec<_> = (0..2000).map(|n| client.append(Bytes::from(n.to_string()))).collect();
        journal.heal();
        let mut counts = BTreeMap::new();
        for record in all(&client) {
            *counts.entry(record).or_insert(0) += 1;
        }
        let mut kinds = [0; 4];
        for (n, outcome) in outcomes.iter().enumerate() {
            let count = counts.get(n.to_string().as_bytes()).copied().unwrap_or(0);
            match outcome {
                Ok(_) => assert!(count >= 1),
                Err(Error::Unavailable { .. } | Error::TooLarge { .. }) => assert_eq!(count, 0),
                Err(_) => assert!(count <= 2),
            }
            kinds[0] += usize::from(outcome.is_err() && count > 0);
            kinds[1] += usize::from(matches!(outcome, Err(Error::OutcomeUnknown { .. })) && count == 0);
            kinds[2] += usize::from(count == 2);
            kinds[3] += usize::from(outcome.is_ok());
        }
        assert!(kinds.iter().all(|count| *count > 10), "each failure occurs: {kinds:?}");
    }

    #[test]
    fn what_another_journal_has_answered_is_not_there_and_it_is_given_up() {
        let journal = SimulatedJournal::new(7);
        let client = journal.client(1);
        let mut reader = client.read(Position::new(1)).unwrap();
        journal.set_failures(FailureRates { misled: 1000, ..FailureRates::default() });
        assert!(client.append(Bytes::from("x")).is_ok());
        journal.set_failures(FailureRates::default());
        assert_eq!(client.given_up(), 0);
        // Or somebody else has found out.
        let trimmed = client.trim(Position::ZERO);
        assert!(matches!(trimmed, Ok(()) | Err(Error::Unavailable { .. })));
        assert_eq!((client.given_up(), journal.client(2).given_up()), (1, 0));
        assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        assert!(all(&client).is_empty());
        assert_eq!(client.append(Bytes::from("y")), Ok(Position::new(1)));
    }

    #[test]
    fn it_is_a_journal() {
        let journal = SimulatedJournal::new(3);
        crate::conformance::check(&|| Box::new(journal.client(1)));
    }

    #[test]
    fn a_seed_decides_everything() {
        let run = || {
            let journal = SimulatedJournal::new(42);
            journal.set_failures(FailureRates::all());
            let clients = [journal.client(1), journal.client(2)];
            let outcomes: Vec<_> =
                (0..500).map(|n| clients[n % 2].append(Bytes::from(n.to_string())).is_ok()).collect();
            (outcomes, journal.records())
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn a_partitioned_client_reaches_nothing() {
        let journal = SimulatedJournal::new(1);
        journal.set_reachable(1, false);
        let client = journal.client(1);
        assert!(matches!(client.append(Bytes::from("x")), Err(Error::Unavailable { .. })));
        assert!(client.end().is_err() && client.read(Position::new(1)).is_err());
        assert!(journal.client(2).append(Bytes::from("x")).is_ok());
        journal.set_reachable(1, true);
        assert_eq!(all(&client), ["x"]);
    }
}
