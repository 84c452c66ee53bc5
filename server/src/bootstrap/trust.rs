//! The ConfigMap with which extension API servers, kube-controller-manager and kube-scheduler learn the
//! trusted authorities of client certificates and of the front proxy, and the proxy's headers (kubernetes
//! `pkg/controlplane/controller/clusterauthenticationtrust`).
//!
//! Upstream merges with the existing ConfigMap, since several servers may write it. Here one server does, so
//! the ConfigMap is replaced, and a removed authority is removed from it.

use std::sync::Arc;

use plinth_codec::{tree, Value};

use super::reconcile_object::reconcile_object;
use plinth_api::api_error::ApiError;
use plinth_apiserver::authn::ClusterAuthenticationInfo;
use plinth_apiserver::context::Server;

const NAME: &str = "extension-apiserver-authentication";
const NAMESPACE: &str = "kube-system";

/// Creates or repairs the ConfigMap.
///
/// # Errors
/// When a file cannot be read or the ConfigMap cannot be written.
pub async fn ensure_trust(server: &Arc<Server>, trust: &ClusterAuthenticationInfo) -> Result<(), ApiError> {
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": tree!({ "name": NAME, "namespace": NAMESPACE }),
        "data": Value::from(trust.data().map_err(ApiError::internal)?),
    });
    reconcile_object(server, ("", "v1", "configmaps"), NAMESPACE, object, &["data"]).await
}
