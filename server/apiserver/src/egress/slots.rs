//! How many requests one remote server is asked at a time, and how they are shared among users.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;

/// Requests of clients that one server is asked at a time, and long-running ones (watches, upgrades) among
/// others: the descriptors that they take, and what a server that hangs can hold.
const MAX_REQUESTS: usize = 256;
const MAX_LONG_RUNNING: usize = 1024;

/// The slots of one server.
#[derive(Debug)]
pub(super) struct Slots {
    requests: Mutex<Usage>,
    long_running: Mutex<Usage>,
}

/// The slots of one kind that are in use.
#[derive(Debug)]
struct Usage {
    free: usize,
    /// By user; none has zero.
    users: HashMap<SmolStr, usize>,
}

/// A slot among the requests that a server is asked at a time; released when it is dropped with the request.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    user: SmolStr,
    is_long_running: bool,
}

impl Default for Slots {
    fn default() -> Slots {
        let [requests, long_running] =
            [MAX_REQUESTS, MAX_LONG_RUNNING].map(|free| Mutex::new(Usage { free, users: HashMap::new() }));
        Slots { requests, long_running }
    }
}

impl Slots {
    /// A slot for a request of `user`, who may have as many as stay free for others: half of all where nobody
    /// else has any. Who has none gets one as long as there is one.
    pub(super) fn take(self: &Arc<Slots>, user: &str, is_long_running: bool) -> Option<Slot> {
        let mut usage = self.usage(is_long_running).lock();
        let held = usage.users.get(user).copied().unwrap_or(0);
        if held >= usage.free {
            return None;
        }
        usage.free -= 1;
        let user = SmolStr::from(user);
        usage.users.insert(user.clone(), held + 1);
        drop(usage);
        Some(Slot { slots: Arc::clone(self), user, is_long_running })
    }

    fn usage(&self, is_long_running: bool) -> &Mutex<Usage> {
        if is_long_running {
            &self.long_running
        } else {
            &self.requests
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut usage = self.slots.usage(self.is_long_running).lock();
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

    fn take_all(slots: &Arc<Slots>, user: &str, is_long_running: bool) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take(user, is_long_running)).collect()
    }

    #[test]
    fn no_user_takes_all_slots() {
        let slots = Arc::new(Slots::default());
        let greedy = take_all(&slots, "greedy", false);
        assert_eq!(greedy.len(), MAX_REQUESTS / 2);
        assert_eq!(take_all(&slots, "greedy", true).len(), MAX_LONG_RUNNING / 2, "others are long-running");
        let second = take_all(&slots, "second", false);
        assert_eq!(second.len(), MAX_REQUESTS / 4);
        let many: Vec<Slot> =
            (0..20).map(|n| slots.take(&format!("user {n}"), false).expect("one for each")).collect();
        drop((greedy, second, many));
        let usage = slots.requests.lock();
        assert_eq!((usage.free, usage.users.len()), (MAX_REQUESTS, 0));
    }

    #[test]
    fn slots_in_use_are_bounded() {
        let slots = Arc::new(Slots::default());
        let all: Vec<Slot> = (0..).map_while(|n| slots.take(&format!("user {n}"), false)).collect();
        assert_eq!(all.len(), MAX_REQUESTS);
    }
}
