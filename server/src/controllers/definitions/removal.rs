//! Deletion of a definition: first its objects, then its finalizer.

use std::sync::Arc;

use plinth_codec::Value;

use super::status::update_status;
use plinth_api::{finalizers, find_condition, metadata_mut, set_condition, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete;
use plinth_kinds::custom_resource_definition::FINALIZER;
use plinth_registry::{CustomRows, DEFINITION_RESOURCE};
use plinth_storage::TerminatingObject;

/// Deletes the objects of a definition, then removes its finalizer.
///
/// # Errors
/// 409 while objects have finalizers; when they cannot be deleted.
pub(super) async fn remove_objects(
    server: &Arc<Server>,
    name: &str,
    rows: Option<CustomRows>,
) -> Result<(), ApiError> {
    let (group, _, plural) = DEFINITION_RESOURCE;
    let Some(object) = TerminatingObject::find(&server.store, group, plural, name).await? else {
        return Ok(());
    };
    match remove(server, &object, rows).await {
        // It was deleted: another client removed its finalizer.
        Err(error) if error.is_not_found() => Ok(()),
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
    begin(server, object).await?;
    let registry = server.registry();
    let cx = Context::of_resource(server, &registry, &rows.stored, ("", ""), Verb::DeleteCollection);
    match delete::delete_all(&cx, object, delete::Admits::No).await {
        Ok(remaining) if remaining.objects == 0 => {
            finish(server, object, "InstanceDeletionCompleted", "removed all instances").await
        }
        Ok(remaining) => {
            let why = format!("{} of its objects have finalizers", remaining.objects);
            Err(ApiError::conflict(DEFINITION_RESOURCE.0, DEFINITION_RESOURCE.2, object.name(), &why))
        }
        Err(error) => {
            report(server, object, &error).await?;
            Err(error)
        }
    }
}

/// Sets the condition Terminating while the objects are being deleted, unless an earlier pass has set why
/// they could not be.
async fn begin(server: &Arc<Server>, object: &TerminatingObject) -> Result<(), ApiError> {
    update_status(server, object.name(), &|definition| {
        object.check_live(definition)?;
        let reason = find_condition(definition, "Terminating").and_then(|found| found.str_at(&["reason"]));
        if reason != Some("InstanceDeletionFailed") {
            let message = "CustomResource deletion is in progress";
            set_condition(definition, "Terminating", "True", "InstanceDeletionInProgress", message);
        }
        Ok(())
    })
    .await
}

/// Reports why objects could not be deleted.
async fn report(server: &Arc<Server>, object: &TerminatingObject, error: &ApiError) -> Result<(), ApiError> {
    let message = format!("could not issue all deletes: {error}");
    update_status(server, object.name(), &|definition| {
        object.check_live(definition)?;
        set_condition(definition, "Terminating", "True", "InstanceDeletionFailed", &message);
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
        set_condition(definition, "Terminating", "False", reason, message);
        let left: Vec<Value> = finalizers(definition)
            .into_iter()
            .filter(|finalizer| *finalizer != FINALIZER)
            .map(Value::from)
            .collect();
        let metadata = metadata_mut(definition)?;
        match left.is_empty() {
            true => metadata.remove("finalizers"),
            false => metadata.insert("finalizers", left),
        };
        Ok(())
    };
    update_status(server, object.name(), &gone).await
}
