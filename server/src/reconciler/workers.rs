//! A bounded number of tasks that process a queue.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::queue::Queue;
use plinth_api::ApiError;
use plinth_apiserver::context::return_if_stopping;
use plinth_apiserver::metrics::QueueMetrics;

/// Name and limits of a controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The name in logs.
    pub name: &'static str,
    /// Maximum number of keys that are reconciled concurrently.
    pub workers: usize,
    /// First and longest delay before a key is retried; it doubles with each failure.
    pub retry: (Duration, Duration),
    /// Delay from a change until its keys are reconciled, so that a burst of changes is one reconciliation.
    pub gather: Duration,
}

/// What follows a reconciliation without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing until the key is added again.
    AwaitChange,
    /// Another reconciliation after this time, or at the next change.
    RequeueAfter(Duration),
}

/// A queue and the tasks that process it; owned by one controller's task. Dropping it ends the tasks.
pub(super) struct Workers<K> {
    settings: Settings,
    queue: Queue<K>,
    running: JoinSet<Result<Action, ApiError>>,
    keys: HashMap<Id, (K, Instant)>,
    metrics: Option<Arc<QueueMetrics>>,
}

impl<K: Clone + Ord + Hash + std::fmt::Debug> Workers<K> {
    /// Without work.
    pub(super) fn new(settings: Settings) -> Workers<K> {
        Workers {
            settings,
            queue: Queue::new(settings.retry),
            running: JoinSet::new(),
            keys: HashMap::new(),
            metrics: None,
        }
    }

    /// Counts the keys, and how long they take.
    pub(super) fn with_metrics(self, metrics: Arc<QueueMetrics>) -> Workers<K> {
        metrics.reset();
        Workers { queue: self.queue.with_metrics(metrics.clone()), metrics: Some(metrics), ..self }
    }

    /// Adds a key that is due.
    pub(super) fn add(&mut self, key: K) {
        self.add_after(key, Duration::ZERO);
    }

    /// Adds a key that is due after some time at the latest.
    pub(super) fn add_after(&mut self, key: K, pause: Duration) {
        let now = Instant::now();
        self.queue.add(key, now + pause, now);
    }

    /// Number of keys that are due.
    pub(super) fn due(&self) -> usize {
        self.queue.due()
    }

    /// Starts due work, then waits until a task has ended or more work is due. To be called in a loop;
    /// cancel-safe.
    pub(super) async fn advance<F>(&mut self, work: impl Fn(K) -> F)
    where
        F: Future<Output = Result<Action, ApiError>> + Send + 'static,
    {
        let most = self.settings.workers;
        while self.running.len() < most {
            let now = Instant::now();
            let Some(key) = self.queue.take(now) else { break };
            let task = self.running.spawn(work(key.clone()));
            self.keys.insert(task.id(), (key, now));
        }
        let due = if self.running.len() < most { self.queue.next_due() } else { None };
        let failed = tokio::select! {
            Some(ended) = self.running.join_next_with_id() => self.finish(ended),
            () = until(due) => None,
        };
        if let Some((key, error)) = failed {
            return_if_stopping().await;
            tracing::warn!(%error, ?key, controller = self.settings.name, "reconciliation failed, retrying");
        }
    }

    /// Records that a task has ended; returns an error to be logged.
    fn finish(&mut self, ended: Result<(Id, Result<Action, ApiError>), JoinError>) -> Option<(K, ApiError)> {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(ApiError::internal(error))),
        };
        let ((key, begun), now) = (self.keys.remove(&id)?, Instant::now());
        self.metrics.as_ref().inspect(|metrics| metrics.ended(begun));
        let error = match outcome {
            Ok(action) => {
                let again = match action {
                    Action::AwaitChange => None,
                    Action::RequeueAfter(pause) => Some(now + pause),
                };
                self.queue.done(key, again, now);
                return None;
            }
            Err(error) => error,
        };
        self.queue.failed(key.clone(), now);
        // A conflict is not an error.
        if error.is_conflict() {
            tracing::debug!(%error, ?key, controller = self.settings.name, "conflict, retrying");
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
        let mut workers = Workers::new(Settings {
            name: "test",
            workers: 4,
            retry: (Duration::ZERO, Duration::from_millis(1)),
            gather: Duration::ZERO,
        });
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
                    _ => Ok(Action::AwaitChange),
                }
            }
        };
        while workers.queue.len() > 0 {
            workers.advance(work).await;
        }
        assert!(attempts.load(Ordering::SeqCst) > KEYS);
    }
}
