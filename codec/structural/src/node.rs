//! The compiled form of a schema: nodes in an arena, equal ones once.
//!
//! A node takes some 60 bytes and 32 per property; rare keywords (bounds, enums, rules) are a list of
//! [`Constraint`]s. Titles, descriptions and examples are not kept.

use plinth_cel::Rule;
use plinth_codec::schema::MapType;
use plinth_codec::value::Value;
use smol_str::SmolStr;

/// The index of a node in the arena of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(super) u32);

impl NodeId {
    /// The index, for side tables.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Unset: any type.
    Any,
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

impl Kind {
    pub(super) fn parse(text: &str) -> Option<Kind> {
        Some(match text {
            "" => Kind::Any,
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            _ => return None,
        })
    }

    /// As the definition writes it; empty for [`Kind::Any`].
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
        }
    }
}

/// `x-kubernetes-list-type`; [`Constraint::ListMapKeys`] has the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ListKind {
    /// Atomic; also the default.
    #[default]
    Atomic,
    /// Elements are identified by their value.
    Set,
    /// Elements are identified by key fields.
    Map,
}

/// `additionalProperties`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Additional {
    /// The keyword is absent.
    #[default]
    Absent,
    /// `true`: values of any type, kept by pruning, but without their contents.
    Any,
    /// `false`: there are no other fields.
    Closed,
    /// Values of this form.
    Schema(NodeId),
}

/// One schema.
#[derive(Debug, PartialEq)]
pub(crate) struct Node {
    /// What the value is.
    pub kind: Kind,
    /// `nullable`
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserves_unknown: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded_resource: bool,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// Whether this or a node below has a default.
    pub defaults_below: bool,
    /// Whether this or a node below has rules.
    pub rules_below: bool,
    /// How a list is merged, and how its elements are identified.
    pub list: ListKind,
    /// How an object is merged.
    pub map: MapType,
    /// The schema of undeclared fields.
    pub additional: Additional,
    /// The elements of a list.
    pub items: Option<NodeId>,
    /// The fields by name, sorted.
    pub properties: Box<[(SmolStr, NodeId)]>,
    /// Everything else, in order of the variants, each at most once.
    pub constraints: Box<[Constraint]>,
}

/// A bound of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub value: f64,
    /// Whether the bound itself is excluded.
    pub exclusive: bool,
}

/// A keyword that few schemas have. The order of the variants is that in which they are checked.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub(crate) enum Constraint {
    /// At least one of these schemas fits.
    AnyOf(Box<[NodeId]>),
    /// Exactly one of these schemas fits.
    OneOf(Box<[NodeId]>),
    /// Each of these schemas fits.
    AllOf(Box<[NodeId]>),
    /// This schema does not fit.
    Not(NodeId),
    /// Characters of a text, at most.
    MaxLength(i64),
    /// Characters of a text, at least.
    MinLength(i64),
    /// A regular expression in Go's syntax that is found in a text.
    Pattern(SmolStr),
    /// A format that is known for the type, as the definition writes it.
    Format(SmolStr),
    /// What a number is a multiple of.
    MultipleOf(f64),
    /// The upper bound of a number.
    Maximum(Bound),
    /// The lower bound of a number.
    Minimum(Bound),
    /// Elements, at least.
    MinItems(i64),
    /// Elements, at most.
    MaxItems(i64),
    /// The only allowed values.
    Enum(Box<[Value]>),
    /// Members of an object, at least.
    MinProperties(i64),
    /// Members of an object, at most.
    MaxProperties(i64),
    /// Required fields, in the order of the definition.
    Required(Box<[SmolStr]>),
    /// The value of the field when it is absent.
    Default(Value),
    /// The key fields of a list's elements.
    ListMapKeys(Box<[SmolStr]>),
    /// `x-kubernetes-validations`
    Rules(Box<[Rule]>),
}

impl Constraint {
    /// The index in the order of variants.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Constraint::AnyOf(_) => 0,
            Constraint::OneOf(_) => 1,
            Constraint::AllOf(_) => 2,
            Constraint::Not(_) => 3,
            Constraint::MaxLength(_) => 4,
            Constraint::MinLength(_) => 5,
            Constraint::Pattern(_) => 6,
            Constraint::Format(_) => 7,
            Constraint::MultipleOf(_) => 8,
            Constraint::Maximum(_) => 9,
            Constraint::Minimum(_) => 10,
            Constraint::MinItems(_) => 11,
            Constraint::MaxItems(_) => 12,
            Constraint::Enum(_) => 13,
            Constraint::MinProperties(_) => 14,
            Constraint::MaxProperties(_) => 15,
            Constraint::Required(_) => 16,
            Constraint::Default(_) => 17,
            Constraint::ListMapKeys(_) => 18,
            Constraint::Rules(_) => 19,
        }
    }
}

macro_rules! getters {
    ($( $(#[$doc:meta])* $name:ident: $variant:ident($bound:ident) -> $type:ty = $value:expr; )*) => {
        $( $(#[$doc])*
        pub(crate) fn $name(&self) -> $type {
            self.constraints.iter().find_map(|c| match c {
                Constraint::$variant($bound) => Some($value),
                _ => None,
            })
        } )*
    };
}

impl Node {
    /// Whether the type is set, by `type` or by `x-kubernetes-int-or-string`.
    pub(super) fn has_type(&self) -> bool {
        self.int_or_string || self.kind != Kind::Any
    }

    /// The types as shown in messages.
    pub(super) fn types(&self) -> &'static str {
        match self.int_or_string {
            true => "integer,string",
            false => self.kind.as_str(),
        }
    }

    getters! {
        /// The default, if any.
        default: Default(v) -> Option<&Value> = v;
        /// Characters of a text, at most.
        max_length: MaxLength(n) -> Option<i64> = *n;
        /// Elements of a list, at least.
        min_items: MinItems(n) -> Option<i64> = *n;
        /// Elements of a list, at most.
        max_items: MaxItems(n) -> Option<i64> = *n;
        /// Members of an object, at least.
        min_properties: MinProperties(n) -> Option<i64> = *n;
        /// Members of an object, at most.
        max_properties: MaxProperties(n) -> Option<i64> = *n;
        /// The format of a text or number.
        format: Format(s) -> Option<&str> = s.as_str();
    }

    /// The only allowed values; empty when all are.
    pub(crate) fn enumeration(&self) -> &[Value] {
        self.constraints
            .iter()
            .find_map(|c| match c {
                Constraint::Enum(values) => Some(&**values),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// The key fields of a list's elements.
    pub(crate) fn list_map_keys(&self) -> &[SmolStr] {
        self.constraints
            .iter()
            .find_map(|c| match c {
                Constraint::ListMapKeys(keys) => Some(&**keys),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Required fields.
    pub(crate) fn required(&self) -> &[SmolStr] {
        self.constraints
            .iter()
            .find_map(|c| match c {
                Constraint::Required(names) => Some(&**names),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// `x-kubernetes-validations`
    pub(crate) fn rules(&self) -> &[Rule] {
        self.constraints
            .iter()
            .find_map(|c| match c {
                Constraint::Rules(rules) => Some(&**rules),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// The schema of a declared field. `O(log n)`.
    pub(crate) fn property(&self, name: &str) -> Option<NodeId> {
        let at = self.properties.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()?;
        self.properties.get(at).map(|(_, id)| *id)
    }

    /// The schema of a field, declared or not.
    pub(crate) fn member(&self, name: &str) -> Option<NodeId> {
        self.property(name).or(match self.additional {
            Additional::Schema(id) => Some(id),
            _ => None,
        })
    }
}
