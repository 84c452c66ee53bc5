//! The garbage collector: deletes dependents of deleted owners; owners wait for their dependents (foreground)
//! or orphan them, according to the propagation policy of their deletion.
//!
//! A feed over all keys maintains the index ([`graph`]) and triggers the reconciliation of objects. The
//! decision about an object is based on the store alone ([`verdict`]), so redundant reconciliation does no
//! harm, and a restart begins with a scan that finds all unfinished work. Owners that other API servers have
//! are asked for by name ([`remote_owners`]), again and again, since no feed reports their end.
//!
//! Upstream: kubernetes `pkg/controller/garbagecollector`. Events are ignored, as there.

mod graph;
mod reconcile;
mod references;
mod remote_owners;
#[cfg(test)]
mod testing;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_engine::{At, Error, Event, EventKind, KeyRange, Revision, Subscribe};

use self::graph::Graph;
use self::verdict::Verdict;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_apiserver::egress::Slots;
use plinth_registry::Registry;
use plinth_storage::{Header, Store, Stored};

/// The controller's name.
pub(super) const NAME: &str = "garbage-collector-controller";
/// Maximum number of concurrent workers; more would wait for the same disk.
const WORKERS: usize = 32;
/// Maximum number of workers that ask other API servers for owners.
const LOOKUPS: usize = 8;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
/// Events are many, and neither owners nor dependents.
const IGNORED: &[u8] = b"core/events/";

/// The controller; its keys are those of objects.
pub(super) struct Collector {
    server: Arc<Server>,
    /// Workers read, the feed's changes write; both for the time of a few lookups.
    graph: Mutex<Graph>,
    /// Lookups of remote owners at a time, by the namespace of their object: servers that hang leave most
    /// workers to everything else, and namespaces with many owners half of the lookups to others.
    lookups: Arc<Slots>,
}

impl Collector {
    pub(super) fn new(server: &Arc<Server>) -> Collector {
        Collector { server: server.clone(), graph: Mutex::default(), lookups: Slots::new(LOOKUPS) }
    }
}

impl Reconciler for Collector {
    type Key = Bytes;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Bytes>, ApiError> {
        let (registry, store) = (self.server.registry(), self.server.store.clone());
        let InitialState { graph, unfinished, revision } =
            self.server.store.read(move |_| scan(&store, &registry)).await?;
        tracing::info!(unfinished = unfinished.len(), "garbage collector started");
        *self.graph.lock() = graph;
        let subscribe = Subscribe::new(KeyRange::all()).after(revision).previous(true);
        Start::new(unfinished).subscribe(&self.server, subscribe)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<Bytes>, ApiError> {
        let (mut graph, mut keys) = (self.graph.lock(), Vec::new());
        for event in events {
            keys.extend(apply_event(&self.server.store, &mut graph, event)?);
        }
        Ok(keys)
    }

    async fn reconcile(&self, key: Bytes) -> Result<Action, ApiError> {
        reconcile::reconcile(&self.server, (&self.graph, &self.lookups), &key).await
    }
}

/// The keys to be reconciled because of a change.
fn apply_event<'e>(store: &Store, graph: &mut Graph, event: &'e Event) -> Result<Vec<Bytes>, ApiError> {
    if event.key.starts_with(IGNORED) {
        return Ok(Vec::new());
    }
    let (new, is_first) = match &event.kind {
        EventKind::Put { value, create_revision, .. } => (Some(value), *create_revision == event.revision),
        EventKind::Delete => (None, false),
    };
    if event.previous.is_none() && !is_first {
        return Err(ApiError::internal("a change lacks the previous value"));
    }
    // Values that cannot be decrypted are treated like values without owners.
    let open = |value: &'e Bytes| store.open(&event.key, value).ok();
    let old = event.previous.as_ref().and_then(|record| open(&record.value));
    let new = new.and_then(open);
    let old = old.as_deref().and_then(|value| Stored::parse(value).ok());
    let new = new.as_deref().and_then(|value| Stored::parse(value).ok());
    Ok(graph.change(&event.key, old.as_ref(), new.as_ref()))
}

struct InitialState {
    graph: Graph,
    /// Keys of unfinished work.
    unfinished: Vec<Bytes>,
    revision: Revision,
}

/// Reads the whole store once. Blocks; costs a scan of all headers, and parsing the owners of each dependent.
fn scan(store: &Store, registry: &Registry) -> Result<InitialState, Error> {
    let snapshot = store.engine().snapshot(At::Latest)?;
    let mut graph = Graph::default();
    let mut found = Vec::new();
    let mut entries = snapshot.range(&KeyRange::all());
    while let Some(entry) = entries.next()? {
        if entry.key.starts_with(IGNORED) {
            continue;
        }
        let Ok(header) = Header::parse(entry.value) else { continue };
        if header.deleting() || header.owners().next().is_some() {
            let Ok(value) = store.open(entry.key, entry.value) else { continue };
            let Ok(stored) = Stored::parse(&value) else { continue };
            found.extend(graph.change(&Bytes::copy_from_slice(entry.key), None, Some(&stored)));
        }
    }
    let mut unfinished = Vec::new();
    for key in found {
        if verdict::decide(store, &snapshot, registry, &[], &key)? != Verdict::Keep {
            unfinished.push(key);
        }
    }
    Ok(InitialState { graph, unfinished, revision: snapshot.revision() })
}

#[cfg(test)]
mod tests {
    use plinth_engine::{Engine, Options, Transaction};

    use super::testing::{deleting, owned_by, plain};
    use super::*;

    #[test]
    fn a_scan_finds_unfinished_work_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let objects = [
            ("core/configmaps/n/owner", plain("owner")),
            ("core/configmaps/n/kept", owned_by("kept", &[("ConfigMap", "owner", "owner")])),
            ("core/configmaps/n/lost", owned_by("lost", &[("ConfigMap", "none", "none")])),
            ("core/events/n/lost", owned_by("event", &[("ConfigMap", "none", "none")])),
            ("core/configmaps/n/orphaning", deleting("orphaning", "orphan")),
            ("core/configmaps/n/held", deleting("held", "example.com/hold")),
            ("not/an/object", Bytes::from_static(b"x")),
        ];
        for (key, value) in objects {
            engine.transact(Transaction::new().put(key, value)).wait().unwrap();
        }
        let state = scan(&Store::new(engine.clone(), Default::default()), &Registry::builtin()).unwrap();
        assert_eq!(state.unfinished, [&b"core/configmaps/n/lost"[..], b"core/configmaps/n/orphaning"]);
        assert_eq!(state.revision, engine.current_revision());
    }
}
