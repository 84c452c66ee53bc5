//! What is unread of each user and on each connection, and which connections are closed for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use plinth_api::{User, ANONYMOUS_USER};

use super::super::memory_limit::memory_limit;
use super::super::shared_by_key::SharedByKey;
use super::owners::{Owner, Unreading};
use super::taken::Taken;

/// How long an answer may wait in any case, but for twice the bound.
pub(super) const YOUNG: Duration = Duration::from_secs(15);
/// With twice the bound: what waits so long, or would take so long to read, goes first, then what waits half
/// as long, and so on to this; at last the rest.
const LEAST_LATE: Duration = Duration::from_millis(50);
/// How late at least is what nobody has seen being read.
const UNKNOWN: Duration = Duration::from_secs(4);
/// How often it is looked for connections to close; with twice the bound; and how often that is logged.
const LOOKED_FOR: Duration = Duration::from_millis(100);
const LOOKED_FOR_URGENTLY: Duration = Duration::from_millis(10);
const LOGGED: Duration = Duration::from_secs(10);
/// The bound where none is given: this part of the memory, within these limits.
const PART_OF_MEMORY: u64 = 8;
const BOUNDS: (u64, u64) = (128 << 20, 1 << 30);

/// The answers of a server that are not read yet.
#[derive(Debug)]
pub struct UnreadAnswers {
    pub(super) most: usize,
    /// Of all connections that are not closed, and of all chunks that several streams have.
    pub(super) bytes: AtomicUsize,
    /// What connections have of such chunks that are closed and not gone yet.
    pub(super) closing: AtomicUsize,
    /// Numbers connections.
    next: AtomicU64,
    /// What is unread of each user.
    owners: Mutex<SharedByKey<String, Owner>>,
    /// The same of clients that are not identified.
    pub(super) unidentified: Arc<Owner>,
    /// Chunks that several streams have, by address and length.
    pub(super) shared: Mutex<SharedByKey<(usize, usize), SharedChunk>>,
    /// Held to add or remove a connection, and to look for those that have waited longest.
    pub(super) connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
    /// Who connects again is not new.
    unreading: Unreading,
    /// When it was looked for some, and when that was logged. Held meanwhile.
    pub(super) looked: Mutex<[Option<Instant>; 2]>,
}

impl UnreadAnswers {
    /// No more than `most` bytes, or an eighth of the memory that the process may have; twice that for a
    /// while.
    pub fn new(most: Option<u64>) -> Arc<UnreadAnswers> {
        let most = most.unwrap_or_else(|| (memory_limit() / PART_OF_MEMORY).clamp(BOUNDS.0, BOUNDS.1));
        Arc::new(UnreadAnswers {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            bytes: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            owners: Mutex::default(),
            unidentified: Arc::default(),
            shared: Mutex::default(),
            connections: Mutex::default(),
            unreading: Unreading::default(),
            looked: Mutex::default(),
        })
    }

    /// A new connection.
    pub fn connection(self: &Arc<UnreadAnswers>) -> Arc<ConnectionUnread> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(ConnectionUnread::new(self, number));
        self.connections.lock().insert(number, Arc::downgrade(&connection));
        connection
    }

    /// Bytes that are not read now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// The same without what is being given back.
    pub(super) fn remaining(&self) -> usize {
        self.bytes().saturating_sub(self.closing.load(Ordering::Acquire))
    }

    fn owner(&self, name: &str) -> Arc<Owner> {
        self.owners.lock().get_or_make(name, Owner::default)
    }

    /// To be called without a lock when more is counted than before.
    pub(super) fn keep_bound(&self) {
        if self.bytes() > self.most {
            self.make_room();
        }
    }

    /// Closes connections of those who have more than their share, until a quarter is free.
    fn make_room(&self) {
        let now = Instant::now();
        let is_urgent = self.remaining() > self.most.saturating_mul(2);
        // Somebody looks already.
        let Some(mut looked) = self.looked.try_lock() else { return };
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| now >= last + interval);
        if !is_due(looked[0], if is_urgent { LOOKED_FOR_URGENTLY } else { LOOKED_FOR }) {
            return;
        }
        looked[0] = Some(now);
        // Dropped after the lock, which the end of a connection takes.
        let connections: Vec<Arc<ConnectionUnread>> =
            self.connections.lock().values().filter_map(Weak::upgrade).collect();
        let closed = self.close_largest(&connections, now, is_urgent);
        if closed > 0 && is_due(looked[1], LOGGED) {
            looked[1] = Some(now);
            tracing::warn!(
                connections = closed,
                bytes = self.most,
                "connections closed: their clients do not read answers, and there is no memory for more (--max-unread-bytes)"
            );
        }
    }

    /// This owner took answers back that it had not read, which counts when memory is short.
    fn is_taken_back(&self, owner: &Arc<Owner>) {
        if self.bytes() > self.most / 2 {
            self.unreading.remember(owner, Instant::now());
        }
    }

    /// Closes connections of owners who have more than their share, the largest first, and returns how many.
    fn close_largest(&self, connections: &[Arc<ConnectionUnread>], now: Instant, is_urgent: bool) -> usize {
        let enough = if is_urgent { self.most / 2 * 3 } else { self.most / 4 * 3 };
        let waiting: Vec<Vec<Waiting>> =
            connections.iter().map(|connection| connection.waiting(now, is_urgent)).collect();
        let mut shares: HashMap<*const Owner, usize> = HashMap::new();
        for Waiting { owner, shared, .. } in waiting.iter().flatten() {
            *shares.entry(Arc::as_ptr(owner)).or_default() += shared;
        }
        let share = self.most / shares.len().max(1);
        let size = |shares: &HashMap<*const Owner, usize>, owner: &Arc<Owner>| {
            owner.bytes.load(Ordering::Acquire) + shares.get(&Arc::as_ptr(owner)).copied().unwrap_or(0)
        };
        // Each connection counts for the largest of its owners.
        let mut largest: Vec<(usize, Waiting, &Arc<ConnectionUnread>)> = Vec::new();
        for (waiting, connection) in waiting.into_iter().zip(connections) {
            let sized = waiting.into_iter().map(|waiting| (size(&shares, &waiting.owner), waiting));
            if let Some((size, waiting)) = sized.max_by_key(|(size, _)| *size) {
                largest.push((size, waiting, connection));
            }
        }
        largest
            .sort_by_key(|(size, waiting, _)| (Reverse(*size), Arc::as_ptr(&waiting.owner), waiting.since));
        let mut closed = 0;
        // What is read fast is in memory for a moment, however much it is: others go first.
        let mut least = YOUNG;
        loop {
            largest.retain(|(_, waiting, connection)| {
                let Waiting { owner, since, shared, .. } = waiting;
                let late = match is_urgent {
                    true => waiting.late(now),
                    false => now.saturating_duration_since(*since),
                };
                let is_closed = self.remaining() > enough && late >= least && size(&shares, owner) > share;
                if is_closed {
                    connection.close();
                    self.unreading.remember(owner, now);
                    if let Some(all) = shares.get_mut(&Arc::as_ptr(owner)) {
                        *all = all.saturating_sub(*shared);
                    }
                    closed += 1;
                }
                !is_closed
            });
            if !is_urgent || least.is_zero() {
                return closed;
            }
            least = if least > LEAST_LATE { least / 2 } else { Duration::ZERO };
        }
    }
}

/// What the client of one connection has not read.
#[derive(Debug)]
pub struct ConnectionUnread {
    pub(super) all: Arc<UnreadAnswers>,
    number: u64,
    /// Held for moments, while no other lock is taken.
    state: Mutex<State>,
    /// The first user, who mostly is the only one.
    pub(super) first: OnceLock<(String, Arc<UserUnread>)>,
    /// Others: a proxy's connection carries many.
    users: Mutex<SharedByKey<String, UserUnread>>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    unread: BTreeMap<u64, Item>,
    next: u64,
    /// Bytes of it that the socket is to take.
    to_send: usize,
    taken: Taken,
    is_closed: bool,
    /// What it had of chunks that others may have, too, when it was closed, until that is dropped.
    closing: usize,
}

/// An answer or what there is of one that is not read, or a request that waits.
#[derive(Debug)]
struct Item {
    /// When it began.
    begun: Instant,
    /// The same, or when some of it was read last.
    since: Instant,
    bytes: usize,
    /// Those of them that the socket is to take.
    to_send: usize,
    /// Chunks that other streams may have, too.
    shared: Vec<Arc<SharedChunk>>,
    owner: Arc<Owner>,
    /// A request that waits for its client to read: however old it is, the client may read as fast as it can.
    /// It is a reason to close the connection where nothing else helps.
    is_paced: bool,
}

/// What one user of a connection has not read.
#[derive(Debug)]
pub struct UserUnread {
    pub(super) owner: Arc<Owner>,
    pub(super) bytes: AtomicUsize,
    /// Requests that were begun and are not answered.
    pub(super) begun: AtomicUsize,
    /// Wakes a request that waits, which wakes the next one.
    pub(super) read: Notify,
}

/// What waits on a connection for one owner.
pub(super) struct Waiting {
    pub(super) owner: Arc<Owner>,
    /// Since when the oldest of it does.
    pub(super) since: Instant,
    /// Since when the oldest of it is there, whether or not some of it was read.
    begun: Instant,
    /// Bytes that are read there in a second.
    rate: f64,
    bytes: usize,
    /// Its part of chunks that others may have, too.
    pub(super) shared: usize,
}

impl Waiting {
    /// How long it has waited, or how long reading it would take as was read there lately, if that is less.
    /// Who did not read lately has waited for longer.
    fn late(&self, now: Instant) -> Duration {
        let age = now.saturating_duration_since(self.begun);
        let age = if self.owner.did_not_read(now) { age.saturating_add(YOUNG) } else { age.max(UNKNOWN) };
        let to_read = Duration::try_from_secs_f64(self.bytes as f64 / self.rate);
        to_read.map_or(age, |to_read| age.min(to_read))
    }
}

impl ConnectionUnread {
    pub(super) fn new(all: &Arc<UnreadAnswers>, number: u64) -> ConnectionUnread {
        ConnectionUnread {
            all: Arc::clone(all),
            number,
            state: Mutex::default(),
            first: OnceLock::new(),
            users: Mutex::default(),
            closed: Notify::new(),
        }
    }

    /// Who counts for a user, or for a client that is not identified.
    pub(super) fn owner<'u>(&'u self, user: Option<&'u Arc<UserUnread>>) -> &'u Arc<Owner> {
        user.map_or(&self.all.unidentified, |user| &user.owner)
    }

    /// What a user has not read here.
    pub fn of(&self, user: &User) -> Arc<UserUnread> {
        let make = || {
            let owner = match user.name == ANONYMOUS_USER {
                true => self.all.unidentified.clone(),
                false => self.all.owner(&user.counted_as()),
            };
            UserUnread { owner, bytes: AtomicUsize::new(0), begun: AtomicUsize::new(0), read: Notify::new() }
        };
        let first = self.first.get_or_init(|| (user.name.clone(), Arc::new(make())));
        match first.0 == user.name {
            true => first.1.clone(),
            false => self.users.lock().get_or_make(user.name.as_str(), make),
        }
    }

    #[cfg(test)]
    pub(super) fn answers(&self) -> &Arc<UnreadAnswers> {
        &self.all
    }

    /// Makes what is not read older.
    #[cfg(test)]
    pub(super) fn age(&self) {
        self.age_by(YOUNG);
    }

    #[cfg(test)]
    pub(super) fn age_by(&self, time: Duration) {
        self.state.lock().unread.values_mut().for_each(|item| {
            item.since -= time;
            item.begun -= time;
        });
    }

    /// Returns when the connection is to be closed, as others need the memory.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// What waits here, by owner; requests that wait for a reader are part of it where it is urgent.
    pub(super) fn waiting(&self, now: Instant, is_urgent: bool) -> Vec<Waiting> {
        let state = self.state.lock();
        let (rate, is_new) = (state.taken.rate(now), state.taken.is_new(now));
        let mut waiting: Vec<Waiting> = Vec::new();
        let is_reason = |item: &&Item| is_urgent || !item.is_paced;
        for item in state.unread.values().filter(is_reason) {
            let (Item { since, bytes, owner, .. }, shared) = (item, item.part_of_shared());
            if bytes + shared == 0 {
                continue;
            }
            let begun = item.begun;
            match waiting.iter_mut().find(|waiting| Arc::ptr_eq(&waiting.owner, owner)) {
                Some(waiting) => {
                    waiting.since = waiting.since.min(*since);
                    waiting.begun = waiting.begun.min(begun);
                    waiting.shared += shared;
                    waiting.bytes += bytes + shared;
                }
                None => {
                    let (owner, since, bytes) = (owner.clone(), *since, bytes + shared);
                    let rate = if is_new { rate + owner.rate(now) } else { rate };
                    waiting.push(Waiting { owner, since, begun, rate, shared, bytes });
                }
            }
        }
        waiting
    }

    /// The socket took so many bytes.
    pub(crate) fn is_taken(&self, bytes: usize) {
        let State { taken, to_send, .. } = &mut *self.state.lock();
        taken.add(Instant::now(), bytes, *to_send);
    }

    pub(super) fn close(&self) {
        let unread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            let unread = std::mem::take(&mut state.unread);
            state.to_send = 0;
            let shared = unread.values().map(Item::part_of_shared).sum();
            state.closing += shared;
            self.all.closing.fetch_add(shared, Ordering::AcqRel);
            unread
        };
        unread.into_values().for_each(|item| self.subtract(&item.owner, item.bytes));
        self.closed.notify_one();
    }

    fn add(&self, owner: &Owner, bytes: usize) {
        owner.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.all.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn subtract(&self, owner: &Owner, bytes: usize) {
        owner.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.all.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for ConnectionUnread {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.all.closing.fetch_sub(state.closing, Ordering::AcqRel);
        if let Some((_, user)) = self.first.get() {
            user.owner.add_taken(state.taken.lately());
        }
        self.all.connections.lock().remove(&self.number);
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    connection: Arc<ConnectionUnread>,
    number: u64,
}

impl Entry {
    /// Something of so many bytes, of which the socket is to take some. `None` on a connection that is being
    /// closed.
    pub(super) fn new(
        connection: &Arc<ConnectionUnread>,
        (bytes, to_send): (usize, usize),
        owner: &Arc<Owner>,
    ) -> Option<Entry> {
        Entry::with(connection, Item::new((bytes, to_send), false, owner))
    }

    /// A request of so many bytes that waits for its client to read.
    pub(super) fn paced(
        connection: &Arc<ConnectionUnread>,
        bytes: usize,
        owner: &Arc<Owner>,
    ) -> Option<Entry> {
        Entry::with(connection, Item::new((bytes, 0), true, owner))
    }

    fn with(connection: &Arc<ConnectionUnread>, item: Item) -> Option<Entry> {
        let number = {
            let mut state = connection.state.lock();
            if state.is_closed {
                return None;
            }
            let number = state.next;
            state.next += 1;
            // Counted before somebody may remove it.
            connection.add(&item.owner, item.bytes);
            state.to_send += item.to_send;
            state.unread.insert(number, item);
            number
        };
        connection.all.keep_bound();
        Some(Entry { connection: Arc::clone(connection), number })
    }

    pub(super) fn answers(&self) -> &Arc<UnreadAnswers> {
        &self.connection.all
    }

    /// Changes it, if its connection is not being closed.
    fn change(&self, change: impl FnOnce(&mut Item)) -> Result<(), Closed<'_>> {
        let mut state = self.connection.state.lock();
        match state.unread.get_mut(&self.number) {
            Some(item) => {
                change(item);
                Ok(())
            }
            None => Err(Closed(state)),
        }
    }

    /// Adds so many bytes, of which the socket is to take some.
    pub(super) fn add(&self, bytes: usize, to_send: usize) {
        {
            let State { unread, to_send: all_to_send, .. } = &mut *self.connection.state.lock();
            let Some(item) = unread.get_mut(&self.number) else { return };
            item.begin();
            item.bytes += bytes;
            item.to_send += to_send;
            *all_to_send += to_send;
            self.connection.add(&item.owner, bytes);
        }
        self.connection.all.keep_bound();
    }

    /// Some was read, of what counts until all is.
    pub(super) fn is_read(&self) {
        let _ = self.change(Item::is_read);
    }

    /// So many bytes are gone, of which the socket was to take some: they are sent, or nobody wants them.
    pub(super) fn remove(&self, bytes: usize, to_send: usize) {
        let owner = {
            let State { unread, to_send: all_to_send, taken, .. } = &mut *self.connection.state.lock();
            // What a closed connection had is removed.
            let Some(item) = unread.get_mut(&self.number) else { return };
            item.is_read();
            item.bytes -= bytes;
            item.to_send -= to_send;
            *all_to_send -= to_send;
            self.connection.subtract(&item.owner, bytes);
            taken.are_gone(to_send).then(|| item.owner.clone())
        };
        if let Some(owner) = owner {
            self.connection.all.is_taken_back(&owner);
        }
    }

    /// The stream has a chunk that others may have, too.
    pub(super) fn add_shared(&self, chunk: &Arc<SharedChunk>) {
        let _ = self.change(|item| {
            item.begin();
            item.shared.push(chunk.clone());
        });
    }

    pub(super) fn remove_shared(&self, chunk: &Arc<SharedChunk>) {
        let removed = self.change(|item| {
            item.is_read();
            if let Some(at) = item.shared.iter().position(|shared| Arc::ptr_eq(shared, chunk)) {
                item.shared.swap_remove(at);
            }
        });
        if let Err(Closed(mut state)) = removed {
            let bytes = chunk.part().min(state.closing);
            state.closing -= bytes;
            self.connection.all.closing.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

impl Item {
    fn new((bytes, to_send): (usize, usize), is_paced: bool, owner: &Arc<Owner>) -> Item {
        let now = Instant::now();
        let owner = owner.clone();
        Item { begun: now, since: now, bytes, to_send, shared: Vec::new(), owner, is_paced }
    }

    /// To be called before something is added.
    fn begin(&mut self) {
        if self.bytes == 0 && self.shared.is_empty() {
            (self.begun, self.since) = (Instant::now(), Instant::now());
        }
    }

    fn is_read(&mut self) {
        self.since = Instant::now();
    }

    fn part_of_shared(&self) -> usize {
        self.shared.iter().map(|chunk| chunk.part()).sum()
    }
}

/// The state of a connection that is being closed.
struct Closed<'e>(MutexGuard<'e, State>);

impl Drop for Entry {
    fn drop(&mut self) {
        let (item, is_unread) = {
            let State { unread, to_send, taken, .. } = &mut *self.connection.state.lock();
            let Some(item) = unread.remove(&self.number) else { return };
            *to_send -= item.to_send;
            let is_unread = taken.are_gone(item.to_send);
            (item, is_unread)
        };
        self.connection.subtract(&item.owner, item.bytes);
        if is_unread {
            self.connection.all.is_taken_back(&item.owner);
        }
    }
}

/// A chunk that several streams have. It counts until all of them have dropped it.
#[derive(Debug)]
pub(super) struct SharedChunk {
    all: Arc<UnreadAnswers>,
    bytes: usize,
    /// Streams that have it, once for each time.
    pub(super) holders: AtomicUsize,
}

impl SharedChunk {
    pub(super) fn new(all: &Arc<UnreadAnswers>, bytes: usize) -> SharedChunk {
        all.bytes.fetch_add(bytes, Ordering::AcqRel);
        SharedChunk { all: all.clone(), bytes, holders: AtomicUsize::new(0) }
    }

    /// What one of those who have it has.
    pub(super) fn part(&self) -> usize {
        self.bytes / self.holders.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for SharedChunk {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
