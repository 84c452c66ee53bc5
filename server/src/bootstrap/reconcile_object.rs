//! The repair of a single object that every cluster has.

use std::sync::Arc;

use plinth_codec::Value;

use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
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
    ensure(server, resource, namespace, object.clone()).await?;
    let cx = Context::internal(server, resource, namespace, metadata::text(&object, "name"), Verb::Update)?;
    let is_current = |live: &Value| parts.iter().all(|part| live.get(part) == object.get(part));
    let repaired = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let target = new.as_object_mut().filter(|_| live.is_some_and(|live| !is_current(live)));
        if let Some(target) = target {
            for part in parts {
                target.insert(*part, object.get(part).cloned().unwrap_or_default());
            }
        }
        Ok(new)
    };
    match update(&cx, &repaired).await {
        // Deleted concurrently: the next round recreates it.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}
