//! Lists of type `set` and `map`: no element twice (apiextensions-apiserver,
//! `pkg/apiserver/schema/listtype`).

use std::collections::HashMap;

use plinth_codec::field::{FieldError, Path};
use plinth_codec::json;
use plinth_codec::value::{level, Map, Value};

use super::node::{Additional, ListKind, Node, NodeId};
use super::validate::MAX_ERRORS;

/// Duplicate elements, each reported at its second position.
pub(super) fn errors(nodes: &[Node], id: NodeId, object: &Value) -> Vec<FieldError> {
    let mut walk = Walk { nodes, errors: Vec::new() };
    walk.value(id, object, &Path::Root);
    walk.errors
}

struct Walk<'a> {
    nodes: &'a [Node],
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn value(&mut self, id: NodeId, value: &Value, path: &Path<'_>) {
        let Some(node) = self.nodes.get(id.index()).filter(|_| self.errors.len() < MAX_ERRORS) else {
            return;
        };
        match value {
            Value::Object(map) => level(|| {
                for (name, value) in map.iter() {
                    match (node.property(name), node.additional) {
                        (Some(id), _) => self.value(id, value, &path.child(name)),
                        (None, Additional::Schema(id)) => self.value(id, value, &path.key(name)),
                        _ => {}
                    }
                }
            }),
            Value::Array(items) => {
                match node.list {
                    ListKind::Atomic => {}
                    ListKind::Set => {
                        for i in repeated(items) {
                            self.errors.push(FieldError::duplicate(path.index(i), &items[i]));
                        }
                    }
                    ListKind::Map => self.keys(node, items, path),
                }
                if let Some(id) = node.items {
                    level(|| {
                        for (i, item) in items.iter().enumerate() {
                            self.value(id, item, &path.index(i));
                        }
                    });
                }
            }
            _ => {}
        }
    }

    fn keys(&mut self, node: &Node, items: &[Value], path: &Path<'_>) {
        let wrong = items.iter().position(|item| !matches!(item, Value::Null | Value::Object(_)));
        if let Some(i) = wrong {
            let why = "must be an object for an array of list-type map";
            self.errors.push(FieldError::invalid(path.index(i), &items[i], why));
            return;
        }
        let names = node.list_map_keys();
        let keys: Vec<Value> = items
            .iter()
            .map(|item| {
                let fields = names.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
                Value::Object(fields.collect::<Map>())
            })
            .collect();
        for i in repeated(&keys) {
            self.errors.push(FieldError::duplicate(path.index(i), &keys[i]));
        }
    }
}

/// The indices of duplicate values.
fn repeated(values: &[Value]) -> Vec<usize> {
    if values.len() <= 1 {
        return Vec::new();
    }
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::with_capacity(values.len());
    let mut places = Vec::new();
    for (i, value) in values.iter().enumerate() {
        // 1 and 1.0 are different, as in Go.
        let mut key = vec![u8::from(matches!(value, Value::Float(_)))];
        json::write_untyped(value, &mut key);
        let times = seen.entry(key).or_default();
        *times += 1;
        if *times == 2 {
            places.push(i);
        }
    }
    places
}
