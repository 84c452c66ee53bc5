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
