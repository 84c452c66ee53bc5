//! A deduplicating work queue with delays.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use plinth_apiserver::metrics::QueueMetrics;
use tokio::time::Instant;

/// A work queue, like client-go's: a key that is added while it waits is queued once; one that is added while
/// it is processed is processed again afterwards, never twice concurrently. A key is due or waits for a time.
///
/// Pure state without a clock or a lock of its own; its size is the number of distinct keys.
pub(super) struct Queue<K> {
    /// First and longest delay after a failure.
    pauses: (Duration, Duration),
    items: HashMap<K, Item>,
    ready: VecDeque<K>,
    later: BTreeSet<(Instant, K)>,
    metrics: Option<Arc<QueueMetrics>>,
}

#[derive(Debug)]
struct Item {
    state: State,
    failures: u32,
    /// Since when it is due.
    since: Instant,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Ready,
    Later(Instant),
    Running { requeue: bool },
}

impl<K: Clone + Ord + Hash> Queue<K> {
    /// An empty queue with the first and the longest delay after a failure.
    pub(super) fn new(pauses: (Duration, Duration)) -> Queue<K> {
        Queue { pauses, items: HashMap::new(), ready: VecDeque::new(), later: BTreeSet::new(), metrics: None }
    }

    /// Counts the keys.
    pub(super) fn with_metrics(self, metrics: Arc<QueueMetrics>) -> Queue<K> {
        Queue { metrics: Some(metrics), ..self }
    }

    fn report_depth(&self) {
        self.metrics.as_ref().inspect(|metrics| metrics.set_depth(self.ready.len()));
    }

    /// Number of keys that are due and not processed yet. Those that wait are not counted: otherwise keys
    /// that fail for as long as a user likes would keep others from being added.
    pub(super) fn due(&self) -> usize {
        self.ready.len()
    }

    /// Number of all keys.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Adds a key that is due at `when`, or earlier if it is due earlier already. That ends a delay after a
    /// failure.
    pub(super) fn add(&mut self, key: K, when: Instant, now: Instant) {
        let failures = match self.items.get_mut(&key) {
            None => {
                self.metrics.as_ref().inspect(|metrics| metrics.added());
                0
            }
            Some(Item { state: State::Ready, .. }) => return,
            Some(Item { state: State::Running { requeue }, .. }) => return *requeue = true,
            Some(Item { state: State::Later(before), .. }) if *before <= when => return,
            Some(Item { state: State::Later(before), failures, .. }) => {
                self.later.remove(&(*before, key.clone()));
                *failures
            }
        };
        self.schedule(key, failures, when, now);
    }

    fn schedule(&mut self, key: K, failures: u32, when: Instant, now: Instant) {
        let state = if when <= now { State::Ready } else { State::Later(when) };
        self.items.insert(key.clone(), Item { state, failures, since: when.max(now) });
        match state {
            State::Later(when) => drop(self.later.insert((when, key))),
            _ => self.ready.push_back(key),
        }
        self.report_depth();
    }

    /// The next key that is due. The caller must call [`Queue::done`] or [`Queue::failed`].
    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        while self.later.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, key)) = self.later.pop_first() else { break };
            if let Some(item) = self.items.get_mut(&key) {
                item.state = State::Ready;
            }
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        if let Some(item) = self.items.get_mut(&key) {
            item.state = State::Running { requeue: false };
            if let Some(metrics) = &self.metrics {
                metrics.began(now, now.saturating_duration_since(item.since));
            }
        }
        self.report_depth();
        Some(key)
    }

    /// The key was processed successfully, and is to be processed again at the given time, if any.
    pub(super) fn done(&mut self, key: K, again: Option<Instant>, now: Instant) {
        let requeue = self.is_requeued(&key).then_some(now);
        match requeue.or(again) {
            Some(when) => self.schedule(key, 0, when, now),
            None => drop(self.items.remove(&key)),
        }
    }

    /// The key is retried after a delay, or at once if it was added while it was processed.
    pub(super) fn failed(&mut self, key: K, now: Instant) {
        let Some(failures) = self.items.get(&key).map(|item| item.failures.saturating_add(1)) else { return };
        self.metrics.as_ref().inspect(|metrics| metrics.retried());
        let pause = if self.is_requeued(&key) { Duration::ZERO } else { backoff(self.pauses, failures) };
        self.schedule(key, failures, now + pause, now);
    }

    /// Whether the key was added while it was processed.
    fn is_requeued(&self, key: &K) -> bool {
        self.items.get(key).is_some_and(|item| matches!(item.state, State::Running { requeue: true }))
    }

    /// When the next delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(when, _)| *when)
    }
}

/// The delay after a number of failures in succession: doubled with each, between the first and the longest.
pub(super) fn backoff((first, longest): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_millis(300);

    fn queue() -> (Queue<&'static str>, Instant) {
        (Queue::new((FIRST, LONGEST)), Instant::now())
    }

    #[test]
    fn a_key_waits_once_and_in_order() {
        let (mut queue, now) = queue();
        for key in ["a", "b", "a"] {
            queue.add(key, now, now);
        }
        assert_eq!((queue.take(now), queue.take(now), queue.take(now)), (Some("a"), Some("b"), None));
        queue.done("a", None, now);
        queue.done("b", None, now);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_key_added_while_processed_is_requeued_and_not_processed_twice() {
        let (mut queue, now) = queue();
        queue.add("a", now, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.add("a", now, now);
        assert_eq!(queue.take(now), None);
        queue.done("a", None, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.done("a", None, now);
        assert_eq!((queue.take(now), queue.len()), (None, 0));
    }

    #[test]
    fn failures_pause_longer_each_time_up_to_a_bound() {
        let (mut queue, mut now) = queue();
        queue.add("a", now, now);
        for pause in [100, 200, 300, 300].map(Duration::from_millis) {
            assert_eq!(queue.take(now), Some("a"));
            queue.failed("a", now);
            assert_eq!(queue.next_due(), Some(now + pause));
            assert_eq!(queue.take(now + pause - Duration::from_millis(1)), None);
            now += pause;
        }
        assert_eq!(queue.take(now), Some("a"));
        queue.done("a", None, now);
        queue.add("a", now, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.failed("a", now);
        assert_eq!(queue.next_due(), Some(now + FIRST), "success forgets the failures");
    }

    #[test]
    fn adding_a_key_ends_its_delay() {
        let (mut queue, now) = queue();
        queue.add("a", now, now);
        queue.take(now);
        queue.failed("a", now);
        queue.add("a", now, now);
        assert_eq!((queue.take(now), queue.next_due()), (Some("a"), None));
        queue.add("a", now, now);
        queue.failed("a", now);
        assert_eq!(queue.take(now), Some("a"), "added while it ran");
    }

    #[test]
    fn keys_that_wait_do_not_count_as_due() {
        let (mut queue, now) = queue();
        queue.add("a", now, now);
        queue.take(now);
        queue.failed("a", now);
        queue.add("b", now + FIRST, now);
        assert_eq!((queue.due(), queue.len()), (0, 2));
    }

    #[test]
    fn a_key_whose_delay_has_ended_is_due_once() {
        let (mut queue, now) = queue();
        for key in ["a", "b"] {
            queue.add(key, now + FIRST, now);
            queue.add(key, now + LONGEST, now);
        }
        let now = now + FIRST;
        assert_eq!(queue.take(now), Some("a"));
        queue.add("b", now, now);
        assert_eq!((queue.take(now), queue.take(now)), (Some("b"), None));
    }

    #[test]
    fn a_key_can_be_requeued_after_success() {
        let (mut queue, now) = queue();
        queue.add("a", now, now);
        queue.take(now);
        queue.done("a", Some(now + LONGEST), now);
        assert_eq!(queue.next_due(), Some(now + LONGEST));
        queue.add("a", now + FIRST, now);
        assert_eq!(queue.next_due(), Some(now + FIRST), "a change comes first");
    }
}
