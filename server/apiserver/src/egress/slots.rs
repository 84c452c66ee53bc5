//! How many requests other servers are asked at a time, and how they are shared among users.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use plinth_api::{User, MASTERS_GROUP};
use smol_str::SmolStr;
use tokio::sync::Notify;

/// Of all slots, the part that is kept for administrators.
const KEPT: usize = 8;

/// Slots for requests that wait for other servers. The lock is held for a look-up.
#[derive(Debug)]
pub struct Slots {
    usage: Mutex<Usage>,
    /// A holder has no more than so many times what is free for others.
    share: usize,
}

/// The slots that are in use.
#[derive(Debug)]
struct Usage {
    free: usize,
    /// Of the free ones, those that only members of [`MASTERS_GROUP`] get.
    kept: usize,
    /// By name; none has zero.
    holders: HashMap<SmolStr, usize>,
    /// Those of [`Slots::wait`], by name, and how many: one of each is woken by a slot that is given back.
    waiting: HashMap<SmolStr, (Arc<Notify>, usize)>,
}

/// A slot among the requests that wait for other servers; released when it is dropped with the request.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    holder: SmolStr,
}

/// Slots of requests that end within a deadline, and of those that last as long as both sides like: neither
/// takes those of the other.
#[derive(Debug)]
pub struct SharedSlots {
    requests: Arc<Slots>,
    long_running: Arc<Slots>,
}

impl SharedSlots {
    /// So many slots of each.
    pub fn new(requests: usize, long_running: usize) -> SharedSlots {
        SharedSlots { requests: Slots::new(requests), long_running: Slots::new(long_running) }
    }

    /// So many slots of both together: a quarter for requests with a deadline, and one of each where there
    /// are two.
    pub fn of_both(count: usize) -> SharedSlots {
        let requests = count.div_ceil(4).min(count / 2);
        SharedSlots::new(requests, count - requests)
    }

    /// A slot for a request of `user`, who is counted as [`User::counted_as`] returns.
    pub(crate) fn take(&self, user: &User, is_long_running: bool) -> Option<Slot> {
        let slots = if is_long_running { &self.long_running } else { &self.requests };
        slots.take(&user.counted_as(), user.is_in(MASTERS_GROUP))
    }

    /// Whether some slot is taken.
    pub(super) fn is_in_use(&self) -> bool {
        [&self.requests, &self.long_running].into_iter().any(|slots| Arc::strong_count(slots) > 1)
    }
}

impl Slots {
    /// So many slots, half of which one holder may have.
    pub fn new(count: usize) -> Arc<Slots> {
        Slots::with_share(count, 1)
    }

    /// So many slots, three quarters of which one holder may have.
    pub(super) fn mostly_for_one(count: usize) -> Arc<Slots> {
        Slots::with_share(count, 3)
    }

    fn with_share(count: usize, share: usize) -> Arc<Slots> {
        let (free, kept) = (count, count.div_ceil(KEPT).min(count / 2));
        let usage = Mutex::new(Usage { free, kept, holders: HashMap::new(), waiting: HashMap::new() });
        Arc::new(Slots { usage, share })
    }

    /// A slot for a holder, who may have as many as stay free for others, or three times that. Who has none
    /// gets one as long as there is one. Some are kept for administrators.
    pub fn take(self: &Arc<Slots>, holder: &str, is_administrator: bool) -> Option<Slot> {
        let mut usage = self.usage.lock();
        let held = usage.holders.get(holder).copied().unwrap_or(0);
        let kept = if is_administrator { 0 } else { usage.kept };
        if held >= self.share * usage.free.saturating_sub(kept) {
            return None;
        }
        usage.free -= 1;
        let holder = SmolStr::from(holder);
        usage.holders.insert(holder.clone(), held + 1);
        drop(usage);
        Some(Slot { slots: Arc::clone(self), holder })
    }

    /// The same, as soon as there is one.
    pub(super) async fn wait(self: &Arc<Slots>, holder: &str) -> Slot {
        if let Some(slot) = self.take(holder, true) {
            return slot;
        }
        let waiter = Waiter::new(self, holder);
        loop {
            let mut released = pin!(waiter.released.notified());
            // From now on, so that none is missed.
            released.as_mut().enable();
            if let Some(slot) = self.take(holder, true) {
                return slot;
            }
            released.await;
        }
    }
}

/// Who waits for a slot.
struct Waiter<'s> {
    slots: &'s Slots,
    holder: SmolStr,
    released: Arc<Notify>,
}

impl Waiter<'_> {
    fn new<'s>(slots: &'s Slots, holder: &str) -> Waiter<'s> {
        let holder = SmolStr::from(holder);
        let mut usage = slots.usage.lock();
        let (released, count) = usage.waiting.entry(holder.clone()).or_default();
        *count += 1;
        let released = Arc::clone(released);
        drop(usage);
        Waiter { slots, holder, released }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut usage = self.slots.usage.lock();
        match usage.waiting.get_mut(&self.holder) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => drop(usage.waiting.remove(&self.holder)),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.slots.usage.lock();
        usage.free += 1;
        match usage.holders.get_mut(&self.holder) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(usage.holders.remove(&self.holder)),
        }
        usage.waiting.values().for_each(|(released, _)| released.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn take_all(slots: &Arc<Slots>, holder: &str) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take(holder, false)).collect()
    }

    #[test]
    fn no_holder_takes_all_slots() {
        let slots = Slots::new(256);
        let greedy = take_all(&slots, "greedy");
        assert_eq!(greedy.len(), 112);
        let second = take_all(&slots, "second");
        assert_eq!(second.len(), 56);
        let many: Vec<Slot> =
            (0..20).map(|n| slots.take(&format!("user {n}"), false).expect("one for each")).collect();
        drop((greedy, second, many));
        let usage = slots.usage.lock();
        assert_eq!((usage.free, usage.holders.len()), (256, 0));
    }

    #[test]
    fn slots_in_use_are_bounded_and_some_are_kept_for_administrators() {
        let slots = Slots::new(16);
        let all: Vec<Slot> = (0..).map_while(|n| slots.take(&format!("user {n}"), false)).collect();
        assert_eq!(all.len(), 14);
        let kept: Vec<Slot> =
            ["admin", "other", "third"].iter().filter_map(|name| slots.take(name, true)).collect();
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn one_may_have_most_of_them() {
        let slots = Slots::mostly_for_one(1024);
        let mut taken = Vec::new();
        let most = ["first", "second", "third"].map(|holder| {
            let before = taken.len();
            taken.extend(std::iter::from_fn(|| slots.take(holder, true)));
            taken.len() - before
        });
        assert_eq!(most, [768, 192, 48]);
    }

    /// Whatever order they come and go in.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_who_wait_get_one() {
        let slots = Slots::mostly_for_one(8);
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let slots = slots.clone();
            tasks.spawn(async move {
                let name = ["a", "b", "c"][n % 3];
                if n % 7 == 0 {
                    // It leaves before.
                    let _ = tokio::time::timeout(std::time::Duration::ZERO, slots.wait(name)).await;
                }
                let slot = slots.wait(name).await;
                tokio::task::yield_now().await;
                drop(slot);
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let usage = slots.usage.lock();
        assert_eq!((usage.free, usage.waiting.len()), (8, 0));
    }

    #[tokio::test]
    async fn who_waits_gets_a_slot_that_is_given_back() {
        let slots = Slots::new(2);
        let held = slots.wait("first").await;
        let mut waits = pin!(slots.wait("first"));
        assert!(waits.as_mut().now_or_never().is_none());
        let other = slots.wait("second").await;
        drop(held);
        drop((other, waits.await));
        let usage = slots.usage.lock();
        assert_eq!((usage.free, usage.waiting.len()), (2, 0));
    }
}
