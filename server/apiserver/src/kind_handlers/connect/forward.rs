//! Carries a request to another server and its answer back; joins the two connections when both ends agree to an upgrade.

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
use crate::outward::connection::{dial, handshake, secure, ConnectError};
use plinth_api::api_error::{ApiError, Reason};
use plinth_http::body::{Body, BodyError};
use plinth_http::request_body::RequestBody;
use plinth_http::upgrade::Upgrade;

/// How long a connection may take to come about.
const DIAL: Duration = Duration::from_secs(10);
/// Pieces of an answer that may wait for the client.
const PIECES: usize = 4;
/// Headers that are between two neighbours (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Headers by which an answer allows pages of other origins to read it.
const CROSS_ORIGIN: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Passes the request on and its answer back.
///
/// # Errors
/// When nobody is there, in upstream's words: 500 for a kubelet, 503 for everything else.
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
    let mut sender = match tokio::time::timeout(DIAL, connect(cx, &destination)).await {
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
        // Who did not ask for it would take what follows for an answer.
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            Err(unreachable("the backend switched protocols unasked".into()))
        }
        _ => Ok(pass_on(response)),
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

/// The client's headers without those of its own connection and without what says who asks: its credentials, whom it acts as,
/// and whom it would be if it were a front proxy. Who stands behind may believe such headers of this server.
fn headers(given: &HeaderMap, destination: &Destination) -> Result<HeaderMap, ApiError> {
    let mut headers = given.clone();
    let upgrade = headers.get(UPGRADE).cloned();
    strip(&mut headers);
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

/// Takes out what is between two neighbours: by its nature, or because `Connection` names it.
fn strip(headers: &mut HeaderMap) {
    let values: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    for name in values.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')) {
        // Without its length a body would be another one.
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

/// The answer, piece by piece; when it breaks off, so does ours.
fn pass_on(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, mut body) = response.into_parts();
    strip(&mut parts.headers);
    // What a browser may do with answers of this server is not theirs to say.
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
            // A client that has gone takes no more.
            if pieces.send(piece).await.is_err() || broken {
                return;
            }
        }
    });
    Response::from_parts(parts, Body::Channel { first: None, rest: rest.into() })
}

/// Joins the two connections as soon as both have switched.
fn join(upgrade: Upgrade, mut response: Response<Incoming>) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        // Held to the end, so that a server that stops waits for it.
        let Upgrade { connection, hold: _hold } = upgrade;
        let (ours, theirs) = match tokio::try_join!(connection, theirs) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade did not come about");
                return;
            }
        };
        let (from_us, to_us) = tokio::io::split(TokioIo::new(ours));
        let (from_them, to_them) = tokio::io::split(TokioIo::new(theirs));
        // Each direction goes on to its own end: what the other end sent last arrives though it takes nothing more.
        tokio::join!(pour(from_us, to_them), pour(from_them, to_us));
    });
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::empty())
}

/// Copies until one end is at its end, and tells the other.
async fn pour(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    if let Err(error) = tokio::io::copy(&mut from, &mut to).await {
        tracing::debug!(%error, "one direction of an upgraded connection ended");
    }
    // Whoever is gone need not be told.
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
