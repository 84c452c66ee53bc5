//! get: one object, at the latest revision, not older than a revision, or at an exact one.

use hyper::{Response, StatusCode};
use plinth_codec::error::quoted;
use plinth_codec::negotiate::Shape;
use plinth_engine::{At, Revision};

use super::respond::respond;
use super::Context;
use crate::representation::Item;
use crate::stored_objects::read;
use plinth_api::{ApiError, Reason};
use plinth_http::Body;
use plinth_storage::parse_resource_version;

pub(super) async fn get(cx: Box<Context>) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    let at = read_at(&cx).await?;
    let key = cx.info.object_key(&cx.resource)?;
    let record = match at {
        At::Latest => cx.record(&key).await?,
        At::Exact(_) => cx.record_at(key, at).await?,
    };
    let record = record.ok_or_else(|| cx.not_found())?;
    let stored = Item::new(&record.value, record.mod_revision)?;
    if !(representation.copies(&stored) && read::is_current(&cx.resource, &stored.stored)) {
        cx.slot.acquire_for_size(record.value.len()).await;
    }
    let record = cx.convert_record(record).await?;
    let mut out = Vec::with_capacity(record.value.len() + 128);
    representation.object(&Item::new(&record.value, record.mod_revision)?, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
}

/// The state that a get reads. `resourceVersionMatch=Exact` is an extension: an object at a retained
/// revision.
async fn read_at(cx: &Context) -> Result<At, ApiError> {
    let given = &cx.query.resource_version;
    let revision = parse_resource_version(given)
        .map_err(|_| ApiError::new(500, Reason::Unknown, not_a_revision(given)))?;
    let Some(revision) = revision.filter(|r| *r > Revision::ZERO) else { return Ok(At::Latest) };
    wait_for_revision(cx, revision).await?;
    Ok(match cx.query.resource_version_match.as_str() {
        "Exact" => At::Exact(revision),
        _ => At::Latest,
    })
}

/// Upstream's message for a resourceVersion that is not a number.
pub(super) fn not_a_revision(given: &str) -> String {
    let given = quoted(given);
    format!("resourceVersion: Invalid value: {given}: strconv.ParseUint: parsing {given}: invalid syntax")
}

/// Waits briefly for a revision that this server has not reached yet.
///
/// # Errors
/// 504 `Too large resource version`.
pub(super) async fn wait_for_revision(cx: &Context, revision: Revision) -> Result<(), ApiError> {
    let engine = cx.server.store.engine();
    if engine.current_revision() >= revision {
        return Ok(());
    }
    let limit = cx.server.limits.future_revision_wait;
    match tokio::time::timeout(limit, engine.wait_for(revision)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let current = engine.current_revision();
            Err(ApiError::too_large_resource_version(revision.get(), current.get()))
        }
    }
}
