//! The ConfigMap by which servers of further APIs, kube-controller-manager and kube-scheduler learn whom this server trusts: the
//! authorities of client certificates and of the front proxy, and the proxy's headers
//! (kubernetes `pkg/controlplane/controller/clusterauthenticationtrust`).
//!
//! Upstream adds to what it finds there, since several servers may hold it together. Here one server does, so what is there is
//! what it trusts, and an authority that has been taken out is gone.

use std::sync::Arc;

use plinth_codec::{tree, Value};

use super::objects::hold;
use plinth_api::api_error::ApiError;
use plinth_apiserver::authn::ClusterAuthenticationInfo;
use plinth_apiserver::context::Server;

const NAME: &str = "extension-apiserver-authentication";
const NAMESPACE: &str = "kube-system";

/// Makes the ConfigMap, or puts it right.
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
    hold(server, ("", "v1", "configmaps"), NAMESPACE, object, &["data"]).await
}
