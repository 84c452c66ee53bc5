//! `/plinth/replicas`, `/plinth/replicas/ID` and `/plinth/checkpoint`: what operators and joining replicas
//! ask a replica.

use hyper::{Response, StatusCode};
use plinth_codec::error::quoted;

use super::{stream, text};
use crate::context::Server;
use plinth_api::{ApiError, Reason};
use plinth_http::Body;

/// The replicas of the cluster, JSON.
///
/// # Errors
/// 404 of a single store; 503 when the journal does not answer.
pub(super) async fn list(server: &Server) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let members = replica.members().await?;
    Ok(text(StatusCode::OK, "application/json", members))
}

/// Forgets a replica that is gone.
///
/// # Errors
/// 404 of a single store and of an id that no replica has, 409 of a replica that is up; 503 when the journal
/// does not answer.
pub(super) async fn remove(server: &Server, id: &str) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let Ok(id) = id.parse() else {
        let message = format!("{} is no id of a replica", quoted(id));
        return Err(ApiError::new(404, Reason::NotFound, message));
    };
    replica.remove(id).await?;
    Ok(text(StatusCode::OK, "application/json", br#"{"removed":true}"#.to_vec()))
}

/// Everything that another replica needs to begin: the store, and the cluster's keys. The authorizer reserves
/// the path for `system:masters`.
///
/// # Errors
/// 404 of a single store; 503 when the journal does not answer.
pub(super) async fn checkpoint(server: &Server) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    replica.keep_for_checkpoint().await?;
    Ok(stream::respond(server, move |out| replica.write_checkpoint(out)))
}

pub(super) fn no_replica() -> ApiError {
    ApiError::new(404, Reason::NotFound, "this server is no replica: it was started without --journal")
}
