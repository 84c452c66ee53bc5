//! A watch over WebSocket: one message per event, text for JSON and binary otherwise.
//!
//! The handshake is upstream's (golang.org/x/net/websocket `server.go`, `hybi.go`): the client must send an
//! `Origin`, a single subprotocol is echoed and several are refused. Errors of the watch have been answered
//! before the upgrade, or are ERROR events. Messages of the client are ignored; when either side closes, the
//! watch ends, with a close frame of status 1000.

use std::future::poll_fn;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::OnUpgrade;
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use plinth_codec::negotiate::Encoding;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::WebSocketStream;

use super::stream::WatchStream;
use plinth_http::{Body, Upgrade};

/// The only version of the protocol (RFC 6455).
const VERSION: &str = "13";
/// Longest message of a client, in bytes; all are ignored.
const MAX_MESSAGE: usize = 64 << 10;
/// Sizes of the read and write buffers, in bytes.
const BUFFER: usize = 16 << 10;

/// Answers the handshake, and starts the task that sends the watch if it is valid.
pub(super) fn answer(
    headers: &HeaderMap,
    upgrade: Upgrade,
    encoding: Encoding,
    watch: WatchStream,
) -> Response<Body> {
    match accept(headers) {
        Ok(response) => {
            upgrade.spawn(|connection| serve(connection, encoding, watch));
            response
        }
        Err(refusal) => *refusal,
    }
}

/// 101, or the refusal.
fn accept(headers: &HeaderMap) -> Result<Response<Body>, Box<Response<Body>>> {
    let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().trim();
    let key = text(SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response").into());
    }
    if text(SEC_WEBSOCKET_VERSION) != VERSION {
        let mut refusal = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        refusal.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        return Err(refusal.into());
    }
    // A key is 16 bytes; Go's library requires base64 but does not check the length.
    if STANDARD.decode(key).is_err() {
        return Err(refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response").into());
    }
    let origin = text(ORIGIN);
    if origin.is_empty() || origin == "null" || origin.parse::<Uri>().is_err() {
        return Err(refusal(StatusCode::FORBIDDEN, "").into());
    }
    let protocol = text(SEC_WEBSOCKET_PROTOCOL);
    if protocol.contains(',') {
        return Err(refusal(StatusCode::BAD_REQUEST, "").into());
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let headers = [
        (SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes())),
        (SEC_WEBSOCKET_PROTOCOL, protocol.into()),
    ];
    for (name, value) in headers {
        match HeaderValue::try_from(value) {
            Ok(value) if !value.is_empty() => drop(answer.insert(name, value)),
            _ => {}
        }
    }
    Ok(response)
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Full(Bytes::from_static(why.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Sends a watch to its end.
async fn serve(connection: OnUpgrade, encoding: Encoding, mut watch: WatchStream) {
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
            batch = poll_fn(|cx| watch.poll_events(cx)) => {
                let Some(batch) = batch else { break };
                for event in batch.into_events() {
                    if socket.feed(message(encoding, event)).await.is_err() {
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

/// An event as a message. Protobuf events are sent without their length prefix of four bytes.
fn message(encoding: Encoding, event: Bytes) -> Message {
    match encoding {
        Encoding::Json | Encoding::Yaml => match Utf8Bytes::try_from(event.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(event),
        },
        Encoding::Protobuf => Message::Binary(event.slice(event.len().min(4)..)),
        Encoding::Cbor => Message::Binary(event),
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
        let response = accept(&map).unwrap_or_else(|refusal| *refusal);
        let protocol = response.headers().get(SEC_WEBSOCKET_PROTOCOL).map(|p| p.to_str().unwrap().to_owned());
        (response.status().as_u16(), protocol.unwrap_or_default())
    }

    #[test]
    fn handshakes_by_table() {
        let (key, version) = (("sec-websocket-key", KEY), ("sec-websocket-version", "13"));
        let (origin, protocol) = (("origin", "http://x"), "sec-websocket-protocol");
        let rows: [(&[(&'static str, &str)], u16, &str); 10] = [
            (&[key, version, origin], 101, ""),
            (&[key, version, origin, (protocol, "foo")], 101, "foo"),
            (&[key, version, origin, (protocol, "foo, bar")], 400, ""),
            (&[key, version], 403, ""),
            (&[key, version, ("origin", "null")], 403, ""),
            (&[key, version, ("origin", "http://[")], 403, ""),
            (&[key, origin], 400, ""),
            (&[key, ("sec-websocket-version", "12"), origin], 400, ""),
            (&[version, origin], 400, ""),
            (&[("sec-websocket-key", "***"), version, origin], 400, ""),
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
        let response = accept(&map).unwrap_or_else(|refusal| *refusal);
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn protobuf_loses_its_frame() {
        let event = Bytes::from_static(b"\0\0\0\x05event");
        assert_eq!(message(Encoding::Protobuf, event), Message::Binary(Bytes::from_static(b"event")));
        assert_eq!(message(Encoding::Json, Bytes::from_static(b"{}\n")), Message::text("{}\n"));
    }
}
