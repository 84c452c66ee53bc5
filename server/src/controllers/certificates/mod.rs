//! CertificateSigningRequests are approved, signed and cleaned up (kubernetes `pkg/controller/certificates`).
//!
//! | controller | does |
//! |---|---|
//! | `certificatesigningrequest-approving-controller` | approves nodes' requests for their own client certificates, when their sender may |
//! | `certificatesigningrequest-signing-controller` | signs what was approved for a built-in signer |
//! | `certificatesigningrequest-cleaner-controller` | deletes what is decided or old |
//!
//! All three follow the same feed and look at one request at a time.

mod approve;
mod clean;
mod sign;

use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Value};
use plinth_engine::{Entry, EventKind, Feed, Subscribe};

use super::workers::Workers;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::key;
use plinth_storage::object;

pub(super) use approve::approve;
pub(super) use clean::{clean, PERIOD};
pub(super) use sign::sign;

const RESOURCE: (&str, &str, &str) = ("certificates.k8s.io", "v1", "certificatesigningrequests");
/// Requests that are worked on at a time.
const WORKERS: usize = 2;
/// First and longest pause before what failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// The authority that signs, and how long its certificates live at most.
#[derive(Clone, Debug)]
pub struct SigningOptions {
    /// Its certificate, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The longest life of a certificate.
    pub lifetime: Duration,
}

/// Looks at each request that is there or changes, and at all of them again after each period. Starts again from the
/// present state when the feed breaks off.
pub(super) async fn lead<F>(
    server: Arc<Server>,
    name: &'static str,
    period: Option<Duration>,
    work: impl Fn(Arc<Server>, String) -> F,
) where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    super::again(name, RETRY.1, || follow(&server, name, period, &work)).await;
}

async fn follow<F>(
    server: &Arc<Server>,
    name: &'static str,
    period: Option<Duration>,
    work: &impl Fn(Arc<Server>, String) -> F,
) -> Result<Infallible, ApiError>
where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let prefix = key::resource_prefix(RESOURCE.0, RESOURCE.2);
    let mut feed = server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())))?;
    let mut workers = Workers::new(name, WORKERS, RETRY);
    // After the subscription has begun: what changes meanwhile comes by as well.
    names(server, &prefix).await?.into_iter().for_each(|name| workers.add(name));
    let mut again = tokio::time::interval(period.unwrap_or(Duration::MAX / 4));
    again.tick().await;
    loop {
        tokio::select! {
            events = feed.next() => {
                let Feed::Events(events) = events? else { continue };
                let changed = events.iter().filter(|event| matches!(event.kind, EventKind::Put { .. }));
                let names = changed.filter_map(|event| Some(key::split(&prefix, false, &event.key)?.1.to_owned()));
                names.for_each(|name| workers.add(name));
            }
            _ = again.tick(), if period.is_some() => {
                names(server, &prefix).await?.into_iter().for_each(|name| workers.add(name));
            }
            () = workers.advance(|name| work(server.clone(), name)) => {}
        }
    }
}

async fn names(server: &Server, prefix: &str) -> Result<Vec<String>, ApiError> {
    let (range, prefix) = (key::range(prefix.as_bytes()), prefix.to_owned());
    let pick = move |entry: &Entry<'_>| Some(key::split(&prefix, false, entry.key)?.1.to_owned());
    Ok(server.store.survey(range, pick).await?.0)
}

/// A request as it is now; `None` when it is gone or going.
async fn get(server: &Arc<Server>, name: &str) -> Result<Option<Value>, ApiError> {
    let cx = Context::internal(server, RESOURCE, "", name, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(None) };
    let Some(record) = server.store.get(form, "", name).await? else { return Ok(None) };
    let request = object::to_tree(&cx.resource, &record)?;
    Ok(Some(request).filter(|request| !metadata::is_deleting(request)))
}

/// Changes the status of a request that is still as it was read.
async fn update(
    server: &Arc<Server>,
    request: &Value,
    subresource: &str,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), ApiError> {
    let cx = Context::internal(server, RESOURCE, "", metadata::text(request, "name"), Verb::Update)?
        .at_subresource(subresource);
    let transform = |_: Option<&Value>| {
        let mut new = request.clone();
        change(&mut new);
        Ok(new)
    };
    match internal::update(&cx, &transform).await {
        // Gone since.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

/// Adds a condition that is true.
fn add_condition(request: &mut Value, kind: &str, reason: &str, message: &str) {
    let condition = tree!({ "type": kind, "status": "True", "reason": reason, "message": message });
    let Some(status) = request.object_at_mut(&["status"]) else { return };
    let list = status.entry("conditions");
    match list.as_array_mut() {
        Some(list) => list.push(condition),
        None => *list = vec![condition].into(),
    }
}
