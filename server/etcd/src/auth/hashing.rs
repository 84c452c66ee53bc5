//! Who hashes a password next. A hash takes a processor for a good part of a second, so few are made at a
//! time, and requests wait in a queue for each address: one address after the other, each in the order in
//! which its requests arrived. Changes of passwords have a queue of their own beside the logins of their
//! address. What would have to wait behind too many others is refused.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use plinth_http::client_network;
use tokio::sync::oneshot;
use tonic::Status;

use crate::errors;

/// Passwords that are hashed at a time, at most: half of the processors is for other work.
const HASHED_AT_ONCE: usize = 4;
/// Requests of one address that wait.
const WAITING_PER_PEER: usize = 256;
/// Requests that wait, of all addresses.
const WAITING: usize = 4096;

/// The queue that a request waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QueueKey {
    /// The logins of an address; of an unknown one where there is none.
    Login(Option<IpAddr>),
    /// New passwords from an address.
    Change(Option<IpAddr>),
}

impl QueueKey {
    /// IPv6 clients have whole networks of addresses.
    fn of_network(self) -> QueueKey {
        match self {
            QueueKey::Login(address) => QueueKey::Login(address.map(client_network)),
            QueueKey::Change(address) => QueueKey::Change(address.map(client_network)),
        }
    }
}

/// A request that waits.
struct Waiter {
    number: u64,
    permit: oneshot::Sender<HashPermit>,
}

#[derive(Default)]
struct State {
    hashing: usize,
    waiting: usize,
    next: u64,
    waiters: HashMap<QueueKey, VecDeque<Waiter>>,
    /// Keys of `waiters`, the one that is served next first.
    order: VecDeque<QueueKey>,
}

impl State {
    /// Takes the request that is served next.
    fn pop(&mut self) -> Option<Waiter> {
        let key = self.order.pop_front()?;
        let queue = self.waiters.get_mut(&key)?;
        let waiter = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.waiters.remove(&key)),
            false => self.order.push_back(key),
        }
        self.waiting -= usize::from(waiter.is_some());
        waiter
    }

    /// Removes a request that waits no more.
    fn remove(&mut self, key: QueueKey, number: u64) {
        let Some(queue) = self.waiters.get_mut(&key) else { return };
        let before = queue.len();
        queue.retain(|waiter| waiter.number != number);
        self.waiting -= before - queue.len();
        if queue.is_empty() {
            self.waiters.remove(&key);
            self.order.retain(|other| *other != key);
        }
    }
}

/// The requests that hash a password, and those that wait to.
#[derive(Default)]
pub(crate) struct HashQueue(Arc<Mutex<State>>);

/// Held while a password is hashed.
pub(crate) struct HashPermit(Arc<Mutex<State>>);

impl Drop for HashPermit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.lock();
            let next = state.pop();
            state.hashing -= usize::from(next.is_none());
            next
        };
        if let Some(waiter) = next {
            // One that has just left returns its permit, which is dropped and goes to another one.
            let _ = waiter.permit.send(HashPermit(Arc::clone(&self.0)));
        }
    }
}

/// A request that waits; removes it from its queue when dropped.
struct QueueEntry<'q> {
    queue: &'q HashQueue,
    key: QueueKey,
    number: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.queue.0.lock().remove(self.key, self.number);
    }
}

impl HashQueue {
    /// Waits until the request is served.
    ///
    /// # Errors
    /// etcd's for too many requests, when too many wait.
    pub(crate) async fn acquire(&self, key: QueueKey) -> Result<HashPermit, Status> {
        let key = key.of_network();
        let (entry, permit) = {
            let mut state = self.0.lock();
            if state.hashing < most_at_once() {
                state.hashing += 1;
                return Ok(HashPermit(Arc::clone(&self.0)));
            }
            let own = state.waiters.get(&key).map_or(0, VecDeque::len);
            if own >= WAITING_PER_PEER || state.waiting >= WAITING {
                tracing::debug!(queue = ?key, waiting = state.waiting, "too many passwords wait to be hashed");
                return Err(errors::too_many_requests());
            }
            if own == 0 {
                state.order.push_back(key);
            }
            let (sender, receiver) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            state.waiting += 1;
            state.waiters.entry(key).or_default().push_back(Waiter { number, permit: sender });
            (QueueEntry { queue: self, key, number }, receiver)
        };
        let permit = permit.await.map_err(|_| errors::stopped());
        drop(entry);
        permit
    }

    /// Passwords that are hashed now, and requests that wait.
    #[cfg(test)]
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.hashing, state.waiting)
    }
}

/// Passwords that are hashed at a time.
pub(crate) fn most_at_once() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, HASHED_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use futures_util::FutureExt as _;

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some([127, 0, 0, last].into())
    }

    type Waiting<'q> = Pin<Box<dyn Future<Output = Result<HashPermit, Status>> + 'q>>;

    /// A request that waits.
    fn wait(queue: &HashQueue, key: QueueKey) -> Waiting<'_> {
        let mut waiting: Waiting<'_> = Box::pin(queue.acquire(key));
        assert!(waiting.as_mut().now_or_never().is_none());
        waiting
    }

    fn fill(queue: &HashQueue) -> Vec<HashPermit> {
        let acquire = || queue.acquire(QueueKey::Login(address(1))).now_or_never().unwrap().unwrap();
        std::iter::repeat_with(acquire).take(most_at_once()).collect()
    }

    #[test]
    fn logins_of_several_addresses_alternate() {
        let queue = HashQueue::default();
        let mut hashing = fill(&queue);
        let order = [1, 1, 1, 1, 2, 2, 3].map(|last| QueueKey::Login(address(last)));
        let mut waiting: Vec<(QueueKey, Waiting<'_>)> = order.map(|key| (key, wait(&queue, key))).into();
        let change = QueueKey::Change(address(1));
        waiting.push((change, wait(&queue, change)));
        let mut order = Vec::new();
        while let Some(done) = hashing.pop() {
            drop(done);
            waiting.retain_mut(|(key, waiting)| match waiting.as_mut().now_or_never() {
                Some(permit) => {
                    hashing.push(permit.unwrap());
                    order.push(*key);
                    false
                }
                None => true,
            });
        }
        let login = |last| QueueKey::Login(address(last));
        assert_eq!(order, [login(1), login(2), login(3), change, login(1), login(2), login(1), login(1)]);
        assert_eq!(queue.usage(), (0, 0));
    }

    #[test]
    fn the_queue_is_bounded_for_each_address_and_in_all() {
        let queue = HashQueue::default();
        let hashing = fill(&queue);
        let mut waiting = Vec::new();
        let refused = |key| match queue.acquire(key).now_or_never() {
            Some(refused) => refused.err().unwrap().message().to_owned(),
            None => String::new(),
        };
        for last in 0..(WAITING / WAITING_PER_PEER) as u8 {
            for _ in 0..WAITING_PER_PEER {
                waiting.push(wait(&queue, QueueKey::Login(address(last))));
            }
            assert_eq!(refused(QueueKey::Login(address(last))), "etcdserver: too many requests", "{last}");
        }
        assert_eq!(queue.usage().1, WAITING);
        assert_eq!(refused(QueueKey::Login(address(200))), "etcdserver: too many requests");
        // Who leaves makes room.
        waiting.pop();
        waiting.push(wait(&queue, QueueKey::Login(address(200))));
        drop(waiting);
        assert_eq!(queue.usage(), (hashing.len(), 0));
        drop(hashing);
        assert_eq!(queue.usage(), (0, 0));
    }

    #[test]
    fn a_turn_of_who_has_left_goes_to_the_next() {
        let queue = HashQueue::default();
        let hashing = fill(&queue);
        let (left, mut next) = (wait(&queue, QueueKey::Login(None)), wait(&queue, QueueKey::Login(None)));
        drop(hashing);
        // It has the permit, and leaves before it takes that.
        drop(left);
        assert!(next.as_mut().now_or_never().is_some());
        drop(next);
        assert_eq!(queue.usage(), (0, 0));
    }

    #[test]
    fn networks_of_ipv6_are_one_client() {
        let key = |text: &str| QueueKey::Login(Some(text.parse().unwrap())).of_network();
        assert_eq!(key("2001:db8::1"), key("2001:db8::2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:127.0.0.1"), key("127.0.0.1"));
        assert_ne!(key("127.0.0.1"), key("127.0.0.2"));
    }
}
