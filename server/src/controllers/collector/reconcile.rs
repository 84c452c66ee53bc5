//! Reconciliation of one object by the garbage collector.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::Value;
use plinth_engine::At;
use tokio::task::JoinSet;

use super::super::accounts;
use super::graph::Graph;
use super::references::{Finalizer, Uid};
use super::remote_owners;
use super::verdict::{self, Deletion, RemoteOwners, Verdict};
use crate::reconciler::Action;
use plinth_api::{metadata_mut, metadata_text, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::egress::Slots;
use plinth_apiserver::handlers::{delete, internal};

/// Maximum number of dependents of one owner that are orphaned concurrently.
const MAX_CONCURRENT_UNLINKS: usize = 32;

/// How often the owners that other API servers have are asked for.
const REMOTE_PERIOD: Duration = Duration::from_secs(60);

/// Reconciles the object with the given key.
///
/// # Errors
/// Errors to be retried.
pub(super) async fn reconcile(
    server: &Arc<Server>,
    (graph, lookups): (&Mutex<Graph>, &Arc<Slots>),
    key: &Bytes,
) -> Result<Action, ApiError> {
    let mut next = Action::AwaitChange;
    let mut verdict = decide(server, key, RemoteOwners::new()).await?;
    if let Verdict::Unknown { owners } = verdict {
        let registry = server.registry();
        let namespace = verdict::resource_of(&registry, key).map_or("", |(_, namespace, _)| namespace);
        let found = {
            let busy = || ApiError::conflict("", "owners", "", "too many owners are being looked up");
            let _slot = lookups.take(namespace, true).ok_or_else(busy)?;
            remote_owners::look_up(server, namespace, owners).await?
        };
        verdict = decide(server, key, found).await?;
        next = Action::RequeueAfter(REMOTE_PERIOD);
    }
    match verdict {
        Verdict::Keep => {}
        Verdict::Finalize { uid, finalizer } => finalize(server, graph, key, &uid, finalizer).await?,
        Verdict::Unlink { uid, owners } => unlink(server, key, Some(&uid), &owners).await?,
        Verdict::Delete(deletion) => delete(server, graph, key, &deletion).await?,
        // Its owners have changed meanwhile.
        Verdict::Unknown { .. } => next = Action::RequeueAfter(Duration::ZERO),
    }
    Ok(next)
}

async fn decide(server: &Arc<Server>, key: &Bytes, remote: RemoteOwners) -> Result<Verdict, ApiError> {
    let (registry, store, wanted) = (server.registry(), server.store.clone(), key.clone());
    let decide = move |engine: &plinth_engine::Engine| {
        verdict::decide(&store, &engine.snapshot(At::Latest)?, &registry, &remote, &wanted)
    };
    server.store.read(decide).await
}

async fn finalize(
    server: &Arc<Server>,
    graph: &Mutex<Graph>,
    key: &Bytes,
    uid: &str,
    finalizer: Finalizer,
) -> Result<(), ApiError> {
    let index = Uid::of(uid);
    let dependents = {
        let graph = graph.lock();
        match finalizer {
            // The index is behind; it adds the key when it has caught up.
            _ if !graph.is_waiting(index) => return Ok(()),
            // The deletion of the last dependent adds the key.
            Finalizer::Foreground if graph.is_blocked(index) => return Ok(()),
            Finalizer::Foreground => Vec::new(),
            Finalizer::Orphan => graph.dependents(index),
        }
    };
    let owners = Arc::new(vec![uid.to_owned()]);
    for some in dependents.chunks(MAX_CONCURRENT_UNLINKS) {
        let mut tasks = JoinSet::new();
        for dependent in some {
            let (server, dependent, owners) = (server.clone(), dependent.clone(), owners.clone());
            tasks.spawn(async move { unlink(&server, &dependent, None, &owners).await });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.map_err(ApiError::internal)??;
        }
    }
    change_metadata(server, key, Some(uid), &|metadata| {
        remove_from(metadata, "finalizers", |f| f.as_str() == Some(finalizer.name()));
    })
    .await
}

/// Removes references to `owners` from the object with the given key.
async fn unlink(
    server: &Arc<Server>,
    key: &Bytes,
    uid: Option<&str>,
    owners: &[String],
) -> Result<(), ApiError> {
    change_metadata(server, key, uid, &|metadata| {
        let is_one = |uid: &str| owners.iter().any(|owner| owner == uid);
        remove_from(metadata, "ownerReferences", |owner| owner.str_at(&["uid"]).is_some_and(is_one));
    })
    .await
}

async fn delete(
    server: &Arc<Server>,
    graph: &Mutex<Graph>,
    key: &Bytes,
    deletion: &Deletion,
) -> Result<(), ApiError> {
    let registry = server.registry();
    let Some((resource, namespace, name)) = verdict::resource_of(&registry, key) else { return Ok(()) };
    let index = Uid::of(&deletion.uid);
    let (has_dependents, may_be_cycle) = {
        let graph = graph.lock();
        (!graph.dependents(index).is_empty(), graph.has_waiting_dependents(index))
    };
    let in_foreground = deletion.owner_waits && has_dependents;
    let mut revision = Some(deletion.revision);
    if in_foreground && may_be_cycle {
        // Its dependents may include its owners: then they must not block each other.
        change_metadata(server, key, Some(&deletion.uid), &|metadata| {
            let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
            for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
                owner.insert("blockOwnerDeletion", false);
            }
        })
        .await?;
        revision = None;
    }
    let propagation = match deletion.finalizer {
        _ if in_foreground => "Foreground",
        Some(Finalizer::Orphan) => "Orphan",
        Some(Finalizer::Foreground) => "Foreground",
        None => "Background",
    };
    let cx = Context::of_resource(server, &registry, resource, (namespace, name), Verb::Delete);
    let cx = cx.acting_as(accounts::GARBAGE_COLLECTOR.user());
    ignore_not_found(delete::delete_one(&cx, propagation, &deletion.uid, revision).await)
}

/// Changes the metadata of the object with the given key, if it still has the given UID.
async fn change_metadata(
    server: &Arc<Server>,
    key: &Bytes,
    uid: Option<&str>,
    change: &(dyn Fn(&mut plinth_codec::Map) + Send + Sync),
) -> Result<(), ApiError> {
    let registry = server.registry();
    let Some((resource, namespace, name)) = verdict::resource_of(&registry, key) else { return Ok(()) };
    let row = &resource.row;
    let cx = Context::of_resource(server, &registry, resource, (namespace, name), Verb::Update);
    let cx = cx.acting_as(accounts::GARBAGE_COLLECTOR.user());
    let transform = |live: Option<&Value>| {
        let mut object = live.cloned().unwrap_or_default();
        if uid.is_some_and(|uid| uid != metadata_text(&object, "uid")) {
            return Err(ApiError::not_found(&row.group, &row.plural, name));
        }
        change(metadata_mut(&mut object)?);
        Ok(object)
    };
    ignore_not_found(internal::update(&cx, &transform).await)
}

fn ignore_not_found(outcome: Result<(), ApiError>) -> Result<(), ApiError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}

/// Removes elements of a list in the metadata, and an empty list.
fn remove_from(metadata: &mut plinth_codec::Map, list: &str, is_one: impl Fn(&Value) -> bool) {
    let Some(elements) = metadata.get_mut(list).and_then(Value::as_array_mut) else { return };
    elements.retain(|element| !is_one(element));
    if elements.is_empty() {
        metadata.remove(list);
    }
}
