//! Correlation of old and new values (apiserver, `pkg/cel/common`: `CorrelatedObject`).

use std::collections::HashMap;

use plinth_codec::json;
use plinth_codec::value::{level, Value};

use crate::node::{ListKind, Node};

/// A value with its old value. Fields and keys are correlated by name, elements of a list by their keys if
/// the list is of type `map`; elements of other lists are not correlated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CorrelatedObject<'a> {
    nodes: &'a [Node],
    /// The schema that defines the keys of elements; `None` below undeclared fields.
    node: Option<&'a Node>,
    pub new: &'a Value,
    pub old: &'a Value,
}

impl<'a> CorrelatedObject<'a> {
    pub(crate) fn new(
        nodes: &'a [Node],
        node: Option<&'a Node>,
        new: &'a Value,
        old: &'a Value,
    ) -> CorrelatedObject<'a> {
        CorrelatedObject { nodes, node, new, old }
    }

    /// A field or the value of a key.
    pub(crate) fn member(self, name: &str) -> Option<CorrelatedObject<'a>> {
        let id = self.node?.member(name)?;
        let (new, old) = (self.new.get(name)?, self.old.get(name)?);
        Some(CorrelatedObject { node: self.nodes.get(id.index()), new, old, ..self })
    }

    /// The old elements of a list by their keys.
    pub(crate) fn elements(self) -> Option<Elements<'a>> {
        let node = self.node.filter(|n| n.list == ListKind::Map)?;
        let old = self.old.as_array()?;
        let mut by_key = HashMap::with_capacity(old.len());
        for element in old {
            by_key.entry(key(node, element)).or_insert(element);
        }
        let item = node.items.and_then(|id| self.nodes.get(id.index()));
        Some(Elements { nodes: self.nodes, list: node, item, by_key })
    }

    /// Whether the value is unchanged. Elements of a list of type `map` may be reordered.
    pub(crate) fn is_unchanged(self) -> bool {
        level(|| match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => match self.elements() {
                None => new == old,
                Some(elements) => {
                    new.len() == old.len()
                        && new
                            .iter()
                            .all(|element| elements.of(element).is_some_and(CorrelatedObject::is_unchanged))
                }
            },
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.iter().all(|(name, value)| match self.member(name) {
                        Some(member) => member.is_unchanged(),
                        None => old.get(name) == Some(value),
                    })
            }
            (new, old) => new == old,
        })
    }
}

/// The old elements of a list by their keys.
pub(crate) struct Elements<'a> {
    nodes: &'a [Node],
    list: &'a Node,
    item: Option<&'a Node>,
    by_key: HashMap<Vec<u8>, &'a Value>,
}

impl<'a> Elements<'a> {
    /// The old value of an element.
    pub(crate) fn of(&self, new: &'a Value) -> Option<CorrelatedObject<'a>> {
        let old = self.by_key.get(&key(self.list, new)).copied().filter(|old| !old.is_null())?;
        Some(CorrelatedObject { nodes: self.nodes, node: self.item, new, old })
    }
}

/// The identity of an element.
fn key(list: &Node, element: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    for name in list.list_map_keys() {
        match element.get(name) {
            Some(value) => json::write_untyped(value, &mut key),
            None => key.push(b'-'),
        }
        key.push(b',');
    }
    key
}
