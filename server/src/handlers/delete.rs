//! delete and deletecollection: in two phases where finalizers, grace periods or a namespace's content ask
//! for it.
//!
//! Upstream: k8s.io/apiserver `pkg/registry/rest/delete.go` and `pkg/registry/generic/registry/store.go`.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use plinth_codec::json::DecodeOptions;
use plinth_codec::negotiate::{ContentType, Encoding, Shape};
use plinth_codec::schema::{self, GVK};
use plinth_codec::time::Timestamp;
use plinth_codec::yaml;
use plinth_codec::{cbor, json, protobuf, tree, Map, Value};
use plinth_engine::{At, Record, Transaction};
use std::time::{Duration, SystemTime};

use super::{body, key_namespace, respond, write, Context};
use crate::field;
use crate::http::body::Body;
use crate::metadata::{self, FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::representation::{Item, ListMeta, Representation};
use crate::selection::Selection;
use crate::status::{ApiError, Cause};
use crate::storage::stored::Head;
use crate::storage::{key, object, unchanged, Fetched};
use crate::strategy::{allocation, Deletion};

/// How often a delete is tried again when another write came between.
const ATTEMPTS: usize = 256;
/// Objects that one step of a deletecollection reads.
const COLLECTION_STEP: usize = 500;

/// Namespaces that nobody may delete.
const IMMORTAL_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default)]
struct Options {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

/// What became of the object.
enum Deleted {
    /// It is gone; the record is its last state.
    Gone { last: Bytes, record: Record },
    /// It stays for now, marked.
    Kept { value: Bytes, revision: plinth_engine::Revision },
}

pub(super) async fn delete(mut cx: Context, incoming: Incoming) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    let options = options(&mut cx, incoming).await?;
    match delete_object(&cx, key_namespace(&cx), &cx.info.name, &options).await? {
        Deleted::Gone { last, record } if cx.resource.strategy.answers_deleted_object => {
            let mut out = Vec::with_capacity(last.len() + 128);
            representation.object(&Item::new(&last, record.mod_revision)?, &mut out)?;
            Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
        }
        Deleted::Gone { last, .. } => {
            let uid =
                crate::storage::stored::Stored::parse(&last).map_err(ApiError::internal)?.uid().to_owned();
            answer_status(&cx, &representation, &uid)
        }
        Deleted::Kept { value, revision } => {
            let mut out = Vec::with_capacity(value.len() + 128);
            representation.object(&Item::new(&value, revision)?, &mut out)?;
            let code =
                if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
            Ok(respond(code, representation.content_type(Shape::Object), out))
        }
    }
}

/// The Status of a deletion; upstream gives it no code and puts the plural into `details.kind`.
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
    let status = tree!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": Map::new(),
        "status": "Success",
        "details": details,
    });
    let mut out = Vec::with_capacity(256);
    representation.write_tree(&status, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(Shape::Object), out))
}

/// Options from the body, or from the query when there is no body.
async fn options(cx: &mut Context, incoming: Incoming) -> Result<Options, ApiError> {
    let bytes = body::read(cx, incoming).await?;
    let options = match bytes.is_empty() {
        true => {
            let q = &cx.query;
            let causes = dry_run_faults(&q.dry_run);
            refuse_options(causes)?;
            Options {
                grace_period_seconds: q.grace_period_seconds,
                propagation_policy: q.propagation_policy.clone(),
                orphan_dependents: q.orphan_dependents,
                dry_run: q.is_dry_run(),
                ..Options::default()
            }
        }
        false => from_body(cx, &bytes)?,
    };
    let mut causes = Vec::new();
    if options.propagation_policy.is_some() && options.orphan_dependents.is_some() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(field::invalid(
            "propagationPolicy",
            options.propagation_policy.clone().unwrap_or_default(),
            why,
        ));
    }
    if let Some(policy) = &options.propagation_policy {
        if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
            causes.push(field::not_supported(
                "propagationPolicy",
                policy.as_str(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
    }
    refuse_options(causes)?;
    Ok(options)
}

fn refuse_options(causes: Vec<Cause>) -> Result<(), ApiError> {
    match causes.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", causes)),
    }
}

fn dry_run_faults(values: &[String]) -> Vec<Cause> {
    let bad = values.iter().find(|v| *v != "All");
    bad.map(|v| field::not_supported("dryRun", v.as_str(), &["All"])).into_iter().collect()
}

fn from_body(cx: &Context, bytes: &Bytes) -> Result<Options, ApiError> {
    let bad = |e: String| ApiError::bad_request(e);
    let gvk = GVK::new("", "v1", "DeleteOptions");
    let builtin = schema::builtin();
    let root = builtin.kind(&gvk).ok_or_else(|| ApiError::internal("no type for DeleteOptions"))?;
    let conform = |tree| json::conform(tree, builtin, root, &DecodeOptions::default()).map(|d| d.value);
    let encoding = match body::content_type(cx, plinth_codec::negotiate::Accepts::Object)? {
        ContentType::Object(encoding) => encoding,
        _ => Encoding::Json,
    };
    let tree = match encoding {
        Encoding::Json => json::parse(bytes).and_then(conform).map_err(|e| bad(e.to_string()))?,
        Encoding::Yaml => {
            yaml::to_value(bytes).and_then(|(tree, _)| conform(tree)).map_err(|e| bad(e.to_string()))?
        }
        Encoding::Cbor => {
            let tree = cbor::decode(bytes).map_err(|e| bad(e.to_string()))?;
            conform(tree).map_err(|e| bad(e.to_string()))?
        }
        Encoding::Protobuf => {
            let envelope = protobuf::decode(bytes).map_err(|e| bad(e.to_string()))?;
            protobuf::decode_object(envelope.raw, None, builtin, root).map_err(|e| bad(e.to_string()))?
        }
    };
    let kind = tree.str_at(&["kind"]).unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(bad(format!("decoded object cannot be converted to DeleteOptions: {kind}")));
    }
    let text = |path: &[&str]| tree.str_at(path).map(str::to_owned);
    let dry_run: Vec<String> = tree
        .at(&["dryRun"])
        .and_then(Value::as_array)
        .map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    refuse_options(dry_run_faults(&dry_run))?;
    Ok(Options {
        grace_period_seconds: tree.at(&["gracePeriodSeconds"]).and_then(Value::as_int),
        propagation_policy: text(&["propagationPolicy"]),
        orphan_dependents: tree.at(&["orphanDependents"]).and_then(Value::as_bool),
        uid: text(&["preconditions", "uid"]),
        resource_version: text(&["preconditions", "resourceVersion"]),
        dry_run: !dry_run.is_empty(),
    })
}

async fn delete_object(
    cx: &Context,
    namespace: &str,
    name: &str,
    options: &Options,
) -> Result<Deleted, ApiError> {
    let is_namespace = cx.resource.strategy.deletion == Deletion::Namespace;
    if is_namespace && IMMORTAL_NAMESPACES.contains(&name) {
        let (group, plural) = (cx.resource.group(), cx.resource.plural());
        return Err(ApiError::forbidden(group, plural, name, "this namespace may not be deleted"));
    }
    let form = write::storage(cx)?;
    for _ in 0..ATTEMPTS {
        let live = cx.server.store.get(form, namespace, name).await?;
        let live =
            live.ok_or_else(|| ApiError::not_found(cx.resource.group(), cx.resource.plural(), name))?;
        if let Some(deleted) = delete_once(cx, name, options, live).await? {
            return Ok(deleted);
        }
    }
    Err(ApiError::modified(cx.resource.group(), cx.resource.plural(), name))
}

/// One attempt; `None` when another write came between.
async fn delete_once(
    cx: &Context,
    name: &str,
    options: &Options,
    live: Fetched,
) -> Result<Option<Deleted>, ApiError> {
    let old = object::to_tree(&cx.resource, &live)?;
    check_preconditions(cx, name, options, &old)?;
    let mut new = old.clone();
    let keep = mark(cx, options, &mut new);
    if let Some(metadata) = new.object_at_mut(&["metadata"]) {
        metadata.remove("resourceVersion");
    }
    let value = object::to_stored(&cx.resource, new)?;
    if !keep {
        if options.dry_run {
            return Ok(Some(Deleted::Gone { last: value, record: live.into_record() }));
        }
        let transaction = Transaction::new().require(unchanged(&live)).delete(live.key.clone());
        let transaction =
            allocation::release(cx, &old).add_to(transaction.having_read(live.clone().into_record()));
        let committed = cx.server.store.commit(transaction).await?;
        return Ok(committed.map(|_| Deleted::Gone { last: value, record: live.into_record() }));
    }
    let revision = live.mod_revision;
    if options.dry_run || value == live.value {
        return Ok(Some(Deleted::Kept { value, revision }));
    }
    let transaction = Transaction::new()
        .require(unchanged(&live))
        .put(live.key.clone(), cx.server.store.seal(&live.key, value.clone())?);
    let committed = cx.server.store.commit(transaction.having_read(live.into_record())).await?;
    Ok(committed.map(|c| Deleted::Kept { value, revision: c.revision }))
}

fn check_preconditions(cx: &Context, name: &str, options: &Options, old: &Value) -> Result<(), ApiError> {
    let (group, kind) = (cx.resource.group(), cx.resource.row.kind.as_str());
    let (uid, version) = (metadata::text(old, "uid"), metadata::text(old, "resourceVersion"));
    if let Some(given) = options.uid.as_deref().filter(|given| *given != uid) {
        let why = format!("the UID in the precondition ({given}) does not match the UID in record ({uid}). The object might have been deleted and then recreated");
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    if let Some(given) = options.resource_version.as_deref().filter(|given| *given != version) {
        let why = format!("the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({version}). The object might have been modified");
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    Ok(())
}

/// Marks the object as deletion asks for; true when it has to stay for now.
fn mark(cx: &Context, options: &Options, new: &mut Value) -> bool {
    let strategy = cx.resource.strategy;
    let was_deleting = metadata::is_deleting(new);
    set_collector_finalizers(cx, options, new);
    let waits_for_finalizers = !metadata::finalizers(new).is_empty();
    match strategy.deletion {
        Deletion::Pod => {
            let graceful = mark_pod(options, new, was_deleting);
            if !graceful && waits_for_finalizers && !was_deleting {
                mark_now(new, Some(0));
            }
            graceful || waits_for_finalizers
        }
        Deletion::Namespace => {
            if !was_deleting {
                mark_now(new, None);
                if let Some(status) = new.object_at_mut(&["status"]) {
                    status.insert("phase", "Terminating");
                }
            }
            let own = new.at(&["spec", "finalizers"]).and_then(Value::as_array);
            own.is_some_and(|f| !f.is_empty()) || waits_for_finalizers
        }
        Deletion::Plain => {
            if waits_for_finalizers && !was_deleting {
                mark_now(new, Some(0));
            }
            waits_for_finalizers
        }
    }
}

fn mark_now(object: &mut Value, grace: Option<i64>) {
    mark_at(object, SystemTime::now(), grace);
}

fn mark_at(object: &mut Value, when: SystemTime, grace: Option<i64>) {
    let Some(metadata) = object.object_at_mut(&["metadata"]) else { return };
    metadata.insert("deletionTimestamp", Timestamp::from(when).to_rfc3339());
    if let Some(grace) = grace {
        metadata.insert("deletionGracePeriodSeconds", grace);
    }
    if let Some(generation) = metadata.get("generation").and_then(Value::as_int).filter(|g| *g > 0) {
        metadata.insert("generation", generation.saturating_add(1));
    }
}

/// A bound pod that runs gets its grace period; true when it stays to use it
/// (kubernetes `pkg/registry/core/pod/strategy.go`, `CheckGracefulDelete`).
fn mark_pod(options: &Options, pod: &mut Value, was_deleting: bool) -> bool {
    let asked = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
    if was_deleting {
        let pending =
            pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int).unwrap_or(0);
        return match asked {
            _ if pending == 0 => false,
            // Only a shorter grace period counts.
            Some(asked) if asked < pending => {
                shorten(pod, pending, asked);
                asked > 0
            }
            _ => true,
        };
    }
    let wanted = asked.or_else(|| pod.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_int));
    let bound = pod.str_at(&["spec", "nodeName"]).is_some_and(|n| !n.is_empty());
    let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let grace = match wanted {
        _ if !bound || over => 0,
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
        None => 0,
    };
    let until = SystemTime::now().checked_add(Duration::from_secs(grace.unsigned_abs()));
    mark_at(pod, until.unwrap_or_else(SystemTime::now), Some(grace));
    grace > 0
}

fn read_time(text: &str) -> Option<SystemTime> {
    let seconds = Timestamp::parse(text).ok()?.seconds;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Moves the end of a grace period forward, never into the past.
fn shorten(pod: &mut Value, pending: i64, asked: i64) {
    let Some(metadata) = pod.object_at_mut(&["metadata"]) else { return };
    let set = metadata.get("deletionTimestamp").and_then(Value::as_str).and_then(read_time);
    let now = SystemTime::now();
    let moved = set
        .and_then(|t| t.checked_sub(Duration::from_secs(pending.unsigned_abs())))
        .and_then(|t| t.checked_add(Duration::from_secs(asked.unsigned_abs())))
        .unwrap_or(now);
    let grace = if moved < now && asked != 0 { 1 } else { asked };
    metadata.insert("deletionTimestamp", Timestamp::from(moved.max(now)).to_rfc3339());
    metadata.insert("deletionGracePeriodSeconds", grace);
}

/// The finalizers that the garbage collector waits for (`deletionFinalizersForGarbageCollection`).
fn set_collector_finalizers(cx: &Context, options: &Options, object: &mut Value) {
    let strategy = cx.resource.strategy;
    if !strategy.collected {
        return;
    }
    let present = metadata::finalizers(object);
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

pub(super) async fn delete_collection(
    mut cx: Context,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::List)?;
    let options = options(&mut cx, incoming).await?;
    let selection = Selection::parse(&cx.resource, &cx.query, "")?;
    let form = write::storage(&cx)?;
    let mut range = key::range(&key::collection(&form.prefix, key_namespace(&cx)));
    let mut values: Vec<(Bytes, plinth_engine::Revision)> = Vec::new();
    loop {
        let (found, next) = step(&cx, &range, &selection).await?;
        for (object_key, record) in found {
            let Some((namespace, name)) = key::split(&form.prefix, cx.resource.row.namespaced, &object_key)
            else {
                continue;
            };
            match delete_object(&cx, namespace, name, &options).await {
                Ok(Deleted::Gone { last, record }) => values.push((last, record.mod_revision)),
                Ok(Deleted::Kept { value, revision }) => values.push((value, revision)),
                // Somebody else was quicker.
                Err(error) if error.code == 404 => values.push((record.value.clone(), record.mod_revision)),
                Err(error) => return Err(error),
            }
        }
        match next {
            Some(next) => range = next,
            None => break,
        }
    }
    let items = values.iter().map(|(v, r)| Item::new(v, *r)).collect::<Result<Vec<_>, _>>()?;
    let meta = ListMeta {
        resource_version: cx.server.store.engine().current_revision().to_string(),
        ..ListMeta::default()
    };
    let mut out = Vec::with_capacity(4096);
    representation.whole_list(&meta, &items, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(Shape::List), out))
}

/// Deletes every object of the collection that `cx` names, dependents in the background; how many were held by
/// finalizers or a grace period.
///
/// # Errors
/// When an object cannot be deleted.
pub(crate) async fn delete_all(cx: &Context) -> Result<u64, ApiError> {
    let form = write::storage(cx)?;
    let options = Options { propagation_policy: Some("Background".into()), ..Options::default() };
    let mut range = key::range(&key::collection(&form.prefix, key_namespace(cx)));
    let mut held = 0;
    loop {
        let (found, next) = step(cx, &range, &Selection::everything()).await?;
        for (object_key, _) in found {
            let Some((namespace, name)) = key::split(&form.prefix, cx.resource.row.namespaced, &object_key)
            else {
                continue;
            };
            match delete_object(cx, namespace, name, &options).await {
                Ok(Deleted::Gone { .. }) => {}
                Ok(Deleted::Kept { .. }) => held += 1,
                // Somebody else was quicker.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        match next {
            Some(next) => range = next,
            None => return Ok(held),
        }
    }
}

/// Deletes the object that `cx` names, of the server's own accord, if it is still the one of that UID and, where one is
/// given, of that revision.
///
/// # Errors
/// 404 when it is gone, 409 when it is another one, and whatever else a delete can answer.
pub(crate) async fn delete_one(
    cx: &Context,
    propagation_policy: &str,
    uid: &str,
    revision: Option<plinth_engine::Revision>,
) -> Result<(), ApiError> {
    let options = Options {
        propagation_policy: Some(propagation_policy.into()),
        uid: Some(uid.into()),
        resource_version: revision.map(|r| r.get().to_string()),
        ..Options::default()
    };
    delete_object(cx, key_namespace(cx), &cx.info.name, &options).await.map(|_| ())
}

type Found = Vec<(Bytes, Fetched)>;

/// The next selected objects of a collection, and where to go on.
async fn step(
    cx: &Context,
    range: &plinth_engine::KeyRange,
    selection: &Selection,
) -> Result<(Found, Option<plinth_engine::KeyRange>), ApiError> {
    let wanted = range.clone();
    let found: Vec<Record> = cx
        .server
        .store
        .read(move |engine| {
            let mut entries = engine.snapshot(At::Latest)?.range(&wanted);
            let mut found = Vec::new();
            while found.len() < COLLECTION_STEP {
                match entries.next()? {
                    Some(entry) => found.push(entry.to_record()),
                    None => break,
                }
            }
            Ok(found)
        })
        .await?;
    let next = (found.len() == COLLECTION_STEP).then(|| found.last().map(|r| range.after(&r.key))).flatten();
    let mut selected = Vec::with_capacity(found.len());
    for record in found {
        let head = Head::parse(&record.value).map_err(ApiError::internal)?;
        if selection.matches(&cx.resource, &record.key, &head) {
            selected.push((record.key.clone(), cx.server.store.fetched(record)?));
        }
    }
    Ok((selected, next))
}
