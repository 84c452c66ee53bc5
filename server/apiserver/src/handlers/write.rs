//! The core of every write: check, store, answer.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderValue, WARNING};
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;
use plinth_engine::{Condition, Revision, Transaction};
use tokio::sync::OnceCell;

use super::other_part::{keep_other_part, put_back};
use super::{key_namespace, respond, Context, Warnings};
use crate::allocation;
use crate::authz::authorized::{self, CreateGrant};
use crate::authz::rbac::{self, escalation};
use crate::authz::Authorized;
use crate::context::Server;
use crate::context::{AdmissionRequest, Operation};
use crate::heavy::BRIEF;
use crate::ownership;
use crate::permissions::{self, Write};
use crate::representation::{Item, Representation};
use plinth_api::api_error::{ApiError, Cause, Reason};
use plinth_api::metadata::{self, Moment};
use plinth_api::request_info::Verb;
use plinth_http::body::Body;
use plinth_kinds::keep_metadata;
use plinth_registry::custom::validate;
use plinth_registry::object_meta;
use plinth_storage::{object, unchanged, Fetched};

/// How often a write is tried again when another one came between. Each round somebody wins, so this is
/// reached only by hundreds of writers of one object.
const ATTEMPTS: usize = 256;
/// How often a name is generated again when the generated one is taken, as upstream.
const NAME_ATTEMPTS: usize = 8;

/// An object as it was stored, in the version of the request.
pub struct Written {
    /// Header and body.
    pub value: Bytes,
    /// Its revision; `None` for a dry-run create, which has none.
    pub revision: Option<Revision>,
}

/// What an update found and did.
pub enum Updated {
    /// The object was there.
    Existing(Written),
    /// The object was absent and was created.
    Created(Written),
}

pub(super) fn storage(cx: &Context) -> Result<&plinth_registry::StorageForm, ApiError> {
    cx.resource.storage.as_ref().ok_or_else(ApiError::method_not_allowed)
}

/// Creates an object that was decoded.
///
/// # Errors
/// Everything that a create can answer.
pub(super) async fn create_object(cx: &Context, tree: Value) -> Result<Written, ApiError> {
    create_owned(cx, tree, Ownership::Track).await
}

/// The right to create what a request makes. One for another verb asks the authorizers when the object is ready to be stored, and
/// once, however often the write is tried again (k8s.io/apiserver `pkg/endpoints/handlers`, `withAuthorization`).
struct Permit<'a> {
    cx: &'a Context,
    asked: OnceCell<Authorized>,
}

impl<'a> Permit<'a> {
    fn of(cx: &'a Context) -> Permit<'a> {
        Permit { cx, asked: OnceCell::new() }
    }

    async fn grant(&self) -> Result<CreateGrant<'_>, ApiError> {
        if let Some(grant) = self.cx.info.grant() {
            return Ok(grant);
        }
        let ask = || self.cx.server.authorizer.authorize_create(&self.cx.user, &self.cx.info);
        let asked = self.asked.get_or_try_init(ask).await?;
        asked.grant().ok_or_else(|| ApiError::internal("a create was authorized as another verb"))
    }
}

/// Who sets `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// This write: what it changes belongs to its manager.
    Track,
    /// The apply that made the tree has set them.
    Applied,
}

async fn create_owned(cx: &Context, tree: Value, ownership: Ownership) -> Result<Written, ApiError> {
    let generated =
        metadata::text(&tree, "name").is_empty() && !metadata::text(&tree, "generateName").is_empty();
    let attempts = if generated { NAME_ATTEMPTS } else { 1 };
    let permit = Permit::of(cx);
    let mut last = None;
    for _ in 0..attempts {
        match create_unraced(cx, &permit, &tree, ownership).await {
            Err(error) if error.code == 409 && generated => last = Some(error),
            outcome => return outcome,
        }
    }
    Err(last.unwrap_or_else(|| ApiError::internal("no attempt was made")))
}

async fn create_unraced(
    cx: &Context,
    permit: &Permit<'_>,
    tree: &Value,
    ownership: Ownership,
) -> Result<Written, ApiError> {
    for _ in 0..ATTEMPTS {
        if let Created::Written(written) = create_once(cx, permit, tree.clone(), ownership).await? {
            return Ok(written);
        }
    }
    Err(ApiError::internal("others took every address and port that was found free"))
}

/// What became of one attempt to create.
enum Created {
    Written(Written),
    /// Somebody else took an address or port that this attempt had found free.
    Raced,
}

async fn create_once(
    cx: &Context,
    permit: &Permit<'_>,
    mut tree: Value,
    ownership: Ownership,
) -> Result<Created, ApiError> {
    let moment = Moment::present();
    let strategy = cx.resource.strategy;
    let dry_run = cx.query.is_dry_run();
    let refuses_version = !dry_run && ownership == Ownership::Track;
    if refuses_version && !metadata::text(&tree, "resourceVersion").is_empty() {
        let what = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(500, plinth_api::api_error::Reason::Unknown, what));
    }
    object_meta::match_namespace(&cx.resource, &cx.info, &mut tree)?;
    metadata::wipe_system_fields(&mut tree)?;
    dedup_owners(cx, &mut tree, "");
    validate::definition_stays(&cx.resource, metadata::text(&tree, "name"))?;
    // Some kinds' defaults are of the status: they come after what the client said there is gone.
    clear_status(cx, &mut tree);
    strategy.default(&mut tree);
    if ownership == Ownership::Track {
        ownership::track(cx, None, &mut tree, &moment.now);
    }
    let call = AdmissionRequest::new(cx, Operation::Create, None);
    cx.server.admission.mutate(&call, &mut tree).await?;
    dedup_owners(cx, &mut tree, AFTER_ADMISSION);
    refuse_escalation(cx, &tree, None).await?;
    object_meta::prepare_create(&cx.resource, &mut tree, &moment)?;
    (strategy.prepare_for_create)(&mut tree);
    (strategy.record_requester)(&mut tree, &cx.user);
    let reserved = allocation::reserve(cx, None, &mut tree).await?;
    let mut errors = strategy.create_errors(&tree);
    permissions::check(Write { cx, new: &tree, old: None }, &mut errors).await?;
    errors.extend(object_meta::validate(&cx.resource, &tree, true));
    errors.extend(custom_errors(cx, &tree, None).await?);
    refuse_errors(cx, &tree, errors)?;
    warn(cx, &tree, None);
    let grant = permit.grant().await?;
    cx.server.admission.validate(&call, &tree).await?;
    let effects = call.effects();
    let can_race = reserved.takes() || effects.can_race();
    let name = metadata::text(&tree, "name").to_owned();
    let has_generate_name = !metadata::text(&tree, "generateName").is_empty();
    let key = grant.key(&cx.resource, &name)?;
    let value = cx.to_stored(tree).await?;
    let exists = || {
        let mut error = ApiError::already_exists(cx.resource.group(), cx.resource.plural(), &name);
        if has_generate_name {
            error.message.push_str(", the server was not able to generate a unique name for the object");
            return error.retry_after(1);
        }
        error
    };
    if dry_run {
        return match cx.server.store.newest(key).await? {
            Some(_) => Err(exists()),
            None => {
                let value = cx.present_value(value).await?;
                Ok(Created::Written(Written { value, revision: None }))
            }
        };
    }
    let absent = Transaction::new().require(Condition::Absent(key.clone().into()));
    let transaction = put(cx, absent, key.clone(), value.clone())?;
    match cx.server.store.commit(effects.add_to(reserved.add_to(transaction))).await? {
        Some(committed) => {
            let value = cx.present_value(value).await?;
            Ok(Created::Written(Written { value, revision: Some(committed.revision) }))
        }
        None if can_race && cx.server.store.newest(key).await?.is_none() => Ok(Created::Raced),
        None => Err(exists()),
    }
}

/// What a warning of owners adds that admission brought in twice.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Leaves each owner once, and says so.
fn dedup_owners(cx: &Context, tree: &mut Value, when: &str) {
    let twice = metadata::dedup_owners(tree);
    if !twice.is_empty() {
        cx.warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// Whether the objects are Events, of either built-in group; a definition may use the same names in a group of its own.
fn is_event(cx: &Context) -> bool {
    cx.resource.row.kind == "Event" && !cx.resource.is_custom()
}

/// Events expire by themselves, everything else stays.
fn put(cx: &Context, transaction: Transaction, key: Vec<u8>, value: Bytes) -> Result<Transaction, ApiError> {
    let value = cx.server.store.seal(&key, value)?;
    Ok(match is_event(cx) && !cx.server.limits.event_ttl.is_zero() {
        true => transaction.put_expiring(key, value, cx.server.limits.event_ttl),
        false => transaction.put(key, value),
    })
}

/// At create the status belongs to the server where it is a subresource.
pub fn clear_status(cx: &Context, tree: &mut Value) {
    let strategy = cx.resource.strategy;
    if cx.resource.row.subresource("status").is_some() && !strategy.status_at_create {
        if let Some(object) = tree.as_object_mut() {
            match &cx.resource.zero_status {
                Some(status) => object.insert("status", status.clone()),
                None => object.remove("status"),
            };
        }
    }
}

/// Nobody grants more than they have.
async fn refuse_escalation(cx: &Context, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    // Custom resources in the group of RBAC grant nothing.
    if cx.resource.group() != rbac::GROUP || cx.resource.is_custom() {
        return Ok(());
    }
    let (plural, namespace, name) = (cx.resource.plural(), key_namespace(cx), cx.info.name.as_str());
    let written = escalation::Written { user: &cx.user, plural, namespace, name, new, old };
    escalation::check(&cx.server.authorizer, written).await
}

/// What a definition says of its objects. Rules that take long are asked in a place beside the requests of everybody.
async fn custom_errors(cx: &Context, new: &Value, old: Option<&Value>) -> Result<Vec<Cause>, ApiError> {
    let Some(custom) = &cx.resource.custom else { return Ok(Vec::new()) };
    let ask = |brief| validate::errors(&cx.resource, custom, new, old, &cx.info.subresource, brief);
    match ask(Some(BRIEF))? {
        Some(errors) => Ok(errors),
        None => {
            let errors = Box::pin(cx.heavy.beside(&cx.server.heavy, || ask(None))).await?;
            Ok(errors.unwrap_or_default())
        }
    }
}

/// Says what the kind has to warn of.
fn warn(cx: &Context, new: &Value, old: Option<&Value>) {
    let warnings = match (cx.resource.is_custom(), cx.info.subresource.is_empty()) {
        (true, true) => validate::finalizer_warnings(new, old),
        (false, true) => (cx.resource.strategy.warnings)(new, old),
        (false, false) if cx.info.subresource == "status" => (cx.resource.strategy.status_warnings)(new),
        (_, false) => Vec::new(),
    };
    warnings.into_iter().for_each(|text| cx.warnings.add(text));
}

fn refuse_errors(cx: &Context, tree: &Value, errors: Vec<Cause>) -> Result<(), ApiError> {
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let name = metadata::text(tree, "name");
            // Upstream names what the object says it is.
            let kind = tree.str_at(&["kind"]).filter(|k| !k.is_empty()).unwrap_or(&cx.resource.row.kind);
            // Events of both groups are one kind to upstream, that of the older group.
            let group = if is_event(cx) { "" } else { cx.resource.group() };
            Err(ApiError::invalid(group, kind, name, errors))
        }
    }
}

/// How an update makes the new object of the live one.
pub(super) struct Update<'a> {
    /// Makes the new tree of the live one; called again when another write came between. Without a live object
    /// it makes the one to create (only asked when `creates` is true).
    pub transform: &'a (dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
    /// Whether a uid in the new object is a precondition (PUT) or an immutable field (PATCH).
    pub uid_is_precondition: bool,
    /// Whether an absent object is created.
    pub creates: bool,
    /// Who sets `managedFields`.
    pub ownership: Ownership,
}

/// Reads, transforms, checks and stores, again and again until no other write comes between.
///
/// # Errors
/// Everything that an update can answer.
pub(super) async fn update_object(cx: &Context, update: Update<'_>) -> Result<Updated, ApiError> {
    let mut taken = None;
    for _ in 0..ATTEMPTS {
        let live = cx.newest(cx.info.object_key(&cx.resource)?).await?;
        let Some(live) = live else {
            if !update.creates {
                return Err(cx.not_found());
            }
            let mut tree = (update.transform)(None)?;
            check_name(&tree, &cx.info.name)?;
            if update.uid_is_precondition {
                check_uid(cx, &tree, "")?;
                // Upstream's create by PUT takes no notice of a resourceVersion.
                if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
                    metadata.remove("resourceVersion");
                }
            }
            match create_owned(cx, tree, update.ownership).await {
                // Another request created it in between: what is there now, or nothing again, is updated, as by upstream's
                // storage.
                Err(error) if matches!(error.reason, Reason::AlreadyExists) => taken = Some(error),
                created => return created.map(Updated::Created),
            }
            continue;
        };
        if let Some(written) = update_once(cx, &update, live).await? {
            return Ok(Updated::Existing(written));
        }
    }
    let modified = || ApiError::modified(cx.resource.group(), cx.resource.plural(), &cx.info.name);
    Err(taken.unwrap_or_else(modified))
}

/// One attempt; `None` when another write came between.
async fn update_once(cx: &Context, update: &Update<'_>, live: Fetched) -> Result<Option<Written>, ApiError> {
    let strategy = cx.resource.strategy;
    let face = strategy.subresource(&cx.info.subresource);
    let old = object::to_tree(&cx.resource, &cx.present(live.clone()).await?)?;
    let mut new = (update.transform)(Some(&old))?;
    check_preconditions(cx, update, &new, &old)?;
    object_meta::match_namespace(&cx.resource, &cx.info, &mut new)?;
    metadata::prepare_update(&mut new, &old)?;
    dedup_owners(cx, &mut new, "");
    strategy.default(&mut new);
    let sent = keep_other_part(cx, &mut new, &old);
    if update.ownership == Ownership::Track {
        ownership::track(cx, Some(&old), &mut new, &metadata::now());
    }
    // Upstream's mutating plugins see the object as it was sent: its strategies reset the other part afterwards (`BeforeUpdate` in
    // k8s.io/apiserver `pkg/registry/rest/update.go`).
    let was_reset = !sent.is_empty();
    put_back(&mut new, sent);
    let call = AdmissionRequest::new(cx, Operation::Update, Some(&old));
    let may_have_changed = cx.server.admission.mutate(&call, &mut new).await?;
    if may_have_changed {
        dedup_owners(cx, &mut new, AFTER_ADMISSION);
        strategy.default(&mut new);
    }
    if may_have_changed || was_reset {
        keep_other_part(cx, &mut new, &old);
    }
    refuse_escalation(cx, &new, Some(&old)).await?;
    match face {
        Some(face) => (face.prepare)(&mut new, &old),
        // What a controller says of an object is not the object's own part.
        None if cx.info.subresource == "status" => {
            keep_metadata(&mut new, &old, strategy.status_keeps);
            (strategy.prepare_status)(&mut new, &old);
        }
        None => (strategy.prepare_for_update)(&mut new, &old),
    }
    ownership::keep_times(&old, &mut new);
    let mut reserved = allocation::reserve(cx, Some(&old), &mut new).await?;
    object_meta::count_generation(&cx.resource, &cx.info.subresource, &mut new, &old);
    let mut errors = object_meta::validate(&cx.resource, &new, false);
    // Upstream asks twice, before the kind's own rules and as part of them, and tells the causes twice.
    let twice = metadata::validate_update(&new, &old);
    errors.extend(twice.clone());
    let mut own = twice;
    own.extend(match face {
        Some(face) => [strategy.errors(&new), (face.validate)(&new, &old)].concat(),
        // The rest of the object is as it was, with errors that it may have had before.
        None if cx.info.subresource == "status" => strategy.status_errors(&new, &old),
        None => [strategy.changed_errors(&new, &old), strategy.update_errors(&new, &old)].concat(),
    });
    permissions::check(Write { cx, new: &new, old: Some(&old) }, &mut own).await?;
    errors.append(&mut own);
    errors.extend(custom_errors(cx, &new, Some(&old)).await?);
    errors.extend((strategy.subresource_errors)(&cx.info.subresource, &new, &old));
    refuse_errors(cx, &new, errors)?;
    warn(cx, &new, Some(&old));
    cx.server.admission.validate(&call, &new).await?;
    let effects = call.effects();
    let finished = metadata::is_deleting(&new)
        && metadata::finalizers(&new).is_empty()
        && grace_is_over(&new)
        && no_namespace_finalizers(cx, &new);
    if finished {
        reserved = allocation::release(cx, &old);
    }
    let value = cx.to_stored(new).await?;
    let revision = live.mod_revision;
    let unchanged_value = value == live.value && !cx.server.store.is_stale(&live);
    if cx.query.is_dry_run() || (unchanged_value && !finished) {
        let value = cx.present_value(value).await?;
        return Ok(Some(Written { value, revision: Some(revision) }));
    }
    let transaction = Transaction::new().require(unchanged(&live));
    let transaction = match finished {
        // The last finalizer has gone from an object that waits to be deleted.
        true => transaction.delete(live.key.clone()),
        false => put(cx, transaction, cx.info.object_key(&cx.resource)?, value.clone())?,
    };
    let transaction = effects.add_to(reserved.add_to(transaction.having_read(live.into_record())));
    let Some(committed) = cx.server.store.commit(transaction).await? else { return Ok(None) };
    let value = cx.present_value(value).await?;
    // What has gone is answered as it was last, at the revision that it had.
    let revision = if finished { revision } else { committed.revision };
    Ok(Some(Written { value, revision: Some(revision) }))
}

fn grace_is_over(object: &Value) -> bool {
    object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int).unwrap_or(0) == 0
}

/// A namespace's own finalizers lie in its spec.
fn no_namespace_finalizers(cx: &Context, object: &Value) -> bool {
    cx.resource.row.kind != "Namespace"
        || cx.resource.is_custom()
        || object.at(&["spec", "finalizers"]).and_then(Value::as_array).is_none_or(<[Value]>::is_empty)
}

/// The name of an object is that of the path, which is what was authorized.
pub(super) fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    match metadata::text(object, "name") {
        "" => Err(metadata::nameless(name)),
        given if given != name => Err(authorized::other_name(given, name)),
        _ => Ok(()),
    }
}

/// The uid in a PUT is a precondition; `current` is empty for an object that is absent.
fn check_uid(cx: &Context, new: &Value, current: &str) -> Result<(), ApiError> {
    let given = metadata::text(new, "uid");
    if given.is_empty() || given == current {
        return Ok(());
    }
    let key = upstream_key(cx);
    let why = format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {current}");
    Err(ApiError::conflict(cx.resource.group(), cx.resource.plural(), &cx.info.name, &why))
}

/// resourceVersion and uid of the new object against the live one.
fn check_preconditions(cx: &Context, update: &Update<'_>, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (group, plural, name) = (cx.resource.group(), cx.resource.plural(), cx.info.name.as_str());
    check_name(new, name)?;
    if update.uid_is_precondition {
        check_uid(cx, new, metadata::text(old, "uid"))?;
    }
    let given = metadata::text(new, "resourceVersion");
    if given.parse::<u64>().is_err() && !given.is_empty() {
        let what = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
        return Err(ApiError::new(500, plinth_api::api_error::Reason::Unknown, what));
    }
    if matches!(given, "" | "0") {
        if !cx.resource.strategy.unconditional_update {
            let why = "must be specified for an update";
            // Upstream has the version as a number by now, and names the resource and not the kind.
            let cause = plinth_api::field::invalid("metadata.resourceVersion", 0, why);
            return Err(ApiError::invalid(group, plural, name, vec![cause]));
        }
        return Ok(());
    }
    match given == metadata::text(old, "resourceVersion") {
        true => Ok(()),
        false => Err(ApiError::modified(group, plural, name)),
    }
}

/// How upstream's messages name an object in its storage; a dry run names it without the prefix.
fn upstream_key(cx: &Context) -> String {
    /// Plurals that upstream stores under another name.
    const OTHERS: [(&str, &str); 5] = [
        ("nodes", "minions"),
        ("services", "services/specs"),
        ("endpoints", "services/endpoints"),
        ("replicationcontrollers", "controllers"),
        ("ingresses", "ingress"),
    ];
    let plural = cx.resource.plural();
    let kept_as = OTHERS.iter().find(|(known, _)| *known == plural).map_or(plural, |(_, other)| other);
    let prefix = if cx.query.is_dry_run() { "" } else { "/registry" };
    match cx.resource.row.namespaced {
        true => format!("{prefix}/{kept_as}/{}/{}", cx.info.namespace, cx.info.name),
        false => format!("{prefix}/{kept_as}/{}", cx.info.name),
    }
}

/// Answers with an object that was written.
///
/// # Errors
/// 500 when it cannot be encoded.
pub(super) fn respond_written(
    representation: &Representation,
    code: StatusCode,
    written: &Written,
) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(written.value.len() + 128);
    let item = Item::new(&written.value, written.revision.unwrap_or(Revision::ZERO))?;
    match written.revision {
        Some(_) => representation.object(&item, &mut out)?,
        None => {
            let mut tree = representation.tree(&item)?;
            if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
                metadata.remove("resourceVersion");
            }
            representation.unstored(tree, &mut out)?;
        }
    }
    Ok(respond(code, representation.content_type(Shape::Object), out))
}

/// `Warning: 299 - "text"`, one header each. Where all are more than the total allows, each is cut, and what does not fit
/// then is left out (k8s.io/apiserver `pkg/endpoints/filters/warning.go`).
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    /// Characters of all together, and of one where they are too many.
    const TOTAL: usize = 4096;
    const ONE: usize = 256;
    let size = |text: &String| text.chars().count();
    let there = response.headers().get_all(WARNING).iter().count();
    let most = if warnings.iter().map(size).sum::<usize>() > TOTAL { ONE } else { TOTAL };
    let mut written = 0;
    for warning in warnings.iter().take(Warnings::MOST.saturating_sub(there)) {
        if written >= TOTAL {
            break;
        }
        let text: String = warning.chars().take(most).filter(|c| !c.is_control()).collect();
        written += size(&text);
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Updates an object of the server's own accord: the one that `cx` names.
///
/// # Errors
/// Everything that an update can answer.
pub async fn update(
    cx: &Context,
    transform: &(dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let update =
        Update { transform, uid_is_precondition: false, creates: false, ownership: Ownership::Track };
    update_object(cx, update).await.map(|_| ())
}

/// Changes what is stored past admission, validation and field ownership, as upstream does where the server itself notes a
/// fact: that a pod is bound, that it is being evicted. `cx` names the object.
///
/// # Errors
/// 404, what `change` refuses with, 409 when others never stop changing the object.
pub(super) async fn amend(
    cx: &Context,
    dry_run: bool,
    change: &(dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync),
) -> Result<Written, ApiError> {
    let object_key = cx.info.object_key(&cx.resource)?;
    for _ in 0..ATTEMPTS {
        let live = cx.newest(object_key.clone()).await?;
        let live = live.ok_or_else(|| cx.not_found())?;
        let mut tree = object::to_tree(&cx.resource, &live)?;
        change(&mut tree)?;
        let value = object::to_stored(&cx.resource, tree)?;
        if dry_run || value == live.value {
            return Ok(Written { value, revision: Some(live.mod_revision) });
        }
        let sealed = cx.server.store.seal(&live.key, value.clone())?;
        let transaction = Transaction::new().require(unchanged(&live)).put(live.key.clone(), sealed);
        let transaction = transaction.having_read(live.into_record());
        if let Some(committed) = cx.server.store.commit(transaction).await? {
            return Ok(Written { value, revision: Some(committed.revision) });
        }
    }
    Err(ApiError::modified(cx.resource.group(), cx.resource.plural(), &cx.info.name))
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
    let name = metadata::text(&tree, "name").to_owned();
    let cx = Context::internal(server, resource, namespace, &name, Verb::Create)?;
    if cx.server.store.newest(cx.info.object_key(&cx.resource)?).await?.is_some() {
        return Ok(());
    }
    let tree = plinth_codec::json::conform(tree, cx.resource.schema, cx.resource.root, &Default::default())
        .map_err(ApiError::internal)?
        .value;
    match create_object(&cx, tree).await {
        Ok(_) => Ok(()),
        // Somebody else was quicker.
        Err(error) if error.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

/// An object that is to be created.
pub struct Birth {
    /// Which one, and as whom.
    pub cx: Context,
    /// The object; no namespace, name or address is to be found for it.
    pub tree: Value,
}

/// Creates objects of the server's own in one transaction: all of them or none.
///
/// # Errors
/// 409 when one is there already; when they cannot be written.
pub async fn create_together(server: &Arc<Server>, births: Vec<Birth>) -> Result<(), ApiError> {
    if births.is_empty() {
        return Ok(());
    }
    let mut transaction = Transaction::new();
    for Birth { cx, tree } in births {
        let resource = &cx.resource;
        let conform = plinth_codec::json::conform(tree, resource.schema, resource.root, &Default::default());
        let mut tree = conform.map_err(ApiError::internal)?.value;
        let moment = Moment::present();
        object_meta::prepare_create(resource, &mut tree, &moment)?;
        resource.strategy.default(&mut tree);
        ownership::track(&cx, None, &mut tree, &moment.now);
        (resource.strategy.prepare_for_create)(&mut tree);
        let key = cx.info.object_key(resource)?;
        let value = object::to_stored(resource, tree)?;
        transaction = put(&cx, transaction.require(Condition::Absent(key.clone().into())), key, value)?;
    }
    let why = "one of the objects exists already";
    let taken = || ApiError::new(409, plinth_api::api_error::Reason::AlreadyExists, why);
    server.store.commit(transaction).await?.map(|_| ()).ok_or_else(taken)
}
