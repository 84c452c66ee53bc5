//! The set of fields of a configuration, which its applier will own.

use std::sync::LazyLock;

use smol_str::SmolStr;

use super::path::PathElement;
use super::set::{Builder, Set};
use super::typed::{self, MergeShape, Ref};
use super::MAX_DEPTH;
use crate::schema::{Schema, TypeId};
use crate::value::{Map, Value};

/// Fields without owners, since the server or the request's path determines them.
const NEVER_OWNED: &[&str] = &["apiVersion", "kind", "metadata"];

/// The same below `metadata`.
const NEVER_OWNED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The fields without owners, as a set.
pub(super) fn never_owned() -> &'static Set {
    static SET: LazyLock<Set> = LazyLock::new(|| {
        let top = NEVER_OWNED.iter().map(|name| vec![PathElement::field(*name)]);
        let metadata = NEVER_OWNED_METADATA
            .iter()
            .map(|name| vec![PathElement::field("metadata"), PathElement::field(*name)]);
        let paths: Vec<_> = top.chain(metadata).collect();
        Set::of(paths.iter().map(Vec::as_slice))
    });
    &SET
}

/// Every leaf of a value; also the keys of maps, the elements of keyed lists and sets, and objects without
/// members. Excludes the fields without owners. `O(n log n)`.
pub fn field_set(schema: &Schema, root: TypeId, value: &Value) -> Set {
    let mut walk = Walk { schema, out: Builder::default() };
    let shape = Ref::root(root).shape(schema);
    for (key, member) in value.as_object().into_iter().flat_map(Map::iter) {
        if key == "metadata" {
            walk.out.enter(PathElement::Field(key.clone()));
            let of_metadata = shape.member(key).0.shape(schema);
            for (key, member) in member.as_object().into_iter().flat_map(Map::iter) {
                if !NEVER_OWNED_METADATA.contains(&key.as_str()) {
                    walk.member(key, member, of_metadata, 2);
                }
            }
            walk.out.leave();
        } else if !NEVER_OWNED.contains(&key.as_str()) {
            walk.member(key, member, shape, 1);
        }
    }
    walk.out.finish()
}

/// As [`field_set`], with all fields.
pub(super) fn all_fields(schema: &Schema, root: TypeId, value: &Value) -> Set {
    let mut walk = Walk { schema, out: Builder::default() };
    walk.value(value, Ref::root(root), 0);
    walk.out.finish()
}

struct Walk<'s> {
    schema: &'s Schema,
    out: Builder,
}

impl<'s> Walk<'s> {
    fn member(&mut self, key: &SmolStr, member: &Value, shape: MergeShape<'s>, depth: usize) {
        let (of, field) = shape.member(key);
        self.out.enter(PathElement::Field(key.clone()));
        let hollow = member.is_null() || member.as_object().is_some_and(Map::is_empty);
        if field.is_none() || hollow {
            self.out.add();
        }
        self.value(member, of, depth);
        self.out.leave();
    }

    fn value(&mut self, value: &Value, of: Ref<'s>, depth: usize) {
        let shape = if depth < MAX_DEPTH { of.shape(self.schema) } else { MergeShape::Leaf };
        match (shape, value) {
            (MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Deduced, Value::Object(map)) => {
                for (key, member) in map.iter() {
                    self.member(key, member, shape, depth + 1);
                }
            }
            (MergeShape::Set | MergeShape::Keyed(..), Value::Array(_)) => {
                let named = typed::named(self.schema, shape, Some(value));
                let mut rest = named.as_slice();
                while !rest.is_empty() {
                    let (same, others) = typed::run(rest);
                    rest = others;
                    if let [(name, item), more @ ..] = same {
                        self.out.enter(name.clone());
                        self.out.add();
                        // Elements with equal keys cannot be distinguished: owned as a whole.
                        if more.is_empty() {
                            self.value(item, shape.element(), depth + 1);
                        }
                        self.out.leave();
                    }
                }
            }
            (
                MergeShape::Struct(_) | MergeShape::Map(_) | MergeShape::Set | MergeShape::Keyed(..),
                Value::Null,
            ) => {}
            _ => self.out.add(),
        }
    }
}
