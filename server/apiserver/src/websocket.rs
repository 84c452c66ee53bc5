//! Messages to a client over WebSocket: handshakes, and connections on which this server alone has something
//! to say. What the client sends is ignored; when either side closes, the messages end, with a close frame of
//! status 1000 where it is this one.
//!
//! Upstream: golang.org/x/net/websocket (`server.go`, `hybi.go`), k8s.io/streaming `pkg/httpstream/wsstream`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::WebSocketStream;

use plinth_http::{Body, HeldBytes, UnreadStream};

/// The only version of the protocol (RFC 6455).
const VERSION: &str = "13";
/// Longest message of a client, in bytes; all are ignored.
const MAX_MESSAGE: usize = 64 << 10;
/// Sizes of the read and write buffers, in bytes.
const BUFFER: usize = 16 << 10;

/// The refusal of a handshake.
pub(crate) type Refusal = Box<Response<Body>>;

/// Chooses a subprotocol of those that a client offers; empty for none.
pub(crate) type ChooseProtocol = fn(&HeaderMap, &[&str]) -> Result<String, Refusal>;

/// 101, or the refusal.
pub(crate) fn accept(headers: &HeaderMap, choose: ChooseProtocol) -> Result<Response<Body>, Refusal> {
    let key = text(headers, SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    }
    if text(headers, SEC_WEBSOCKET_VERSION) != VERSION {
        let mut refusal = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        refusal.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        return Err(refusal);
    }
    let offered = text(headers, SEC_WEBSOCKET_PROTOCOL);
    let offered: Vec<&str> = match offered {
        "" => Vec::new(),
        list => list.split(',').map(str::trim).collect(),
    };
    let protocol = choose(headers, &offered)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let headers =
        [(SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes())), (SEC_WEBSOCKET_PROTOCOL, protocol)];
    for (name, value) in headers {
        match HeaderValue::try_from(value) {
            Ok(value) if !value.is_empty() => drop(answer.insert(name, value)),
            _ => {}
        }
    }
    Ok(response)
}

/// The handshake of Go's library by default: the client must send an `Origin`, a single subprotocol is
/// echoed and several are refused.
pub(crate) fn only_protocol(headers: &HeaderMap, offered: &[&str]) -> Result<String, Refusal> {
    if !is_request_uri(text(headers, ORIGIN)) {
        return Err(refusal(StatusCode::FORBIDDEN, ""));
    }
    match offered {
        [] => Ok(String::new()),
        [only] => Ok((*only).to_owned()),
        _ => Err(refusal(StatusCode::BAD_REQUEST, "")),
    }
}

/// The refusal of a handshake.
pub(crate) fn refusal(status: StatusCode, why: &'static str) -> Refusal {
    let mut response = Response::new(Body::Full(Bytes::from_static(why.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.into()
}

/// How often bytes are in memory that are being sent: as they are, and in the buffer of the WebSocket.
const COPIES: usize = 2;

/// Counts what is being sent, as answers that are not read: when the next messages are polled for, those
/// before have been sent.
pub(crate) struct Sending(Option<HeldBytes>);

impl Sending {
    /// Nothing is counted on a connection that is being closed.
    pub(crate) fn new(counted: Option<&Arc<UnreadStream>>) -> Sending {
        Sending(counted.map(UnreadStream::holder))
    }

    /// The messages that were polled for have so many bytes; none for the end, or where none are there yet.
    pub(crate) fn set(&mut self, bytes: usize) {
        if let Some(held) = &mut self.0 {
            held.set(bytes.saturating_mul(COPIES));
        }
    }
}

/// Sends messages to their end.
pub(crate) async fn send<M>(
    connection: OnUpgrade,
    mut poll_messages: impl FnMut(&mut Context<'_>) -> Poll<Option<M>>,
) where
    M: IntoIterator<Item = Message>,
{
    let Ok(connection) = connection.await else { return };
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let connection = TokioIo::new(connection);
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    loop {
        tokio::select! {
            messages = poll_fn(&mut poll_messages) => {
                let Some(messages) = messages else { break };
                for message in messages {
                    if socket.feed(message).await.is_err() {
                        return;
                    }
                }
                if socket.flush().await.is_err() {
                    return;
                }
            }
            received = socket.next() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    // The client may have closed first.
    let _ = socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() })).await;
}

/// A header's text; empty without it.
fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// What Go's `url.ParseRequestURI` takes: a URL with a scheme, or a path.
fn is_request_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        let mut letters = scheme.bytes();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter))
    };
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => !rest.starts_with("//") || text.parse::<Uri>().is_ok(),
        _ => text == "*" || (text.starts_with('/') && text.parse::<Uri>().is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn handshake(headers: &[(&'static str, &str)]) -> (u16, String) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let response = accept(&map, only_protocol).unwrap_or_else(|refusal| *refusal);
        let protocol = response.headers().get(SEC_WEBSOCKET_PROTOCOL).map(|p| p.to_str().unwrap().to_owned());
        (response.status().as_u16(), protocol.unwrap_or_default())
    }

    #[test]
    fn handshakes_by_table() {
        let (key, version) = (("sec-websocket-key", KEY), ("sec-websocket-version", "13"));
        let (origin, protocol) = (("origin", "http://x"), "sec-websocket-protocol");
        let rows: [(&[(&'static str, &str)], u16, &str); 13] = [
            (&[key, version, origin], 101, ""),
            (&[key, version, origin, (protocol, "foo")], 101, "foo"),
            (&[key, version, origin, (protocol, "foo, bar")], 400, ""),
            (&[key, version], 403, ""),
            (&[key, version, ("origin", "null")], 403, ""),
            (&[key, version, ("origin", "example.com")], 403, ""),
            (&[key, version, ("origin", "file:x")], 101, ""),
            (&[key, version, ("origin", "/x")], 101, ""),
            (&[key, version, ("origin", "http://[")], 403, ""),
            (&[key, origin], 400, ""),
            (&[key, ("sec-websocket-version", "12"), origin], 400, ""),
            (&[version, origin], 400, ""),
            (&[("sec-websocket-key", "***"), version, origin], 101, ""),
        ];
        for (headers, status, protocol) in rows {
            assert_eq!(handshake(headers), (status, protocol.to_owned()), "{headers:?}");
        }
    }

    #[test]
    fn the_key_is_answered_as_rfc_6455_says() {
        let mut map = HeaderMap::new();
        for (name, value) in
            [("sec-websocket-key", KEY), ("sec-websocket-version", "13"), ("origin", "http://x")]
        {
            map.insert(name, value.parse().unwrap());
        }
        let response = accept(&map, only_protocol).unwrap_or_else(|refusal| *refusal);
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
