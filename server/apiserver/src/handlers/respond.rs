//! Answers: objects that were written, Statuses, warnings.

use hyper::header::{
    HeaderValue, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WARNING, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::{self, Shape};
use plinth_codec::schema;
use plinth_codec::Value;
use plinth_engine::Revision;

use super::write::Written;
use crate::context::Warnings;
use crate::representation::{self, Item, Representation};
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

/// An error as a Status in the negotiated encoding.
pub(crate) fn refuse(
    error: &ApiError,
    accept: Option<&HeaderValue>,
    pretty: bool,
    http1: bool,
) -> Response<Body> {
    let accepted = negotiate::accept_for_error(accept.and_then(|a| a.to_str().ok()));
    let pretty = accepted.pretty || pretty;
    let mut out = Vec::with_capacity(512);
    let status = error.to_status();
    let mut content_type = accepted.content_type(Shape::Plain);
    let written = representation::write_tree(&status, schema::builtin(), accepted.encoding, pretty, &mut out);
    if written.is_err() {
        out.clear();
        plinth_codec::json::write_untyped(&status, &mut out);
        content_type = "application/json";
    }
    let mut response = Response::new(Body::from(out));
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if error.denied {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if let Some(details) = error.details.as_ref().filter(|details| details.retry_after_seconds > 0) {
        headers.insert(RETRY_AFTER, HeaderValue::from(details.retry_after_seconds));
    }
    if error.code == 413 && http1 {
        // The rest of the body is not read.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer after a panic, with upstream's text.
pub(crate) fn panicked() -> Response<Body> {
    let text = b"This request caused apiserver to panic. Look in the logs for details.\n";
    let mut response = Response::new(Body::from(text.to_vec()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
