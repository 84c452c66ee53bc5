//! Writes of a definition's status.

use std::sync::Arc;

use plinth_codec::Value;

use plinth_api::{ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::DEFINITION_RESOURCE;

/// The field manager of the definitions' status.
const MANAGER: &str = "kube-apiserver";

/// Writes `/status` of a definition with `change`.
pub(super) async fn update_status(
    server: &Arc<Server>,
    name: &str,
    change: &(dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let mut cx =
        Context::internal(server, DEFINITION_RESOURCE, "", name, Verb::Update)?.at_subresource("status");
    cx.query.field_manager = Some(MANAGER.into());
    let transform = |live: Option<&Value>| {
        let mut definition = live.cloned().unwrap_or_default();
        change(&mut definition)?;
        Ok(definition)
    };
    internal::update(&cx, &transform).await
}
