//! A client over WebSocket.

use std::time::Duration;

use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Request};
use plinth_benches::api::client::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{client_async, WebSocketStream};

use crate::server::Access;

/// The timeout of a message; only reached in failure.
pub const WITHIN: Duration = Duration::from_secs(60);

/// A handshake, as a client of a browser makes it.
///
/// # Panics
/// When the path is none.
pub fn request(server: &Access, path: &str) -> Request<()> {
    let url = format!("wss://{}{path}", server.endpoint().authority());
    let mut request = url.into_client_request().expect("a request");
    request.headers_mut().insert("origin", HeaderValue::from_static("https://example.com"));
    request
}

/// Opens a connection; with it come the headers of the answer.
///
/// # Errors
/// The answer, when that is a refusal.
///
/// # Panics
/// When the server cannot be reached.
pub async fn open(
    server: &Access,
    request: Request<()>,
) -> Result<(WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>, HeaderMap), Error> {
    let stream = server.endpoint().stream(Protocol::Http1).await.expect("a connection");
    client_async(request, stream).await.map(|(socket, response)| (socket, response.headers().clone()))
}

/// The next message.
///
/// # Panics
/// When none comes.
pub async fn next<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    let message = tokio::time::timeout(WITHIN, socket.next()).await.expect("a message in time");
    message.expect("a message").expect("a proper message")
}
