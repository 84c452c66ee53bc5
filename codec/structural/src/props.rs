//! Reading `JSONSchemaProps`: the object tree of a CustomResourceDefinition's schema, as its JSON names have
//! it.

use std::sync::LazyLock;

use plinth_codec::value::{Map, Value};
use smol_str::SmolStr;

/// A JSONSchemaProps object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Props<'a>(pub(super) &'a Map);

/// The value of `additionalProperties`.
#[derive(Clone, Copy, Debug)]
pub(super) enum AdditionalProps<'a> {
    Bool(bool),
    Schema(Props<'a>),
}

/// The value of `items`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items<'a> {
    One(Props<'a>),
    /// Not allowed in a definition.
    Many(&'a [Value]),
}

static EMPTY: LazyLock<Map> = LazyLock::new(Map::new);

impl<'a> Props<'a> {
    /// The schema in a value; an empty one when it is not an object, which the decoder of definitions
    /// refuses.
    pub(crate) fn of(value: &'a Value) -> Props<'a> {
        Props(value.as_object().unwrap_or(&EMPTY))
    }

    pub(crate) fn has(self, key: &str) -> bool {
        self.0.get(key).is_some_and(|v| !v.is_null())
    }

    pub(crate) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool) == Some(true)
    }

    pub(crate) fn int(self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Value::Int(n) => Some(*n),
            Value::Float(n) => Some(*n as i64),
            _ => None,
        }
    }

    pub(crate) fn number(self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Int(n) => Some(*n as f64),
            Value::Float(n) => Some(*n),
            _ => None,
        }
    }

    pub(crate) fn list(self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).unwrap_or_default()
    }

    pub(crate) fn strings(self, key: &str) -> impl Iterator<Item = &'a str> {
        self.list(key).iter().filter_map(Value::as_str)
    }

    /// The schemas of a list: `allOf`, `anyOf`, `oneOf`.
    pub(crate) fn schemas(self, key: &str) -> impl ExactSizeIterator<Item = Props<'a>> {
        self.list(key).iter().map(Props::of)
    }

    /// The schemas of a map: `properties`, `definitions`, …
    pub(crate) fn named(self, key: &str) -> impl ExactSizeIterator<Item = (&'a SmolStr, Props<'a>)> {
        self.members(key).iter().map(|(name, schema)| (name, Props::of(schema)))
    }

    pub(crate) fn members(self, key: &str) -> &'a Map {
        self.get(key).and_then(Value::as_object).unwrap_or(&EMPTY)
    }

    pub(crate) fn kind(self) -> &'a str {
        self.text("type")
    }

    pub(crate) fn property(self, name: &str) -> Option<Props<'a>> {
        self.members("properties").get(name).map(Props::of)
    }

    pub(crate) fn not(self) -> Option<Props<'a>> {
        self.get("not").map(Props::of)
    }

    pub(crate) fn items(self) -> Option<Items<'a>> {
        match self.get("items")? {
            Value::Array(list) => Some(Items::Many(list)),
            one => Some(Items::One(Props::of(one))),
        }
    }

    /// The schema of the elements of a list.
    pub(crate) fn item(self) -> Option<Props<'a>> {
        match self.items()? {
            Items::One(schema) => Some(schema),
            Items::Many(_) => None,
        }
    }

    pub(crate) fn additional(self) -> Option<AdditionalProps<'a>> {
        match self.get("additionalProperties")? {
            Value::Bool(b) => Some(AdditionalProps::Bool(*b)),
            schema => Some(AdditionalProps::Schema(Props::of(schema))),
        }
    }

    pub(crate) fn additional_schema(self) -> Option<Props<'a>> {
        match self.additional()? {
            AdditionalProps::Schema(schema) => Some(schema),
            AdditionalProps::Bool(_) => None,
        }
    }

    pub(crate) fn preserves(self) -> bool {
        self.is("x-kubernetes-preserve-unknown-fields")
    }

    pub(crate) fn embeds(self) -> bool {
        self.is("x-kubernetes-embedded-resource")
    }

    pub(crate) fn int_or_string(self) -> bool {
        self.is("x-kubernetes-int-or-string")
    }

    /// Whether `anyOf` is exactly what `x-kubernetes-int-or-string` implies.
    pub(crate) fn has_int_or_string_alternatives(self) -> bool {
        let mut schemas = self.schemas("anyOf");
        let is_only = |schema: Option<Props<'_>>, kind: &str| {
            schema.is_some_and(|s| s.0.len() == 1 && s.kind() == kind)
        };
        schemas.len() == 2 && is_only(schemas.next(), "integer") && is_only(schemas.next(), "string")
    }

    /// Whether this or a subschema satisfies a predicate. Walks everything: lists, junctors, fields,
    /// definitions, dependencies.
    pub(crate) fn any(self, fits: &mut dyn FnMut(Props<'a>) -> bool) -> bool {
        if fits(self) {
            return true;
        }
        plinth_codec::value::level(|| self.within().into_iter().any(|schema| schema.any(fits)))
    }

    /// Every direct subschema.
    fn within(self) -> Vec<Props<'a>> {
        let mut all: Vec<Props<'a>> = Vec::new();
        match self.items() {
            Some(Items::One(schema)) => all.push(schema),
            Some(Items::Many(list)) => all.extend(list.iter().map(Props::of)),
            None => {}
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            all.extend(self.schemas(key));
        }
        all.extend(self.not());
        for key in ["properties", "patternProperties", "definitions", "dependencies"] {
            all.extend(self.named(key).map(|(_, schema)| schema));
        }
        for key in ["additionalProperties", "additionalItems"] {
            all.extend(self.get(key).and_then(Value::as_object).map(Props));
        }
        all
    }
}
