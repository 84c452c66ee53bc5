//! The harness of the end-to-end tests: the real `plinth` binary on a free port with its data in a
//! temporary directory, and the clients that talk to it.
//!
//! | module | subject |
//! |---|---|
//! | [`server`] | a server of a test's own, and one that tests share |
//! | [`samples`] | one small valid object of every built-in kind that is stored |
//! | [`requests`] | requests and their answers |
//! | [`kubectl`] | a real kubectl, where one is installed |
//! | [`definitions`] | definitions of custom resources, and requests for these |
//! | [`fixtures`] | manifests that projects publish |
//! | [`proxy`] | a proxy whose connections can be cut |
//! | [`https`] | webhooks and kubelets of a test's own |
//! | [`remote_api`] | an API server of a test's own behind an APIService |
//! | [`access_reviews`] | SubjectAccessReviews that a server sends, recorded and replayed |
//! | [`module_graph`] | which module of a crate imports which |
//! | [`object_store`] | an S3-compatible store |
//! | [`own_network`] | a network with an address that is not loopback |
//! | [`small_disk`] | a server on a disk that a test fills |
//! | [`refusal`] | assertions about error answers |
//! | [`websocket`] | a client over WebSocket |
//!
//! Tests are independent and run in parallel: on the shared server each works in a namespace of
//! its own and gives cluster-scoped objects a name of its own; whoever stops servers starts its own.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut server = plinth_tests::server::TestServer::start(&[]).await;
//! let version = server.client().await.apiserver_version().await?;
//! assert_eq!(version.minor, "36");
//! server.kill();
//! server.restart().await;
//! # Ok(()) }
//! ```

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

pub mod access_reviews;
pub mod definitions;
pub mod fixtures;
pub mod https;
pub mod kubectl;
pub mod module_graph;
pub mod object_store;
pub mod outcome;
pub mod own_network;
pub mod proxy;
pub mod refusal;
pub mod remote_api;
pub mod requests;
pub mod samples;
pub mod server;
pub mod small_disk;
pub mod websocket;

/// The interval at which [`eventually`] polls, and the number of polls after which it fails.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const POLLS: usize = 6000;
/// The number of polls of [`stays`], and the pause after each.
const STAYING_POLLS: usize = 30;
const STAYING_PAUSE: Duration = Duration::from_millis(100);

/// The directory of this package's sources: the one that cargo names at run time, since a target directory
/// that outlives a checkout keeps the path of the one it was compiled in.
pub fn package_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// Waits until `holds` does.
///
/// # Panics
/// When it does not after two minutes of polling.
pub async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..POLLS {
        if holds().await {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("still waiting: {what}");
}

/// Asserts for three seconds that `holds` does: background work retries after a tenth of a second at first,
/// and then after twice as long each time.
///
/// # Panics
/// When it does not.
pub async fn stays<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..STAYING_POLLS {
        assert!(holds().await, "no longer so: {what}");
        tokio::time::sleep(STAYING_PAUSE).await;
    }
}
