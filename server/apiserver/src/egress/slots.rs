//! How many requests other servers are asked at a time, and how they are shared among users.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;

/// Slots for requests that wait for other servers. The lock is held for a look-up.
#[derive(Debug)]
pub struct Slots(Mutex<Usage>);

/// The slots that are in use.
#[derive(Debug)]
struct Usage {
    free: usize,
    /// By user; none has zero.
    users: HashMap<SmolStr, usize>,
}

/// A slot among the requests that wait for other servers; released when it is dropped with the request.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    user: SmolStr,
}

impl Slots {
    /// So many slots.
    pub fn new(count: usize) -> Arc<Slots> {
        Arc::new(Slots(Mutex::new(Usage { free: count, users: HashMap::new() })))
    }

    /// A slot for a request of `user`, who may have as many as stay free for others: half of all where nobody
    /// else has any. Who has none gets one as long as there is one.
    pub(crate) fn take(self: &Arc<Slots>, user: &str) -> Option<Slot> {
        let mut usage = self.0.lock();
        let held = usage.users.get(user).copied().unwrap_or(0);
        if held >= usage.free {
            return None;
        }
        usage.free -= 1;
        let user = SmolStr::from(user);
        usage.users.insert(user.clone(), held + 1);
        drop(usage);
        Some(Slot { slots: Arc::clone(self), user })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.slots.0.lock();
        usage.free += 1;
        match usage.users.get_mut(&self.user) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(usage.users.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_all_slots() {
        let slots = Slots::new(256);
        let take_all = |user: &str| -> Vec<Slot> { std::iter::from_fn(|| slots.take(user)).collect() };
        let greedy = take_all("greedy");
        assert_eq!(greedy.len(), 128);
        let second = take_all("second");
        assert_eq!(second.len(), 64);
        let many: Vec<Slot> =
            (0..20).map(|n| slots.take(&format!("user {n}")).expect("one for each")).collect();
        drop((greedy, second, many));
        let usage = slots.0.lock();
        assert_eq!((usage.free, usage.users.len()), (256, 0));
    }

    #[test]
    fn slots_in_use_are_bounded() {
        let slots = Slots::new(16);
        let all: Vec<Slot> = (0..).map_while(|n| slots.take(&format!("user {n}"))).collect();
        assert_eq!(all.len(), 16);
    }
}
