//! The permits with which producers run, and the places of those that wait with their snapshots.
//!
//! Permits are few, and one user's lists may be many: each user in its order has one, so that nobody's list
//! waits for more than a piece of each other user.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// With so many parked producers of a server, others are suspended when they are parked: a snapshot's
/// iterator keeps blocks and buffers of up to megabytes. Resuming one takes less than producing a piece.
pub(super) const MANY_PARKED: usize = 32;

/// The producers of one server that run concurrently: as many as there are processors. More would not be
/// faster, and would compete with the threads that serve other requests.
#[derive(Debug)]
pub struct ProducerPool {
    /// Held for moments, while no other lock is taken.
    permits: Mutex<Permits>,
    /// Producers that wait for a permit.
    waiting: AtomicUsize,
    /// Producers without a thread that are not suspended.
    pub(super) parked: AtomicUsize,
    hasher: RandomState,
}

#[derive(Debug)]
struct Permits {
    free: usize,
    /// Users with producers that wait, the next one first. Each is here once.
    order: VecDeque<UserKey>,
    /// Their producers, the oldest first.
    queues: HashMap<UserKey, VecDeque<oneshot::Sender<Permit>>>,
}

/// A user, by the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UserKey(u64);

impl Default for ProducerPool {
    fn default() -> ProducerPool {
        ProducerPool::of(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl ProducerPool {
    fn of(free: usize) -> ProducerPool {
        ProducerPool {
            permits: Mutex::new(Permits { free, order: VecDeque::new(), queues: HashMap::new() }),
            waiting: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn user(&self, name: &str) -> UserKey {
        UserKey(self.hasher.hash_one(name))
    }

    /// Whether a producer waits for a permit.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn try_acquire(self: &Arc<ProducerPool>, user: UserKey) -> Option<Permit> {
        let mut permits = self.permits.lock();
        permits.free = permits.free.checked_sub(1)?;
        Some(Permit { pool: self.clone(), user })
    }

    /// Waits for a permit. Never `None`: whoever drops one passes it on.
    pub(super) async fn acquire(self: &Arc<ProducerPool>, user: UserKey) -> Option<Permit> {
        let given = {
            let mut permits = self.permits.lock();
            if let Some(free) = permits.free.checked_sub(1) {
                permits.free = free;
                return Some(Permit { pool: self.clone(), user });
            }
            let (give, given) = oneshot::channel();
            let Permits { order, queues, .. } = &mut *permits;
            let queue = queues.entry(user).or_default();
            if queue.is_empty() {
                order.push_back(user);
            }
            queue.push_back(give);
            self.waiting.fetch_add(1, Ordering::Relaxed);
            given
        };
        given.await.ok()
    }

    /// Takes who is next; where nobody waits the permit is free.
    fn next(&self) -> Option<(UserKey, oneshot::Sender<Permit>)> {
        let mut permits = self.permits.lock();
        loop {
            let Some(user) = permits.order.pop_front() else {
                permits.free += 1;
                return None;
            };
            let Permits { order, queues, .. } = &mut *permits;
            let Some(queue) = queues.get_mut(&user) else { continue };
            let first = queue.pop_front();
            match queue.is_empty() {
                true => drop(queues.remove(&user)),
                false => order.push_back(user),
            }
            let Some(first) = first else { continue };
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            // A producer whose runtime has ended.
            if !first.is_closed() {
                return Some((user, first));
            }
        }
    }
}

/// Allows one producer to run. Passed on when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    pub(super) pool: Arc<ProducerPool>,
    pub(super) user: UserKey,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((user, first)) = self.pool.next() {
            // One that is not taken is dropped, and passed on in its turn.
            drop(first.send(Permit { pool: self.pool.clone(), user }));
        }
    }
}

/// A place among the producers that have their snapshots and no thread.
pub(super) struct ParkedPlace(Arc<ProducerPool>);

impl ParkedPlace {
    pub(super) fn take(pool: &Arc<ProducerPool>) -> Option<ParkedPlace> {
        let place = ParkedPlace(pool.clone());
        (pool.parked.fetch_add(1, Ordering::Relaxed) < MANY_PARKED).then_some(place)
    }
}

impl Drop for ParkedPlace {
    fn drop(&mut self) {
        self.0.parked.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_user_is_next_in_its_order() {
        let pool = Arc::new(ProducerPool::of(1));
        let [many, one, other] = ["many", "one", "other"].map(|name| pool.user(name));
        let first = pool.try_acquire(many).unwrap();
        assert!(pool.try_acquire(one).is_none());
        let (send, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (n, user) in [many, many, many, one, other, one].into_iter().enumerate() {
            let (waits, send) = (pool.clone(), send.clone());
            tokio::spawn(async move {
                let permit = waits.acquire(user).await.unwrap();
                send.send(permit.user).unwrap();
            });
            while pool.waiting.load(Ordering::SeqCst) <= n {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(pool.waiting.load(Ordering::SeqCst), 6);
        drop(first);
        let mut served = Vec::new();
        for _ in 0..6 {
            served.push(order.recv().await.unwrap());
        }
        assert_eq!(served, [many, one, other, many, one, many]);
        tokio::task::yield_now().await;
        let permits = pool.permits.lock();
        assert!(permits.free == 1 && permits.order.is_empty() && permits.queues.is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_permit_is_lost() {
        let pool = Arc::new(ProducerPool::of(2));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..2_000 {
            let pool = pool.clone();
            tasks.spawn(async move {
                let user = pool.user(&(n % 7).to_string());
                if n % 5 == 0 {
                    // One that is given up while it waits.
                    drop(tokio::time::timeout(std::time::Duration::ZERO, pool.acquire(user)).await);
                } else {
                    let _permit = pool.acquire(user).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert!(!pool.is_waited_for());
        assert_eq!(pool.permits.lock().free, 2);
    }
}
