//! Floods of HTTP/2 frames.

use futures::future::join_all;
use plinth_benches::api::client::{Protocol, JSON};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Target, PATIENCE};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
const PRIORITY: u8 = 2;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(super) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(super) const END_STREAM_AND_HEADERS: u8 = 5;
/// Of HPACK's static table.
pub(crate) const PATH: u8 = 4;
/// HPACK of `GET / https`, all from the static table, and an authority.
const REQUEST: &[u8] = b"\x82\x84\x87\x41\x01x";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut out = length.to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

#[tokio::test]
async fn floods_of_http2_frames_end_their_own_connection_at_most() {
    let target = Target::start().await;
    let start = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let streams = (1u32..).step_by(2);
    let rapid_reset: Vec<u8> = streams
        .clone()
        .take(50_000)
        .flat_map(|id| {
            [
                frame(HEADERS, END_STREAM_AND_HEADERS, id, REQUEST),
                frame(RST_STREAM, 0, id, &8u32.to_be_bytes()),
            ]
        })
        .flatten()
        .collect();
    let settings: Vec<u8> = (0..200_000).flat_map(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])).collect();
    let pings: Vec<u8> = (0..200_000).flat_map(|_| frame(PING, 0, 0, &[7; 8])).collect();
    // A head without an end.
    let continuation: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, REQUEST))
        .chain((0..2_000).map(|_| frame(CONTINUATION, 0, 1, &[0x40, 1, b'a', 1, b'b'].repeat(200))))
        .flatten()
        .collect();
    // Streams without an end: more than there may be.
    let open: Vec<u8> = streams.clone().take(50_000).flat_map(|id| frame(HEADERS, 4, id, REQUEST)).collect();
    // Streams that the server has to reset, because the client breaks a rule on each ("made you reset").
    let made_to_reset: Vec<u8> = streams
        .clone()
        .take(50_000)
        .flat_map(|id| [frame(HEADERS, 4, id, REQUEST), frame(WINDOW_UPDATE, 0, id, &[0; 4])])
        .flatten()
        .collect();
    // A body that never gets anywhere, a head that does neither.
    let empty_data: Vec<u8> = std::iter::once(frame(HEADERS, 4, 1, REQUEST))
        .chain((0..200_000).map(|_| frame(DATA, 0, 1, &[])))
        .flatten()
        .collect();
    let empty_continuations: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, REQUEST))
        .chain((0..200_000).map(|_| frame(CONTINUATION, 0, 1, &[])))
        .flatten()
        .collect();
    // One header of 4,000 bytes, put into the table and named 16,000 times over in each of many frames.
    let bomb = [&b"\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4000]].concat();
    let hpack_bomb: Vec<u8> = std::iter::once(frame(HEADERS, 1, 1, &[REQUEST, &bomb].concat()))
        .chain((0..64).map(|_| frame(CONTINUATION, 0, 1, &[0xbe; 16_000])))
        .flatten()
        .collect();
    let priorities: Vec<u8> =
        (0..200_000).flat_map(|n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 9])).collect();
    let windows: Vec<u8> = (0..200_000).flat_map(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).collect();
    let unknown: Vec<u8> = (0..100_000).flat_map(|_| frame(0xfa, 0xff, 7, &[1; 64])).collect();
    let rows = [
        ("made to reset", made_to_reset),
        ("empty data", empty_data),
        ("empty continuations", empty_continuations),
        ("a bomb of headers", hpack_bomb),
        ("priorities", priorities),
        ("windows", windows),
        ("frames of no kind", unknown),
        ("rapid reset", rapid_reset),
        ("settings flood", settings),
        ("ping flood", pings),
        ("continuation flood", continuation),
        ("open streams", open),
        ("garbage", vec![0xff; 100_000]),
    ];
    for (name, frames) in rows {
        let bytes = [start.as_slice(), &frames].concat();
        let attackers = (0..4).map(|_| async {
            let mut stream = target.anonymous_stream(Protocol::Http2).await;
            // Never reading, so that answers pile up, until it is shut out or done.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&bytes)).await;
            stream
        });
        let held = futures::future::join(join_all(attackers), target.serves(name)).await.0;
        target.serves(name).await;
        drop(held);
    }
    target.serves("after the floods").await;
}

/// A header with a name of HPACK's static table.
pub(crate) fn header(name: u8, value: &str) -> Vec<u8> {
    const PREFIX: usize = 127;
    let mut out = vec![0x40 | name];
    match value.len().checked_sub(PREFIX) {
        None => out.push(u8::try_from(value.len()).expect("a short value")),
        Some(mut rest) => {
            out.push(PREFIX as u8);
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    [out.as_slice(), value.as_bytes()].concat()
}

#[tokio::test]
async fn a_body_that_is_stated_to_be_too_long_is_not_waited_for() {
    const CONTENT_LENGTH: u8 = 28;
    const CONTENT_TYPE: u8 = 31;
    let target = Target::start().await;
    let mut admin = target.server.endpoint().stream(Protocol::Http2).await.expect("TLS stream");
    // `POST https`, an authority, and the rest; nothing of the body follows.
    let head = [
        b"\x83\x87\x41\x01x".to_vec(),
        header(PATH, "/api/v1/namespaces/default/configmaps"),
        header(CONTENT_TYPE, JSON),
        header(CONTENT_LENGTH, &((3 << 20) + 1).to_string()),
    ];
    let frames = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, 4, 1, &head.concat())].concat();
    admin.write_all(&frames).await.expect("sent");
    let mut answer = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&answer).contains("\"code\":413") {
            assert_ne!(admin.read_buf(&mut answer).await.expect("an answer"), 0, "closed");
        }
    };
    assert!(tokio::time::timeout(PATIENCE, read).await.is_ok(), "no answer: {answer:?}");
    target.serves("a long body").await;
}
