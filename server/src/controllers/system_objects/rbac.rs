//! Creates and repairs the default roles and bindings at every start (see
//! [`plinth_apiserver::authz::rbac::bootstrap`]).

use std::sync::Arc;

use plinth_codec::Value;
use plinth_engine::At;

use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::authz::rbac::bootstrap::{objects, reconcile_object, BootstrapObject, Reconciled};
use plinth_apiserver::authz::rbac::GROUP;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete;
use plinth_apiserver::handlers::internal::{self, NewObject};
use plinth_registry::{object_key, resource_prefix};
use plinth_storage::decode_object;

/// Creates missing ones in one transaction, and repairs changed ones. One that cannot be decrypted is left as
/// it is.
///
/// # Errors
/// When they cannot be read or written.
pub(super) async fn reconcile(server: &Arc<Server>) -> Result<(), ApiError> {
    let expected = objects(&server.gates);
    let keys: Vec<Vec<u8>> =
        expected.iter().map(|e| object_key(&resource_prefix(GROUP, e.plural), e.namespace, e.name)).collect();
    let read = move |engine: &plinth_engine::Engine| {
        let snapshot = engine.snapshot(At::Latest)?;
        keys.iter().map(|key| snapshot.get(key)).collect::<Result<Vec<_>, _>>()
    };
    let records = server.store.read(read).await?;
    let mut objects = Vec::new();
    for (expected, record) in expected.into_iter().zip(records) {
        let BootstrapObject { plural, namespace, name, object } = expected;
        let cx = Context::internal(server, (GROUP, "v1", plural), namespace, name, Verb::Update)?;
        let Some(record) = record else {
            objects.push(NewObject { cx, tree: object });
            continue;
        };
        let live = match server.store.fetched(record) {
            Ok(live) => decode_object(&cx.resource, &live)?,
            // Its key may become available again. If this prevented the start, the object could not be
            // deleted either.
            Err(error) if error.affects_only_this_value() => {
                tracing::error!(%error, resource = plural, namespace, name, "bootstrap object cannot be decrypted");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match reconcile_object(&live, &object) {
            Reconciled::Unchanged => {}
            Reconciled::Changed(_) => {
                tracing::info!(resource = plural, namespace, name, "bootstrap object repaired");
                let transform = |live: Option<&Value>| match live.map(|live| reconcile_object(live, &object))
                {
                    Some(Reconciled::Changed(healed)) => Ok(healed),
                    _ => Ok(live.cloned().unwrap_or_default()),
                };
                internal::update(&cx, &transform).await?;
            }
            Reconciled::Replace => {
                tracing::info!(
                    resource = plural,
                    namespace,
                    name,
                    "bootstrap binding to another role recreated"
                );
                delete::delete_one(&cx, "Background", metadata_text(&live, "uid"), None).await?;
                objects.push(NewObject { cx, tree: object });
            }
        }
    }
    internal::create_together(server, objects).await
}
