//! Forwards a request to another server and its response back; splices the two connections after an upgrade.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION,
    UPGRADE,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::location::{is_proxyable, not_allowed, Destination, Scheme};
use crate::context::Context;
use crate::egress::connection::{dial, handshake, secure, ConnectError};
use plinth_api::api_error::{ApiError, Reason};
use plinth_http::body::{Body, BodyError};
use plinth_http::request_body::RequestBody;
use plinth_http::upgrade::Upgrade;

/// Longest time to establish a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Chunks of a response buffered for the client.
const PIECES: usize = 4;
/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Headers that allow pages of other origins to read a response.
const CROSS_ORIGIN: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

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
            Scheme::Kubelet => ApiError::internal(message),
            _ => ApiError::new(503, Reason::ServiceUnavailable, message),
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = cx.method.clone();
    *request.uri_mut() = destination.target.parse().map_err(ApiError::internal)?;
    *request.headers_mut() = headers(&cx.headers, &destination)?;
    let mut sender = match tokio::time::timeout(DIAL_TIMEOUT, connect(cx, &destination)).await {
        Ok(Err(ConnectError::NotAllowed)) => return Err(not_allowed()),
        Ok(outcome) => outcome.map_err(|error| unreachable(error.to_string()))?,
        Err(_) => {
            return Err(unreachable(format!(
                "dial tcp {}:{}: i/o timeout",
                destination.host, destination.port
            )))
        }
    };
    let response = sender.send_request(request).await.map_err(|error| unreachable(error.to_string()))?;
    match (response.status(), upgrade) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(upgrade)) => Ok(join(upgrade, response)),
        // A client that did not request an upgrade would parse what follows as a response.
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            Err(unreachable("the backend switched protocols unasked".into()))
        }
        _ => Ok(forward_response(response)),
    }
}

async fn connect(cx: &Context, destination: &Destination) -> Result<SendRequest<RequestBody>, ConnectError> {
    let is_allowed = |address| !destination.guarded || is_proxyable(address);
    let stream = dial(&destination.host, destination.port, is_allowed).await?;
    let tls = match destination.scheme {
        Scheme::Http => return handshake(Box::new(stream)).await,
        Scheme::Https => &cx.server.kubelets.insecure,
        Scheme::Kubelet => &cx.server.kubelets.tls,
    };
    handshake(secure(stream, tls, &destination.host).await?).await
}

/// The client's headers without hop-by-hop headers and without identity headers (credentials, impersonation,
/// front proxy): the backend may trust such headers from this server.
fn headers(given: &HeaderMap, destination: &Destination) -> Result<HeaderMap, ApiError> {
    let mut headers = given.clone();
    let upgrade = headers.get(UPGRADE).cloned();
    remove_hop_by_hop(&mut headers);
    for name in [AUTHORIZATION, PROXY_AUTHORIZATION, HeaderName::from_static("x-forwarded-for")] {
        headers.remove(name);
    }
    let identity =
        |name: &HeaderName| ["impersonate-", "x-remote-"].iter().any(|p| name.as_str().starts_with(p));
    let names: Vec<HeaderName> = headers.keys().filter(|name| identity(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    let host = format!("{}:{}", destination.host, destination.port);
    headers.insert(HOST, HeaderValue::try_from(host).map_err(ApiError::internal)?);
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
    Ok(headers)
}

/// Removes hop-by-hop headers: the well-known ones, and those that `Connection` lists.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let values: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    for name in values.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')) {
        // Removing the length would change the body.
        if let Ok(name) =
            name.trim().parse::<HeaderName>().map(|name| (name != CONTENT_LENGTH).then_some(name))
        {
            name.map(|name| headers.remove(name));
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(HeaderName::from_static(name));
    }
}

/// The response, chunk by chunk; if it is cut off, so is ours.
fn forward_response(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, mut body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    // The backend does not decide about cross-origin access to this server.
    for name in CROSS_ORIGIN {
        parts.headers.remove(HeaderName::from_static(name));
    }
    let (pieces, rest) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        while let Some(frame) = body.frame().await {
            let piece = match frame {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => Ok(data),
                    Err(_) => continue,
                },
                Err(error) => Err(BodyError(error.to_string())),
            };
            let broken = piece.is_err();
            // The client has disconnected.
            if pieces.send(piece).await.is_err() || broken {
                return;
            }
        }
    });
    Response::from_parts(parts, Body::Channel { first: None, rest: rest.into() })
}

/// Splices the two connections when both have switched protocols.
fn join(upgrade: Upgrade, mut response: Response<Incoming>) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        // Held to the end, so that shutdown waits for it.
        let Upgrade { connection, hold: _hold } = upgrade;
        let (ours, theirs) = match tokio::try_join!(connection, theirs) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "protocol upgrade failed");
                return;
            }
        };
        let (from_us, to_us) = tokio::io::split(TokioIo::new(ours));
        let (from_them, to_them) = tokio::io::split(TokioIo::new(theirs));
        // Each direction is copied to its own end: data from one side is delivered even if it receives
        // nothing more.
        tokio::join!(copy_direction(from_us, to_them), copy_direction(from_them, to_us));
    });
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::empty())
}

/// Copies until the end of the source, then shuts the target down.
async fn copy_direction(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    if let Err(error) = tokio::io::copy(&mut from, &mut to).await {
        tracing::debug!(%error, "upgraded connection closed in one direction");
    }
    // An error means that the target is already closed.
    let _ = to.shutdown().await;
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
            ("x-forwarded-for", "10.0.0.1"),
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
        let sent = headers(&given, &destination).unwrap();
        let get = |name: &str| sent.get(name).and_then(|v| v.to_str().ok());
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "content-length", "host", "upgrade", "x-own"]);
        assert_eq!((get("connection"), get("upgrade")), (Some("Upgrade"), Some("SPDY/3.1")));
        assert_eq!((get("host"), get("x-own")), (Some("h:80"), Some("kept")));
    }
}
