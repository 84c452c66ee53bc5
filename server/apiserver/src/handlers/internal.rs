//! Writes of the server's own: its controllers, its bootstrap, what a request does beside its object.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use hyper::StatusCode;
use plinth_codec::{json, Value};
use plinth_engine::{Condition, Transaction};

use super::own_request::{self, OwnRequest};
use super::write::{self, Attempts, Commit, Committed, ManagedFields, Transform, Update, Updated, Written};
use crate::context::{Context, Server, TransactionParts};
use crate::managed_fields;
use plinth_api::{metadata_text, ApiError, Moment, Reason, Verb};
use plinth_registry::{prepare_metadata_create, ResourceType};
use plinth_storage::{decode_object, encode_object};

/// Updates the object that `cx` names.
///
/// # Errors
/// Everything that an update can answer.
pub async fn update(
    cx: &Context,
    transform: &(dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let own = OwnRequest::new(cx, Verb::Update);
    let outcome = {
        let mut transform = Recorded { own: &own, transform };
        let update = Update {
            transform: &mut transform,
            uid_is_precondition: false,
            creates: false,
            managed_fields: ManagedFields::Track,
            shown_as: None,
        };
        write::update_object(own.cx(), update).await
    };
    own.end(&outcome, |cx, updated| match updated {
        Updated::Existing(written) => own_request::written(cx, StatusCode::OK, written),
        Updated::Created(written) => own_request::written(cx, StatusCode::CREATED, written),
    })
    .await;
    outcome.map(|_| ())
}

/// A change that is recorded where it is one.
struct Recorded<'a, 'o> {
    own: &'a OwnRequest<'o>,
    transform: &'a (dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
}

impl Transform for Recorded<'_, '_> {
    fn make<'b>(&'b mut self, live: Option<&'b Value>) -> BoxFuture<'b, Result<Value, ApiError>> {
        Box::pin(async move {
            let tree = (self.transform)(live)?;
            if self.own.is_recorded() && live != Some(&tree) {
                self.own.begin_write(&tree).await;
            }
            Ok(tree)
        })
    }
}

/// Changes what is stored past admission, validation and managed fields, as upstream does where the server
/// itself records a fact: that a pod is bound, that it is being evicted. `cx` names the object.
///
/// # Errors
/// 404, what `change` refuses with, 409 when others never stop changing the object.
pub(crate) async fn update_unchecked(
    cx: &Context,
    dry_run: bool,
    change: &(dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync),
) -> Result<Written, ApiError> {
    let key = cx.info.object_key(&cx.resource)?;
    let mut attempts = Attempts::new(cx, key.clone(), &cx.info.name);
    loop {
        let live = attempts.next().await?.ok_or_else(|| cx.not_found())?;
        let mut tree = decode_object(&cx.resource, &live)?;
        change(&mut tree)?;
        let value = encode_object(&cx.resource, tree)?;
        let (key, parts) = (key.clone(), TransactionParts::default());
        let commit = Commit { live: Some(live), key, value, delete: false, parts, dry_run };
        if let Committed::Done(done) = commit.run(cx).await? {
            return Ok(done.written(false));
        }
    }
}

/// Creates an object of the server's own, unless it is there. `resource` is group, version and plural.
///
/// # Errors
/// When it cannot be written.
pub async fn ensure(
    server: &Arc<Server>,
    resource: (&str, &str, &str),
    namespace: &str,
    tree: Value,
) -> Result<(), ApiError> {
    let name = metadata_text(&tree, "name").to_owned();
    ensure_as(&Context::internal(server, resource, namespace, &name, Verb::Create)?, tree).await
}

/// Creates the object that `cx` names, unless it is there.
///
/// # Errors
/// When it cannot be written.
pub async fn ensure_as(cx: &Context, tree: Value) -> Result<(), ApiError> {
    if cx.record(&cx.info.object_key(&cx.resource)?).await?.is_some() {
        return Ok(());
    }
    let tree = conform(&cx.resource, tree)?;
    let mut source = |_: Option<&Value>| Ok(tree.clone());
    let own = OwnRequest::new(cx, Verb::Create);
    own.begin_write(&tree).await;
    let created = write::create_object(own.cx(), &mut source, ManagedFields::Track).await;
    own.end(&created, |cx, created| own_request::written(cx, StatusCode::CREATED, created)).await;
    match created {
        Ok(_) => Ok(()),
        // Somebody else was quicker.
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// An object that is to be created.
pub struct NewObject {
    /// Which one, and as whom.
    pub cx: Context,
    /// The object; no namespace, name or address is to be found for it.
    pub tree: Value,
}

/// Creates objects of the server's own in one transaction: all of them or none.
///
/// # Errors
/// 409 when one is there already; when they cannot be written.
pub async fn create_together(server: &Arc<Server>, objects: Vec<NewObject>) -> Result<(), ApiError> {
    if objects.is_empty() {
        return Ok(());
    }
    let (mut transaction, mut deadline) = (Transaction::new(), None);
    let mut recorded = Vec::new();
    for NewObject { cx, tree } in &objects {
        deadline = cx.deadline;
        let resource = &cx.resource;
        let mut tree = conform(resource, tree.clone())?;
        let own = OwnRequest::new(cx, Verb::Create);
        own.begin_write(&tree).await;
        let moment = Moment::present();
        prepare_metadata_create(resource, &mut tree, &moment)?;
        resource.strategy.default(&mut tree);
        managed_fields::track(cx, None, &mut tree, &moment.now).await;
        (resource.strategy.prepare_for_create)(&mut tree);
        let key = cx.info.object_key(resource)?;
        let value = encode_object(resource, tree)?;
        if own.is_recorded() {
            recorded.push((own, value.clone()));
        }
        transaction =
            write::put(cx, transaction.require(Condition::Absent(key.to_vec().into())), &key, value)?;
    }
    let why = "one of the objects exists already";
    let taken = || ApiError::new(409, Reason::AlreadyExists, why);
    let outcome = server.store.commit_by(transaction, deadline).await.and_then(|done| done.ok_or_else(taken));
    for (own, value) in recorded {
        let revision = outcome.as_ref().ok().map(|committed| committed.revision);
        let created = Written { value, revision };
        own.end(&outcome, |cx, _| own_request::written(cx, StatusCode::CREATED, &created)).await;
    }
    outcome.map(|_| ())
}

/// An object of the server's own in the form that its type gives it.
fn conform(resource: &ResourceType, tree: Value) -> Result<Value, ApiError> {
    let conform = json::conform(tree, resource.schema, resource.root, &Default::default());
    Ok(conform.map_err(ApiError::internal)?.value)
}
