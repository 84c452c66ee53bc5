//! The two ways in which a write changes ownership: apply, and all other verbs.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::compare::{compare, Comparison};
use super::conflict::{Conflict, Conflicts};
use super::context::Context;
use super::extract::{all_fields, field_set, never_owned};
use super::managed::{self, Entry, Fields, ManagedFields, ManagedFieldsError, ManagedFieldsOperationType};
use super::path::same;
use super::set::Set;
use super::{last_applied, merge, remove, validate};
use crate::schema::{Schema, TypeId, GVK};
use crate::value::{Map, Value};

/// The manager of fields set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// 400: the configuration is of another kind or version.
    #[error("invalid object type: {group}/{version}, Kind={kind}")]
    Kind {
        /// Group of the configuration.
        group: SmolStr,
        /// Version of the configuration.
        version: SmolStr,
        /// Kind of the configuration.
        kind: SmolStr,
    },
    /// 400: the configuration has managedFields.
    #[error("metadata.managedFields must be nil")]
    HasManagedFields,
    /// 400: the configuration does not fit the schema. (Upstream answers 500.)
    #[error("failed to create typed patch object ({object}): {errors}")]
    Typed {
        /// Which object: `namespace/name; group/version, Kind=kind`.
        object: String,
        /// What does not fit.
        errors: String,
    },
    /// 409: others own fields that would change.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// 500: the live object's managedFields cannot be read.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] ManagedFieldsError),
}

impl ApplyError {
    /// The HTTP status code of the answer.
    pub fn code(&self) -> u16 {
        match self {
            ApplyError::Kind { .. } | ApplyError::HasManagedFields | ApplyError::Typed { .. } => 400,
            ApplyError::Conflicts(_) => 409,
            ApplyError::ManagedFields(_) => 500,
        }
    }
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.at(&["metadata", "managedFields"])
}

fn set_managed_fields(object: &mut Value, managed: ManagedFields) {
    match managed.encode() {
        Some(list) => {
            if let Some(metadata) = object.object_at_mut(&["metadata"]) {
                metadata.insert("managedFields", list);
            }
        }
        None => {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.remove("managedFields");
            }
        }
    }
}

/// Applies a configuration for [`Context::manager`]: the fields of the configuration are set and owned,
/// fields of the previous configuration that it omits are removed unless another manager owns them.
///
/// `live` is the object in the version of the request, `None` when it does not exist. Returns the new object
/// with its `managedFields`, to be normalized and validated by the caller, or `None` when nothing changes. A
/// write that changes only the time of entries (because a value is written differently, like `2048Mi`) is to
/// be undone with [`keep_times`] after that.
///
/// # Errors
/// See [`ApplyError`]. With `force`, conflicting fields are taken from their owners.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    force: bool,
    context: &Context<'_>,
) -> Result<Option<Value>, ApplyError> {
    check_kind(applied, context)?;
    if managed_fields(applied).is_some_and(|list| list.as_array().is_some()) {
        return Err(ApplyError::HasManagedFields);
    }
    let nothing = EmptyObject::new(live, context);
    let live = live.unwrap_or(&nothing.0);
    let mut managed = match managed_fields(live) {
        None | Some(Value::Null) => ManagedFields::default(),
        Some(list) => ManagedFields::stored(list)?,
    };
    if let Some(errors) = validate::errors(context.schema, context.root, applied) {
        return Err(ApplyError::Typed { object: describe_object(applied, context.kind), errors });
    }
    let mut is_first = false;
    if managed.entries.is_empty() {
        let before = Context { manager: BEFORE_FIRST_APPLY, ..*context };
        track(&context.schema.zero(context.root), live, &mut managed, &before);
        is_first = !managed.entries.is_empty();
    }
    let applying = Application { live, applied, is_first, context };
    let mut outcome = applying.run(managed.clone(), force);
    if let Err(conflicts) = &outcome {
        // kubectl, migrating from client-side apply, may take fields that its last configuration set.
        if context.manager == last_applied::KUBECTL {
            if let Some(own) = last_applied::fields(live, context) {
                // Lookups in a set scan each level from its first step: too slow for many conflicts in one
                // list.
                let mut own = own.paths();
                own.sort_unstable();
                let is_own = |c: &&Conflict| own.binary_search(&c.path).is_ok();
                let others: Vec<_> = conflicts.0.iter().filter(|c| !is_own(c)).cloned().collect();
                outcome = match others.is_empty() {
                    true => applying.run(managed, true),
                    false => Err(Conflicts(others)),
                };
            }
        }
    }
    let mut object = match outcome.map_err(ApplyError::Conflicts)? {
        Some(Outcome { mut object, managed }) => {
            set_managed_fields(&mut object, managed);
            Some(object)
        }
        None => None,
    };
    if context.manager == last_applied::KUBECTL {
        match &mut object {
            Some(object) => drop(last_applied::update(object, applied)),
            None => {
                let mut same = live.clone();
                object = last_applied::update(&mut same, applied).then_some(same);
            }
        }
    }
    Ok(object)
}

/// The object before it is created, with the fields that upstream's typed objects always have, like
/// `status: {}`. So those are never *added*, and have no owner.
struct EmptyObject(Value);

impl EmptyObject {
    /// Built only when it is needed.
    fn new(live: Option<&Value>, context: &Context<'_>) -> EmptyObject {
        EmptyObject(live.map_or_else(|| context.schema.zero(context.root), |_| Value::Null))
    }
}

fn check_kind(applied: &Value, context: &Context<'_>) -> Result<(), ApplyError> {
    let text = |key| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if (group, version, kind) == (&*context.kind.group, &*context.kind.version, &*context.kind.kind) {
        return Ok(());
    }
    Err(ApplyError::Kind { group: group.into(), version: version.into(), kind: kind.into() })
}

fn describe_object(object: &Value, kind: &GVK) -> String {
    let text = |key| object.str_at(&["metadata", key]).unwrap_or_default();
    format!("{}/{}; {}/{}, Kind={}", text("namespace"), text("name"), kind.group, kind.version, kind.kind)
}

/// An apply to one state of the object.
struct Application<'a> {
    live: &'a Value,
    applied: &'a Value,
    /// Whether entries for the fields before the first apply have just been created.
    is_first: bool,
    context: &'a Context<'a>,
}

struct Outcome {
    object: Value,
    managed: ManagedFields,
}

impl Application<'_> {
    /// `None` when neither the object nor its managers change.
    fn run(&self, mut managed: ManagedFields, force: bool) -> Result<Option<Outcome>, Conflicts> {
        let Context { schema, root, reset, .. } = *self.context;
        let mut changed = reconcile(&mut managed, self.context) || self.is_first;
        let owned = reset.filter(field_set(schema, root, self.applied));
        let mut own = Entry {
            manager: manager_name(self.context.manager),
            operation: ManagedFieldsOperationType::Apply,
            api_version: self.context.kind.api_version(),
            subresource: self.context.subresource.into(),
            time: None,
            fields: Fields::Set(Set::new()),
        };
        let last = managed.entries.iter().position(|e| e.is_same_manager(&own));
        let last = last.map(|i| managed.entries.remove(i));
        own.time = last.as_ref().and_then(|last| last.time.clone());

        let is_as_before = match &last {
            Some(last) => last.api_version == own.api_version && last.fields.is(&owned),
            None => owned.is_empty(),
        };
        changed |= !is_as_before;
        own.fields = Fields::Set(owned);

        let mut object = Cow::Borrowed(self.live);
        if !merge::is_merged(schema, root, self.live, self.applied) {
            merge::merge(schema, root, object.to_mut(), self.applied);
        }
        if let (false, Some(last)) = (is_as_before, &last) {
            let pruning = Pruner { last, own: &own, others: &managed, context: self.context };
            if let Some(pruned) = pruning.run(object.as_ref()) {
                object = Cow::Owned(pruned);
            }
        }
        let object_changed = matches!(&object, Cow::Owned(new) if !same(self.live, new));
        if object_changed {
            let comparison = compare(schema, root, self.live, &object).map(|set| reset.filter(set));
            changed |= release(&mut managed, &comparison, self.live, &object, force, self.context)?;
            own.time = Some(self.context.time.into());
        }
        if !changed && !object_changed {
            return Ok(None);
        }
        if !own.fields.is_empty() {
            managed.entries.push(own);
        }
        // The live object, not one with equal values that are written differently.
        let object = if object_changed { object.into_owned() } else { self.live.clone() };
        Ok(Some(Outcome { object, managed }))
    }
}

fn manager_name(name: &str) -> SmolStr {
    match name {
        "" => SmolStr::new_static("unknown"),
        name => name.into(),
    }
}

/// Adapts entries to a schema that changed since they were written. Returns whether any changed.
fn reconcile(managed: &mut ManagedFields, context: &Context<'_>) -> bool {
    let mut changed = false;
    for entry in &mut managed.entries {
        let Some((schema, root)) = typed_version(context, &entry.api_version) else { continue };
        if let Some(set) = remove::reconcile(schema, root, &entry.fields) {
            entry.fields = Fields::Set(set);
            changed = true;
        }
    }
    changed
}

fn is_own_version(context: &Context<'_>, api_version: &str) -> bool {
    match api_version.split_once('/') {
        Some((group, version)) => context.kind.group == group && context.kind.version == version,
        None => context.kind.group.is_empty() && context.kind.version == api_version,
    }
}

fn typed_version<'a>(context: &Context<'a>, api_version: &str) -> Option<(&'a Schema, TypeId)> {
    match is_own_version(context, api_version) {
        true => Some((context.schema, context.root)),
        false => context.versions.typed(api_version),
    }
}

fn convert<'v>(context: &Context<'_>, object: &'v Value, api_version: &str) -> Option<Cow<'v, Value>> {
    match is_own_version(context, api_version) {
        true => Some(Cow::Borrowed(object)),
        false => context.versions.convert(object, api_version).map(Cow::Owned),
    }
}

/// Removes changed fields from the entries that own them, and removed fields from all. Entries of versions
/// that are no longer served and those that own nothing now are dropped. Returns whether an entry changed.
fn release(
    managed: &mut ManagedFields,
    comparison: &Comparison,
    old: &Value,
    new: &Value,
    force: bool,
    context: &Context<'_>,
) -> Result<bool, Conflicts> {
    /// Fields that were changed, and fields that were removed.
    type Change = (Set, Set);
    let change = |c: &Comparison| -> Change { (c.modified.union(&c.added), c.removed.clone()) };
    // By version, each compared once; `None` for one that is not served.
    let mut changes: Vec<(SmolStr, Option<Change>)> =
        vec![(context.kind.api_version(), Some(change(comparison)))];
    let mut conflicts: Vec<(usize, Set)> = Vec::new();
    let mut keep = Vec::with_capacity(managed.entries.len());
    let mut released = Vec::with_capacity(managed.entries.len());
    for (i, entry) in managed.entries.iter().enumerate() {
        let at = changes.iter().position(|(version, _)| *version == entry.api_version).unwrap_or_else(|| {
            let comparison = compare_in(context, &entry.api_version, old, new);
            changes.push((entry.api_version.clone(), comparison.as_ref().map(change)));
            changes.len() - 1
        });
        let Some((set, gone)) = &changes[at].1 else {
            keep.push(false);
            released.push(None);
            continue;
        };
        if !entry.fields.has_any_of(set) && !entry.fields.has_any_of(gone) {
            keep.push(!entry.fields.is_empty());
            released.push(None);
            continue;
        }
        let owned = entry.fields.set();
        let taken = owned.intersection(set);
        let left = owned.difference(&taken).difference(gone);
        keep.push(!left.is_empty());
        released.push(Some(left));
        if !taken.is_empty() {
            conflicts.push((i, taken));
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(Conflicts::of(
            conflicts.into_iter().map(|(i, set)| (&managed.entries[i], set)).collect(),
        ));
    }
    let changed = released.iter().any(Option::is_some) || keep.contains(&false);
    for (entry, set) in managed.entries.iter_mut().zip(released) {
        if let Some(set) = set {
            entry.fields = Fields::Set(set);
        }
    }
    let mut keep = keep.into_iter();
    managed.entries.retain(|_| keep.next().unwrap_or(true));
    Ok(changed)
}

fn compare_in(context: &Context<'_>, api_version: &str, old: &Value, new: &Value) -> Option<Comparison> {
    let (schema, root) = typed_version(context, api_version)?;
    let (old, new) = (convert(context, old, api_version)?, convert(context, new, api_version)?);
    Some(compare(schema, root, &old, &new).map(|set| context.reset.filter(set)))
}

/// Removes fields of an applier's previous configuration that it omits now and that have no other owner.
struct Pruner<'a> {
    last: &'a Entry,
    own: &'a Entry,
    others: &'a ManagedFields,
    context: &'a Context<'a>,
}

impl Pruner<'_> {
    /// The object in the request's version; `None` when there is nothing to prune, or nothing can be because
    /// the version of the last apply is no longer served.
    fn run(&self, merged: &Value) -> Option<Value> {
        let version = &self.last.api_version;
        let last = self.last.fields.set();
        if last.is_empty() || (*version == self.own.api_version && last.is_subset(&self.own.fields.set())) {
            return None;
        }
        let (schema, root) = typed_version(self.context, version)?;
        let merged = convert(self.context, merged, version)?;
        // Never the metadata as a whole.
        let last = remove::with_named_fields(schema, root, &last).difference(never_owned());
        let mut pruned = merged.clone().into_owned();
        remove::remove(schema, root, &mut pruned, &last);

        let mut pruned = self.add_back_owned(&merged, pruned, version)?;
        // Only fields that this applier set may be removed: restore those without an owner, and those of
        // updaters.
        let named =
            |object: &Value| remove::with_named_fields(schema, root, &all_fields(schema, root, object));
        if let Some(back) = convert(self.context, &pruned, version) {
            let gone = named(&merged).difference(&named(&back)).intersection(&last);
            pruned = merged.into_owned();
            remove::remove(schema, root, &mut pruned, &gone);
        }
        match is_own_version(self.context, version) {
            true => Some(pruned),
            false => self.context.versions.convert(&pruned, &self.own.api_version),
        }
    }

    /// Restores owned fields, version by version, that of `pruned` first. The result is in that version.
    fn add_back_owned(&self, merged: &Value, pruned: Value, version: &str) -> Option<Value> {
        let mut versions: Vec<(&str, Set)> = vec![(version, Set::new())];
        for entry in self.others.entries.iter().chain([self.own]) {
            match versions.iter_mut().find(|(version, _)| *version == entry.api_version) {
                Some((_, owned)) => *owned = owned.union(&entry.fields.set()),
                None => versions.push((&entry.api_version, entry.fields.set().into_owned())),
            }
        }
        let mut pruned = pruned;
        for (other, owned) in versions {
            let Some((schema, root)) = typed_version(self.context, other) else { continue };
            let to = |object: &Value, from: &str| match from == other {
                true => Some(object.clone()),
                false => self.convert_between(object, other),
            };
            let (Some(full), Some(part)) = (to(merged, version), to(&pruned, version)) else { continue };
            let named = |set: &Set| remove::with_named_fields(schema, root, set);
            let (all, left) =
                (named(&field_set(schema, root, &full)), named(&field_set(schema, root, &part)));
            let gone = all.difference(&left.union(&named(&owned)));
            let mut kept = full;
            remove::remove(schema, root, &mut kept, &gone);
            pruned = match other == version {
                true => kept,
                false => self.convert_between(&kept, version)?,
            };
        }
        Some(pruned)
    }

    fn convert_between(&self, object: &Value, to: &str) -> Option<Value> {
        self.context.versions.convert(object, to)
    }
}

/// Updates ownership after a write other than apply: changed fields belong to [`Context::manager`].
///
/// `live` is the object before, `None` for a create; `new` the object as it is about to be stored, with the
/// `managedFields` that the client sent, which this replaces. Both are normalized and in the version of the
/// request. An object without owners stays so, unless it is being created.
pub fn track_update(live: Option<&Value>, new: &mut Value, context: &Context<'_>) {
    let nothing = EmptyObject::new(live, context);
    let live = live.unwrap_or(&nothing.0);
    let mut managed = previous(live, new, context);
    let is_create = live.str_at(&["metadata", "uid"]).unwrap_or_default().is_empty();
    if !managed.entries.is_empty() || is_create {
        track(live, new, &mut managed, context);
    }
    set_managed_fields(new, managed);
}

/// The ownership before a write: as the client sent it, if it may and did, else that of the object. Removes
/// the client's list from the object.
fn previous(live: &Value, new: &mut Value, context: &Context<'_>) -> ManagedFields {
    let sent = match new.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata.remove("managedFields"),
        _ => None,
    };
    let stored = managed_fields(live);
    let of_live = || stored.and_then(|list| ManagedFields::stored(list).ok()).unwrap_or_default();
    // Nearly every client sends back what it read, which needs no check. Ownership cannot be written through
    // a subresource.
    if sent.is_some() && sent.as_ref() == stored || !context.subresource.is_empty() {
        return of_live();
    }
    if managed::is_reset(sent.as_ref()) {
        return ManagedFields::default();
    }
    match ManagedFields::decode(sent.as_ref()) {
        Ok(managed) if !managed.entries.is_empty() => managed,
        // A client that does not know the field omits it, which must not drop it.
        _ => of_live(),
    }
}

/// Assigns the differences between two objects to a manager.
fn track(live: &Value, new: &Value, managed: &mut ManagedFields, context: &Context<'_>) {
    let Context { schema, root, reset, .. } = *context;
    reconcile(managed, context);
    let comparison = compare(schema, root, live, new).map(|set| reset.filter(set));
    let changed = comparison.modified.union(&comparison.added);
    let set = changed.difference(never_owned());
    let own = Entry {
        manager: manager_name(context.manager),
        operation: ManagedFieldsOperationType::Update,
        api_version: context.kind.api_version(),
        subresource: context.subresource.into(),
        time: Some(context.time.into()),
        fields: Fields::Set(Set::new()),
    };
    let at = managed.entries.iter().position(|e| e.is_same_manager(&own));
    // A manager that changes fields it owns already, as one that updates a status repeatedly, keeps its
    // ownership unchanged.
    let keeps =
        |entry: &Entry| entry.fields.has_all_of(&changed) && !entry.fields.has_any_of(&comparison.removed);
    let kept = at.filter(|i| !set.is_empty() && set == changed && keeps(&managed.entries[*i]));
    let kept = kept.map(|i| Entry { time: own.time.clone(), ..managed.entries.remove(i) });
    if !comparison.is_same() {
        // Forced, so that there is no error.
        let _ = release(managed, &comparison, live, new, true, context);
    }
    match kept {
        Some(entry) => managed.entries.push(entry),
        None if set.is_empty() => {}
        None => match managed.entries.iter_mut().find(|e| e.is_same_manager(&own)) {
            Some(entry) => {
                entry.fields = Fields::Set(entry.fields.set().union(&set));
                entry.time = own.time;
            }
            None => managed.entries.push(Entry { fields: Fields::Set(set), ..own }),
        },
    }
    managed.cap_updates();
}

/// Restores the old times in `managedFields` when nothing else differs between two objects, so that a write
/// without effect changes no byte. Returns whether it did.
pub fn keep_times(old: &Value, new: &mut Value) -> bool {
    let list = |object| managed_fields(object).and_then(Value::as_array);
    let (Some(before), Some(after)) = (list(old), list(new)) else { return false };
    if before.len() != after.len() || before == after {
        return false;
    }
    let entries_same = before.iter().zip(after).all(|(a, b)| equal_except(a, b, "time"));
    let (metadata, new_metadata) = (old.get("metadata"), new.get("metadata"));
    let metadata_same = metadata.zip(new_metadata).is_some_and(|(a, b)| equal_except(a, b, "managedFields"));
    if !entries_same || !metadata_same || !equal_except(old, new, "metadata") {
        return false;
    }
    let before = Value::Array(before.to_vec());
    match new.object_at_mut(&["metadata"]) {
        Some(metadata) => {
            metadata.insert("managedFields", before);
            true
        }
        None => false,
    }
}

/// Whether two objects are the same but for one member.
fn equal_except(a: &Value, b: &Value, member: &str) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let others = |m: &'_ Map| m.len() - usize::from(m.contains(member));
    others(a) == others(b)
        && a.iter().filter(|(k, _)| *k != member).all(|(k, v)| b.get(k).is_some_and(|other| same(v, other)))
}
