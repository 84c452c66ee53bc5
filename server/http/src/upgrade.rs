//! Connections that are taken over from HTTP: what a handler needs to go on with one.

use std::sync::Arc;

use hyper::header::{HeaderMap, CONNECTION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::server::graceful::Watcher;

/// Holds the server's end up until it is dropped. Goes into the extensions of a request that asks for an upgrade, because an
/// upgraded connection is none any more to the listener that waits for all of them.
#[derive(Clone)]
pub struct HoldsEnd(pub Arc<Watcher>);

/// The right to take a connection over once its request is answered with 101.
pub struct Upgrade {
    /// Becomes the connection.
    pub connection: OnUpgrade,
    /// Kept for as long as the connection is used.
    pub hold: Box<dyn Send + Sync>,
}

impl Upgrade {
    /// Takes it out of a request's extensions; none when the protocol has no upgrades or none was asked for.
    pub fn take(extensions: &mut hyper::http::Extensions) -> Option<Upgrade> {
        let connection = extensions.remove::<OnUpgrade>()?;
        let hold = extensions.remove::<HoldsEnd>()?;
        Some(Upgrade { connection, hold: Box::new(hold.0) })
    }
}

/// Whether a request asks for WebSocket, by the rule of upstream (k8s.io/streaming `pkg/httpstream`).
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    headers.get(UPGRADE).is_some_and(|value| text(value) == "websocket")
        && headers.get_all(CONNECTION).iter().any(|value| text(value).contains("upgrade"))
}
