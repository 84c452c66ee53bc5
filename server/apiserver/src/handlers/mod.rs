//! The verbs, implemented once for all resources.
//!
//! A write is processed in the order decode -> (patch) -> default -> managedFields -> mutating admission ->
//! prepare -> allocate -> validate -> validating admission -> commit -> encode (the modules of
//! [`mod@write`]); [`plinth_registry`] and [`plinth_kinds`] provide what is specific to a resource.

pub(crate) mod body;
mod create;
pub mod delete;
pub(crate) mod delete_options;
mod get;
pub mod internal;
pub mod list;
mod own_request;
mod patch;
pub(crate) mod respond;
mod scale;
mod unwritten_fields;
mod update;
mod watch;
pub mod write;

use hyper::{Method, Response};
use plinth_codec::error::quoted;
use plinth_codec::resources::Resource;

use crate::audit;
use crate::context::Context;
use plinth_api::{ApiError, RequestInfo, Verb};
use plinth_http::{compress_response, Body, RequestBody};

/// Answers a request for a resource.
///
/// # Errors
/// Any error of the request, to be encoded by [`crate::pipeline`].
pub(crate) async fn dispatch(cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let deprecation = cx.resource.custom.as_ref().and_then(|custom| custom.version().deprecation.clone());
    let part = cx.info.subresource.as_str();
    let is_served = part.is_empty() || cx.resource.row.subresource(part).is_some();
    let version = cx.resource.row.version.as_str();
    let built_in = cx.resource.strategy.deprecations.iter().filter(|built_in| built_in.version == version);
    let built_in = built_in.map(|built_in| (built_in.warning.to_owned(), built_in.removed_release));
    for (text, removed) in built_in.chain(deprecation.map(|text| (text, ""))).filter(|_| is_served) {
        cx.warnings.add(text);
        cx.server.metrics.requests.deprecated(&cx.resource, part, removed);
        cx.audit.annotate(audit::DEPRECATED, "true");
        if !removed.is_empty() {
            cx.audit.annotate(audit::REMOVED_RELEASE, removed);
        }
    }
    check_scope(&cx)?;
    check_name(&cx.info.name)?;
    if !is_routed(&cx) {
        return Err(ApiError::method_not_allowed());
    }
    if needs_most_recent(&cx) {
        match uses_local_state(&cx) {
            true => cx.use_local_state(),
            false => cx.reach_most_recent().await?,
        }
    }
    if !cx.info.subresource.is_empty() {
        return Box::pin(subresource(cx, body)).await;
    }
    let named = !cx.info.name.is_empty();
    let fits = match cx.info.verb {
        Verb::Create => !named,
        Verb::Update | Verb::Patch => named,
        _ => true,
    };
    if !fits || !cx.resource.row.has_verb(cx.info.verb.as_str()) {
        // A create-only resource has no route for named objects.
        let is_only_created = cx.resource.row.verbs.iter().all(|verb| verb == "create");
        return Err(match named && is_only_created {
            true => ApiError::no_such_resource(),
            false => ApiError::method_not_allowed(),
        });
    }
    if cx.resource.storage.is_none() {
        let endpoint = cx.kind_handler.unstored;
        return endpoint.ok_or_else(ApiError::method_not_allowed)?(cx, body).await;
    }
    // Each verb's future is boxed once: otherwise the state of every request would be as large as the largest
    // one, and it is moved several times on its way into the connection's task.
    match cx.info.verb {
        Verb::Get => {
            let gzip = cx.accepts_gzip();
            let response = Box::pin(get::get(cx)).await?;
            Ok(if gzip { compress_response(response).await } else { response })
        }
        Verb::List => Box::pin(list::list(cx)).await,
        Verb::Watch => Box::pin(watch::watch(cx)).await,
        Verb::Create => Box::pin(create::create(cx, body)).await,
        Verb::Update => Box::pin(update::update(cx, body)).await,
        Verb::Patch => Box::pin(patch::patch(cx, body)).await,
        Verb::Delete => Box::pin(delete::delete(cx, body)).await,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(cx, body)).await,
        Verb::Proxy | Verb::Other => Err(ApiError::method_not_allowed()),
    }
}

/// Whether the request has to see everything that was committed before it, on whichever replica: a read
/// unless it names a revision (`0` for any state), and each write, which would otherwise miss an object that
/// another replica has just created, or refuse a change because of its own age. A question that is answered
/// from caches does not (TokenReview, SubjectAccessReview).
fn needs_most_recent(cx: &Context) -> bool {
    let reads_newest = || cx.query.resource_version.is_empty() && !continues_here(cx);
    cx.resource.storage.is_some() && (cx.info.verb.mutates() || reads_newest())
}

/// Whether the request is for the next page of a list whose revision this replica has applied.
fn continues_here(cx: &Context) -> bool {
    let token = cx.query.continue_token.as_deref().filter(|_| cx.info.verb == Verb::List);
    let position = token.and_then(|token| cx.server.tokens.decode(token).ok());
    let revision = position.and_then(|position| position.revision);
    revision.is_some_and(|revision| revision <= cx.server.store.engine().current_revision().get())
}

/// Whether the write is tried on the state that this replica has, which spares it the question for the
/// journal's end: one that reads no object but its own, whose version or absence is a condition of what it
/// commits. What it would refuse, and a change of nothing, is judged again on the most recent state.
fn uses_local_state(cx: &Context) -> bool {
    let writes_itself = matches!(cx.info.verb, Verb::Create | Verb::Update | Verb::Patch);
    writes_itself && !cx.query.is_dry_run() && matches!(cx.info.subresource.as_str(), "" | "status")
}

/// Whether the method has a route: HEAD is authorized as GET and served for custom resources and proxies
/// only, and a watch requested by path must be a GET (k8s.io/apiserver `pkg/endpoints/installer.go`;
/// apiextensions-apiserver `pkg/apiserver/customresource_handler.go`).
fn is_routed(cx: &Context) -> bool {
    let serves_head = cx.resource.is_custom() || cx.info.subresource == "proxy";
    match cx.method {
        Method::HEAD => serves_head && cx.info.verb != Verb::Watch,
        Method::GET => true,
        _ => cx.info.verb != Verb::Watch,
    }
}

/// Subresources with the object's own kind are served by the verb handlers; others have their own
/// handlers.
async fn subresource(cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let Some(row) = cx.resource.row.subresource(&cx.info.subresource) else {
        return Err(if cx.resource.is_custom() { cx.not_found() } else { ApiError::no_such_resource() });
    };
    if !row.verbs.iter().any(|v| v == cx.info.verb.as_str()) {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(endpoint) = cx.kind_handler.subresource(&cx.info.subresource) {
        return endpoint(cx, body).await;
    }
    // By name, not by kind: a custom resource has `status` and `scale` only, but its own kind, which is that
    // of its `status`, may be called Scale.
    if cx.info.subresource == "scale" {
        return Box::pin(scale::scale(cx, body)).await;
    }
    if row.gvk != cx.resource.row.gvk() {
        return Err(not_served(&cx.info.subresource));
    }
    match cx.info.verb {
        Verb::Get => Box::pin(get::get(cx)).await,
        Verb::Update => Box::pin(update::update(cx, body)).await,
        Verb::Patch => Box::pin(patch::patch(cx, body)).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// 501: a part of the API that this version does not implement.
fn not_served(what: &str) -> ApiError {
    let message = format!("{what:?} is not served by this version of plinth");
    ApiError::new(501, plinth_api::Reason::Unknown, message)
}

/// Refuses names that no object can have.
fn check_name(name: &str) -> Result<(), ApiError> {
    match plinth_codec::names::path_segment_errors(name).first() {
        // A slash can only come from an escape, which upstream does not route.
        Some(_) if name.contains('/') => Err(ApiError::no_such_resource()),
        Some(why) => Err(ApiError::bad_request(format!("Name parameter invalid: {}: {why}", quoted(name)))),
        None => Ok(()),
    }
}

/// Checks that the path matches the resource's scope.
fn check_scope(cx: &Context) -> Result<(), ApiError> {
    match fits_scope(&cx.resource.row, &cx.info) {
        true => Ok(()),
        // Upstream routes a namespaced collection without a namespace for reading only.
        false if cx.resource.row.namespaced && cx.info.name.is_empty() => Err(ApiError::method_not_allowed()),
        false => Err(ApiError::no_such_resource()),
    }
}

/// Whether the path of a request matches the scope of the resource.
pub(crate) fn fits_scope(row: &Resource, info: &RequestInfo) -> bool {
    match row.namespaced {
        true => !info.namespace.is_empty() || (info.name.is_empty() && !info.verb.mutates()),
        // Cluster-scoped resources are not served below a namespace.
        false => !info.is_below_namespace,
    }
}
