//! Answers: objects that were written, Statuses, warnings.

use hyper::header::{HeaderValue, CACHE_CONTROL, CONTENT_TYPE, WARNING};
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;
use plinth_engine::Revision;

use super::write::Written;
use crate::context::Warnings;
use crate::representation::{Item, Representation};
use plinth_api::{success_status, ApiError};
use plinth_http::Body;

/// Answers with an object that was written.
///
/// # Errors
/// 500 when it cannot be encoded.
pub(crate) fn respond_written(
    representation: &Representation,
    code: StatusCode,
    written: &Written,
) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(written.value.len() + 128);
    let item = Item::new(&written.value, written.revision.unwrap_or(Revision::ZERO))?;
    match written.revision {
        Some(_) => representation.object(&item, &mut out)?,
        None => {
            let mut tree = representation.tree(&item)?;
            if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
                metadata.remove("resourceVersion");
            }
            representation.unstored(tree, &mut out)?;
        }
    }
    Ok(respond(code, representation.content_type(Shape::Object), out))
}

/// `Warning: 299 - "text"`, one header each. Where all are more than the total allows, each is cut, and what
/// does not fit then is left out (k8s.io/apiserver `pkg/endpoints/filters/warning.go`).
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    /// Characters of all together, and of one where they are too many.
    const TOTAL: usize = 4096;
    const ONE: usize = 256;
    let size = |text: &String| text.chars().count();
    let there = response.headers().get_all(WARNING).iter().count();
    let most = if warnings.iter().map(size).sum::<usize>() > TOTAL { ONE } else { TOTAL };
    let mut written = 0;
    for warning in warnings.iter().take(Warnings::MOST.saturating_sub(there)) {
        if written >= TOTAL {
            break;
        }
        let text: String = warning.chars().take(most).filter(|c| !c.is_control()).collect();
        written += size(&text);
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Answers with a Status as with an object.
///
/// # Errors
/// 500 when it cannot be encoded.
pub(crate) fn respond_status(
    representation: &Representation,
    code: StatusCode,
    status: &Value,
) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(256);
    representation.write_tree(status, &mut out)?;
    Ok(respond(code, representation.content_type(Shape::Object), out))
}

/// Answers with the Status of something that was done, and of which nothing is returned.
///
/// # Errors
/// 500 when it cannot be encoded.
pub(crate) fn respond_created(representation: &Representation) -> Result<Response<Body>, ApiError> {
    let mut status = success_status();
    status.insert("code", i64::from(StatusCode::CREATED.as_u16()));
    respond_status(representation, StatusCode::CREATED, &status.into())
}

/// An answer with that body, which no cache may keep.
pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
