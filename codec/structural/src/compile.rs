//! Compilation of JSONSchemaProps to nodes.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use plinth_cel::Rule;
use plinth_codec::schema::MapType;
use plinth_codec::tree;
use plinth_codec::value::{level, Value};
use smol_str::SmolStr;

use super::format;
use super::metadata;
use super::node::{Additional, Bound, Constraint, Kind, ListKind, Node, NodeId};
use super::props::{AdditionalProps, Items, Props};
use super::prune;

/// Maximum nesting of schemas. The deepest published definitions have some thirty levels.
pub(crate) const MAX_DEPTH: usize = 256;
/// Maximum number of schemas in one version of a definition, before equal ones are merged.
pub(crate) const MAX_SCHEMAS: usize = 100_000;

/// Why a schema cannot be compiled. Definitions that passed
/// [`definition::validate`](super::definition::validate) compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A keyword that structural schemas do not have.
    #[error("OpenAPIV3Schema '{0}' is not supported")]
    Unsupported(&'static str),
    /// A list of schemas for the elements of a list.
    #[error("OpenAPIV3Schema 'items' must be a schema, but is an array")]
    ItemsArray,
    /// `x-kubernetes-preserve-unknown-fields: false`
    #[error("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined")]
    PreserveFalse,
    /// An unknown type.
    #[error("unknown type {0:?}")]
    Type(String),
    /// More than 256 levels of schemas in schemas.
    #[error("schemas are nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// More than 100,000 schemas, equal ones counted each.
    #[error("there are more than {MAX_SCHEMAS} schemas")]
    TooMany,
}

/// Keywords that structural schemas do not have, in the order in which upstream reports them.
const UNSUPPORTED: &[&str] =
    &["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// The first keyword that structural schemas do not have.
pub(super) fn unsupported(props: Props<'_>) -> Option<CompileError> {
    let set = |key: &&&'static str| match props.get(key) {
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Object(map)) if **key != "additionalItems" => !map.is_empty(),
        other => other.is_some(),
    };
    UNSUPPORTED.iter().find(set).map(|key| {
        CompileError::Unsupported(match *key {
            "$schema" => "schema",
            other => other,
        })
    })
}

/// Other constructs that structural schemas do not have.
pub(super) fn unconvertible(props: Props<'_>) -> Option<CompileError> {
    match props.items() {
        Some(Items::Many(list)) if !list.is_empty() => return Some(CompileError::ItemsArray),
        _ => {}
    }
    (props.has("x-kubernetes-preserve-unknown-fields") && !props.preserves())
        .then_some(CompileError::PreserveFalse)
}

/// The position of the walk, as needed for pruning of defaults.
#[derive(Clone, Copy)]
enum Enclosing<'a> {
    /// Not in metadata.
    Nothing {
        /// Whether a list above keeps unknown fields of its elements.
        preserved: bool,
    },
    /// In `metadata`, `kind` or `apiVersion` of an embedded object, this many fields below it.
    Meta(&'a [SmolStr]),
}

/// Compiles a schema; returns the nodes and the id of the root.
pub(super) fn compile(root: Props<'_>) -> Result<(Vec<Node>, NodeId), CompileError> {
    let mut builder = Builder::default();
    let id = builder.node(root, 0, true, true, Enclosing::Nothing { preserved: false })?;
    Ok((builder.nodes, id))
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    /// Ids of nodes by their hash.
    known: HashMap<u64, Vec<u32>>,
    seen: usize,
}

impl Builder {
    /// `structural` is false within junctors, where defaults are ignored.
    fn node(
        &mut self,
        props: Props<'_>,
        depth: usize,
        structural: bool,
        is_root: bool,
        around: Enclosing<'_>,
    ) -> Result<NodeId, CompileError> {
        self.seen += 1;
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        if self.seen > MAX_SCHEMAS {
            return Err(CompileError::TooMany);
        }
        level(|| self.node_here(props, depth, structural, is_root, around))
    }

    fn node_here(
        &mut self,
        props: Props<'_>,
        depth: usize,
        structural: bool,
        is_root: bool,
        around: Enclosing<'_>,
    ) -> Result<NodeId, CompileError> {
        if let Some(error) = unsupported(props).or_else(|| unconvertible(props)) {
            return Err(error);
        }
        let kind = Kind::parse(props.kind()).ok_or_else(|| CompileError::Type(props.kind().to_owned()))?;
        let embeds = props.embeds() || is_root;
        let items = self.items(props, depth, structural, around)?;
        let properties = self.properties(props, depth, structural, embeds, around)?;
        let additional = self.additional(props, depth, structural, around)?;
        let mut node = Node {
            kind,
            nullable: props.is("nullable"),
            preserves_unknown: props.preserves(),
            embedded_resource: props.embeds(),
            int_or_string: props.int_or_string(),
            defaults_below: false,
            rules_below: false,
            list: match props.text("x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => ListKind::Map,
                _ => ListKind::Atomic,
            },
            map: match props.text("x-kubernetes-map-type") {
                "atomic" => MapType::Atomic,
                _ => MapType::Granular,
            },
            additional,
            items,
            properties,
            constraints: Box::default(),
        };
        let mut constraints = self.constraints(props, depth, &node)?;
        if structural {
            if let Some(default) = props.get("default") {
                let default = self.pruned_default(default.clone(), &node, around);
                constraints.push(Constraint::Default(default));
            }
        }
        constraints.sort_by_key(Constraint::rank);
        let mut below: Vec<NodeId> = node.properties.iter().map(|(_, id)| *id).chain(node.items).collect();
        if let Additional::Schema(id) = node.additional {
            below.push(id);
        }
        node.defaults_below = constraints.iter().any(|c| matches!(c, Constraint::Default(_)))
            || below.iter().any(|id| self.nodes[id.0 as usize].defaults_below);
        node.rules_below = constraints.iter().any(|c| matches!(c, Constraint::Rules(_)))
            || below.iter().any(|id| self.nodes[id.0 as usize].rules_below);
        node.constraints = constraints.into_boxed_slice();
        Ok(self.intern(node))
    }

    fn items(
        &mut self,
        props: Props<'_>,
        depth: usize,
        structural: bool,
        around: Enclosing<'_>,
    ) -> Result<Option<NodeId>, CompileError> {
        let Some(Items::One(item)) = props.items() else { return Ok(None) };
        let around = match around {
            Enclosing::Nothing { preserved } => {
                Enclosing::Nothing { preserved: preserved || props.preserves() }
            }
            meta => meta,
        };
        self.node(item, depth + 1, structural, false, around).map(Some)
    }

    fn properties(
        &mut self,
        props: Props<'_>,
        depth: usize,
        structural: bool,
        embeds: bool,
        around: Enclosing<'_>,
    ) -> Result<Box<[(SmolStr, NodeId)]>, CompileError> {
        let mut properties = Vec::with_capacity(props.named("properties").len());
        for (name, schema) in props.named("properties") {
            let path: Option<Vec<SmolStr>> = match around {
                Enclosing::Meta(path) => Some(path.iter().chain([name]).cloned().collect()),
                Enclosing::Nothing { .. } => {
                    (embeds && prune::is_meta_field(name)).then(|| vec![name.clone()])
                }
            };
            let around = match &path {
                Some(path) => Enclosing::Meta(path),
                None => Enclosing::Nothing { preserved: false },
            };
            properties.push((name.clone(), self.node(schema, depth + 1, structural, false, around)?));
        }
        Ok(properties.into_boxed_slice())
    }

    fn additional(
        &mut self,
        props: Props<'_>,
        depth: usize,
        structural: bool,
        around: Enclosing<'_>,
    ) -> Result<Additional, CompileError> {
        Ok(match props.additional() {
            None => Additional::Absent,
            Some(AdditionalProps::Bool(true)) => Additional::Any,
            Some(AdditionalProps::Bool(false)) => Additional::Closed,
            Some(AdditionalProps::Schema(schema)) => {
                let around = match around {
                    Enclosing::Nothing { .. } => Enclosing::Nothing { preserved: false },
                    meta => meta,
                };
                Additional::Schema(self.node(schema, depth + 1, structural, false, around)?)
            }
        })
    }

    fn constraints(
        &mut self,
        props: Props<'_>,
        depth: usize,
        node: &Node,
    ) -> Result<Vec<Constraint>, CompileError> {
        let mut all = Vec::new();
        for (key, make) in [
            ("anyOf", Constraint::AnyOf as fn(Box<[NodeId]>) -> Constraint),
            ("oneOf", Constraint::OneOf),
            ("allOf", Constraint::AllOf),
        ] {
            if props.schemas(key).len() == 0 {
                continue;
            }
            let mut ids = Vec::with_capacity(props.schemas(key).len());
            for schema in props.schemas(key) {
                ids.push(self.nested(schema, depth)?);
            }
            all.push(make(ids.into_boxed_slice()));
        }
        if let Some(not) = props.not() {
            all.push(Constraint::Not(self.nested(not, depth)?));
        }
        let counts = [
            ("maxLength", Constraint::MaxLength as fn(i64) -> Constraint),
            ("minLength", Constraint::MinLength),
            ("minItems", Constraint::MinItems),
            ("maxItems", Constraint::MaxItems),
            ("minProperties", Constraint::MinProperties),
            ("maxProperties", Constraint::MaxProperties),
        ];
        all.extend(counts.into_iter().filter_map(|(key, make)| props.int(key).map(make)));
        if !props.text("pattern").is_empty() {
            all.push(Constraint::Pattern(props.text("pattern").into()));
        }
        let format = props.text("format");
        if format::is_supported(node, format) {
            all.push(Constraint::Format(format.into()));
        }
        all.extend(props.number("multipleOf").map(Constraint::MultipleOf));
        let bound =
            |key, exclusive| props.number(key).map(|value| Bound { value, exclusive: props.is(exclusive) });
        all.extend(bound("maximum", "exclusiveMaximum").map(Constraint::Maximum));
        all.extend(bound("minimum", "exclusiveMinimum").map(Constraint::Minimum));
        if !props.list("enum").is_empty() {
            all.push(Constraint::Enum(props.list("enum").into()));
        }
        let texts = |key| props.strings(key).map(SmolStr::new).collect::<Box<[SmolStr]>>();
        if !props.list("required").is_empty() {
            all.push(Constraint::Required(texts("required")));
        }
        if !props.list("x-kubernetes-list-map-keys").is_empty() {
            all.push(Constraint::ListMapKeys(texts("x-kubernetes-list-map-keys")));
        }
        if !props.list("x-kubernetes-validations").is_empty() {
            all.push(Constraint::Rules(
                props.list("x-kubernetes-validations").iter().map(Rule::from_value).collect(),
            ));
        }
        Ok(all)
    }

    fn nested(&mut self, schema: Props<'_>, depth: usize) -> Result<NodeId, CompileError> {
        self.node(schema, depth + 1, false, false, Enclosing::Nothing { preserved: false })
    }

    /// A default as it is applied: without unknown fields.
    fn pruned_default(&self, mut default: Value, node: &Node, around: Enclosing<'_>) -> Value {
        match around {
            Enclosing::Nothing { preserved } => {
                prune::prune_default(&self.nodes, node, &mut default, preserved);
                metadata::coerce_default(&self.nodes, node, &mut default);
                default
            }
            // Only fields of the standard metadata are kept.
            Enclosing::Meta(path) => {
                let wrapped = path.iter().rev().fold(default.clone(), |inner, name| {
                    let mut outer = tree!({});
                    if let Some(map) = outer.as_object_mut() {
                        map.insert(name.clone(), inner);
                    }
                    outer
                });
                let coerced = metadata::coerce_surrounding(wrapped);
                let found = path.iter().try_fold(&coerced, |v, name| v.get(name));
                found.cloned().unwrap_or(default)
            }
        }
    }

    /// Interns a node: returns the id of an equal one, if there is one.
    fn intern(&mut self, node: Node) -> NodeId {
        let hash = fingerprint(&node);
        let places = match self.known.entry(hash) {
            Entry::Occupied(places) => places.into_mut(),
            Entry::Vacant(free) => free.insert(Vec::new()),
        };
        if let Some(place) = places.iter().find(|place| self.nodes[**place as usize] == node) {
            return NodeId(*place);
        }
        let place = self.nodes.len() as u32;
        places.push(place);
        self.nodes.push(node);
        NodeId(place)
    }
}

/// A hash of most of a node; equal nodes have equal hashes.
fn fingerprint(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    let flags = [node.nullable, node.preserves_unknown, node.embedded_resource, node.int_or_string];
    (node.kind, flags, node.list, node.map == MapType::Atomic, node.additional, node.items).hash(&mut hasher);
    node.properties.hash(&mut hasher);
    for constraint in &node.constraints {
        constraint.rank().hash(&mut hasher);
        match constraint {
            Constraint::AnyOf(ids) | Constraint::OneOf(ids) | Constraint::AllOf(ids) => ids.hash(&mut hasher),
            Constraint::Not(id) => id.hash(&mut hasher),
            Constraint::MaxLength(n)
            | Constraint::MinLength(n)
            | Constraint::MinItems(n)
            | Constraint::MaxItems(n)
            | Constraint::MinProperties(n)
            | Constraint::MaxProperties(n) => n.hash(&mut hasher),
            Constraint::Pattern(text) | Constraint::Format(text) => text.hash(&mut hasher),
            Constraint::MultipleOf(n) => n.to_bits().hash(&mut hasher),
            Constraint::Maximum(b) | Constraint::Minimum(b) => {
                (b.value.to_bits(), b.exclusive).hash(&mut hasher);
            }
            Constraint::Required(names) | Constraint::ListMapKeys(names) => names.hash(&mut hasher),
            Constraint::Rules(rules) => rules.iter().for_each(|rule| rule.rule.hash(&mut hasher)),
            // Values have no hash; equality distinguishes them.
            Constraint::Enum(values) => values.len().hash(&mut hasher),
            Constraint::Default(_) => {}
        }
    }
    hasher.finish()
}
