//! Requests for the versions of groups that other API servers serve: passed on after authentication,
//! authorization, audit and flow control, with the user in headers.
//!
//! What is passed on is what was authorized: path and query are rewritten from the form in which
//! authorization read them, so that a server which unescapes in another order sees the same names. Bodies are
//! streamed in both directions; a client that disconnects ends the request to the other server.
//!
//! A request gives its seat back before it is passed on, so that a server which hangs takes none from others;
//! how many requests wait for one server is bounded instead.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/apiserver/handler_proxy.go`, k8s.io/apimachinery `pkg/util/proxy`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use form_urlencoded::Serializer;
use http_body_util::Either;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, CACHE_CONTROL, ETAG, LOCATION, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Uri};
use percent_encoding::{utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};

use crate::audit;
use crate::context::Server;
use crate::documents::{not_found_text, text, KEEP};
use crate::egress::forward::{self, ForwardedBody};
use crate::egress::remote::{self, RemoteError, RemoteResponse};
use crate::egress::Slot;
use plinth_api::{query_parameter, query_parameters, unescape_path, User};
use plinth_http::{Body, RequestBody, Upgrade};
use plinth_registry::{Registry, RemoteVersion};

/// Time limit of a discovery request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prefix of the message of a failed connection.
const UNREACHABLE: &str = "error trying to reach service";
/// Characters of a path that are escaped, as Go's `net/url` does.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The sender of a request that is passed on, and its limits.
pub struct Forwarding<'a> {
    /// The user that was authorized.
    pub user: &'a User,
    /// The client's address.
    pub client: IpAddr,
    /// The request's audit ID.
    pub audit_id: &'a HeaderValue,
    /// When it is cut off; `None` for a long-running request.
    pub deadline: Option<Instant>,
}

/// Which document of a remote version a path outside of its resources names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteDocument {
    /// `/apis/G/V`.
    Discovery,
    /// `/openapi/v3/apis/G/V`.
    OpenApi,
}

/// The remote version that a non-resource path belongs to.
pub(crate) fn of_path<'r>(
    registry: &'r Registry,
    path: &str,
) -> Option<(&'r Arc<RemoteVersion>, RemoteDocument)> {
    if registry.remote_versions().is_empty() {
        return None;
    }
    let segments: Vec<&str> = path.strip_prefix('/')?.trim_end_matches('/').split('/').collect();
    match segments.as_slice() {
        ["apis", group, version] => Some((registry.remote(group, version)?, RemoteDocument::Discovery)),
        ["openapi", "v3", "apis", group, version] => {
            Some((registry.remote(group, version)?, RemoteDocument::OpenApi))
        }
        _ => None,
    }
}

/// Passes on a request for a resource.
pub(crate) async fn forward_resource(
    server: &Server,
    remote: &RemoteVersion,
    request: Request<RequestBody>,
    forwarding: Forwarding<'_>,
) -> Response<Body> {
    // A path with empty segments before the resource is authorized as one without, and has no handler.
    let path = unescape_path(request.uri().path()).ok().filter(|path| {
        let rest = path.strip_prefix(&remote.path());
        rest.is_some_and(|rest| rest.starts_with('/'))
    });
    let Some(target) = path.and_then(|path| target(&path, request.uri().query())) else {
        return not_found_text();
    };
    exchange(server, remote, request, target, forwarding).await
}

/// Passes on a request for a document.
pub(crate) async fn forward_document(
    server: &Server,
    (remote, document): (&RemoteVersion, RemoteDocument),
    request: Request<RequestBody>,
    forwarding: Forwarding<'_>,
) -> Response<Body> {
    let path = remote.path();
    let query = request.uri().query().map(str::to_owned);
    match document {
        RemoteDocument::Discovery => {
            let Some(target) = target(&path, query.as_deref()) else { return not_found_text() };
            let exchange = exchange(server, remote, request, target, forwarding);
            match tokio::time::timeout(DISCOVERY_TIMEOUT, exchange).await {
                Ok(response) => response,
                Err(_) => unreachable("context deadline exceeded"),
            }
        }
        RemoteDocument::OpenApi => {
            if remote.documents.openapi_v3.is_none() {
                return not_found_text();
            }
            let path = format!("/openapi/v3{path}");
            // Without the hash: the other server would redirect where its document has changed since.
            let Some(target) = target(&path, None) else { return not_found_text() };
            let response = exchange(server, remote, request, target, forwarding).await;
            check_hash(&path, query.as_deref(), response)
        }
    }
}

/// The answer to a request for a document by its hash: the document, which does not change then, or a
/// redirect to the present one.
fn check_hash(path: &str, query: Option<&str>, mut response: Response<Body>) -> Response<Body> {
    let hash = query.and_then(|query| query_parameter(query, "hash")).filter(|hash| !hash.is_empty());
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
    let (Some(hash), Some(tag), StatusCode::OK) = (hash, tag, response.status()) else { return response };
    if *hash == *tag {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEEP));
        return response;
    }
    let mut redirect = Response::new(Body::empty());
    *redirect.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let query = Serializer::new(String::new()).append_pair("hash", &tag).finish();
    if let Ok(location) = HeaderValue::try_from(format!("{path}?{query}")) {
        redirect.headers_mut().insert(LOCATION, location);
    }
    redirect
}

/// Path and query of the passed-on request. None for a path with `.` or `..`, which the other server might
/// take for another path than the one that was authorized.
fn target(path: &str, query: Option<&str>) -> Option<Uri> {
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return None;
    }
    let mut target = utf8_percent_encode(path, PATH).to_string();
    let mut pairs: Vec<_> = query_parameters(query.unwrap_or_default()).collect();
    if !pairs.is_empty() {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        target.push('?');
        target = Serializer::for_suffix(target.clone(), target.len()).extend_pairs(pairs).finish();
    }
    target.parse().ok()
}

async fn exchange(
    server: &Server,
    remote: &RemoteVersion,
    request: Request<RequestBody>,
    target: Uri,
    forwarding: Forwarding<'_>,
) -> Response<Body> {
    if server.remote_apis.has_passed(request.headers()) {
        return unreachable("the request has passed through this API server before");
    }
    if !remote.is_available {
        return failed(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
    }
    let address = match server.remote_apis.resolve(&server.store, remote).await {
        Ok(address) => address,
        Err(error) => {
            tracing::debug!(%error, name = remote.api_service(), "address of a remote API cannot be resolved");
            return failed(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        }
    };
    let (mut parts, body) = request.into_parts();
    let upgrade = forward::requested_upgrade(Upgrade::take(&mut parts.extensions), &mut parts.headers);
    parts.extensions.clear();
    let host = address.to_string();
    parts.uri = target;
    parts.version = hyper::Version::HTTP_11;
    if let Err(error) = set_headers(server, &mut parts.headers, (&parts.uri, &host), &forwarding) {
        return unreachable(&error.to_string());
    }
    let (user, deadline) = (forwarding.user, forwarding.deadline);
    let of_server = server.remote_apis.slot(remote, user, deadline.is_none());
    let Some(slots) = of_server.zip(server.forwarded.take(user, deadline.is_none())) else {
        return too_many_requests();
    };
    let request = Request::from_parts(parts, Either::Left(body));
    match server.remote_apis.send(address, remote, request).await {
        Ok(sent) => answer(server, sent, upgrade, (slots, deadline)),
        Err(error @ RemoteError::Authorities(_)) => {
            failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
        }
        Err(error) => unreachable(&error.to_string()),
    }
}

/// The headers of the passed-on request: the client's, without those of its connection and its credentials.
fn set_headers(
    server: &Server,
    headers: &mut HeaderMap,
    (target, host): (&Uri, &str),
    forwarding: &Forwarding<'_>,
) -> Result<(), RemoteError> {
    forward::request_headers(headers);
    forward::remove_headers(headers, |name| {
        let spelled = forward::dashed(name);
        ["authorization", "proxy-authorization", "expect"].contains(&&*spelled)
            || spelled.starts_with("impersonate-")
            || forward::is_forwarded_in_disguise(name)
            || server.authenticator.is_proxy_header(name)
    });
    remote::set_user(headers, forwarding.user)?;
    headers.insert(audit::HEADER, forwarding.audit_id.clone());
    forward::append_client(headers, Some(forwarding.client));
    for (name, text) in [(FORWARDED_HOST, host), (FORWARDED_PROTO, "https"), (FORWARDED_URI, target.path())] {
        let value =
            HeaderValue::try_from(text).map_err(|error| RemoteError::Unreachable(error.to_string()))?;
        headers.insert(name, value);
    }
    Ok(())
}

fn answer(
    server: &Server,
    sent: RemoteResponse,
    upgrade: Option<Upgrade>,
    (slots, deadline): ((Slot, Slot), Option<Instant>),
) -> Response<Body> {
    let RemoteResponse { response, connection } = sent;
    let status = response.status();
    match upgrade {
        Some(upgrade) if forward::has_switched(&response) => {
            return forward::join(upgrade, response, (connection, slots));
        }
        Some(_) if status.as_u16() < 400 => {
            let what = format!("invalid upgrade response: status code {}", status.as_u16());
            return failed(StatusCode::SERVICE_UNAVAILABLE, &what);
        }
        // A client that did not request an upgrade would parse what follows as a response.
        None if status == StatusCode::SWITCHING_PROTOCOLS => {
            return unreachable("the backend switched protocols unasked")
        }
        _ => {}
    }
    if server.remote_apis.rejects_redirects
        && status.is_redirection()
        && response.headers().contains_key(LOCATION)
    {
        let what = "the backend attempted to redirect this request, which is not permitted";
        return text(StatusCode::BAD_GATEWAY, "text/plain; charset=utf-8", what.as_bytes().to_vec());
    }
    let (mut parts, body) = response.into_parts();
    forward::response_headers(&mut parts.headers);
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = parts.headers;
    let body = ForwardedBody::new(body, connection, slots).until(deadline);
    response.map(|()| body.into_body())
}

/// 429: too many requests are waiting for the other server already.
fn too_many_requests() -> Response<Body> {
    let mut response = failed(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// 503 with the message of a failed connection.
fn unreachable(why: &str) -> Response<Body> {
    failed(StatusCode::SERVICE_UNAVAILABLE, &format!("{UNREACHABLE}: {why}"))
}

/// An error in plain text, as Go's `http.Error` writes it.
fn failed(code: StatusCode, what: &str) -> Response<Body> {
    let mut response = text(code, "text/plain; charset=utf-8", format!("{what}\n").into_bytes());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(hyper::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_what_was_authorized() {
        // the request's path and query, what is passed on
        let rows = [
            ("/apis/a.b/v1/namespaces/n/x/y", None, "/apis/a.b/v1/namespaces/n/x/y"),
            ("/apis/a.b/v1/namespaces/n%2Fx%2fy", None, "/apis/a.b/v1/namespaces/n/x/y"),
            ("/apis/a.b/v1/x/a%20b%3Fc(d)", None, "/apis/a.b/v1/x/a%20b%3Fc%28d%29"),
            ("/apis/a.b/v1/x/a:b@c", Some("b=1&a=2&b=0"), "/apis/a.b/v1/x/a:b@c?a=2&b=1&b=0"),
            ("/apis/a.b/v1/x", Some("watch=1;a&b=%zz&c=a%20b"), "/apis/a.b/v1/x?c=a+b"),
            ("/apis/a.b/v1/x", Some(""), "/apis/a.b/v1/x"),
        ];
        for (path, query, expected) in rows {
            let target = target(&unescape_path(path).unwrap(), query).unwrap();
            assert_eq!(target.to_string(), expected, "{path}");
        }
        for path in ["/apis/g/v1/namespaces/n/things/..", "/apis/g/v1/./things"] {
            assert!(target(path, None).is_none(), "{path}");
        }
    }

    #[test]
    fn a_document_by_its_hash_is_that_document_or_a_redirect() {
        let answer = |query: Option<&str>, tag: &'static str| {
            let mut response = Response::new(Body::empty());
            response.headers_mut().insert(ETAG, HeaderValue::from_static(tag));
            check_hash("/openapi/v3/apis/a.b/v1", query, response)
        };
        let same = answer(Some("hash=AB"), "\"AB\"");
        assert_eq!(
            (same.status(), &same.headers()[CACHE_CONTROL]),
            (StatusCode::OK, &HeaderValue::from_static(KEEP))
        );
        let other = answer(Some("hash=OLD"), "W/\"AB\"");
        assert_eq!(other.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(other.headers()[LOCATION], "/openapi/v3/apis/a.b/v1?hash=AB");
        assert!(!answer(None, "\"AB\"").headers().contains_key(CACHE_CONTROL));
    }
}
