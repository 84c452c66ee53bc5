//! The change of an object.

use futures_util::future::BoxFuture;
use plinth_codec::Value;

use super::commit::{Commit, Committed};
use super::create::create_object;
use super::{
    custom_errors, dedup_owners, drop_empty_managed_fields, refuse_errors, should_retry_on_latest, warn,
    Attempts, ManagedFields, ShownAs, Transform, Written, AFTER_ADMISSION,
};
use crate::authz::authorized;
use crate::context::{AdmissionRequest, Context, Operation, Write};
use crate::handlers::unwritten_fields::{keep_unwritten, restore_sent};
use crate::managed_fields;
use plinth_api::{
    finalizers, is_deleting, metadata_text, nameless_error, prepare_metadata_update, resource_version,
    timestamp_now, validate_metadata_update, ApiError,
};
use plinth_kinds::keep_metadata;
use plinth_registry::{count_generation, match_namespace, validate_metadata};
use plinth_storage::{decode_object, Fetched};

/// How an update makes the new object of the live one.
pub(in crate::handlers) struct Update<'a> {
    /// Called again when another write was committed between.
    pub transform: &'a mut dyn Transform,
    /// Whether a uid in the new object is a precondition (PUT) or an immutable field (PATCH).
    pub uid_is_precondition: bool,
    /// Whether an absent object is created.
    pub creates: bool,
    /// Who sets `managedFields`.
    pub managed_fields: ManagedFields,
    /// What admission gets in place of the object.
    pub shown_as: Option<&'a dyn ShownAs>,
}

/// What an update found and did.
pub(crate) enum Updated {
    /// The object was there.
    Existing(Written),
    /// The object was absent and was created.
    Created(Written),
}

/// Reads, transforms, checks and stores, until no other write comes between.
///
/// # Errors
/// Everything that an update can answer.
pub(in crate::handlers) async fn update_object(
    cx: &Context,
    mut update: Update<'_>,
) -> Result<Updated, ApiError> {
    let mut attempts = Attempts::new(cx, cx.info.object_key(&cx.resource)?, &cx.info.name);
    loop {
        let Some(live) = attempts.next().await? else {
            if !update.creates {
                match cx.sync_to_latest().await? {
                    true => continue,
                    false => return Err(cx.not_found()),
                }
            }
            match create_absent(cx, &mut update).await {
                // Another request created it in between: what is stored now, or nothing again, is updated, as
                // by upstream's storage.
                Err(error) if error.is_already_exists() => attempts.last_error = error,
                created => return created.map(Updated::Created),
            }
            continue;
        };
        match update_once(cx, &mut update, live).await {
            Ok(Some(written)) => return Ok(Updated::Existing(written)),
            Ok(None) => {}
            Err(error) if !should_retry_on_latest(cx, &error).await? => return Err(error),
            Err(_) => {}
        }
    }
}

/// Creates the object that an update found absent.
async fn create_absent(cx: &Context, update: &mut Update<'_>) -> Result<Written, ApiError> {
    let managed_fields = update.managed_fields;
    create_object(cx, &mut Absent { cx, update }, managed_fields).await
}

/// What an update creates.
struct Absent<'a, 'u> {
    cx: &'a Context,
    update: &'a mut Update<'u>,
}

impl Transform for Absent<'_, '_> {
    fn make<'b>(&'b mut self, _: Option<&'b Value>) -> BoxFuture<'b, Result<Value, ApiError>> {
        Box::pin(async {
            let mut tree = self.update.transform.make(None).await?;
            check_name(&tree, &self.cx.info.name)?;
            if self.update.uid_is_precondition {
                check_uid(self.cx, &tree, "")?;
            }
            // Of a resourceVersion upstream asks here only that it is a number.
            resource_version(&tree)?;
            if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
                metadata.remove("resourceVersion");
            }
            Ok(tree)
        })
    }
}

/// One attempt; `None` when another write was committed between.
async fn update_once(
    cx: &Context,
    update: &mut Update<'_>,
    live: Fetched,
) -> Result<Option<Written>, ApiError> {
    let old = decode_object(&cx.resource, &cx.convert_record(live.clone()).await?)?;
    let mut new = update.transform.make(Some(&old)).await?;
    check_name(&new, &cx.info.name)?;
    if update.uid_is_precondition {
        check_uid(cx, &new, metadata_text(&old, "uid"))?;
    }
    let shown_as = update.shown_as;
    let shown_old = shown_as.map(|shown_as| shown_as.show(&old)).transpose()?;
    let call = AdmissionRequest::new(cx, Operation::Update, Some(shown_old.as_ref().unwrap_or(&old)));
    admit(cx, (update.managed_fields, shown_as), &call, &mut new, &old).await?;
    cx.kind_handler.check_grant(Write { cx, new: &new, old: Some(&old) }).await?;
    prepare(cx, &mut new, &old);
    let allocated = cx.kind_handler.allocate(cx, Some(&old), &mut new).await?;
    count_generation(&cx.resource, &cx.info.subresource, &mut new, &old);
    validate_change(cx, &new, &old).await?;
    let shown = shown_as.map(|shown_as| shown_as.show(&new)).transpose()?;
    cx.server.admission.validate(&call, shown.as_ref().unwrap_or(&new)).await?;
    // The last finalizer has gone from an object that waits to be deleted.
    let delete =
        is_deleting(&new) && finalizers(&new).is_empty() && !(cx.resource.strategy.deletion.is_held)(&new);
    let own = if delete { cx.kind_handler.release(&old) } else { allocated };
    let commit = Commit {
        live: Some(live),
        key: cx.info.object_key(&cx.resource)?,
        value: cx.to_stored(new).await?,
        delete,
        parts: own.and(call.into_parts()),
        dry_run: cx.query.is_dry_run(),
    };
    Ok(match commit.run(cx).await? {
        Committed::Done(done) => Some(done.written(delete)),
        Committed::Conflict => None,
    })
}

/// Fills in what the server fills in, and lets admission change the object.
async fn admit(
    cx: &Context,
    (managed_fields, shown_as): (ManagedFields, Option<&dyn ShownAs>),
    call: &AdmissionRequest<'_>,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let strategy = cx.resource.strategy;
    // Upstream compares namespaces after versions.
    match_namespace(&cx.resource, &cx.info, new)
        .or_else(|error| check_version(cx, new, old).and(Err(error)))?;
    prepare_metadata_update(new, old)?;
    dedup_owners(cx, new, "");
    strategy.default(new);
    let sent = keep_unwritten(cx, new, old);
    if managed_fields == ManagedFields::Track {
        managed_fields::track(cx, Some(old), new, &timestamp_now()).await;
    }
    // Upstream's mutating plugins see the object as it was sent: its strategies reset the other part
    // afterwards (`BeforeUpdate` in k8s.io/apiserver `pkg/registry/rest/update.go`).
    let was_reset = !sent.is_empty();
    restore_sent(new, sent);
    let requester_fields = cx.kind_handler.requester_only_fields(new);
    let may_have_changed = match shown_as {
        None => cx.server.admission.mutate(call, new).await?,
        Some(shown_as) => {
            let mut shown = shown_as.show(new)?;
            let may_have_changed = cx.server.admission.mutate(call, &mut shown).await?;
            if may_have_changed {
                shown_as.store(shown, new)?;
            }
            may_have_changed
        }
    };
    check_version(cx, new, old)?;
    if may_have_changed {
        // Upstream restores what is not the client's after admission alone (`BeforeUpdate`).
        prepare_metadata_update(new, old)?;
        dedup_owners(cx, new, AFTER_ADMISSION);
        drop_empty_managed_fields(new);
        strategy.default(new);
        cx.kind_handler.check_admitted(cx, requester_fields, new)?;
    }
    if may_have_changed || was_reset {
        keep_unwritten(cx, new, old);
    }
    Ok(())
}

/// Clears what this request may not change.
fn prepare(cx: &Context, new: &mut Value, old: &Value) {
    let strategy = cx.resource.strategy;
    match strategy.subresource(&cx.info.subresource) {
        Some(subresource) => (subresource.prepare)(new, old),
        // What a controller reports of an object is not the object's own part.
        None if cx.info.subresource == "status" => {
            keep_metadata(new, old, strategy.status_keeps);
            (strategy.prepare_status)(new, old);
        }
        None => (strategy.prepare_for_update)(new, old),
    }
    strategy.drop_disabled(new, Some(old), |gate| cx.server.gates.is_on(gate));
    managed_fields::keep_times(old, new);
}

async fn validate_change(cx: &Context, new: &Value, old: &Value) -> Result<(), ApiError> {
    let strategy = cx.resource.strategy;
    let mut errors = validate_metadata(&cx.resource, new, false);
    // Upstream validates the metadata twice, before the kind's own rules and as part of them, and reports the
    // causes twice.
    let twice = validate_metadata_update(new, old);
    errors.extend(twice.clone());
    let mut own = twice;
    own.extend(match strategy.subresource(&cx.info.subresource) {
        Some(subresource) => [strategy.errors(new), subresource.errors(new, old)].concat(),
        // The rest of the object is as it was, with errors that it may have had before.
        None if cx.info.subresource == "status" => strategy.status_errors(new, old),
        None => [strategy.changed_errors(new, old), strategy.update_errors(new, old)].concat(),
    });
    cx.kind_handler.check_permissions(Write { cx, new, old: Some(old) }, &mut own).await?;
    errors.append(&mut own);
    errors.extend(custom_errors(cx, new, Some(old)).await?);
    errors.extend(strategy.subresource_errors(&cx.info.subresource, new, old));
    refuse_errors(cx, new, errors)?;
    warn(cx, new, Some(old));
    Ok(())
}

/// The name of an object is that of the path, which is what was authorized.
pub(in crate::handlers) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    match metadata_text(object, "name") {
        "" => Err(nameless_error(name)),
        given if given != name => Err(authorized::other_name(given, name)),
        _ => Ok(()),
    }
}

/// The uid in a PUT is a precondition; `current` is empty for an object that is absent.
fn check_uid(cx: &Context, new: &Value, current: &str) -> Result<(), ApiError> {
    let given = metadata_text(new, "uid");
    if given.is_empty() || given == current {
        return Ok(());
    }
    let key = upstream_key(cx);
    let why = format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {current}");
    Err(ApiError::conflict(cx.resource.group(), cx.resource.plural(), &cx.info.name, &why))
}

/// resourceVersion of the new object against the live one, after mutating admission: what a webhook sets or
/// removes is what counts (`Update` in k8s.io/apiserver `pkg/registry/generic/registry/store.go`).
fn check_version(cx: &Context, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (group, plural, name) = (cx.resource.group(), cx.resource.plural(), cx.info.name.as_str());
    let given = resource_version(new)?;
    if given == 0 {
        if !cx.resource.strategy.unconditional_update {
            let why = "must be specified for an update";
            // Upstream has the version as a number by now, and names the resource and not the kind.
            let cause = plinth_api::Cause::invalid("metadata.resourceVersion", 0, why);
            return Err(ApiError::invalid(group, plural, name, vec![cause]));
        }
        return Ok(());
    }
    match given == resource_version(old)? {
        true => Ok(()),
        false => Err(ApiError::modified(group, plural, name)),
    }
}

/// How upstream's messages name an object in its storage; a dry run names it without the prefix.
fn upstream_key(cx: &Context) -> String {
    let plural = cx.resource.strategy.storage_name.unwrap_or_else(|| cx.resource.plural());
    let prefix = if cx.query.is_dry_run() { "" } else { "/registry" };
    match cx.resource.row.namespaced {
        true => format!("{prefix}/{plural}/{}/{}", cx.info.namespace, cx.info.name),
        false => format!("{prefix}/{plural}/{}", cx.info.name),
    }
}
