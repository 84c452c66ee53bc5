//! delete and deletecollection: in two phases if finalizers, grace periods or the content of a namespace
//! require it.
//!
//! Upstream: k8s.io/apiserver `pkg/registry/rest/delete.go` and `pkg/registry/generic/registry/store.go`.

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::{json, Map, Value};
use plinth_engine::{At, Record, Snapshot, Transaction};
use std::collections::BTreeMap;
use std::time::SystemTime;

use super::delete_options::{DeleteOptions, IGNORE_READ_ERROR};
use super::own_request::{self, OwnRequest};
use super::respond::{respond, respond_status};
use super::write::{Attempts, Commit, Committed, Written};
use super::{list, Context};
use crate::authz::{Attributes, ObjectKey, ResourceTarget};
use crate::context::{AdmissionRequest, Operation, TransactionParts};
use crate::representation::{Item, Representation};
use crate::selection::Selection;
use crate::stored_objects::read;
use plinth_api::{metadata_text, ApiError, Cause, Verb, FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use plinth_http::{Body, RequestBody};
use plinth_kinds::DeletionRequest;
use plinth_registry::{prefix_range, split_key};
use plinth_storage::{decode_object, unchanged, Fetched, Header, Stored, TerminatingObject};

/// Objects per read of a deletecollection.
const COLLECTION_STEP: usize = 500;
/// Bytes of them: a read ends with the object that exceeds it.
const STEP_BYTES: usize = 4 << 20;
/// Objects of a collection that are deleted at once.
const DELETIONS: usize = 16;

/// The outcome of a delete.
pub(crate) enum Deleted {
    /// Deleted; its last state, and the revision of the deletion.
    Gone { last: Bytes, revision: plinth_engine::Revision },
    /// Deleted; its state is unknown.
    Unreadable,
    /// Marked for deletion.
    Pending { value: Bytes, revision: plinth_engine::Revision },
}

pub(super) async fn delete(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    let options = DeleteOptions::of(&cx, incoming).await?;
    let is_unspecified = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    if let Some(warning) = cx.resource.strategy.orphan_warning.filter(|_| is_unspecified) {
        cx.warnings.add(warning);
    }
    let object_key = cx.info.object_key(&cx.resource)?;
    let deleted = delete_object(&cx, object_key, &cx.info.name, &options).await?;
    answer(&cx, &representation, &options, &deleted)
}

/// The answer to a deletion.
fn answer(
    cx: &Context,
    representation: &Representation,
    options: &DeleteOptions,
    deleted: &Deleted,
) -> Result<Response<Body>, ApiError> {
    match deleted {
        Deleted::Gone { last, revision } if cx.resource.strategy.returns_deleted_object => {
            let mut out = Vec::with_capacity(last.len() + 128);
            representation.object(&Item::new(last, *revision)?, &mut out)?;
            Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
        }
        Deleted::Unreadable => answer_status(cx, representation, ""),
        Deleted::Gone { last, .. } => {
            let uid = Stored::parse(last).map_err(ApiError::internal)?.uid().to_owned();
            answer_status(cx, representation, &uid)
        }
        Deleted::Pending { value, revision } => {
            let mut out = Vec::with_capacity(value.len() + 128);
            representation.object(&Item::new(value, *revision)?, &mut out)?;
            let code =
                if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
            Ok(respond(code, representation.content_type(Shape::Object), out))
        }
    }
}

/// The Status of a deletion; upstream's has no code and the plural in `details.kind`.
fn answer_status(
    cx: &Context,
    representation: &Representation,
    uid: &str,
) -> Result<Response<Body>, ApiError> {
    let mut details = Map::new();
    let parts = [
        ("name", cx.info.name.as_str()),
        ("group", cx.resource.group()),
        ("kind", cx.resource.plural()),
        ("uid", uid),
    ];
    for (key, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        details.insert(key, value);
    }
    let mut status = plinth_api::success_status();
    status.insert("details", details);
    respond_status(representation, StatusCode::OK, &status.into())
}

/// Deletes the object of that key: the one that `cx` names, or one of its collection.
///
/// # Errors
/// Any error of a delete.
pub(crate) async fn delete_object(
    cx: &Context,
    object_key: ObjectKey,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    delete_by(cx, object_key, name, options, Admits::Yes).await
}

/// Deletes the object that `cx` names past admission, as upstream does where another request was admitted:
/// the eviction of a pod.
///
/// # Errors
/// Any error of a delete.
pub(crate) async fn delete_admitted(cx: &Context, options: &DeleteOptions) -> Result<(), ApiError> {
    let key = cx.info.object_key(&cx.resource)?;
    delete_by(cx, key, &cx.info.name, options, Admits::No).await.map(|_| ())
}

/// Whether admission is asked about a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// As about one that a client asks for.
    Yes,
    /// It was asked about what the deletion follows from.
    No,
}

async fn delete_by(
    cx: &Context,
    object_key: ObjectKey,
    name: &str,
    options: &DeleteOptions,
    admits: Admits,
) -> Result<Deleted, ApiError> {
    let (group, plural) = (cx.resource.group(), cx.resource.plural());
    if let Some(why) = (cx.resource.strategy.refuse_delete)(name) {
        return Err(ApiError::forbidden(group, plural, name, why));
    }
    if options.ignore_store_read_error {
        return delete_unreadable(cx, &object_key, name).await;
    }
    let mut attempts = Attempts::new(cx, object_key.clone(), name);
    loop {
        let live = attempts.next().await?.ok_or_else(|| ApiError::not_found(group, plural, name))?;
        if let Some(deleted) = delete_once(cx, &object_key, name, (options, admits), live).await? {
            return Ok(deleted);
        }
    }
}

/// Deletes an unreadable object: without admission, finalizers or preconditions, since its content is
/// unknown.
///
/// # Errors
/// 403 without the permission of its own verb, 422 for a readable object, 404 for one that does not exist.
async fn delete_unreadable(cx: &Context, object_key: &ObjectKey, name: &str) -> Result<Deleted, ApiError> {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    let (group, plural) = (cx.resource.group(), cx.resource.plural());
    // The name is from the path, or from the collection.
    let target = ResourceTarget { name, ..ResourceTarget::of(&cx.info) };
    let decision = cx.server.authorizer.authorize(&Attributes::resource(&cx.user, VERB, target)).await;
    if !decision.allowed() {
        let why = format!("not permitted to do {VERB:?}, reason: {}", decision.reason);
        return Err(ApiError::forbidden(group, plural, name, &why));
    }
    let Some(record) = cx.stored_record(object_key).await? else {
        return Err(ApiError::not_found(group, plural, name));
    };
    // What is written in between is another object, which may well be readable.
    let unchanged = unchanged(&record);
    let opened = cx.server.store.fetched(record);
    let readable = opened.is_ok_and(|record| decode_object(&cx.resource, &record).is_ok());
    if readable {
        let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
        let cause = Cause::invalid(IGNORE_READ_ERROR, true, why);
        return Err(ApiError::invalid(group, plural, name, vec![cause]));
    }
    let transaction = Transaction::new().require(unchanged).delete(object_key.to_vec());
    match cx.server.store.commit_by(transaction, cx.deadline).await? {
        Some(_) => Ok(Deleted::Unreadable),
        None => Err(ApiError::modified(group, plural, name)),
    }
}

/// One attempt; `None` after a conflict with another write.
async fn delete_once(
    cx: &Context,
    object_key: &ObjectKey,
    name: &str,
    (options, admits): (&DeleteOptions, Admits),
    live: Fetched,
) -> Result<Option<Deleted>, ApiError> {
    let old = decode_object(&cx.resource, &cx.convert_record(live.clone()).await?)?;
    let namespace = metadata_text(&old, "namespace").to_owned();
    let mut call = AdmissionRequest::new(cx, Operation::Delete, Some(&old));
    (call.name, call.namespace, call.dry_run) = (name, &namespace, options.is_dry_run());
    if admits == Admits::Yes {
        call.options = options.members();
        cx.server.admission.mutate(&call, &mut Value::Null).await?;
    }
    check_preconditions(cx, name, options, &old)?;
    if admits == Admits::Yes {
        cx.server.admission.validate(&call, &Value::Null).await?;
    }
    let mut new = old.clone();
    let keep = mark_deleted(cx, options, &mut new);
    if let Some(metadata) = new.object_at_mut(&["metadata"]) {
        metadata.remove("resourceVersion");
    }
    // Of what goes, the answer to a custom resource's deletion has the UID alone: it is not converted.
    let is_shown = keep || !cx.resource.is_custom();
    let commit = Commit {
        key: object_key.clone(),
        value: if is_shown { cx.to_stored(new).await? } else { live.value.clone() },
        delete: !keep,
        parts: if keep { TransactionParts::default() } else { cx.kind_handler.release(&old) },
        dry_run: options.is_dry_run(),
        live: Some(live),
    };
    let outcome = if is_shown { commit.run(cx).await? } else { commit.run_unshown(cx).await? };
    Ok(match outcome {
        Committed::Conflict => None,
        Committed::Done(done) => {
            let Written { value, revision } = done.written(false);
            let revision = revision.unwrap_or_default();
            Some(match keep {
                true => Deleted::Pending { value, revision },
                false => Deleted::Gone { last: value, revision },
            })
        }
    })
}

/// Checks UID and resourceVersion preconditions.
///
/// # Errors
/// 409.
pub(crate) fn check_preconditions(
    cx: &Context,
    name: &str,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), ApiError> {
    let (group, kind) = (cx.resource.group(), cx.resource.row.kind.as_str());
    let (uid, version) = (metadata_text(old, "uid"), metadata_text(old, "resourceVersion"));
    if let Some(given) = options.uid.as_deref().filter(|given| *given != uid) {
        let why = format!(
            "the UID in the precondition ({given}) does not match the UID in record ({uid}). \
            The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    if let Some(given) = options.resource_version.as_deref().filter(|given| *given != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({given}) does not match the \
            ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    Ok(())
}

/// Applies the deletion's changes to the object; returns whether it must be kept for now.
fn mark_deleted(cx: &Context, options: &DeleteOptions, new: &mut Value) -> bool {
    let deletion = &cx.resource.strategy.deletion;
    let request =
        DeletionRequest { grace_period_seconds: options.grace_period_seconds, now: SystemTime::now() };
    if !(deletion.keeps_finalizers)(new, &request) {
        set_gc_finalizers(cx, options, new);
    }
    (deletion.mark)(new, &request) || !plinth_api::finalizers(new).is_empty()
}

/// Sets the finalizers for the garbage collector (`deletionFinalizersForGarbageCollection`).
fn set_gc_finalizers(cx: &Context, options: &DeleteOptions, object: &mut Value) {
    let strategy = cx.resource.strategy;
    if !strategy.garbage_collected {
        return;
    }
    let present = plinth_api::finalizers(object);
    let (has_orphan, has_foreground) =
        (present.contains(&FINALIZER_ORPHAN), present.contains(&FINALIZER_FOREGROUND));
    let policy = options.propagation_policy.as_deref();
    let orphan = match (options.orphan_dependents, policy) {
        (Some(orphan), _) => orphan,
        (None, Some(policy)) => policy == "Orphan",
        (None, None) if has_orphan || has_foreground => has_orphan,
        (None, None) => strategy.orphans_by_default,
    };
    let foreground = match (options.orphan_dependents, policy) {
        (Some(_), _) => false,
        (None, Some(policy)) => policy == "Foreground",
        (None, None) => has_foreground && !has_orphan,
    };
    let mut wanted: Vec<Value> = present
        .iter()
        .filter(|f| **f != FINALIZER_ORPHAN && **f != FINALIZER_FOREGROUND)
        .map(|f| Value::from(*f))
        .collect();
    if orphan {
        wanted.push(FINALIZER_ORPHAN.into());
    }
    if foreground {
        wanted.push(FINALIZER_FOREGROUND.into());
    }
    if let Some(metadata) = object.object_at_mut(&["metadata"]) {
        match wanted.is_empty() {
            true => metadata.remove("finalizers"),
            false => metadata.insert("finalizers", wanted),
        };
    }
}

/// Deletes the objects of a collection, and answers with the list of them as they were.
///
/// Objects are deleted several at a time: each is a transaction of its own, which waits for the disk or for
/// the journal with the others.
pub(super) async fn delete_collection(
    cx: Box<Context>,
    incoming: RequestBody,
) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::List)?;
    // The objects are those of a list with the same options: at one revision, and one page if there is a
    // limit.
    list::validate_options(&cx)?;
    let selection = Selection::parse(&cx.resource, &cx.query, "")?;
    let mut plan = list::Plan::new(&cx, selection).await?;
    let options = DeleteOptions::of(&cx, incoming).await?.of_collection()?;
    let form = storage(&cx)?;
    let mut range = plan.range.clone();
    let mut left = match plan.limit {
        0 => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let snapshot = plan.hold()?;
    let mut is_begun = false;
    loop {
        let (mut found, next) = step(&cx, &snapshot, &range, &plan.selection).await?;
        let is_full = found.len() > left;
        found.truncate(left);
        left -= found.len();
        for some in found.chunks(DELETIONS) {
            let deletions = some.iter().map(|(object_key, _)| async {
                match split_key(&form.prefix, cx.resource.row.namespaced, object_key) {
                    Some((_, name)) => {
                        let object_key = cx.info.found_key(&cx.resource, object_key)?;
                        delete_object(&cx, object_key, name, &options).await
                    }
                    None => Ok(Deleted::Unreadable),
                }
            });
            let deletions = join_all(deletions).await;
            is_begun |= deletions.iter().any(Result::is_ok);
            for deleted in deletions {
                match deleted {
                    Ok(_) => {}
                    // Deleted concurrently.
                    Err(error) if error.is_not_found() => {}
                    // It means that nothing was written, which is so for one object and not for all.
                    Err(error) if error.code == 503 && is_begun => return Err(ApiError::timeout()),
                    Err(error) => return Err(error),
                }
            }
        }
        match next {
            Some(next) if !is_full => range = next,
            _ => break,
        }
    }
    drop(snapshot);
    // The objects as listed.
    list::respond_listed(&cx, plan, representation).await
}

/// What remains of a collection after all of its objects were deleted.
#[derive(Debug, Default)]
pub struct Remaining {
    /// Objects that are held by finalizers or a grace period.
    pub objects: u64,
    /// How many of them each finalizer holds.
    pub finalizers: BTreeMap<String, u64>,
    /// How many objects have any.
    with_finalizers: u64,
}

impl Remaining {
    /// Whether all of them wait for their finalizers to be removed.
    pub fn waits_for_finalizers_only(&self) -> bool {
        self.with_finalizers == self.objects
    }

    /// Counts an object that waits to be deleted.
    fn count(&mut self, value: &[u8]) -> Result<(), ApiError> {
        self.objects += 1;
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let metadata = json::parse(stored.metadata()).map_err(ApiError::internal)?;
        let finalizers = metadata.get("finalizers").and_then(Value::as_array).unwrap_or_default();
        self.with_finalizers += u64::from(!finalizers.is_empty());
        for finalizer in finalizers.iter().filter_map(Value::as_str) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
        Ok(())
    }
}

/// Deletes all objects of the collection that `cx` names and that belongs to `owner`, with background
/// propagation; returns what is held by finalizers or a grace period.
///
/// # Errors
/// When an object cannot be deleted; 404 when the owner no longer exists, after which nothing is deleted.
pub async fn delete_all(
    cx: &Context,
    owner: &TerminatingObject,
    admits: Admits,
) -> Result<Remaining, ApiError> {
    let own = OwnRequest::new(cx, Verb::DeleteCollection);
    let remaining = delete_found(&own, owner, admits).await;
    own.end(&remaining, |cx, _| own_request::done(cx)).await;
    remaining
}

async fn delete_found(
    own: &OwnRequest<'_>,
    owner: &TerminatingObject,
    admits: Admits,
) -> Result<Remaining, ApiError> {
    let cx = own.cx();
    let form = storage(cx)?;
    let background =
        DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
    let mut range = prefix_range(&cx.info.collection_key(&cx.resource)?);
    let mut remaining = Remaining::default();
    loop {
        let snapshot = cx.server.store.engine().snapshot(At::Latest)?;
        // After the snapshot: its objects existed while the owner did, and are identified by UID.
        owner.check(&cx.server.store).await?;
        let (found, next) = step(cx, &snapshot, &range, &Selection::everything()).await?;
        // What follows from another request has no event, nor has what deletes nothing.
        if admits == Admits::Yes && !found.is_empty() {
            own.begin_delete(background.members()).await;
        }
        for some in found.chunks(DELETIONS) {
            let deletions = some.iter().map(|(object_key, record)| async {
                let Some((_, name)) = split_key(&form.prefix, cx.resource.row.namespaced, object_key) else {
                    return Ok(Deleted::Unreadable);
                };
                let uid = Header::parse(&record.value).map_err(ApiError::internal)?.uid().to_owned();
                let options = DeleteOptions { uid: Some(uid), ..background.clone() };
                let object_key = cx.info.found_key(&cx.resource, object_key)?;
                delete_by(cx, object_key, name, &options, admits).await
            });
            for deleted in join_all(deletions).await {
                match deleted {
                    Ok(Deleted::Gone { .. } | Deleted::Unreadable) => {}
                    Ok(Deleted::Pending { value, .. }) => remaining.count(&value)?,
                    // Deleted concurrently, and possibly recreated.
                    Err(error) if error.is_not_found() => {}
                    Err(error) if error.is_conflict() => remaining.objects += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        match next {
            Some(next) => range = next,
            None => return Ok(remaining),
        }
    }
}

/// Deletes the object that `cx` names on behalf of the server, if it still has that UID and, if given,
/// that revision.
///
/// # Errors
/// 404 when it does not exist, 409 when it is a different one, and any other error of a delete.
pub async fn delete_one(
    cx: &Context,
    propagation_policy: &str,
    uid: &str,
    revision: Option<plinth_engine::Revision>,
) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation_policy: Some(propagation_policy.into()),
        uid: Some(uid.into()),
        resource_version: revision.map(|r| r.get().to_string()),
        ..DeleteOptions::default()
    };
    let own = OwnRequest::new(cx, Verb::Delete);
    own.begin_delete(options.members()).await;
    let object_key = cx.info.object_key(&cx.resource)?;
    let deleted = delete_object(own.cx(), object_key, &cx.info.name, &options).await;
    let answered =
        |cx: &Context, deleted: &Deleted| answer(cx, &cx.representation(Shape::Object)?, &options, deleted);
    own.end(&deleted, answered).await;
    deleted.map(|_| ())
}

type FoundObjects = Vec<(Bytes, Fetched)>;

/// The next selected objects of a collection, and the rest of the range.
async fn step(
    cx: &Context,
    snapshot: &Snapshot,
    range: &plinth_engine::KeyRange,
    selection: &Selection,
) -> Result<(FoundObjects, Option<plinth_engine::KeyRange>), ApiError> {
    let (snapshot, wanted) = (snapshot.clone(), range.clone());
    let read = cx.server.store.read(move |_| {
        let mut entries = snapshot.range(&wanted);
        let (mut found, mut bytes) = (Vec::<Record>::new(), 0);
        while found.len() < COLLECTION_STEP && bytes < STEP_BYTES {
            let Some(entry) = entries.next()? else { return Ok((found, true)) };
            bytes += entry.value.len();
            found.push(entry.to_record());
        }
        Ok((found, false))
    });
    let (found, is_at_end) = read.await?;
    let next = found.last().filter(|_| !is_at_end).map(|record| range.after(&record.key));
    let mut selected = Vec::with_capacity(found.len());
    let mut fetched = Vec::with_capacity(found.len());
    for record in found {
        let header = Header::parse(&record.value).map_err(ApiError::internal)?;
        // Objects that must be converted are selected after the conversion.
        if !read::is_current(&cx.resource, &header) || selection.matches(&cx.resource, &record.key, &header) {
            fetched.push(cx.server.store.fetched(record)?);
        }
    }
    for record in read::records(&cx.server.reader, &cx.resource, fetched).await? {
        let header = Header::parse(&record.value).map_err(ApiError::internal)?;
        if selection.matches(&cx.resource, &record.key, &header) {
            selected.push((record.key.clone(), record));
        }
    }
    Ok((selected, next))
}

/// How the objects of the resource are stored.
///
/// # Errors
/// 405 for a resource that is not stored.
fn storage(cx: &Context) -> Result<&plinth_registry::StorageForm, ApiError> {
    cx.resource.storage.as_ref().ok_or_else(ApiError::method_not_allowed)
}
