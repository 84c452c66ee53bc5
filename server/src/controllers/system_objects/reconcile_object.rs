//! The repair of a single object that every cluster has.

use std::sync::Arc;

use plinth_codec::{Map, Value};

use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal::{ensure, update};

/// Creates a missing object and repairs the given parts of an existing one.
pub(super) async fn reconcile_object(
    server: &Arc<Server>,
    resource: (&str, &str, &str),
    namespace: &str,
    object: Value,
    parts: &[&str],
) -> Result<(), ApiError> {
    let expected = object.clone();
    let repair = |live: &Value, new: &mut Map| {
        if parts.iter().any(|part| live.get(part) != expected.get(part)) {
            for part in parts {
                new.insert(*part, expected.get(part).cloned().unwrap_or_default());
            }
        }
    };
    reconcile(server, resource, namespace, object, &repair).await
}

/// Creates a missing object. `repair` is given an existing one, and a copy of it that it changes to what the
/// object should be; where it changes nothing, nothing is written.
pub(super) async fn reconcile(
    server: &Arc<Server>,
    resource: (&str, &str, &str),
    namespace: &str,
    object: Value,
    repair: &(dyn Fn(&Value, &mut Map) + Send + Sync),
) -> Result<(), ApiError> {
    let name = metadata_text(&object, "name").to_owned();
    ensure(server, resource, namespace, object).await?;
    let cx = Context::internal(server, resource, namespace, &name, Verb::Update)?;
    let repaired = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        if let (Some(live), Some(new)) = (live, new.as_object_mut()) {
            repair(live, new);
        }
        Ok(new)
    };
    match update(&cx, &repaired).await {
        // Deleted concurrently: the next round recreates it.
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
