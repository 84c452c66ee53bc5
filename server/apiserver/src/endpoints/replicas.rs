//! `/plinth/replicas` and `/plinth/checkpoint`: what operators and joining replicas ask a replica.

use hyper::{Response, StatusCode};

use super::{stream, text};
use crate::context::Server;
use plinth_api::api_error::{ApiError, Reason};
use plinth_api::user::User;
use plinth_http::body::Body;

/// The group whose members may do everything (kubernetes `pkg/registry/rbac`, `user.SystemPrivilegedGroup`).
const PRIVILEGED: &str = "system:masters";

/// The replicas of the cluster, JSON.
///
/// # Errors
/// 404 of a single store; 503 when the journal does not answer.
pub(super) async fn list(server: &Server) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let members = replica.members().await?;
    Ok(text(StatusCode::OK, "application/json", members))
}

/// Everything that another replica needs to begin: the store, and the cluster's keys. Only for those who can
/// do everything already, however the authorizer is configured.
///
/// # Errors
/// 403, and 404 of a single store.
pub(super) fn checkpoint(server: &Server, user: &User) -> Result<Response<Body>, ApiError> {
    if !user.groups.iter().any(|group| group == PRIVILEGED) {
        let message = format!(
            "forbidden: User {:?} cannot get path \"/plinth/checkpoint\": it holds the cluster's keys, and is for \
             members of {PRIVILEGED} alone",
            user.name
        );
        return Err(ApiError::new(403, Reason::Forbidden, message));
    }
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    Ok(stream::respond(server, move |out| replica.write_checkpoint(out)))
}

fn no_replica() -> ApiError {
    ApiError::new(404, Reason::NotFound, "this server is no replica: it was started without --journal")
}
