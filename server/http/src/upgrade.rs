//! Upgraded connections.

use std::sync::Arc;

use hyper::header::{HeaderMap, CONNECTION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::server::graceful::Watcher;

/// Delays the server's shutdown until it is dropped. Stored in the extensions of an upgrade request, because
/// the listener, which waits for all connections, does not know of an upgraded one.
#[derive(Clone)]
pub struct ShutdownHold(pub Arc<Watcher>);

/// The right to use a connection for another protocol once its request is answered with 101.
pub struct Upgrade {
    /// Resolves to the connection.
    pub connection: OnUpgrade,
    /// Held for as long as the connection is used.
    pub hold: Box<dyn Send + Sync>,
}

impl Upgrade {
    /// Removes it from a request's extensions; none when the protocol has no upgrades or none was requested.
    pub fn take(extensions: &mut hyper::http::Extensions) -> Option<Upgrade> {
        let connection = extensions.remove::<OnUpgrade>()?;
        let hold = extensions.remove::<ShutdownHold>()?;
        Some(Upgrade { connection, hold: Box::new(hold.0) })
    }
}

/// Whether a request asks for WebSocket, by the rule of upstream (k8s.io/streaming `pkg/httpstream`).
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    headers.get(UPGRADE).is_some_and(|value| text(value) == "websocket")
        && headers.get_all(CONNECTION).iter().any(|value| text(value).contains("upgrade"))
}
