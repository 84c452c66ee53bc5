//! A deduplicating work queue with delays after failures.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// A work queue, like client-go's: a key that is added while it waits is queued once; one that is added while
/// it is processed is processed again afterwards, never twice concurrently. The delay doubles with each
/// failure.
///
/// Pure state without a clock or a lock of its own; its size is the number of distinct keys.
#[derive(Debug)]
pub(super) struct Queue<K> {
    /// First and longest delay after a failure.
    pauses: (Duration, Duration),
    items: HashMap<K, Item>,
    ready: VecDeque<K>,
    later: BTreeSet<(Instant, K)>,
}

#[derive(Debug)]
struct Item {
    state: State,
    failures: u32,
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
        Queue { pauses, items: HashMap::new(), ready: VecDeque::new(), later: BTreeSet::new() }
    }

    /// Number of waiting and processed keys.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Adds a key; a delay after a failure ends.
    pub(super) fn add(&mut self, key: K) {
        let Some(item) = self.items.get_mut(&key) else {
            self.items.insert(key.clone(), Item { state: State::Ready, failures: 0 });
            self.ready.push_back(key);
            return;
        };
        match &mut item.state {
            State::Ready => {}
            State::Running { requeue } => *requeue = true,
            State::Later(when) => {
                let entry = (*when, key);
                item.state = State::Ready;
                self.later.remove(&entry);
                self.ready.push_back(entry.1);
            }
        }
    }

    /// The next key that is due. The caller must call [`Queue::done`] or [`Queue::failed`].
    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        while self.later.first().is_some_and(|(when, _)| *when <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.ready.push_back(key);
            }
        }
        let key = self.ready.pop_front()?;
        if let Some(item) = self.items.get_mut(&key) {
            item.state = State::Running { requeue: false };
        }
        Some(key)
    }

    /// The key was processed successfully.
    pub(super) fn done(&mut self, key: K) {
        match self.items.get_mut(&key) {
            Some(item) if matches!(item.state, State::Running { requeue: true }) => {
                *item = Item { state: State::Ready, failures: 0 };
                self.ready.push_back(key);
            }
            _ => {
                self.items.remove(&key);
            }
        }
    }

    /// The key is retried after a delay.
    pub(super) fn failed(&mut self, key: K, now: Instant) {
        let (first, longest) = self.pauses;
        let Some(item) = self.items.get_mut(&key) else { return };
        let pause = first.saturating_mul(1 << item.failures.min(20)).min(longest);
        item.failures = item.failures.saturating_add(1);
        if matches!(item.state, State::Running { requeue: true }) {
            item.state = State::Ready;
            self.ready.push_back(key);
            return;
        }
        let when = now + pause;
        item.state = State::Later(when);
        self.later.insert((when, key));
    }

    /// When the next delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(when, _)| *when)
    }
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
            queue.add(key);
        }
        assert_eq!((queue.take(now), queue.take(now), queue.take(now)), (Some("a"), Some("b"), None));
        queue.done("a");
        queue.done("b");
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_key_added_while_processed_is_requeued_and_not_processed_twice() {
        let (mut queue, now) = queue();
        queue.add("a");
        assert_eq!(queue.take(now), Some("a"));
        queue.add("a");
        assert_eq!(queue.take(now), None);
        queue.done("a");
        assert_eq!(queue.take(now), Some("a"));
        queue.done("a");
        assert_eq!((queue.take(now), queue.len()), (None, 0));
    }

    #[test]
    fn failures_pause_longer_each_time_up_to_a_bound() {
        let (mut queue, mut now) = queue();
        queue.add("a");
        for pause in [100, 200, 300, 300].map(Duration::from_millis) {
            assert_eq!(queue.take(now), Some("a"));
            queue.failed("a", now);
            assert_eq!(queue.next_due(), Some(now + pause));
            assert_eq!(queue.take(now + pause - Duration::from_millis(1)), None);
            now += pause;
        }
        assert_eq!(queue.take(now), Some("a"));
        queue.done("a");
        queue.add("a");
        assert_eq!(queue.take(now), Some("a"));
        queue.failed("a", now);
        assert_eq!(queue.next_due(), Some(now + FIRST), "success forgets the failures");
    }

    #[test]
    fn adding_a_key_ends_its_delay() {
        let (mut queue, now) = queue();
        queue.add("a");
        queue.take(now);
        queue.failed("a", now);
        queue.add("a");
        assert_eq!((queue.take(now), queue.next_due()), (Some("a"), None));
        queue.add("a");
        queue.failed("a", now);
        assert_eq!(queue.take(now), Some("a"), "added while it ran");
    }
}
