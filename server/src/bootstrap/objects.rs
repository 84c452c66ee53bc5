//! The objects that every cluster has.

use std::sync::Arc;

use plinth_codec::tree;

use crate::handlers::write::ensure;
use crate::server::Server;
use crate::status::ApiError;

/// The namespaces that upstream creates.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates the system namespaces that are missing.
///
/// # Errors
/// When one cannot be written.
pub async fn ensure_system_namespaces(server: &Arc<Server>) -> Result<(), ApiError> {
    for name in NAMESPACES {
        let namespace = tree!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": tree!({ "name": *name }),
        });
        ensure(server, ("", "v1", "namespaces"), "", namespace).await?;
    }
    Ok(())
}
