//! Pruning: removal of unknown fields (apiextensions-apiserver, `pkg/apiserver/schema/pruning`).

use std::fmt::Write;

use plinth_codec::value::{level, Map, Value};
use smol_str::SmolStr;

use super::node::{Additional, Node, NodeId};

/// Maximum number of unknown fields recorded for one object, before they are sorted and truncated.
const MAX_REMEMBERED: usize = 10_000;

/// The fields that every object has; their content is decoded as for built-in kinds.
pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Paths of unknown fields, if they are recorded.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    track: bool,
    path: Vec<Step>,
    found: Vec<SmolStr>,
}

#[derive(Debug)]
enum Step {
    Key(SmolStr),
    Index(usize),
}

impl Unknown {
    pub(crate) fn new(track: bool) -> Unknown {
        Unknown { track, ..Unknown::default() }
    }

    /// The paths in order.
    pub(crate) fn sorted(mut self) -> Vec<SmolStr> {
        self.found.sort_unstable();
        self.found
    }

    fn key<R>(&mut self, key: &SmolStr, walk: impl FnOnce(&mut Unknown) -> R) -> R {
        if !self.track {
            return walk(self);
        }
        self.path.push(Step::Key(key.clone()));
        let result = walk(self);
        self.path.pop();
        result
    }

    fn index<R>(&mut self, index: usize, walk: impl FnOnce(&mut Unknown) -> R) -> R {
        if !self.track {
            return walk(self);
        }
        self.path.push(Step::Index(index));
        let result = walk(self);
        self.path.pop();
        result
    }

    fn record(&mut self, name: &str) {
        if !self.track || self.found.len() >= MAX_REMEMBERED {
            return;
        }
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(key);
                }
                // Writing to a string cannot fail.
                Step::Index(i) => drop(write!(text, "[{i}]")),
            }
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        self.found.push(text.into());
    }
}

/// Prunes a whole object: `apiVersion`, `kind` and `metadata` are kept.
pub(super) fn prune_object(nodes: &[Node], root: NodeId, object: &mut Value, unknown: &mut Unknown) {
    Pruner { nodes }.value(object, nodes.get(root.0 as usize), true, unknown);
}

/// Prunes a default value by its schema. `preserved` is true if an enclosing list preserves unknown fields.
pub(super) fn prune_default(nodes: &[Node], node: &Node, value: &mut Value, preserved: bool) {
    let pruner = Pruner { nodes };
    let mut unknown = Unknown::default();
    match preserved {
        true => pruner.skip(value, Some(node), node.embedded_resource, &mut unknown),
        false => pruner.value(value, Some(node), node.embedded_resource, &mut unknown),
    }
}

struct Pruner<'a> {
    nodes: &'a [Node],
}

impl<'a> Pruner<'a> {
    fn get(&self, id: NodeId) -> Option<&'a Node> {
        self.nodes.get(id.0 as usize)
    }

    /// `embedded` is true if the value is an object with metadata.
    fn value(&self, value: &mut Value, node: Option<&Node>, embedded: bool, unknown: &mut Unknown) {
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return;
        }
        if node.is_some_and(|n| n.preserves_unknown) {
            return self.skip(value, node, embedded, unknown);
        }
        level(|| match value {
            Value::Object(map) => match node {
                Some(node) => self.members(map, node, embedded, true, unknown),
                None => {
                    map.keys().for_each(|key| unknown.record(key));
                    map.retain(|_, _| false);
                }
            },
            Value::Array(items) => {
                let item = node.and_then(|n| n.items).and_then(|id| self.get(id));
                let embedded = item.is_some_and(|n| n.embedded_resource);
                for (i, value) in items.iter_mut().enumerate() {
                    unknown.index(i, |unknown| self.value(value, item, embedded, unknown));
                }
            }
            _ => {}
        });
    }

    /// Prunes a value that preserves unknown fields; unknown fields below known fields are removed
    /// nevertheless.
    fn skip(&self, value: &mut Value, node: Option<&Node>, embedded: bool, unknown: &mut Unknown) {
        let Some(node) = node else { return };
        level(|| match value {
            Value::Object(map) => self.members(map, node, embedded, false, unknown),
            Value::Array(items) => {
                let item = node.items.and_then(|id| self.get(id));
                let embedded = item.is_some_and(|n| n.embedded_resource);
                for (i, value) in items.iter_mut().enumerate() {
                    unknown.index(i, |unknown| self.skip(value, item, embedded, unknown));
                }
            }
            _ => {}
        });
    }

    fn members(&self, map: &mut Map, node: &Node, embedded: bool, prunes: bool, unknown: &mut Unknown) {
        map.retain(|key, value| {
            if embedded && is_meta_field(key) {
                return true;
            }
            let schema = match (node.property(key), node.additional) {
                (Some(id), _) | (None, Additional::Schema(id)) => self.get(id),
                (None, Additional::Any | Additional::Closed) => None,
                (None, Additional::Absent) => {
                    if prunes {
                        unknown.record(key);
                    }
                    return !prunes;
                }
            };
            let embedded = schema.is_some_and(|n| n.embedded_resource);
            unknown.key(key, |unknown| self.value(value, schema, embedded, unknown));
            true
        });
    }
}
