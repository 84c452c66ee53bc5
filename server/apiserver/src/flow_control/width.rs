//! Estimates the seats of a request: one, and more for lists of many objects.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/request/list_work_estimator.go`, by object counts. A
//! watch that starts with the current state costs as much as the list; it releases its seats when the state
//! has been sent. Upstream also charges writes for their watchers, because each watcher has its own
//! goroutines; here an event is encoded once and written by the watchers' connection tasks, so writes have no
//! additional cost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::RwLock;

use plinth_api::{Query, RequestInfo, Verb};

/// Objects per seat.
const OBJECTS_PER_SEAT: u64 = 100;
/// Collections with a known size. When there are more, those of deleted definitions among them, all are
/// forgotten, and each is known again from its next full list.
const MAX_COLLECTIONS: usize = 4096;

/// Sizes of collections as of the last full list, by group and resource. The lock is held for a lookup.
#[derive(Default)]
pub struct CollectionSizes {
    sizes: RwLock<HashMap<(String, String), Arc<AtomicU64>>>,
}

impl CollectionSizes {
    /// Records the number of objects in a list over all namespaces.
    pub fn record(&self, group: &str, resource: &str, count: u64) {
        if let Some(sizes) = self.find(group, resource) {
            sizes.store(count, Ordering::Relaxed);
            return;
        }
        let mut sizes = self.sizes.write();
        if sizes.len() >= MAX_COLLECTIONS {
            sizes.clear();
        }
        sizes.insert((group.to_owned(), resource.to_owned()), Arc::new(AtomicU64::new(count)));
    }

    fn find(&self, group: &str, resource: &str) -> Option<Arc<AtomicU64>> {
        self.sizes.read().get(&(group.to_owned(), resource.to_owned())).cloned()
    }

    /// The seats of a request with these options, at most `max_seats`.
    pub fn seats(&self, info: &RequestInfo, query: &Query, max_seats: u32) -> u32 {
        if !matches!(info.verb, Verb::List | Verb::Watch) || max_seats <= 1 || !info.name.is_empty() {
            return 1;
        }
        let Some(stored) = self.find(&info.group, &info.resource) else { return 1 };
        let stored = stored.load(Ordering::Relaxed);
        if stored <= OBJECTS_PER_SEAT {
            return 1;
        }
        if info.verb == Verb::Watch && !sends_state(query) {
            return 1;
        }
        let scanned = match u64::try_from(query.limit) {
            Ok(limit) if limit > 0 && !has_selector(query) => stored.min(limit),
            _ => stored,
        };
        let seats = scanned.div_ceil(OBJECTS_PER_SEAT);
        u32::try_from(seats).unwrap_or(max_seats).clamp(1, max_seats)
    }
}

fn has_selector(query: &Query) -> bool {
    [&query.label_selector, &query.field_selector].into_iter().flatten().any(|selector| !selector.is_empty())
}

/// Whether a watch starts with the current state.
fn sends_state(query: &Query) -> bool {
    query.send_initial_events.unwrap_or(matches!(&*query.resource_version, "" | "0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::{parse_route, Route};

    #[test]
    fn lists_take_a_seat_for_each_hundred_objects() {
        let sizes = CollectionSizes::default();
        sizes.record("", "pods", 2500);
        sizes.record("", "services", 50);
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
            // What is charged is what is answered: as the list and the watch read it.
            ("GET", "/api/v1/pods?limit=500&limit=1", 5),
            ("GET", "/api/v1/pods?limit=-1", 10),
            ("GET", "/api/v1/pods?limit=1&fieldSelector=&fieldSelector=spec.nodeName%3Da", 1),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=TRUE", 10),
            ("GET", "/api/v1/pods?watch=1&sendInitialEvents=0", 1),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=&resourceVersion=7", 10),
            ("GET", "/api/v1/pods?w%61tch=1&resource%56ersion=7&sendInitialEvents", 10),
        ] {
            let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
            let Ok(Route::Resource(info)) = parse_route(&method.parse().unwrap(), path, query) else {
                panic!("{uri}")
            };
            let query = Query::parse(query, info.options_of()).unwrap();
            assert_eq!(sizes.seats(&info, &query, 10), seats, "{uri}");
            assert_eq!(sizes.seats(&info, &query, 1), 1, "{uri}");
        }
    }

    #[test]
    fn a_collection_is_known_however_many_were_before() {
        let sizes = CollectionSizes::default();
        for n in 0..=MAX_COLLECTIONS {
            sizes.record("example.com", &format!("things{n}"), 1);
        }
        sizes.record("", "pods", 2500);
        let Ok(Route::Resource(info)) = parse_route(&"GET".parse().unwrap(), "/api/v1/pods", None) else {
            panic!("pods")
        };
        assert_eq!(sizes.seats(&info, &Query::default(), 10), 10);
        assert!(sizes.sizes.read().len() <= MAX_COLLECTIONS);
    }
}
