//! `/plinth/replicas`, `/plinth/replicas/ID` and `/plinth/checkpoint`: what operators and joining replicas
//! ask a replica.

use std::sync::Arc;

use hyper::{Response, StatusCode};
use plinth_codec::error::quoted;

use super::{stream, text};
use crate::context::{ReplicaInfo, Server, WriteCheckpoint};
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

/// Has each replica record its hash at one position, as the list shows within seconds.
///
/// # Errors
/// 404 of a single store; 503 when the journal does not answer.
pub(super) async fn compare(server: &Server) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let position = replica.compare().await?;
    Ok(text(StatusCode::OK, "application/json", format!("{{\"position\":{position}}}").into_bytes()))
}

/// Forgets a replica that is gone.
///
/// # Errors
/// 404 of a single store and of an id that no replica has, 409 of a replica that is up; 503 when the journal
/// does not answer.
pub(super) async fn remove(server: &Server, id: &str) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let Ok(id) = id.parse() else {
        let message = format!("no replica has the id {}; \"plinth replicas\" lists them", quoted(id));
        return Err(ApiError::new(404, Reason::NotFound, message));
    };
    replica.remove(id).await?;
    Ok(text(StatusCode::OK, "application/json", br#"{"removed":true}"#.to_vec()))
}

/// Everything that another replica needs to begin: the store, and the cluster's keys. The authorizer reserves
/// the path for `system:masters`.
///
/// # Errors
/// 404 of a single store; 429 while too many are being sent; 503 when the journal does not answer.
pub(super) async fn checkpoint(server: &Server) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    let thread = stream::reserve(server)?;
    let write = make_checkpoint(&replica).await?;
    stream::respond(server, thread, move |out| write(out))
}

/// Makes a checkpoint, and has the journal kept for whoever gets it.
///
/// # Errors
/// 503 when the journal does not answer, 500 when it cannot be made.
pub(super) async fn make_checkpoint(replica: &Arc<dyn ReplicaInfo>) -> Result<WriteCheckpoint, ApiError> {
    replica.keep_for_checkpoint().await?;
    let replica = replica.clone();
    let made = tokio::task::spawn_blocking(move || replica.make_checkpoint()).await;
    made.map_err(ApiError::internal)?.map_err(|error| {
        tracing::warn!(%error, "a checkpoint could not be made");
        ApiError::internal(format!("the checkpoint cannot be made: {error}"))
    })
}

pub(super) fn no_replica() -> ApiError {
    ApiError::new(404, Reason::NotFound, "this server is no replica: it was started without --journal")
}
