//! `x-kubernetes-validations`: the walk that evaluates rules on old and new values (apiextensions-apiserver,
//! `pkg/apiserver/schema/cel`). The language is [`plinth_cel`].

use std::collections::HashMap;

use plinth_cel::{child_cardinality, Budget, DeclType, Rules, SchemaCost, SchemaNode};
use plinth_codec::field::{FieldError, Path, Reason};
use plinth_codec::value::{level, Value};

use super::node::{Additional, ListKind, Node, NodeId};
use super::validate::CorrelatedObject;

/// A node with its arena, against which rules are compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRef<'a> {
    nodes: &'a [Node],
    node: &'a Node,
}

impl<'a> NodeRef<'a> {
    pub(crate) fn new(nodes: &'a [Node], id: NodeId) -> Option<NodeRef<'a>> {
        Some(NodeRef { nodes, node: nodes.get(id.index())? })
    }

    fn at(self, id: NodeId) -> Option<NodeRef<'a>> {
        NodeRef::new(self.nodes, id)
    }
}

impl SchemaNode for NodeRef<'_> {
    fn schema_type(&self) -> &str {
        self.node.kind.as_str()
    }

    fn format(&self) -> &str {
        self.node.format().unwrap_or_default()
    }

    fn int_or_string(&self) -> bool {
        self.node.int_or_string
    }

    fn embedded_resource(&self) -> bool {
        self.node.embedded_resource
    }

    fn items(&self) -> Option<Self> {
        self.node.items.and_then(|id| self.at(id))
    }

    fn additional_properties(&self) -> Option<Self> {
        match self.node.additional {
            Additional::Schema(id) => self.at(id),
            _ => None,
        }
    }

    fn properties(&self) -> impl Iterator<Item = (&str, Self)> {
        self.node.properties.iter().filter_map(|(name, id)| Some((name.as_str(), self.at(*id)?)))
    }

    fn property(&self, name: &str) -> Option<Self> {
        self.node.property(name).and_then(|id| self.at(id))
    }

    fn is_required(&self, name: &str) -> bool {
        self.node.required().iter().any(|required| required == name)
    }

    fn has_default(&self) -> bool {
        self.node.default().is_some()
    }

    fn enum_values(&self) -> &[Value] {
        self.node.enumeration()
    }

    fn max_length(&self) -> Option<i64> {
        self.node.max_length()
    }

    fn max_items(&self) -> Option<i64> {
        self.node.max_items()
    }

    fn max_properties(&self) -> Option<i64> {
        self.node.max_properties()
    }

    fn list_type(&self) -> &str {
        match self.node.list {
            ListKind::Set => "set",
            ListKind::Map => "map",
            // Also the default.
            ListKind::Atomic => "atomic",
        }
    }

    fn list_map_keys(&self) -> impl Iterator<Item = &str> {
        self.node.list_map_keys().iter().map(|key| key.as_str())
    }
}

/// The compiled rules of all nodes that have some. Immutable; shared by all requests.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    root: Option<Rules>,
    nodes: HashMap<NodeId, Rules>,
}

impl RuleSet {
    /// Compiles every rule. Compile errors are kept and reported when a value is checked.
    pub(crate) fn compile(nodes: &[Node], root: NodeId) -> RuleSet {
        let mut set = RuleSet::default();
        let Some(at) = NodeRef::new(nodes, root).filter(|at| at.node.rules_below) else { return set };
        if let Some(declared) = DeclType::of(at, true) {
            set.root = (!at.node.rules().is_empty()).then(|| Rules::compile(at.node.rules(), at, &declared));
            set.below(at, &declared);
        }
        set
    }

    fn add(&mut self, id: NodeId, at: NodeRef<'_>, declared: Option<&DeclType>) {
        let Some(declared) = declared.filter(|_| at.node.rules_below && !self.nodes.contains_key(&id)) else {
            return;
        };
        // Also for nodes without rules, to mark them as visited.
        self.nodes.insert(id, Rules::compile(at.node.rules(), at, declared));
        level(|| self.below(at, declared));
    }

    fn below(&mut self, at: NodeRef<'_>, declared: &DeclType) {
        for (name, id) in &at.node.properties {
            if let Some(field) = at.at(*id) {
                self.add(*id, field, declared.property(name));
            }
        }
        for id in at.node.items.into_iter().chain(additional(at.node)) {
            if let Some(element) = at.at(id) {
                self.add(id, element, declared.element());
            }
        }
    }
}

fn additional(node: &Node) -> Option<NodeId> {
    match node.additional {
        Additional::Schema(id) => Some(id),
        _ => None,
    }
}

/// The errors of an object by the rules of a schema. `old` is the object that it replaces. None when the
/// rules cost more units than `inline_limit`.
pub(super) fn errors(
    nodes: &[Node],
    root: NodeId,
    rules: &RuleSet,
    new: &Value,
    old: Option<&Value>,
    inline_limit: Option<u64>,
) -> Option<Vec<FieldError>> {
    let mut budget = Budget::default();
    budget.set_inline_limit(inline_limit);
    let mut walk = Walk { nodes, rules, budget, errors: Vec::new() };
    let Some(node) = nodes.get(root.index()).filter(|node| node.rules_below) else { return Some(Vec::new()) };
    let correlated = old.map(|old| CorrelatedObject::new(nodes, Some(node), new, old));
    walk.ask(rules.root.as_ref(), &Path::Root, new, correlated);
    walk.below(node, &Path::Root, new, correlated);
    (!walk.budget.is_long()).then_some(walk.errors)
}

struct Walk<'a> {
    nodes: &'a [Node],
    rules: &'a RuleSet,
    budget: Budget,
    errors: Vec<FieldError>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, id: NodeId, path: &Path<'_>, value: &Value, old: Option<CorrelatedObject<'_>>) {
        let node = self.nodes.get(id.index()).filter(|node| node.rules_below);
        let Some(node) = node.filter(|_| !value.is_null() && !self.is_over()) else { return };
        let rules = self.rules;
        self.ask(rules.nodes.get(&id), path, value, old);
        self.below(node, path, value, old);
    }

    /// Whether no further rule may be evaluated.
    fn is_over(&self) -> bool {
        self.budget.is_exhausted() || self.budget.is_long()
    }

    fn ask(
        &mut self,
        rules: Option<&Rules>,
        path: &Path<'_>,
        value: &Value,
        old: Option<CorrelatedObject<'_>>,
    ) {
        let Some(rules) = rules.filter(|rules| !rules.is_empty()) else { return };
        let mut unchanged = || old.is_some_and(CorrelatedObject::is_unchanged);
        let verdict = rules.evaluate(path, value, old.map(|old| old.old), &mut unchanged, &mut self.budget);
        self.errors.extend(verdict.errors);
    }

    fn below(&mut self, node: &Node, path: &Path<'_>, value: &Value, old: Option<CorrelatedObject<'_>>) {
        level(|| match value {
            Value::Object(map) => {
                for (name, value) in map.iter() {
                    let old = || old.and_then(|old| old.member(name));
                    match (node.property(name), node.additional) {
                        (Some(id), _) => self.value(id, &path.child(name), value, old()),
                        (None, Additional::Schema(id)) => self.value(id, &path.key(name), value, old()),
                        _ => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(id) = node.items else { return };
                let before = old.and_then(CorrelatedObject::elements);
                for (i, item) in items.iter().enumerate() {
                    let old = before.as_ref().and_then(|before| before.of(item));
                    self.value(id, &path.index(i), item, old);
                }
            }
            _ => {}
        });
    }
}

/// Whether an error prevents the evaluation of rules, which may rely on the violated constraint.
pub(super) fn is_blocking(error: &FieldError) -> bool {
    matches!(
        error.reason,
        Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
    )
}

/// The error when rules were not evaluated.
pub(super) fn not_checked() -> FieldError {
    let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    FieldError::invalid(Path::Root, &Value::Null, why)
}

/// The errors of the rules of a schema: their fields, then (if everything else is valid) their expressions
/// and costs, and defaults that violate them. `path` is that of `openAPIV3Schema`.
pub(super) fn definition_errors(
    nodes: &[Node],
    root: NodeId,
    path: &Path<'_>,
    all_else_is_well: bool,
    lets_pass: bool,
) -> Vec<FieldError> {
    let mut check = Check { errors: Vec::new(), cost: SchemaCost::new(lets_pass) };
    let Some(at) = NodeRef::new(nodes, root).filter(|at| at.node.rules_below) else { return Vec::new() };
    check.texts(at, path);
    if check.errors.is_empty() && all_else_is_well {
        let declared = DeclType::of(at, true);
        check.expressions(at, path, declared.as_ref(), Some(1), None);
        check.errors.extend(check.cost.errors(path));
    }
    if check.errors.is_empty() && all_else_is_well {
        let rules = RuleSet::compile(nodes, root);
        check.defaults(at, path, &rules);
    }
    check.errors
}

struct Check {
    errors: Vec<FieldError>,
    cost: SchemaCost,
}

impl Check {
    fn texts(&mut self, at: NodeRef<'_>, path: &Path<'_>) {
        if !at.node.rules_below {
            return;
        }
        let rules = path.child("x-kubernetes-validations");
        for (i, rule) in at.node.rules().iter().enumerate() {
            self.errors.extend(rule.errors(rules.index(i), at));
        }
        children(at, path, |_, child, path| self.texts(child, path));
    }

    fn expressions(
        &mut self,
        at: NodeRef<'_>,
        path: &Path<'_>,
        declared: Option<&DeclType>,
        cardinality: Option<u64>,
        uncorrelatable: Option<&str>,
    ) {
        if !at.node.rules_below {
            return;
        }
        match declared {
            _ if at.node.rules().is_empty() => {}
            Some(declared) => {
                let rules = Rules::compile(at.node.rules(), at, declared);
                self.errors.extend(rules.errors(path, cardinality, uncorrelatable, &mut self.cost));
            }
            None => {
                let why = "internal error: failed to retrieve type information for x-kubernetes-validations";
                self.errors.push(FieldError::internal(path.child("x-kubernetes-validations"), why));
            }
        }
        let cardinality = child_cardinality(at, cardinality);
        let here = (at.node.items.is_some() && at.node.list != ListKind::Map).then(|| path.to_string());
        let uncorrelatable = uncorrelatable.or(here.as_deref());
        children(at, path, |name, child, path| {
            let declared = declared.and_then(|declared| match name {
                Some(name) => declared.property(name),
                None => declared.element(),
            });
            self.expressions(child, path, declared, cardinality, uncorrelatable);
        });
    }

    /// Defaults are values like any other.
    fn defaults(&mut self, at: NodeRef<'_>, path: &Path<'_>, rules: &RuleSet) {
        if !at.node.rules_below || !at.node.defaults_below {
            return;
        }
        if let Some(default) = at.node.default() {
            let mut walk = Walk { nodes: at.nodes, rules, budget: Budget::default(), errors: Vec::new() };
            let path = path.child("default");
            // The node's own rules are evaluated unless it is the root, whose default is ignored.
            let own = at.nodes.iter().position(|node| std::ptr::eq(node, at.node));
            if let Some(own) = own {
                walk.value(NodeId(own as u32), &path, default, None);
            }
            self.errors.extend(walk.errors);
        }
        children(at, path, |_, child, path| self.defaults(child, path, rules));
    }
}

/// Visits the schemas of fields (with their names), elements and values of keys.
fn children(at: NodeRef<'_>, path: &Path<'_>, mut visit: impl FnMut(Option<&str>, NodeRef<'_>, &Path<'_>)) {
    level(|| {
        let fields = path.child("properties");
        for (name, id) in &at.node.properties {
            if let Some(field) = at.at(*id) {
                visit(Some(name), field, &fields.key(name));
            }
        }
        if let Some(item) = at.node.items.and_then(|id| at.at(id)) {
            visit(None, item, &path.child("items"));
        }
        if let Some(value) = additional(at.node).and_then(|id| at.at(id)) {
            visit(None, value, &path.child("additionalProperties"));
        }
    });
}
