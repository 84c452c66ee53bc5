//! The lifecycle of namespaces: a Terminating one loses its contents, then its finalizer, then it is gone.
//!
//! Upstream: kubernetes `pkg/controller/namespace/deletion`. Names that wait are held in a set, each once, so the
//! memory is bounded by the number of Terminating namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, EventKind, Feed, KeyRange, Revision, Subscribe, Subscription};
use tokio::time::Instant;

use plinth_api::api_error::ApiError;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{end_if_over, Context, Server};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::key;
use plinth_storage::departing::Departing;
use plinth_storage::stored::Head;

/// The finalizer of namespaces that this controller removes.
const FINALIZER: &str = "kubernetes";
/// First and longest pause before a namespace whose contents are held by finalizers is looked at again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Follows namespaces; starts again from the present state when the feed breaks off.
pub(super) async fn lead(server: Arc<Server>) {
    loop {
        if let Err(error) = follow(&server).await {
            end_if_over().await;
            tracing::warn!(%error, "the namespace controller starts again");
            tokio::time::sleep(RETRY.1).await;
        }
    }
}

/// When a namespace is to be looked at, and the pause after that.
type Waiting = BTreeMap<String, (Instant, Duration)>;

async fn follow(server: &Arc<Server>) -> Result<(), ApiError> {
    let prefix = key::resource_prefix("", "namespaces");
    let range = key::range(prefix.as_bytes());
    let (mut waiting, revision) = terminating(server, &range, &prefix).await?;
    let engine = server.store.engine();
    let mut feed = engine.subscribe(Subscribe::new(range).after(revision))?;
    loop {
        let next = waiting.values().map(|(when, _)| *when).min();
        tokio::select! {
            found = next_terminating(&mut feed, &prefix) => {
                for name in found? {
                    waiting.insert(name, (Instant::now(), RETRY.0));
                }
            }
            () = until(next) => work(server, &mut waiting).await,
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// The namespaces that are Terminating now, and the revision that this is true at.
async fn terminating(
    server: &Server,
    range: &KeyRange,
    prefix: &str,
) -> Result<(Waiting, Revision), ApiError> {
    let prefix = prefix.to_owned();
    let pick = move |entry: &Entry<'_>| terminating_name(&prefix, entry.key, entry.value);
    let (names, revision) = server.store.survey(range.clone(), pick).await?;
    let now = Instant::now();
    Ok((names.into_iter().map(|name| (name, (now, RETRY.0))).collect(), revision))
}

fn terminating_name(prefix: &str, object_key: &[u8], value: &[u8]) -> Option<String> {
    let (_, name) = key::split(prefix, false, object_key)?;
    Head::parse(value).ok()?.deleting().then(|| name.to_owned())
}

async fn next_terminating(feed: &mut Subscription, prefix: &str) -> Result<Vec<String>, ApiError> {
    let Feed::Events(events) = feed.next().await? else { return Ok(Vec::new()) };
    let name = |event: &Arc<plinth_engine::Event>| match &event.kind {
        EventKind::Put { value, .. } => terminating_name(prefix, &event.key, value),
        EventKind::Delete => None,
    };
    Ok(events.iter().filter_map(name).collect())
}

/// Looks at every namespace whose time has come.
async fn work(server: &Arc<Server>, waiting: &mut Waiting) {
    let now = Instant::now();
    let due: Vec<String> =
        waiting.iter().filter(|(_, (when, _))| *when <= now).map(|(name, _)| name.clone()).collect();
    for name in due {
        match end(server, &name).await.or_else(|error| if error.code == 404 { Ok(true) } else { Err(error) })
        {
            Ok(true) => {
                waiting.remove(&name);
            }
            done => {
                if let Err(error) = &done {
                    end_if_over().await;
                    tracing::warn!(%error, namespace = name, "cannot empty a namespace yet");
                }
                if let Some((when, pause)) = waiting.get_mut(&name) {
                    *when = Instant::now() + *pause;
                    *pause = (*pause * 2).min(RETRY.1);
                }
            }
        }
    }
}

/// Does what is left to do for the namespace of that name; true when nothing is. 404 when it has gone meanwhile.
async fn end(server: &Arc<Server>, name: &str) -> Result<bool, ApiError> {
    let Some(namespace) = Departing::find(&server.store, "", "namespaces", name).await? else {
        return Ok(true);
    };
    if !empty(server, &namespace).await? {
        return Ok(false);
    }
    finalize(server, &namespace).await.map(|()| true)
}

/// Deletes what is in a namespace; true when nothing is left.
async fn empty(server: &Arc<Server>, namespace: &Departing) -> Result<bool, ApiError> {
    let mut left = false;
    let registry = server.registry();
    for resource in registry.stored().filter(|r| r.row.namespaced) {
        let at = (namespace.name(), "");
        let cx = Context::of_resource(server, &registry, resource, at, Verb::DeleteCollection);
        left |= delete::delete_all(&cx, namespace).await? > 0;
    }
    Ok(!left)
}

/// Takes the finalizer off.
async fn finalize(server: &Arc<Server>, departing: &Departing) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "namespaces"), "", departing.name(), Verb::Update)?
        .at_subresource("finalize");
    let transform = |live: Option<&Value>| {
        let mut namespace = live.cloned().unwrap_or_default();
        departing.check_live(&namespace)?;
        if let Some(finalizers) = namespace.get_mut("spec").and_then(|s| s.get_mut("finalizers")) {
            if let Some(list) = finalizers.as_array_mut() {
                list.retain(|f| f.as_str() != Some(FINALIZER));
            }
        }
        Ok(namespace)
    };
    internal::update(&cx, &transform).await
}
