//! A bounded number of tasks that process a queue.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::queue::Queue;
use plinth_api::api_error::ApiError;
use plinth_apiserver::context::end_if_over;

/// A queue and the tasks that process it; owned by one controller's task. Dropping it ends the tasks.
pub(super) struct Workers<K> {
    name: &'static str,
    queue: Queue<K>,
    running: JoinSet<Result<(), ApiError>>,
    keys: HashMap<Id, K>,
    most: usize,
}

impl<K: Clone + Ord + Hash + std::fmt::Debug> Workers<K> {
    /// At most `most` concurrent tasks; `pauses` are the first and the longest delay after a failure.
    pub(super) fn new(name: &'static str, most: usize, pauses: (Duration, Duration)) -> Workers<K> {
        let (queue, running, keys) = (Queue::new(pauses), JoinSet::new(), HashMap::new());
        Workers { name, queue, running, keys, most }
    }

    /// Adds a key to the queue.
    pub(super) fn add(&mut self, key: K) {
        self.queue.add(key);
    }

    /// Number of waiting and processed keys.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Starts due work, then waits until a task has ended or more work is due. To be called in a loop;
    /// cancel-safe.
    pub(super) async fn advance<F>(&mut self, work: impl Fn(K) -> F)
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        while self.running.len() < self.most {
            let Some(key) = self.queue.take(Instant::now()) else { break };
            let task = self.running.spawn(work(key.clone()));
            self.keys.insert(task.id(), key);
        }
        let due = if self.running.len() < self.most { self.queue.next_due() } else { None };
        let failed = tokio::select! {
            Some(ended) = self.running.join_next_with_id() => self.finish(ended),
            () = until(due) => None,
        };
        if let Some((key, error)) = failed {
            end_if_over().await;
            tracing::warn!(%error, ?key, controller = self.name, "reconciliation failed, retrying");
        }
    }

    /// Records that a task has ended; returns an error to be logged.
    fn finish(&mut self, ended: Result<(Id, Result<(), ApiError>), JoinError>) -> Option<(K, ApiError)> {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(ApiError::internal(error))),
        };
        let key = self.keys.remove(&id)?;
        let Err(error) = outcome else {
            self.queue.done(key);
            return None;
        };
        self.queue.failed(key.clone(), Instant::now());
        // A conflict is not an error.
        if error.code == 409 {
            tracing::debug!(%error, ?key, controller = self.name, "conflict, retrying");
            return None;
        }
        Some((key, error))
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn everything_is_done_though_work_fails_and_panics() {
        const KEYS: usize = 50;
        let mut workers = Workers::new("test", 4, (Duration::ZERO, Duration::from_millis(1)));
        let (attempts, at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        (0..KEYS).for_each(|key| workers.add(key));
        let work = |key: usize| {
            let (attempts, at_once) = (attempts.clone(), at_once.clone());
            async move {
                assert!(at_once.fetch_add(1, Ordering::SeqCst) < 4);
                tokio::task::yield_now().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                match attempts.fetch_add(1, Ordering::SeqCst) {
                    7 => panic!("a panic of the test at key {key}"),
                    attempt if attempt % 5 == 0 => Err(ApiError::bad_request("not now")),
                    _ => Ok(()),
                }
            }
        };
        while workers.len() > 0 {
            workers.advance(work).await;
        }
        assert!(attempts.load(Ordering::SeqCst) > KEYS);
    }
}
