//! A definition that is deleted: its objects go first, then the finalizer that held it.

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
use plinth_storage::departing::Departing;

/// First and longest pause between looks at objects that finalizers hold.
const CLEANUP_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Removes the objects of a definition, then its finalizer.
pub(super) async fn remove_objects(
    server: &Arc<Server>,
    name: &str,
    rows: Option<CustomRows>,
) -> Result<(), ApiError> {
    let (group, _, plural) = RESOURCE;
    let Some(departing) = Departing::find(&server.store, group, plural, name).await? else { return Ok(()) };
    match remove(server, &departing, rows).await {
        // It has gone: somebody took its finalizer off.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

async fn remove(
    server: &Arc<Server>,
    departing: &Departing,
    rows: Option<CustomRows>,
) -> Result<(), ApiError> {
    let Some(rows) = rows else {
        return finish(server, departing, "NeverEstablished", "resource was never established").await;
    };
    let message = "CustomResource deletion is in progress";
    terminating(server, departing, "True", "InstanceDeletionInProgress", message).await?;
    let mut pause = CLEANUP_PAUSE.0;
    loop {
        let registry = server.registry();
        let cx = Context::of_resource(server, &registry, &rows.stored, ("", ""), Verb::DeleteCollection);
        match delete::delete_all(&cx, departing).await {
            Ok(0) => break,
            Ok(held) => {
                tracing::debug!(held, definition = departing.name(), "waits for the finalizers of objects");
            }
            Err(error) => {
                let message = format!("could not issue all deletes: {error}");
                terminating(server, departing, "True", "InstanceDeletionFailed", &message).await?;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(CLEANUP_PAUSE.1);
    }
    finish(server, departing, "InstanceDeletionCompleted", "removed all instances").await
}

async fn terminating(
    server: &Arc<Server>,
    departing: &Departing,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    update_status(server, departing.name(), &|definition| {
        departing.check_live(definition)?;
        conditions::set(definition, "Terminating", status, reason, message);
        Ok(())
    })
    .await
}

/// Says how it ended and takes the finalizer off, with which the definition goes. Both through the status, as upstream: policies about
/// definitions concern those who change what is wanted, and a definition that breaks one must go all the same.
async fn finish(
    server: &Arc<Server>,
    departing: &Departing,
    reason: &str,
    message: &str,
) -> Result<(), ApiError> {
    let gone = |definition: &mut Value| {
        departing.check_live(definition)?;
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
    update_status(server, departing.name(), &gone).await
}
