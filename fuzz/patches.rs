//! The fuzz targets of patches and of server-side apply. Shared with the property tests on stable Rust
//! (`codec/tests/patches.rs`). A target returns for every input.

use std::sync::LazyLock;

use plinth_codec::apply::{self, fields_v1, merge, Context, ManagedFields, NoOtherVersions, Reset};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::{json, patch, Value};

static POD: LazyLock<GVK> = LazyLock::new(|| GVK::new("", "v1", "Pod"));

fn pod() -> (&'static Schema, TypeId) {
    let schema = schema::builtin();
    (schema, schema.kind(&POD).expect("Pod is built in"))
}

fn context<'a>(manager: &'a str, time: &'a str) -> Context<'a> {
    let (schema, root) = pod();
    Context {
        manager,
        time,
        kind: &POD,
        subresource: "",
        schema,
        root,
        reset: &Reset::Except(&["status"]),
        versions: &NoOtherVersions,
    }
}

/// A Pod as a server holds it; `None` for other input.
fn normal(tree: Value) -> Option<Value> {
    let (schema, root) = pod();
    let mut object = json::conform(tree, schema, root, &json::DecodeOptions::default()).ok()?.value;
    let map = object.as_object_mut()?;
    map.insert("apiVersion", "v1");
    map.insert("kind", "Pod");
    Some(object)
}

/// Two parts of an input: `[first, second]`.
fn pair(input: &[u8]) -> Option<(Value, Value)> {
    match json::parse(input).ok()? {
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            Some((parts.next()?, parts.next()?))
        }
        _ => None,
    }
}

/// `[object, patch]` through all three patches. A result must not be deeper than allowed; an empty patch
/// changes nothing.
pub(crate) fn patches(input: &[u8]) {
    if let Some((object, patch)) = pair(input) {
        patch_all(object, patch);
    }
}

/// See [`patches`].
pub(crate) fn patch_all(object: Value, patch: Value) {
    let (schema, root) = pod();
    if let Ok(patched) = patch::json_patch(object.clone(), patch.clone()) {
        let mut text = Vec::new();
        json::write_untyped(&patched, &mut text);
        assert!(json::parse(&text).is_ok(), "too deep or malformed");
    }
    drop(patch::json_patch_unknown_fields(&patch));
    drop(patch::merge_patch(object.clone(), patch.clone()));
    if object.as_object().is_some() {
        assert_eq!(patch::merge_patch(object.clone(), Value::object()).as_ref(), Ok(&object));
        assert_eq!(
            patch::strategic_merge(object.clone(), Value::object(), schema, root).as_ref(),
            Ok(&object)
        );
    }
    drop(patch::strategic_merge(object, patch, schema, root));
}

/// FieldsV1: a decoded set must survive encoding and decoding.
pub(crate) fn fields(input: &[u8]) {
    let Ok(tree) = json::parse(input) else { return };
    if let Ok(set) = fields_v1::decode(&tree) {
        assert_eq!(fields_v1::decode(&fields_v1::encode(&set)).as_ref(), Ok(&set));
        assert!(set.difference(&set).is_empty());
        assert_eq!(set.union(&set), set);
        assert_eq!(set.intersection(&set), set);
        for path in set.paths() {
            assert!(set.contains(&path));
        }
    }
    drop(ManagedFields::decode(Some(&tree)));
}

/// `[live, configuration]` for a Pod: a successful apply sets and owns its fields, and changes nothing the
/// second time.
pub(crate) fn applies(input: &[u8]) {
    if let Some((live, config)) = pair(input) {
        apply_twice(live, config);
    }
}

/// See [`applies`].
pub(crate) fn apply_twice(live: Value, mut config: Value) {
    let (schema, root) = pod();
    let Some(live) = normal(live) else { return };
    let Some(map) = config.as_object_mut() else { return };
    map.insert("apiVersion", "v1");
    map.insert("kind", "Pod");
    let run = |live: &Value, time| {
        let outcome = apply::apply(Some(live), &config, true, &context("applier", time));
        let mut object =
            normal(outcome?.unwrap_or_else(|| live.clone())).ok_or(apply::ApplyError::HasManagedFields)?;
        apply::keep_times(live, &mut object);
        Ok::<Value, apply::ApplyError>(object)
    };
    let Ok(once) = run(&live, "2026-01-01T00:00:01Z") else { return };
    // There are no owners, as after an apply of empty lists alone: the next one is a first apply, too.
    if once.at(&["metadata", "managedFields"]).is_none() {
        return;
    }
    let twice = run(&once, "2026-01-01T00:00:02Z").expect("what was applied once");
    assert_eq!(twice, once, "applying again changed something");

    let list = once.at(&["metadata", "managedFields"]);
    let managed = ManagedFields::decode(list).expect("what we wrote");
    let set = apply::extract::field_set(schema, root, &config);
    let own = managed.entries.iter().find(|e| e.manager == "applier");
    for path in set.paths().iter().filter(|path| apply::path::describe(&path[..1]) != ".status") {
        assert!(own.is_some_and(|own| own.fields.set().contains(path)), "{}", apply::path::describe(path));
    }
    let mut merged = live;
    merge::merge(schema, root, &mut merged, &config);
    let again = merge::is_merged(schema, root, &merged, &config);
    let mut stable = merged.clone();
    merge::merge(schema, root, &mut stable, &config);
    assert!(!again || apply::path::same(&stable, &merged), "a merge that was said to change nothing did");
    assert!(apply::path::same(&stable, &merged), "merging twice differs from merging once");
}

/// `[old, new]` Pods: tracking assigns the changes to the writer, and nothing the second time.
pub(crate) fn tracks(input: &[u8]) {
    if let Some((old, new)) = pair(input) {
        track_twice(old, new);
    }
}

/// See [`tracks`].
pub(crate) fn track_twice(old: Value, new: Value) {
    let (schema, root) = pod();
    let (Some(old), Some(mut new)) = (normal(old), normal(new)) else { return };
    let comparison = apply::compare::compare(schema, root, &old, &new);
    let back = apply::compare::compare(schema, root, &new, &old);
    assert_eq!((&comparison.added, &comparison.removed), (&back.removed, &back.added));
    assert_eq!(comparison.modified, back.modified);

    let mut first = old.clone();
    apply::track_update(None, &mut first, &context("first", "2026-01-01T00:00:01Z"));
    if let Some(Value::Object(metadata)) = new.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    apply::track_update(Some(&first), &mut new, &context("second", "2026-01-01T00:00:02Z"));
    let mut same = new.clone();
    apply::track_update(Some(&new), &mut same, &context("third", "2026-01-01T00:00:03Z"));
    assert_eq!(same, new, "a write that changes nothing changed owners");

    let managed = ManagedFields::decode(new.at(&["metadata", "managedFields"])).expect("what we wrote");
    for (i, a) in managed.entries.iter().enumerate() {
        for b in &managed.entries[i + 1..] {
            let shared = a.fields.set().intersection(&b.fields.set());
            assert!(shared.is_empty(), "two updaters own {:?}", shared.paths());
        }
    }
}
