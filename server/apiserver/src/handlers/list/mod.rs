//! list: a collection at one revision, whole or in pages.
//!
//! A list is produced from the engine's snapshot in chunks (`ListProducer`), on blocking threads and at the
//! pace of its client ([`plinth_http::PacedReader`]), so that memory does not grow with its length. A list
//! that fits into the first chunk is sent with `Content-Length`. In a list with `limit` the metadata follows
//! the items if the encoding permits, because the end of the page and the remaining count are known only
//! then. Protobuf states the length of a list in advance and CBOR the number of items: it is computed by a
//! first pass over the same snapshot, or cached ([`crate::representation::list_size_cache`]).

mod listing;
mod plan;
pub(super) mod source;

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;

use self::listing::ListProducer;
use super::respond::respond;
use super::Context;
use crate::representation::Representation;
use crate::selection::Selection;
use plinth_api::{ApiError, Cause};
use plinth_http::{set_compression_headers, Body, Gzip, PacedReader, ProducedBody};

pub(super) use self::plan::Plan;

pub(super) async fn list(cx: Box<Context>) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::List)?;
    validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, &cx.info.name)?;
    selection.keeps_to(cx.info.selected_name())?;
    let plan = Plan::new(&cx, selection).await?;
    let content_type = representation.content_type(Shape::List);
    let gzip = cx.accepts_gzip();
    let body = stream(&cx, plan, representation, gzip).await?;
    let compressed = gzip && matches!(body, Body::Stream(_));
    let mut response = respond(StatusCode::OK, content_type, body);
    if compressed {
        set_compression_headers(&mut response);
    }
    Ok(response)
}

/// `ValidateListOptions` of apimachinery, `pkg/apis/meta/internalversion/validation`.
pub(super) fn validate_options(cx: &Context) -> Result<(), ApiError> {
    const MATCH: &str = "resourceVersionMatch";
    let q = &cx.query;
    let mut errors: Vec<Cause> = Vec::new();
    if !q.resource_version_match.is_empty() {
        if q.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(Cause::forbidden(MATCH, why));
        }
        if q.continue_token.is_some() {
            errors
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        match q.resource_version_match.as_str() {
            "Exact" if q.resource_version == "0" => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(Cause::forbidden(MATCH, why));
            }
            "Exact" | "NotOlderThan" => {}
            other => errors.push(Cause::not_supported(MATCH, other, &["Exact", "NotOlderThan", ""])),
        }
    }
    if q.send_initial_events.is_some() {
        errors.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors)),
    }
}

/// Answers with the list of a plan, not compressed.
pub(super) async fn respond_listed(
    cx: &Context,
    plan: Plan,
    representation: Representation,
) -> Result<Response<Body>, ApiError> {
    let content_type = representation.content_type(Shape::List);
    let body = stream(cx, plan, representation, false).await?;
    Ok(respond(StatusCode::OK, content_type, body))
}

/// Starts producing the list, and waits for its first chunk.
async fn stream(
    cx: &Context,
    plan: Plan,
    representation: Representation,
    gzip: bool,
) -> Result<Body, ApiError> {
    let listing = ListProducer::new(plan, representation, gzip.then(Gzip::default), cx.seat.clone())?;
    let mut chunks = PacedReader::start(cx.server.producers.clone(), &cx.user.counted_as(), listing);
    let first = match chunks.next().await {
        Some(first) => first?,
        None => return Err(ApiError::internal("a list without a beginning")),
    };
    if chunks.is_at_end() {
        return Ok(Body::Full(first));
    }
    chunks.watch(Some(cx.server.flow_control.request_timeout));
    Ok(Body::Stream(Box::pin(ProducedBody::new(first, chunks))))
}
