//! How many seats a request takes: one, and more for lists of many objects.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/request/list_work_estimator.go`, by counts of objects. A watch that
//! begins with the state costs what the list would; it gives its seats back when the state has been sent. What
//! upstream adds for writes with many watchers it adds because each watcher has goroutines of its own; here an event
//! is encoded once and watchers take it in their connections' tasks, so writes have no additional cost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::RwLock;

use plinth_api::request_info::{RequestInfo, Verb};

/// Objects that one seat stands for.
const OBJECTS_PER_SEAT: u64 = 100;
/// Collections whose size is known.
const MOST: usize = 4096;

/// The sizes of collections as the last whole lists found them, by group and resource. The lock is held for a lookup.
#[derive(Default)]
pub struct Sizes {
    known: RwLock<HashMap<(String, String), Arc<AtomicU64>>>,
}

impl Sizes {
    /// Takes note of how many objects a list over all namespaces walked over.
    pub fn note(&self, group: &str, resource: &str, count: u64) {
        if let Some(known) = self.find(group, resource) {
            known.store(count, Ordering::Relaxed);
            return;
        }
        let mut known = self.known.write();
        if known.len() < MOST {
            known.insert((group.to_owned(), resource.to_owned()), Arc::new(AtomicU64::new(count)));
        }
    }

    fn find(&self, group: &str, resource: &str) -> Option<Arc<AtomicU64>> {
        self.known.read().get(&(group.to_owned(), resource.to_owned())).cloned()
    }

    /// The seats of a request, at most `widest`.
    pub fn seats(&self, info: &RequestInfo, query: Option<&str>, widest: u32) -> u32 {
        if !matches!(info.verb, Verb::List | Verb::Watch) || widest <= 1 || !info.name.is_empty() {
            return 1;
        }
        let Some(stored) = self.find(&info.group, &info.resource) else { return 1 };
        let stored = stored.load(Ordering::Relaxed);
        if stored <= OBJECTS_PER_SEAT {
            return 1;
        }
        let asked = Asked::read(query.unwrap_or_default());
        if info.verb == Verb::Watch && !asked.state {
            return 1;
        }
        let walked = match asked.limit {
            limit if limit > 0 && !asked.selects => stored.min(limit),
            _ => stored,
        };
        let seats = walked.div_ceil(OBJECTS_PER_SEAT);
        u32::try_from(seats).unwrap_or(widest).clamp(1, widest)
    }
}

/// What of a query decides the cost.
struct Asked {
    limit: u64,
    selects: bool,
    /// Whether a watch begins with the state.
    state: bool,
}

impl Asked {
    fn read(query: &str) -> Asked {
        let (mut limit, mut selects, mut initial, mut version) = (0, false, None, true);
        for (key, value) in plinth_api::query::parameters(query) {
            match &*key {
                "limit" => limit = value.parse().unwrap_or(0),
                "labelSelector" | "fieldSelector" => selects |= !value.is_empty(),
                "sendInitialEvents" => initial = Some(matches!(&*value, "true" | "1")),
                "resourceVersion" => version = matches!(&*value, "" | "0"),
                _ => {}
            }
        }
        Asked { limit, selects, state: initial.unwrap_or(version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::request_info::{route, Route};

    #[test]
    fn lists_take_a_seat_for_each_hundred_objects() {
        let sizes = Sizes::default();
        sizes.note("", "pods", 2500);
        sizes.note("", "services", 50);
        for (method, uri, seats) in [
            ("GET", "/api/v1/pods", 10),
            ("GET", "/api/v1/pods?limit=500", 5),
            ("GET", "/api/v1/pods?limit=1", 1),
            ("GET", "/api/v1/pods?limit=1&labelSelector=a%3Db", 10),
            ("GET", "/api/v1/namespaces/x/pods/y", 1),
            ("GET", "/api/v1/services", 1),
            ("GET", "/api/v1/configmaps", 1),
            ("GET", "/api/v1/pods?watch=1", 10),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=0", 10),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7", 1),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=true", 10),
            ("POST", "/api/v1/namespaces/x/pods", 1),
        ] {
            let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
            let Ok(Route::Resource(info)) = route(&method.parse().unwrap(), path, query) else {
                panic!("{uri}")
            };
            assert_eq!(sizes.seats(&info, query, 10), seats, "{uri}");
            assert_eq!(sizes.seats(&info, query, 1), 1, "{uri}");
        }
    }
}
