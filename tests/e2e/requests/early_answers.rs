//! Answers over HTTP/2 that are ready before the request's body has arrived. curl loses one that comes in one
//! TLS record with the reset of its stream.

use plinth_benches::api::client::{Identity, Protocol, JSON};
use plinth_tests::server::shared;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::hostile::http2::{frame, header, DATA, HEADERS, PATH, PING, PREFACE, RST_STREAM, SETTINGS};

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// Of HPACK's static table.
const CONTENT_TYPE: u8 = 31;
/// More than is read of a body that nobody wants, and less than the window of a stream.
const LONG: usize = 600_000;

/// The start of a connection, and the headers of an unauthenticated POST, which is refused at once.
fn refused_request() -> Vec<u8> {
    let head =
        [b"\x83\x87\x41\x01x".to_vec(), header(PATH, "/api/v1/namespaces"), header(CONTENT_TYPE, JSON)];
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_HEADERS, 1, &head.concat())].concat()
}

/// Type, flags and payload of the next frame that is not about the connection.
async fn next_frame(stream: &mut (impl AsyncRead + Unpin)) -> (u8, u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.expect("a payload");
        let of_stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) == 1;
        if (of_stream && matches!(head[3], HEADERS | DATA | RST_STREAM)) || (head[3], head[4]) == (PING, ACK)
        {
            return (head[3], head[4], payload);
        }
    }
}

/// Reads an answer to its end.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let (kind, flags, _) = next_frame(stream).await;
    assert_eq!((kind, flags & END_STREAM), (HEADERS, 0));
    let mut body = Vec::new();
    loop {
        let (kind, flags, payload) = next_frame(stream).await;
        assert_eq!(kind, DATA);
        body.extend_from_slice(&payload);
        if flags & END_STREAM != 0 {
            return String::from_utf8(body).expect("text");
        }
    }
}

#[tokio::test]
async fn an_answer_before_a_short_body_is_followed_by_no_reset() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Anonymous);
    let mut stream = endpoint.stream(Protocol::Http2).await.expect("TLS stream");
    stream.write_all(&refused_request()).await.expect("headers");
    let body = answer(&mut stream).await;
    assert!(body.contains("\"code\":40") || body.contains("\"code\": 40"), "{body}");
    // Whatever was sent after the answer comes before the answer to this.
    stream.write_all(&frame(PING, 0, 0, &[1; 8])).await.expect("ping");
    assert_eq!(next_frame(&mut stream).await, (PING, ACK, vec![1; 8]));
    let rest = [frame(DATA, END_STREAM, 1, b"{}"), frame(PING, 0, 0, &[2; 8])].concat();
    stream.write_all(&rest).await.expect("body");
    assert_eq!(next_frame(&mut stream).await, (PING, ACK, vec![2; 8]));
}

#[tokio::test]
async fn a_stream_whose_body_is_long_or_never_ends_is_reset_after_its_answer() {
    let endpoint = shared().await.endpoint().with_identity(Identity::Anonymous);
    for sent in [0, LONG] {
        let mut stream = endpoint.stream(Protocol::Http2).await.expect("TLS stream");
        stream.write_all(&refused_request()).await.expect("headers");
        answer(&mut stream).await;
        let body: Vec<u8> =
            vec![b'x'; sent].chunks(16_000).flat_map(|part| frame(DATA, 0, 1, part)).collect();
        // The windows of the server's settings count from their acknowledgement.
        let parts = [frame(SETTINGS, ACK, 0, &[]), body, frame(PING, 0, 0, &[1; 8])];
        stream.write_all(&parts.concat()).await.expect("body");
        let ping = next_frame(&mut stream).await;
        assert_eq!(ping, (PING, ACK, vec![1; 8]), "{sent} bytes");
        // `NO_ERROR`: the answer is complete (RFC 9113, 8.1).
        assert_eq!(next_frame(&mut stream).await, (RST_STREAM, 0, vec![0; 4]), "{sent} bytes");
    }
}
