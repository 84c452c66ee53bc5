//! Idle connections: those of one client, in a common bound with those of others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Idle connections per client, and how long they are kept: Go's time, and enough for the concurrent requests
/// of a few clients.
const MAX_IDLE: usize = 16;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A connection that may be kept while no request uses it.
pub(super) trait Reusable: Send + 'static {
    /// Whether it is known to be closed, or to take no request.
    fn is_closed(&self) -> bool;

    /// Whether it takes another request, once the response of the last one was read.
    fn is_reusable(&self) -> bool;
}

/// The idle connections of several clients, of type `C`. The lock is held to take
/// one, return it, or close some.
pub(super) struct IdleConnections<C> {
    /// With more, the one that has been idle for longest is closed.
    most: usize,
    /// For how long each is kept.
    time: Duration,
    /// Names pools.
    pools: AtomicU64,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// Those that were returned last at the end.
    idle: VecDeque<Idle<C>>,
    /// Whether a task closes those that have been idle for too long.
    is_swept: bool,
}

struct Idle<C> {
    pool: u64,
    connection: C,
    since: Instant,
}

/// The idle connections of one client; they are closed when it is dropped.
pub(super) struct Pool<C> {
    all: Arc<IdleConnections<C>>,
    id: u64,
}

impl<C> IdleConnections<C> {
    /// So many at most.
    pub(super) fn new(most: usize) -> Arc<IdleConnections<C>> {
        IdleConnections::kept_for(IDLE_TIMEOUT, most)
    }

    fn kept_for(time: Duration, most: usize) -> Arc<IdleConnections<C>> {
        let state = Mutex::new(State { idle: VecDeque::new(), is_swept: false });
        Arc::new(IdleConnections { most, time, pools: AtomicU64::new(0), state })
    }

    /// The pool of another client.
    pub(super) fn pool(self: &Arc<Self>) -> Pool<C> {
        Pool { all: Arc::clone(self), id: self.pools.fetch_add(1, Ordering::Relaxed) }
    }

    /// Closes those that have been idle for too long. Returns when the next one will be; with none left the
    /// sweep ends.
    fn sweep(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        while state.idle.front().is_some_and(|idle| idle.since.elapsed() >= self.time) {
            state.idle.pop_front();
        }
        let next = state.idle.front().map(|idle| idle.since + self.time);
        state.is_swept = next.is_some();
        next
    }
}

async fn sweep<C>(all: Weak<IdleConnections<C>>) {
    while let Some(next) = all.upgrade().and_then(|all| all.sweep()) {
        tokio::time::sleep_until(next).await;
    }
}

impl<C> Default for Pool<C> {
    /// One that shares its bound with no other.
    fn default() -> Pool<C> {
        IdleConnections::new(MAX_IDLE).pool()
    }
}

impl<C: Reusable> Pool<C> {
    /// Takes a connection that is open as far as is known: the one that was returned last.
    pub(super) fn take(&self) -> Option<C> {
        let mut state = self.all.state.lock();
        loop {
            let place = state.idle.iter().rposition(|idle| idle.pool == self.id)?;
            let Idle { connection, since, .. } = state.idle.remove(place)?;
            if !connection.is_closed() && since.elapsed() < self.all.time {
                return Some(connection);
            }
        }
    }

    /// Returns a connection whose response was read to its end.
    pub(super) fn put_back(&self, connection: C) {
        let mut state = self.all.state.lock();
        let own = state.idle.iter().filter(|idle| idle.pool == self.id).count();
        if own >= MAX_IDLE || self.all.most == 0 || !connection.is_reusable() {
            return;
        }
        if state.idle.len() >= self.all.most {
            state.idle.pop_front();
        }
        state.idle.push_back(Idle { pool: self.id, connection, since: Instant::now() });
        if !state.is_swept {
            // Without a runtime the process ends.
            state.is_swept =
                Handle::try_current().map(|runtime| runtime.spawn(sweep(Arc::downgrade(&self.all)))).is_ok();
        }
    }
}

impl<C> Pool<C> {
    /// Closes all of them: one was found closed, so the others probably are.
    pub(super) fn clear(&self) {
        self.all.state.lock().idle.retain(|idle| idle.pool != self.id);
    }
}

impl<C> Drop for Pool<C> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::super::connection::{handshake, Connection};
    use super::*;

    type Http1 = Connection<Full<Bytes>>;
    type Connections = Arc<IdleConnections<Http1>>;

    /// A connection, and the other side of it.
    async fn connection() -> (Http1, DuplexStream) {
        let (own, other) = tokio::io::duplex(64);
        (handshake(Box::new(own)).await.unwrap(), other)
    }

    fn count(all: &Connections) -> usize {
        all.state.lock().idle.len()
    }

    /// Returns so many connections to a pool.
    async fn put_back(pool: &Pool<Http1>, many: usize) -> Vec<DuplexStream> {
        let mut others = Vec::new();
        for _ in 0..many {
            let (connection, other) = connection().await;
            pool.put_back(connection);
            others.push(other);
        }
        others
    }

    #[tokio::test]
    async fn all_pools_share_a_bound_and_the_oldest_connection_goes() {
        let all = IdleConnections::new(20);
        let pools = [all.pool(), all.pool()];
        let _first = put_back(&pools[0], MAX_IDLE + 1).await;
        assert_eq!(count(&all), MAX_IDLE);
        let _second = put_back(&pools[1], 6).await;
        assert_eq!(count(&all), 20);
        let taken = pools.each_ref().map(|pool| std::iter::from_fn(|| pool.take()).count());
        assert_eq!(taken, [MAX_IDLE - 2, 6]);
    }

    #[tokio::test]
    async fn a_client_takes_its_connections_with_it() {
        let all = IdleConnections::new(20);
        let (kept, dropped) = (all.pool(), all.pool());
        let _others = (put_back(&kept, 2).await, put_back(&dropped, 3).await);
        drop(dropped);
        assert_eq!(count(&all), 2);
        kept.clear();
        assert_eq!(count(&all), 0);
    }

    #[tokio::test]
    async fn connections_are_closed_after_a_while_without_a_request() {
        let all = IdleConnections::kept_for(Duration::from_millis(20), 20);
        let pool = all.pool();
        // The sweep ends and begins again.
        for _ in 0..2 {
            let others = put_back(&pool, 3).await;
            for mut other in others {
                // To the end of the connection.
                assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
            }
            while all.state.lock().is_swept {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(count(&all), 0);
        }
    }
}
