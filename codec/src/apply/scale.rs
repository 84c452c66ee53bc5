//! Ownership through `/scale`: the Scale object shows the owners of the parent's replicas as owners of its
//! own, and writes to it are recorded in the parent.

use smol_str::SmolStr;

use super::managed::{Entry, Fields, ManagedFields, ManagedFieldsError, ManagedFieldsOperationType};
use super::path::PathElement;
use super::set::Set;
use crate::value::Value;

/// The version of Scale.
const SCALE_VERSION: &str = "autoscaling/v1";

/// The path of the replicas in a version of the parent. `None` if it has none (a custom resource without
/// scale).
pub type ReplicasPath<'a> = (&'a str, Option<Vec<PathElement>>);

fn replicas_in_scale() -> Vec<PathElement> {
    vec![PathElement::field("spec"), PathElement::field("replicas")]
}

fn one(path: &[PathElement]) -> Set {
    Set::of([path])
}

fn path_of<'p>(paths: &'p [ReplicasPath<'_>], version: &str) -> Option<&'p Option<Vec<PathElement>>> {
    paths.iter().find(|(v, _)| *v == version).map(|(_, path)| path)
}

/// The `managedFields` of the Scale object, from those of the parent. `None` when the replicas have no owner.
pub fn to_scale(
    parent: Option<&Value>,
    paths: &[ReplicasPath<'_>],
) -> Result<Option<Value>, ManagedFieldsError> {
    let mut managed = ManagedFields::decode(parent)?;
    managed.entries.retain_mut(|entry| {
        let path = path_of(paths, &entry.api_version).and_then(Option::as_ref);
        let owns = path.is_some_and(|path| entry.fields.set().contains(path));
        entry.fields = Fields::Set(one(&replicas_in_scale()));
        entry.api_version = SCALE_VERSION.into();
        owns
    });
    Ok(managed.encode())
}

/// The `managedFields` of the parent, from those it had and those of the Scale object after a write.
/// `version` is the parent's version in the request.
pub fn to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    version: &str,
    paths: &[ReplicasPath<'_>],
) -> Result<Option<Value>, ManagedFieldsError> {
    let parent = ManagedFields::decode(parent)?;
    let mut scale = ManagedFields::decode(scale)?;
    let mut out = ManagedFields::default();
    for mut entry in parent.entries {
        // An entry of a version that is no longer served is dropped.
        let Some(path) = path_of(paths, &entry.api_version) else { continue };
        if let Some(path) = path.as_ref().filter(|path| entry.fields.set().contains(path)) {
            let as_scale = Entry { api_version: SCALE_VERSION.into(), ..entry.clone() };
            match scale.entries.iter().position(|e| e.is_same_manager(&as_scale)) {
                // It still owns the replicas. An updater's entry has the version that it wrote.
                Some(i)
                    if entry.operation == ManagedFieldsOperationType::Apply
                        || entry.api_version == version =>
                {
                    drop(scale.entries.remove(i));
                }
                _ => entry.fields = Fields::Set(entry.fields.set().difference(&one(path))),
            }
        }
        if !entry.fields.is_empty() {
            out.entries.push(entry);
        }
    }
    let Some(Some(path)) = path_of(paths, version) else { return Ok(out.encode()) };
    for entry in scale.entries {
        if entry.fields.set().contains(&replicas_in_scale()) {
            out.entries.push(Entry {
                fields: Fields::Set(one(path)),
                api_version: SmolStr::new(version),
                ..entry
            });
        }
    }
    Ok(out.encode())
}
