//! Defaulting, and the treatment of `null` (apiextensions-apiserver, `pkg/apiserver/schema/defaulting`).

use plinth_codec::value::{level, Map, Value};

use super::node::{Additional, Node, NodeId};

/// Fills in defaults. Returns whether anything changed.
pub(super) fn default(nodes: &[Node], id: NodeId, value: &mut Value) -> bool {
    let Some(node) = nodes.get(id.0 as usize).filter(|n| n.defaults_below) else { return false };
    level(|| match value {
        Value::Object(map) => members(nodes, node, map),
        Value::Array(items) => {
            let Some(id) = node.items else { return false };
            items.iter_mut().fold(false, |changed, item| {
                let filled = replace_null(nodes, id, item);
                default(nodes, id, item) || filled || changed
            })
        }
        _ => false,
    })
}

fn members(nodes: &[Node], node: &Node, map: &mut Map) -> bool {
    let mut changed = false;
    for (name, id) in &node.properties {
        let Some(field) = nodes.get(id.0 as usize) else { continue };
        let Some(value) = field.default() else { continue };
        let wanted = match map.get(name) {
            None => true,
            Some(present) => present.is_null() && !field.nullable,
        };
        if wanted {
            map.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    for (name, value) in map.iter_mut() {
        changed |= match (node.property(name), node.additional) {
            (Some(id), _) => default(nodes, id, value),
            (None, Additional::Schema(id)) => {
                let filled = replace_null(nodes, id, value);
                default(nodes, id, value) || filled
            }
            _ => false,
        };
    }
    changed
}

/// Replaces a `null` that is not allowed by the default.
fn replace_null(nodes: &[Node], id: NodeId, value: &mut Value) -> bool {
    let node = nodes.get(id.0 as usize).filter(|n| value.is_null() && !n.nullable);
    let Some(default) = node.and_then(Node::default) else { return false };
    *value = default.clone();
    true
}

/// Removes members that are `null` where that is not allowed and there is no default, if `of` selects their
/// schema.
pub(super) fn drop_nulls(nodes: &[Node], id: Option<NodeId>, value: &mut Value, of: fn(&Node) -> bool) {
    let node = id.and_then(|id| nodes.get(id.0 as usize));
    // Without a schema every null stays.
    let Some(node) = node else { return };
    level(|| match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(id) = node.member(name) else { return true };
            let refuses = |n: &Node| !n.nullable && n.default().is_none() && of(n);
            if value.is_null() && nodes.get(id.0 as usize).is_some_and(refuses) {
                return false;
            }
            drop_nulls(nodes, Some(id), value, of);
            true
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(nodes, node.items, item, of)),
        _ => {}
    });
}
