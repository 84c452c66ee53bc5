//! Documents generated from the registry: discovery and OpenAPI.

mod discovery;
mod openapi;

use hyper::header::{HeaderName, HeaderValue, CONTENT_TYPE};
use hyper::{Response, StatusCode};

use plinth_http::Body;

pub(crate) use discovery::is_aggregated;
pub use discovery::{catalog, exists, local_catalog, DiscoveryDocuments};
pub use openapi::OpenApiDocuments;
pub(crate) use openapi::KEEP;

/// A response with a text body of that content type.
pub fn text(code: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Upstream's answer to an unknown path.
pub(crate) fn not_found_text() -> Response<Body> {
    let body = b"404 page not found\n".to_vec();
    let mut response = text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", body);
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(HeaderName::from_static("x-content-type-options"), nosniff);
    response
}
