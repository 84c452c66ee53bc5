//! A log over WebSocket: after an empty message the bytes as they come, binary or as base64.
//!
//! Upstream: k8s.io/streaming `pkg/httpstream/wsstream` (`Reader`).

use std::pin::Pin;
use std::task::{ready, Context, Poll};

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use tokio_tungstenite::tungstenite::Message;

use crate::egress::forward::ForwardedBody;
use crate::websocket::{self, Refusal, Sending};
use plinth_api::User;
use plinth_http::{Body, ChunkStream, Upgrade};

/// The subprotocol of binary messages, which are sent without one, too.
const BINARY: &str = "binary.k8s.io";
/// The subprotocol of messages in base64.
const BASE64: &str = "base64.binary.k8s.io";
/// Most bytes of a log in a message, as upstream.
const MAX_MESSAGE: usize = 2048;

/// Answers the handshake, and starts the task that sends the log to the user if it is valid.
pub(super) fn answer(
    headers: &HeaderMap,
    upgrade: Upgrade,
    user: &User,
    mut log: ForwardedBody,
) -> Response<Body> {
    let response = match websocket::accept(headers, choose) {
        Ok(response) => response,
        Err(refusal) => return *refusal,
    };
    let chosen = response.headers().get(hyper::header::SEC_WEBSOCKET_PROTOCOL);
    let is_text = chosen.is_some_and(|protocol| protocol == BASE64);
    let mut sending = Sending::new(upgrade.unread().stream(user).as_ref());
    upgrade.spawn(move |connection| {
        let mut is_first = true;
        websocket::send(connection, move |cx| {
            let polled = match std::mem::take(&mut is_first) {
                true => Poll::Ready(Some(Bytes::new())),
                false => poll_log(&mut log, cx),
            };
            sending.set(match &polled {
                Poll::Ready(Some(bytes)) => bytes.len(),
                Poll::Ready(None) | Poll::Pending => 0,
            });
            polled.map(|bytes| bytes.map(|bytes| messages(bytes, is_text)))
        })
    });
    response
}

/// The first subprotocol that is known; clients need not offer any, and no `Origin`.
fn choose(_: &HeaderMap, offered: &[&str]) -> Result<String, Refusal> {
    let known = offered.iter().find(|protocol| ["", BINARY, BASE64].contains(protocol));
    match known {
        Some(protocol) => Ok((*protocol).to_owned()),
        None if offered.is_empty() => Ok(String::new()),
        None => Err(websocket::refusal(StatusCode::FORBIDDEN, "")),
    }
}

/// The next bytes of a log; `None` at its end, also where it is cut off.
fn poll_log(log: &mut ForwardedBody, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
    loop {
        match ready!(Pin::new(&mut *log).poll_chunk(cx)) {
            Some(Ok(bytes)) if bytes.is_empty() => {}
            Some(Ok(bytes)) => return Poll::Ready(Some(bytes)),
            Some(Err(error)) => {
                tracing::debug!(%error, "log over WebSocket broke off");
                return Poll::Ready(None);
            }
            None => return Poll::Ready(None),
        }
    }
}

/// Bytes in messages; none at all in an empty one.
fn messages(bytes: Bytes, is_text: bool) -> impl Iterator<Item = Message> {
    let count = bytes.len().div_ceil(MAX_MESSAGE).max(1);
    (0..count).map(move |index| {
        let start = index * MAX_MESSAGE;
        let part = bytes.slice(start..bytes.len().min(start + MAX_MESSAGE));
        match is_text {
            true => Message::text(STANDARD.encode(part)),
            false => Message::Binary(part),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_subprotocol_is_chosen() {
        // what is offered, what is chosen
        let rows: [(&[&str], Option<&str>); 6] = [
            (&[], Some("")),
            (&["binary.k8s.io"], Some("binary.k8s.io")),
            (&["v4.channel.k8s.io", "base64.binary.k8s.io", "binary.k8s.io"], Some("base64.binary.k8s.io")),
            (&["v4.channel.k8s.io"], None),
            (&["v4.channel.k8s.io", ""], Some("")),
            (&["BINARY.k8s.io"], None),
        ];
        for (offered, expected) in rows {
            let chosen = choose(&HeaderMap::new(), offered).map_err(|refusal| refusal.status());
            let expected = expected.map(str::to_owned).ok_or(StatusCode::FORBIDDEN);
            assert_eq!(chosen, expected, "{offered:?}");
        }
    }

    #[test]
    fn messages_are_no_longer_than_upstreams() {
        let lengths = |length: usize, is_text: bool| -> Vec<usize> {
            messages(Bytes::from(vec![b'x'; length]), is_text).map(|message| message.len()).collect()
        };
        assert_eq!(lengths(0, false), [0]);
        assert_eq!(lengths(2048, false), [2048]);
        assert_eq!(lengths(5000, false), [2048, 2048, 904]);
        assert_eq!(lengths(2049, true), [2732, 4]);
    }
}
