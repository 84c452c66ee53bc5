//! Makes the roles and bindings that every cluster has, and puts them right at every start (see [`plinth_apiserver::authz::rbac::bootstrap`]).

use std::sync::Arc;

use plinth_codec::Value;
use plinth_engine::At;

use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::authz::rbac::bootstrap::{expected, healed, Expected, Healed};
use plinth_apiserver::authz::rbac::GROUP;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete;
use plinth_apiserver::handlers::internal::{self, NewObject};
use plinth_registry::key;
use plinth_storage::object;

/// Makes and heals all of them, what is missing in one transaction. One that cannot be decrypted stays as it is.
///
/// # Errors
/// When they cannot be read or written.
pub async fn reconcile(server: &Arc<Server>) -> Result<(), ApiError> {
    let expected = expected();
    let keys: Vec<Vec<u8>> = expected
        .iter()
        .map(|e| key::object(&key::resource_prefix(GROUP, e.plural), e.namespace, e.name))
        .collect();
    let read = move |engine: &plinth_engine::Engine| {
        let snapshot = engine.snapshot(At::Latest)?;
        keys.iter().map(|key| snapshot.get(key)).collect::<Result<Vec<_>, _>>()
    };
    let records = server.store.read(read).await?;
    let mut objects = Vec::new();
    for (expected, record) in expected.into_iter().zip(records) {
        let Expected { plural, namespace, name, object } = expected;
        let cx = Context::internal(server, (GROUP, "v1", plural), namespace, name, Verb::Update)?;
        let Some(record) = record else {
            objects.push(NewObject { cx, tree: object });
            continue;
        };
        let live = match server.store.fetched(record) {
            Ok(live) => object::to_tree(&cx.resource, &live)?,
            // Its key may come back. A server that did not start for it could not be told to delete it either.
            Err(error) if error.is_of_the_value() => {
                tracing::error!(%error, plural, namespace, name, "a bootstrap object cannot be decrypted");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match healed(&live, &object) {
            Healed::Whole => {}
            Healed::Changed(_) => {
                tracing::info!(plural, namespace, name, "a bootstrap object is put right");
                let transform = |live: Option<&Value>| match live.map(|live| healed(live, &object)) {
                    Some(Healed::Changed(healed)) => Ok(healed),
                    _ => Ok(live.cloned().unwrap_or_default()),
                };
                internal::update(&cx, &transform).await?;
            }
            Healed::Other => {
                tracing::info!(plural, namespace, name, "a bootstrap binding of another role is made again");
                delete::delete_one(&cx, "Background", metadata::text(&live, "uid"), None).await?;
                objects.push(NewObject { cx, tree: object });
            }
        }
    }
    internal::create_together(server, objects).await
}
