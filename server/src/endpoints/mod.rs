//! Paths that are no resource: health, version, discovery, OpenAPI, metrics.

mod backup;
mod documents;
mod health;

use hyper::header::{HeaderName, HeaderValue, ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use hyper::{Method, Request, Response, StatusCode};
use plinth_codec::negotiate::{self, Accepted, Offer, Shape, Transform};
use plinth_codec::{resources, schema};

use crate::discovery::{self, aggregated, etag, lists, root, Catalog, Document};
use crate::http::body::Body;
use crate::representation;
use crate::server::Server;
use crate::status::{ApiError, Reason};

pub use documents::Documents;

/// Paths that `/` lists besides the API itself.
const ENDPOINTS: &[&str] =
    &["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];

/// Answers a request for such a path.
///
/// # Errors
/// 404, 405, 406.
pub async fn serve<B>(server: &Server, request: &Request<B>) -> Result<Response<Body>, ApiError> {
    let path = normalised(request.uri().path());
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    // Upstream answers every method on the two roots of discovery.
    if *request.method() != Method::GET && !matches!(segments.as_slice(), ["api" | "apis"]) {
        return Err(ApiError::method_not_allowed());
    }
    match segments.as_slice() {
        [] => Ok(json_text(root::paths(&catalog(), ENDPOINTS))),
        ["version"] => Ok(json_text(root::version(&root::THIS))),
        ["livez" | "readyz" | "healthz", ..] => Ok(health::serve(server, &segments, request.uri().query())),
        ["metrics"] => Ok(text(StatusCode::OK, crate::metrics::CONTENT_TYPE, server.metrics.render(server))),
        ["plinth", "backup"] => Ok(backup::serve(server)),
        ["openapi", rest @ ..] => server.documents.serve(rest, request).await,
        ["api"] => discovery_root(
            request,
            lists::api_versions(&catalog(), &server_address(request)),
            aggregated::core,
        ),
        ["apis"] => discovery_root(request, lists::groups(&catalog()), aggregated::groups),
        ["apis", group] => discovery_document(request, lists::group(&catalog(), group)),
        ["api", version] => discovery_document(request, lists::resources(&catalog(), "", version)),
        ["apis", group, version] => discovery_document(request, lists::resources(&catalog(), group, version)),
        _ => Ok(not_found_text()),
    }
}

fn catalog() -> Catalog<'static> {
    Catalog::new(resources::builtin(), [])
}

fn normalised(path: &str) -> &str {
    path.trim_end_matches('/')
}

fn server_address<B>(request: &Request<B>) -> String {
    let host = request.headers().get(hyper::header::HOST).and_then(|h| h.to_str().ok());
    host.or(request.uri().authority().map(|a| a.as_str())).unwrap_or_default().to_owned()
}

fn accept<B>(request: &Request<B>, shape: Shape) -> Result<Accepted, ApiError> {
    let header = request.headers().get(ACCEPT).and_then(|v| v.to_str().ok());
    negotiate::accept(header, &Offer::builtin(shape))
        .map_err(|e| ApiError::new(406, Reason::NotAcceptable, e.to_string()))
}

/// `/api` and `/apis`: the plain list, or the aggregated document for those who ask for it.
fn discovery_root<B>(
    request: &Request<B>,
    plain: Document,
    aggregate: fn(&Catalog) -> Document,
) -> Result<Response<Body>, ApiError> {
    let accepted = accept(request, Shape::Discovery)?;
    if accepted.transform != Transform::AggregatedDiscovery {
        return encode(request, &accepted, Shape::Discovery, &plain, false);
    }
    encode(request, &accepted, Shape::Discovery, &aggregate(&catalog()), true)
}

fn discovery_document<B>(
    request: &Request<B>,
    document: Option<Document>,
) -> Result<Response<Body>, ApiError> {
    let Some(document) = document else {
        // An unknown version of a group that is served is an API answer, an unknown group a page not found.
        let group = request.uri().path().split('/').filter(|s| !s.is_empty()).nth(1).unwrap_or_default();
        return match catalog().group(group) {
            Some(_) => Err(ApiError::no_such_resource()),
            None if request.uri().path().starts_with("/api/") => Err(ApiError::no_such_resource()),
            None => Ok(not_found_text()),
        };
    };
    encode(request, &accept(request, Shape::Plain)?, Shape::Plain, &document, false)
}

fn encode<B>(
    request: &Request<B>,
    accepted: &Accepted,
    shape: Shape,
    document: &Document,
    tagged: bool,
) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(4096);
    representation::write_document(document, schema::builtin(), accepted, &mut out)?;
    let mut response = text(StatusCode::OK, accepted.content_type(shape), Vec::new());
    if tagged {
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        let public = HeaderValue::from_static("public");
        response.headers_mut().insert(hyper::header::CACHE_CONTROL, public);
        let tag = etag::of(&out);
        let known = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
        if let Ok(value) = HeaderValue::try_from(tag.as_str()) {
            response.headers_mut().insert(ETAG, value);
        }
        if known.is_some_and(|k| discovery::etag::matches(k, &tag)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().remove(CONTENT_TYPE);
            return Ok(response);
        }
    }
    *response.body_mut() = Body::from(out);
    Ok(response)
}

fn json_text(body: Vec<u8>) -> Response<Body> {
    text(StatusCode::OK, "application/json", body)
}

fn text(code: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Upstream's answer to a path that nobody serves.
pub fn not_found_text() -> Response<Body> {
    let body = b"404 page not found\n".to_vec();
    let mut response = text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", body);
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(HeaderName::from_static("x-content-type-options"), nosniff);
    response
}
