//! What the controllers do with a request, and what signs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{tree, Value};

use super::super::accounts;
use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;

pub(super) const RESOURCE: (&str, &str, &str) = ("certificates.k8s.io", "v1", "certificatesigningrequests");

/// The signing authority, and the maximum validity of its certificates.
#[derive(Clone, Debug)]
pub struct SigningOptions {
    /// Path of its certificate, PEM.
    pub certificate: PathBuf,
    /// Path of its key, PEM.
    pub key: PathBuf,
    /// Maximum validity of a certificate.
    pub lifetime: Duration,
}

/// Changes the status of a request that has not changed since it was read.
pub(super) async fn update(
    server: &Arc<Server>,
    request: &Value,
    subresource: &str,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), ApiError> {
    let cx = Context::internal(server, RESOURCE, "", metadata_text(request, "name"), Verb::Update)?
        .at_subresource(subresource)
        .acting_as(accounts::CERTIFICATES.user());
    let transform = |_: Option<&Value>| {
        let mut new = request.clone();
        change(&mut new);
        Ok(new)
    };
    match internal::update(&cx, &transform).await {
        // Deleted concurrently.
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}

/// Adds a condition with the status True.
pub(super) fn add_condition(request: &mut Value, kind: &str, reason: &str, message: &str) {
    let condition = tree!({ "type": kind, "status": "True", "reason": reason, "message": message });
    let Some(status) = request.object_at_mut(&["status"]) else { return };
    let list = status.entry("conditions");
    match list.as_array_mut() {
        Some(list) => list.push(condition),
        None => *list = vec![condition].into(),
    }
}
