//! Non-resource paths: health, version, discovery, OpenAPI, metrics.

mod backup;
mod health;
mod join;
mod metric_labels;
mod replicas;
mod stream;
mod zpages;

use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode, Uri};
use plinth_codec::error::quoted;

use crate::audit::Recorder;
use crate::authn::service_account::discovery as openid_discovery;
use crate::authz::AuthorizedPath;
use crate::context::Server;
use crate::documents::{self, not_found_text, text};
use plinth_api::{ApiError, PathError};
use plinth_http::Body;
use plinth_pki::JOIN_PATH;
use plinth_registry::{root_paths_document, version_document};

pub(crate) use metric_labels::metered_target;

pub use health::check_liveness;

/// Paths that `/` lists in addition to the API.
const ENDPOINTS: &[&str] = &[
    "/flagz",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/statusz",
    "/version",
];
/// Those that `/` lists where relying parties can verify service account tokens.
const OPENID_PATHS: &[&str] = &["/.well-known/openid-configuration", "/openid/v1/jwks"];

/// Answers a request for a non-resource path.
///
/// # Errors
/// 404, 405, 406.
pub async fn serve<B>(
    server: &Arc<Server>,
    path: &AuthorizedPath,
    request: &Request<B>,
    audit: &Recorder,
) -> Result<Response<Body>, ApiError> {
    let Some(segments) = segments(path.as_str()) else { return Ok(not_found_text()) };
    if !is_allowed(server, request.method(), &segments) {
        return Err(ApiError::method_not_allowed());
    }
    match segments.as_slice() {
        [] | ["index.html"] => {
            let endpoints = endpoints(server);
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            Ok(json_text(root_paths_document(&documents::catalog(&server.registry()), &endpoints)))
        }
        ["statusz"] => zpages::statusz((request.headers(), request.uri().query()), &endpoints(server)),
        ["flagz"] => zpages::flagz((request.headers(), request.uri().query()), &server.flags),
        ["debug", "api_priority_and_fairness", dump] => {
            let query = request.uri().query().unwrap_or_default();
            let details = plinth_api::query_parameter(query, "includeRequestDetails");
            let details = details.is_some_and(|details| !details.is_empty());
            Ok(server.flow_control.dump(dump, details).map_or_else(not_found_text, plain))
        }
        ["version"] => Ok(json_text(version_document(&server.version))),
        ["livez" | "readyz" | "healthz", ..] => Ok(health::serve(server, &segments, request.uri().query())),
        ["metrics"] => Ok(metrics(server.metrics.render(&server.store, &server.version).await)),
        ["metrics", "slis"] => Ok(metrics(server.metrics.render_health())),
        ["plinth", "backup"] => backup::serve(server),
        ["plinth", "replicas"] if request.method() == Method::POST => replicas::compare(server).await,
        ["plinth", "replicas"] => replicas::list(server).await,
        ["plinth", "replicas", id] => replicas::remove(server, id).await,
        ["plinth", "checkpoint"] => replicas::checkpoint(server).await,
        // Not with another path that means the same: nobody is authenticated at this one.
        ["plinth", "join"] if path.as_str() == JOIN_PATH => join::serve(server, request, audit).await,
        [".well-known", "openid-configuration"] => {
            Ok(openid(server, "application/json", |d| &d.configuration))
        }
        ["openid", "v1", "jwks"] => Ok(openid(server, openid_discovery::KEYS_TYPE, |d| &d.keys)),
        ["openapi", rest @ ..] => server.openapi.serve(&server.registry(), rest, request).await,
        ["api"] | ["apis"] | ["api", _] | ["apis", _] | ["apis", _, _] => {
            server.store.current_registry().established().await;
            server.discovery.serve(&server.registry(), &segments, request).await
        }
        _ => Ok(not_found_text()),
    }
}

/// Whether a method may be used on a path. Upstream routes some paths for GET alone; its other handlers
/// answer every method like GET, and so do paths without a handler. Metrics are not reset by DELETE here, as
/// they are upstream.
fn is_allowed(server: &Server, method: &Method, segments: &[&str]) -> bool {
    let is_for_get_alone = match segments {
        ["plinth", "replicas", _] => return *method == Method::DELETE,
        ["plinth", "join" | "replicas"] => return matches!(*method, Method::GET | Method::POST),
        ["version"] | [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => true,
        ["plinth", "backup" | "checkpoint"] => true,
        ["metrics"] | ["metrics", "slis"] => *method == Method::DELETE,
        ["api", ..] => documents::exists(&server.registry(), segments),
        // Groups are answered by upstream's aggregator, except its own.
        ["apis", group] => *group == "apiregistration.k8s.io",
        ["apis", group, _] => {
            let registry = server.registry();
            registry.has_builtin_group(group) && documents::exists(&registry, segments)
        }
        _ => false,
    };
    *method == Method::GET || !is_for_get_alone
}

/// The documents with which relying parties verify service account tokens.
fn openid(
    server: &Server,
    content_type: &'static str,
    part: fn(&openid_discovery::Documents) -> &Vec<u8>,
) -> Response<Body> {
    let Some(documents) = server.authenticator.discovery() else { return not_found_text() };
    let mut response = text(StatusCode::OK, content_type, part(documents).clone());
    let cached = HeaderValue::from_static(openid_discovery::CACHE_CONTROL);
    response.headers_mut().insert(hyper::header::CACHE_CONTROL, cached);
    response
}

/// The segments of a path; `None` for one with empty segments, which has no handler: it is not authorized as
/// the path without them. Trailing slashes are ignored.
fn segments(path: &str) -> Option<Vec<&str>> {
    let path = path.strip_prefix('/')?.trim_end_matches('/');
    if path.is_empty() {
        return Some(Vec::new());
    }
    let segments: Vec<&str> = path.split('/').collect();
    (!segments.contains(&"")).then_some(segments)
}

/// The answer to a malformed path, before authentication, with the text of Go's `net/http` and of upstream's
/// `WithRequestInfo`.
pub(crate) fn refuse_path(error: PathError, uri: &Uri) -> Response<Body> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    match error {
        PathError::BadEscape => text(StatusCode::BAD_REQUEST, PLAIN, b"400 Bad Request".to_vec()),
        PathError::NothingBehindVerb => {
            let quoted = quoted(&uri.to_string());
            let what =
                format!("Internal Server Error: {quoted}: failed to create RequestInfo: {error}, {uri}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, what.into_bytes())
        }
    }
}

/// The paths that `/` lists, other than the API's.
fn endpoints(server: &Server) -> Vec<String> {
    let openid = if server.authenticator.discovery().is_some() { OPENID_PATHS } else { &[] };
    let fixed = ENDPOINTS.iter().chain(openid).map(|path| (*path).to_owned());
    fixed.chain(health::paths(server)).collect()
}

fn plain(body: String) -> Response<Body> {
    text(StatusCode::OK, "text/plain; charset=utf-8", body.into_bytes())
}

fn metrics(body: Vec<u8>) -> Response<Body> {
    text(StatusCode::OK, crate::metrics::CONTENT_TYPE, body)
}

fn json_text(body: Vec<u8>) -> Response<Body> {
    text(StatusCode::OK, "application/json", body)
}
