//! Connections that are opened and left.

use plinth_benches::api::client::Protocol;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Target;

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
        let mut stream = target.stranger(Protocol::Http1).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.expect("half a head");
        slow.push(stream);
    }
    target.serves("half-sent heads").await;
    drop((held, slow));
    target.serves("after half-open connections").await;
}

/// A client has so many connections and so many streams of each, whatever it asks for; the next one finds no place until one goes.
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
