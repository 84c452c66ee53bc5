//! Forwards a request to a kubelet, a pod or a service.

use std::time::Duration;

use hyper::body::Body as HttpBody;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, HOST};
use hyper::{Request, Response, StatusCode};
use plinth_codec::url::join_host_port;

use super::html_body::change_links;
use super::location::{is_proxyable, not_allowed, Destination, Scheme};
use super::proxied::Proxied;
use crate::context::Context;
use crate::egress::connection::{dial, handshake, secure, ConnectError, Connection};
use crate::egress::forward::{self, ForwardedBody};
use crate::egress::Slot;
use plinth_api::{ApiError, Reason};
use plinth_http::{Body, RequestBody, Upgrade};

/// Longest time to establish a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Forwards the request and returns the response.
///
/// # Errors
/// When the server is unreachable, with upstream's message: 500 for a kubelet, 503 otherwise.
pub(super) async fn forward(
    cx: &Context,
    upgrade: Option<Upgrade>,
    body: RequestBody,
    destination: Destination,
) -> Result<Response<Body>, ApiError> {
    let unreachable = |why: String| {
        let message = format!("{}: {why}", destination.failure);
        match destination.scheme {
            // Upstream's own is no API status.
            Scheme::Kubelet | Scheme::UnverifiedKubelet => ApiError::new(500, Reason::Unknown, message),
            _ => ApiError::new(503, Reason::ServiceUnavailable, message),
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = cx.method.clone();
    *request.uri_mut() = destination.target.parse().map_err(ApiError::internal)?;
    let is_proxy_header = |name: &HeaderName| cx.server.authenticator.is_proxy_header(name);
    *request.headers_mut() = headers(&cx.headers, &destination, is_proxy_header)?;
    forward::append_client(request.headers_mut(), cx.client);
    let is_upgrade = upgrade.is_some();
    let proxied = destination.guarded.then(|| Proxied::of(cx, &destination));
    if let Some(proxied) = &proxied {
        proxied.set_headers(request.headers_mut(), is_upgrade);
    }
    let Connected { mut connection, slot } = match connect(cx, &destination).await {
        Ok(connected) => connected,
        Err(ConnectFailure::Refused(error)) => return Err(error),
        Err(ConnectFailure::Unreachable(why)) => return Err(unreachable(why)),
    };
    let response = connection.send(request).await.map_err(|error| unreachable(error.to_string()))?;
    match (response.status(), upgrade) {
        (_, Some(upgrade)) if forward::has_switched(&response) => {
            Ok(forward::join(upgrade, response, (connection, slot)))
        }
        // An error is passed on. Upstream's own is no API status.
        (status, Some(_)) if status.as_u16() < 400 => {
            let what = format!("invalid upgrade response: status code {}", status.as_u16());
            Err(ApiError::new(500, Reason::Unknown, what))
        }
        // A client that did not request an upgrade would parse what follows as a response.
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            Err(unreachable("the backend switched protocols unasked".into()))
        }
        _ => {
            let (mut parts, body) = response.into_parts();
            forward::response_headers(&mut parts.headers);
            // The connection lives as long as its body.
            let body = ForwardedBody::new(body, connection, slot);
            let body = match proxied.filter(|_| !is_upgrade) {
                Some(proxied) if !proxied.redirect(&mut parts.headers)? => {
                    change_links(&mut parts.headers, proxied, body)
                }
                _ => body.into_body(),
            };
            Ok(Response::from_parts(parts, body))
        }
    }
}

/// 429: this user, or all together, have as many connections to other servers as leave descriptors to the
/// store.
fn too_many_connections() -> ApiError {
    let what = "too many connections to other servers, please try again later";
    ApiError::new(429, Reason::TooManyRequests, what).retry_after(1)
}

/// A connection for one request.
pub(super) struct Connected<B> {
    pub connection: Connection<B>,
    /// Held as long as the connection is.
    pub slot: Slot,
}

/// Why there is no connection.
pub(super) enum ConnectFailure {
    /// It is not made.
    Refused(ApiError),
    /// It cannot be made; Go's message.
    Unreachable(String),
}

/// Connects to the destination.
///
/// # Errors
/// When there are too many connections, when the address is not allowed, when the server is unreachable.
pub(super) async fn connect<B>(
    cx: &Context,
    destination: &Destination,
) -> Result<Connected<B>, ConnectFailure>
where
    B: HttpBody + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let slot = cx.server.forwarded.take(&cx.user, true);
    let slot = slot.ok_or_else(|| ConnectFailure::Refused(too_many_connections()))?;
    match tokio::time::timeout(DIAL_TIMEOUT, dial_backend(cx, destination)).await {
        Ok(Ok(connection)) => Ok(Connected { connection, slot }),
        Ok(Err(ConnectError::NotAllowed)) => Err(ConnectFailure::Refused(not_allowed())),
        Ok(Err(error)) => Err(ConnectFailure::Unreachable(error.to_string())),
        Err(_) => {
            let address = join_host_port(&destination.host, destination.port);
            Err(ConnectFailure::Unreachable(format!("dial tcp {address}: i/o timeout")))
        }
    }
}

async fn dial_backend<B>(cx: &Context, destination: &Destination) -> Result<Connection<B>, ConnectError>
where
    B: HttpBody + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let is_allowed = |address| !destination.guarded || is_proxyable(address);
    let stream = dial(&destination.host, destination.port, is_allowed).await?;
    let of_kubelets = cx.server.kubelets.tls();
    let tls = match destination.scheme {
        Scheme::Http => return handshake(Box::new(stream)).await,
        Scheme::Https => &cx.server.kubelets.insecure,
        Scheme::Kubelet => &of_kubelets.verified,
        Scheme::UnverifiedKubelet => &of_kubelets.unverified,
    };
    handshake(secure(stream, tls, &destination.host).await?).await
}

/// The client's headers without hop-by-hop headers and without identity headers (credentials, impersonation,
/// front proxy): the backend may trust such headers from this server.
fn headers(
    given: &HeaderMap,
    destination: &Destination,
    is_proxy_header: impl Fn(&HeaderName) -> bool,
) -> Result<HeaderMap, ApiError> {
    let mut headers = given.clone();
    forward::request_headers(&mut headers);
    forward::remove_headers(&mut headers, |name| {
        let spelled = forward::dashed(name);
        ["impersonate-", "x-remote-"].iter().any(|prefix| spelled.starts_with(prefix))
            || ["authorization", "proxy-authorization"].contains(&&*spelled)
            || forward::is_forwarded_in_disguise(name)
            || is_proxy_header(name)
    });
    let host = join_host_port(&destination.host, destination.port);
    headers.insert(HOST, HeaderValue::try_from(host).map_err(ApiError::internal)?);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_proxied_to_this_machine() {
        let rows = [
            ("10.0.0.1", true),
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0.0.0.0", false),
            ("::ffff:10.0.0.1", true),
        ];
        for (address, allowed) in rows {
            assert_eq!(is_proxyable(address.parse().unwrap()), allowed, "{address}");
        }
    }

    #[test]
    fn credentials_and_the_connection_stay_behind() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("proxy-authorization", "Basic x"),
            ("impersonate-user", "root"),
            ("impersonate-extra-a", "b"),
            ("x-remote-user", "root"),
            ("x-remote-extra-a", "b"),
            ("x_remote_user", "root"),
            ("impersonate_user", "root"),
            ("impersonate-extra_a", "b"),
            ("proxy_authorization", "Basic x"),
            ("x-own-user", "root"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x_forwarded_for", "10.0.0.1"),
            ("connection", "Upgrade, X-Hop, Content-Length"),
            ("content-length", "0"),
            ("x-hop", "of this connection"),
            ("upgrade", "SPDY/3.1"),
            ("te", "trailers"),
            ("x-own", "kept"),
        ] {
            given.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let destination = Destination {
            guarded: true,
            scheme: Scheme::Http,
            host: "h".into(),
            port: 80,
            target: "/".into(),
            failure: "",
        };
        let sent = headers(&given, &destination, |name| name == "x-own-user").unwrap();
        let get = |name: &str| sent.get(name).and_then(|v| v.to_str().ok());
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = ["connection", "content-length", "host", "upgrade", "x-forwarded-for", "x-own"];
        assert_eq!(names, expected);
        assert_eq!((get("connection"), get("upgrade")), (Some("Upgrade"), Some("SPDY/3.1")));
        assert_eq!((get("host"), get("x-own")), (Some("h:80"), Some("kept")));
    }
}
