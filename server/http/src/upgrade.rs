//! Upgraded connections.

use std::future::Future;
use std::sync::Arc;

use hyper::header::{HeaderMap, CONNECTION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::server::graceful::Watcher;

use crate::connections::ConnectionSlot;
use crate::fair_queuing::{ScheduledConnection, ScheduledTask};
use crate::unread_answers::ConnectionUnread;

/// What an upgraded connection keeps of the one that it was. Stored in the extensions of a request that asks
/// for an upgrade, because hyper's connection ends with the upgrade.
#[derive(Clone)]
pub struct UpgradeHold {
    /// The server's shutdown waits for it.
    pub shutdown: Arc<Watcher>,
    /// It counts among the connections.
    pub slot: Arc<ConnectionSlot>,
    /// It is polled within its user's time slices.
    pub scheduled: Arc<ScheduledConnection>,
    /// What its client has not read.
    pub unread: Arc<ConnectionUnread>,
}

/// The right to use a connection for another protocol once its request is answered with 101.
pub struct Upgrade {
    connection: OnUpgrade,
    hold: UpgradeHold,
}

impl Upgrade {
    /// Removes it from a request's extensions; none when the protocol has no upgrades or none was requested.
    pub fn take(extensions: &mut hyper::http::Extensions) -> Option<Upgrade> {
        let connection = extensions.remove::<OnUpgrade>()?;
        let hold = extensions.remove::<UpgradeHold>()?;
        Some(Upgrade { connection, hold })
    }

    /// What its client has not read.
    pub fn unread(&self) -> &Arc<ConnectionUnread> {
        &self.hold.unread
    }

    /// Spawns the task that uses the connection. Until it ends, the connection counts, its time is its
    /// user's, and a shutdown waits. It is dropped when others need the memory of what the client does not
    /// read.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(self, serve: impl FnOnce(OnUpgrade) -> F) {
        let Upgrade { connection, hold } = self;
        let (scheduled, task) = (hold.scheduled.clone(), serve(connection));
        tokio::spawn(ScheduledTask::new(scheduled, async move {
            // All of it, until the end.
            let hold = hold;
            tokio::select! {
                () = task => {}
                () = hold.unread.closed() => {}
            }
        }));
    }
}

/// Whether a request asks for WebSocket, by the rule of upstream (k8s.io/streaming `pkg/httpstream`).
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    headers.get(UPGRADE).is_some_and(|value| text(value) == "websocket")
        && headers.get_all(CONNECTION).iter().any(|value| text(value).contains("upgrade"))
}
