//! The controllers that a server alone needs to keep the API's promises.
//!
//! Each is a task fed by an engine subscription over the keys that concern it. It asks for nothing in
//! between: no polling but for the retries of what could not be done yet. All end when the server stops.

mod namespace;

use std::sync::Arc;

use crate::server::Server;

/// Starts every controller.
pub fn start(server: &Arc<Server>) {
    tokio::spawn(namespace::run(server.clone()));
}
