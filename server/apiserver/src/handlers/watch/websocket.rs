//! A watch over WebSocket: one message per event, text for JSON and binary otherwise. Errors of the watch
//! have been answered before the upgrade, or are ERROR events.
//!
//! Upstream: k8s.io/apiserver `pkg/endpoints/handlers/watch.go` (`HandleWS`).

use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::Response;
use plinth_codec::negotiate::Encoding;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::stream::WatchStream;
use crate::websocket::{self, Sending};
use plinth_api::User;
use plinth_http::{Body, ChunkStream, Upgrade};

/// Answers the handshake, and starts the task that sends the watch if it is valid.
pub(super) fn answer(
    headers: &HeaderMap,
    upgrade: Upgrade,
    user: &User,
    encoding: Encoding,
    mut watch: WatchStream,
) -> Response<Body> {
    match websocket::accept(headers, websocket::only_protocol) {
        Ok(response) => {
            let counted = upgrade.unread().stream(user);
            if let Some(counted) = &counted {
                Pin::new(&mut watch).count_in(counted);
            }
            let mut sending = Sending::new(counted.as_ref());
            upgrade.spawn(move |connection| {
                websocket::send(connection, move |cx| {
                    let batch = watch.poll_events(cx);
                    sending.set(match &batch {
                        Poll::Ready(Some(batch)) => batch.len(),
                        Poll::Ready(None) | Poll::Pending => 0,
                    });
                    batch.map(|b| b.map(|b| b.into_events().map(move |event| message(encoding, event))))
                })
            });
            response
        }
        Err(refusal) => *refusal,
    }
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

    #[test]
    fn protobuf_loses_its_frame() {
        let event = Bytes::from_static(b"\0\0\0\x05event");
        assert_eq!(message(Encoding::Protobuf, event), Message::Binary(Bytes::from_static(b"event")));
        assert_eq!(message(Encoding::Json, Bytes::from_static(b"{}\n")), Message::text("{}\n"));
    }
}
