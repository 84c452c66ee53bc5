//! Deletion of a definition: first its objects, then its finalizer.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;

use super::update_status;
use plinth_api::api_error::ApiError;
use plinth_api::conditions;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete;
use plinth_kinds::custom_resource_definition::FINALIZER;
use plinth_registry::custom::definition::RESOURCE;
use plinth_registry::CustomRows;
use plinth_storage::terminating::TerminatingObject;

/// First and longest delay between passes over objects with finalizers.
const CLEANUP_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Deletes the objects of a definition, then removes its finalizer.
pub(super) async fn remove_objects(
    server: &Arc<Server>,
    name: &str,
    rows: Option<CustomRows>,
) -> Result<(), ApiError> {
    let (group, _, plural) = RESOURCE;
    let Some(object) = TerminatingObject::find(&server.store, group, plural, name).await? else {
        return Ok(());
    };
    match remove(server, &object, rows).await {
        // It was deleted: another client removed its finalizer.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

async fn remove(
    server: &Arc<Server>,
    object: &TerminatingObject,
    rows: Option<CustomRows>,
) -> Result<(), ApiError> {
    let Some(rows) = rows else {
        return finish(server, object, "NeverEstablished", "resource was never established").await;
    };
    let message = "CustomResource deletion is in progress";
    terminating(server, object, "True", "InstanceDeletionInProgress", message).await?;
    let mut pause = CLEANUP_PAUSE.0;
    loop {
        let registry = server.registry();
        let cx = Context::of_resource(server, &registry, &rows.stored, ("", ""), Verb::DeleteCollection);
        match delete::delete_all(&cx, object).await {
            Ok(0) => break,
            Ok(held) => {
                tracing::debug!(
                    held,
                    definition = object.name(),
                    "waiting for finalizers of custom resources"
                );
            }
            Err(error) => {
                let message = format!("could not issue all deletes: {error}");
                terminating(server, object, "True", "InstanceDeletionFailed", &message).await?;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(CLEANUP_PAUSE.1);
    }
    finish(server, object, "InstanceDeletionCompleted", "removed all instances").await
}

async fn terminating(
    server: &Arc<Server>,
    object: &TerminatingObject,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    update_status(server, object.name(), &|definition| {
        object.check_live(definition)?;
        conditions::set(definition, "Terminating", status, reason, message);
        Ok(())
    })
    .await
}

/// Sets the final condition and removes the finalizer, which deletes the definition. Both through the status
/// subresource, as upstream: policies for definitions apply to changes of the spec, and must not prevent the
/// deletion.
async fn finish(
    server: &Arc<Server>,
    object: &TerminatingObject,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    let gone = |definition: &mut Value| {
        object.check_live(definition)?;
        conditions::set(definition, "Terminating", "False", reason, message);
        let left: Vec<Value> = metadata::finalizers(definition)
            .into_iter()
            .filter(|finalizer| *finalizer != FINALIZER)
            .map(Value::from)
            .collect();
        let metadata = metadata::of(definition)?;
        match left.is_empty() {
            true => metadata.remove("finalizers"),
            false => metadata.insert("finalizers", left),
        };
        Ok(())
    };
    update_status(server, object.name(), &gone).await
}
