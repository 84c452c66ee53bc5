//! Connections that are opened and left.

use plinth_benches::api::client::Protocol;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{resident, Target};

#[tokio::test]
async fn half_open_connections_keep_nobody_out() {
    let target = Target::start().await;
    let address = format!("127.0.0.1:{}", target.server.port());
    let mut held = Vec::new();
    for n in 0..900 {
        let mut stream = TcpStream::connect(&address).await.expect("connection");
        // Nothing at all, the first byte of TLS, or half of a ClientHello.
        let start: &[u8] = match n % 3 {
            0 => b"",
            1 => b"\x16",
            _ => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        };
        // Those that had to make room are closed already.
        let _ = stream.write_all(start).await;
        held.push(stream);
        if n % 300 == 299 {
            target.serves("half-open connections").await;
        }
    }
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = target.anonymous_stream(Protocol::Http1).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.expect("half a head");
        slow.push(stream);
    }
    target.serves("half-sent headers").await;
    drop((held, slow));
    target.serves("after half-open connections").await;
}

/// Half a megabyte of headers on each of 400 connections, and then nothing more: few of them are read
/// further.
#[tokio::test]
async fn half_sent_headers_take_little_memory() {
    const MOST: u64 = 120 << 20;
    let field = [&b"X-Long: "[..], &[b'a'; 4000], b"\r\n"].concat();
    let http1 = [b"GET /livez HTTP/1.1\r\nHost: x\r\n".to_vec(), field.repeat(128)].concat();
    let frame = |kind: u8, stream: u8, payload: &[u8]| {
        let [_, high, middle, low] = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
        [&[high, middle, low, kind, 0, 0, 0, 0, stream], payload].concat()
    };
    // A field of 50,000 bytes, neither indexed nor compressed.
    let literal = [&[0, 1, b'x', 0x7f, 0xd1, 0x85, 3][..], &[b'a'; 50_000]].concat();
    let start = [&[0x82, 0x84, 0x87, 0x41, 9][..], b"localhost"].concat();
    let http2 = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, &[]),
        frame(1, 1, &start),
        frame(9, 1, &literal).repeat(10),
    ]
    .concat();
    for (protocol, head) in [(Protocol::Http1, http1), (Protocol::Http2, http2)] {
        let target = Target::start().await;
        target.serves("nothing").await;
        let before = resident(target.pid);
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..400 {
            let (mut stream, head) = (target.anonymous_stream(protocol).await, head.clone());
            held.spawn(async move {
                // What the server does not read stays here.
                let _ = stream.write_all(&head).await;
                let _ = stream.flush().await;
                std::future::pending::<()>().await;
            });
        }
        for _ in 0..30 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let more = resident(target.pid).saturating_sub(before);
            assert!(more < MOST, "{protocol:?}: {} MiB more", more >> 20);
        }
        target.serves("half-sent headers").await;
    }
}

/// Connections of a client and streams of each are limited; a further one waits or is refused until one ends.
#[tokio::test]
async fn connections_and_streams_of_a_client_are_limited() {
    use plinth_benches::api::client::Call;
    use plinth_tests::server::TestServer;
    let flags = ["--max-connections-per-client=5", "--http2-max-streams-per-connection=3"];
    let server = TestServer::start(&flags).await;
    let endpoint = server.endpoint();
    let serves = async |call: &Call| match endpoint.connect(Protocol::Http2).await {
        Ok(mut connection) => connection.call(call).await.is_ok_and(|reply| reply.status.is_success()),
        Err(_) => false,
    };
    let call = Call::get("/api/v1/namespaces");
    let mut connection = endpoint.connect(Protocol::Http2).await.expect("connection");
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut stream = connection.share().expect("a stream");
        watches.push(stream.open(&Call::get("/api/v1/nodes?watch=1")).await.expect("a watch"));
    }
    // The fourth waits for one of the three to end.
    let mut fourth = connection.share().expect("a stream");
    let waits = tokio::time::timeout(std::time::Duration::from_millis(300), fourth.call(&call)).await;
    assert!(waits.is_err(), "there was a place");
    drop(watches);
    assert!(connection.call(&call).await.is_ok_and(|reply| reply.status.is_success()));
    // Of connections, one is there already.
    let mut held = Vec::new();
    let address = format!("127.0.0.1:{}", server.port());
    for _ in 0..4 {
        held.push(TcpStream::connect(&address).await.expect("connection"));
    }
    let mut refused = false;
    for _ in 0..100 {
        refused = refused || !serves(&call).await;
    }
    assert!(refused, "no connection was refused");
    drop(held);
    for _ in 0..500 {
        if serves(&call).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the places are not given back");
}
