//! A client's request on its way to another server, and the response on its way back: headers of one
//! connection, streamed bodies, connections joined after an upgrade.

use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;
use std::pin::{pin, Pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, CONNECTION, CONTENT_LENGTH, UPGRADE};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Sleep;

use plinth_http::{Body, BodyError, ChunkStream, Upgrade};

/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// How long one direction of joined connections goes on after the end of the other one.
const OTHER_DIRECTION: Duration = Duration::from_secs(5);
/// How long a connection stands after the end of a response whose request has not ended (net/http: 50 ms in
/// `transport.go`, then 500 ms at the client's end), and how often that is looked at meanwhile.
const AFTER_END: Duration = Duration::from_millis(500);
const END_CHECKS: u32 = 10;
/// Headers that allow pages of other origins to read a response.
const CROSS_ORIGIN: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Whether `Connection` lists `Upgrade` (k8s.io/streaming `pkg/httpstream`,
/// `IsUpgradeRequest`).
fn names_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// What a request needs for an upgrade, if it asks for one; otherwise nothing is left of it that the other
/// side could take for that.
pub(crate) fn requested_upgrade(upgrade: Option<Upgrade>, headers: &mut HeaderMap) -> Option<Upgrade> {
    let upgrade = upgrade.filter(|_| names_upgrade(headers));
    if upgrade.is_none() {
        headers.remove(UPGRADE);
    }
    upgrade
}

/// Whether a response switches protocols.
pub(crate) fn has_switched<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        && response.headers().contains_key(UPGRADE)
        && names_upgrade(response.headers())
}

/// The name of a header as a server reads it that takes `_` for `-`.
pub(crate) fn dashed(name: &HeaderName) -> Cow<'_, str> {
    match name.as_str().contains('_') {
        true => Cow::Owned(name.as_str().replace('_', "-")),
        false => Cow::Borrowed(name.as_str()),
    }
}

/// Whether a header has what a proxy has seen, to a server that takes `_` for `-`.
pub(crate) fn is_forwarded_in_disguise(name: &HeaderName) -> bool {
    name.as_str().contains('_') && dashed(name).starts_with("x-forwarded-")
}

/// Adds the address of the client to those of the clients before it.
pub(crate) fn append_client(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let before = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let Some(client) = client.map(|client| client.to_string()) else { return };
    let addresses = before.chain([client.as_str()]).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::try_from(addresses) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Removes the headers that concern the client's connection alone; those that ask for an upgrade are
/// set again.
pub(crate) fn request_headers(headers: &mut HeaderMap) {
    let upgrade = headers.get(UPGRADE).cloned();
    remove_hop_by_hop(headers);
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

/// Removes the headers of a response that concern the other connection alone, and those that would decide
/// about cross-origin access to this server.
pub(crate) fn response_headers(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    for name in CROSS_ORIGIN {
        headers.remove(HeaderName::from_static(name));
    }
}

/// Removes headers by their names.
pub(crate) fn remove_headers(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
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

/// A connection to another server, on which a request was sent.
pub(crate) trait RequestConnection: Send {
    /// Whether the request is sent to its end.
    fn has_sent(&self) -> bool;

    /// The response was received to its end.
    fn received(self: Box<Self>);
}

/// The body of another server's response, read as the client reads ours; if it is cut off, so is ours.
pub struct ForwardedBody {
    body: Incoming,
    /// Whether it has reported its end.
    has_ended: bool,
    /// When it is cut off.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Until it is known that all was received and sent.
    connection: Option<Box<dyn RequestConnection>>,
    /// Dropped with it.
    hold: Option<Box<dyn Send>>,
}

impl ForwardedBody {
    /// The body of a response on a connection; `hold` lives as long as both do.
    pub(crate) fn new(
        body: Incoming,
        connection: impl RequestConnection + 'static,
        hold: impl Send + 'static,
    ) -> ForwardedBody {
        ForwardedBody {
            body,
            has_ended: false,
            deadline: None,
            connection: Some(Box::new(connection)),
            hold: Some(Box::new(hold)),
        }
    }

    /// Cuts it off at a time.
    pub(crate) fn until(mut self, deadline: Option<std::time::Instant>) -> ForwardedBody {
        self.deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        self
    }

    /// As the body of a response.
    pub(crate) fn into_body(self) -> Body {
        Body::Stream(Box::pin(self))
    }

    fn was_received(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    /// Gives the connection back where all was received and sent. Who reads a body may know the end by its
    /// length, and not ask again.
    fn note_end(&mut self) {
        if self.was_received() {
            if let Some(connection) = self.connection.take_if(|connection| connection.has_sent()) {
                connection.received();
            }
        }
    }
}

impl Drop for ForwardedBody {
    fn drop(&mut self) {
        // Nobody reads the body of an answer to HEAD.
        self.note_end();
        let Some(connection) = self.connection.take().filter(|_| self.was_received()) else { return };
        let hold = self.hold.take();
        // The client may still be sending, and has not read all: where nothing took what it sends, its
        // connection would be reset.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for _ in 0..END_CHECKS {
                    if connection.has_sent() {
                        break;
                    }
                    tokio::time::sleep(AFTER_END / END_CHECKS).await;
                }
                connection.received();
                drop(hold);
            });
        }
    }
}

impl ChunkStream for ForwardedBody {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let body = self.get_mut();
        loop {
            match Pin::new(&mut body.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        body.note_end();
                        return Poll::Ready(Some(Ok(data)));
                    }
                    // Trailers.
                    Err(_) => continue,
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(BodyError(error.to_string())))),
                Poll::Ready(None) => {
                    body.has_ended = true;
                    body.note_end();
                    return Poll::Ready(None);
                }
                Poll::Pending => {}
            }
            let is_over =
                body.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
            return match is_over {
                true => Poll::Ready(Some(Err(BodyError("the other server took too long".to_owned())))),
                false => Poll::Pending,
            };
        }
    }
}

/// Joins the two connections when both have switched protocols; `hold` lives as long as they do.
pub fn join(upgrade: Upgrade, mut response: Response<Incoming>, hold: impl Send + 'static) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut response);
    upgrade.spawn(|connection| async move {
        let _slot = hold;
        let (ours, theirs) = match tokio::try_join!(connection, theirs) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "protocol upgrade failed");
                return;
            }
        };
        let (from_us, to_us) = tokio::io::split(TokioIo::new(ours));
        let (from_them, to_them) = tokio::io::split(TokioIo::new(theirs));
        // What one side has sent is delivered after its end, for a while: the other side may never end.
        let mut there = pin!(copy_direction(from_us, to_them));
        let mut back = pin!(copy_direction(from_them, to_us));
        tokio::select! {
            () = &mut there => drop(tokio::time::timeout(OTHER_DIRECTION, back).await),
            () = &mut back => drop(tokio::time::timeout(OTHER_DIRECTION, there).await),
        }
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
