//! A definition in upstream's internal form: common parts of all versions are at the top.

use std::sync::LazyLock;

use plinth_codec::value::{Map, Value};

use crate::props::Props;

static EMPTY: LazyLock<Map> = LazyLock::new(Map::new);

/// `schema` of a version.
#[derive(Clone, Copy)]
pub(super) struct Validation<'a>(&'a Value);

impl<'a> Validation<'a> {
    /// `openAPIV3Schema`
    pub(super) fn schema(self) -> Option<Props<'a>> {
        self.0.get("openAPIV3Schema").filter(|s| !s.is_null()).map(Props::of)
    }

    /// `openAPIV3Schema` as a value.
    pub(super) fn value(self) -> Option<&'a Value> {
        self.0.get("openAPIV3Schema").filter(|s| !s.is_null())
    }
}

/// A version, without the common parts.
pub(super) struct Version<'a> {
    pub name: &'a str,
    pub is_served: bool,
    pub is_storage: bool,
    pub is_deprecated: bool,
    pub deprecation_warning: Option<&'a str>,
    pub validation: Option<Validation<'a>>,
    pub subresources: Option<&'a Value>,
    pub columns: &'a [Value],
    pub selectable: &'a [Value],
}

/// The spec of a definition.
pub(super) struct View<'a> {
    pub spec: &'a Map,
    pub names: &'a Map,
    pub versions: Vec<Version<'a>>,
    /// The parts common to all versions.
    pub validation: Option<Validation<'a>>,
    pub subresources: Option<&'a Value>,
    pub columns: &'a [Value],
    pub selectable: &'a [Value],
}

impl<'a> View<'a> {
    /// The schema of the version of that name, its own or that of all.
    pub(super) fn schema_of(&self, name: &str) -> Option<&'a Value> {
        let own = self.versions.iter().find(|version| version.name == name)?.validation;
        own.or(self.validation).and_then(Validation::value)
    }

    pub(super) fn new(definition: &'a Value) -> View<'a> {
        let spec = members(definition.get("spec"), &EMPTY);
        let given = spec.get("versions").and_then(Value::as_array).unwrap_or_default();
        // The value of the first version, if it is equal in all; also if it is unset in all.
        let alike = |key: &str| -> Option<Option<&'a Value>> {
            let first = set_member(given.first()?, key);
            given.iter().all(|version| set_member(version, key) == first).then_some(first)
        };
        let (validation, subresources) = (alike("schema"), alike("subresources"));
        let (columns, selectable) = (alike("additionalPrinterColumns"), alike("selectableFields"));
        let own = |version: &'a Value, key: &str, common: Option<Option<&'a Value>>| match common {
            Some(_) => None,
            None => set_member(version, key),
        };
        let list = |value: Option<&'a Value>| value.and_then(Value::as_array).unwrap_or_default();
        let is = |version: &Value, key: &str| version.get(key).and_then(Value::as_bool) == Some(true);
        let versions = given
            .iter()
            .map(|version| Version {
                name: version.str_at(&["name"]).unwrap_or_default(),
                is_served: is(version, "served"),
                is_storage: is(version, "storage"),
                is_deprecated: is(version, "deprecated"),
                deprecation_warning: version.str_at(&["deprecationWarning"]),
                validation: own(version, "schema", validation).map(Validation),
                subresources: own(version, "subresources", subresources),
                columns: list(own(version, "additionalPrinterColumns", columns)),
                selectable: list(own(version, "selectableFields", selectable)),
            })
            .collect();
        View {
            spec,
            names: members(spec.get("names"), &EMPTY),
            versions,
            validation: validation.flatten().map(Validation),
            subresources: subresources.flatten(),
            columns: list(columns.flatten()),
            selectable: list(selectable.flatten()),
        }
    }

    pub(super) fn text(&self, key: &str) -> &'a str {
        self.spec.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn name(&self, key: &str) -> &'a str {
        self.names.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn preserves_unknown(&self) -> bool {
        self.spec.get("preserveUnknownFields").and_then(Value::as_bool) == Some(true)
    }

    /// Every schema, the common one once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = Props<'a>> + '_ {
        let own = self.versions.iter().filter_map(|version| version.validation);
        self.validation.into_iter().chain(own).filter_map(Validation::schema)
    }

    pub(super) fn all_subresources(&self) -> impl Iterator<Item = &'a Value> + '_ {
        self.subresources.into_iter().chain(self.versions.iter().filter_map(|v| v.subresources))
    }

    /// The subresources of a version, its own or the common ones.
    pub(super) fn subresources_of(&self, version: &Version<'a>) -> Option<&'a Value> {
        match self.versions.iter().any(|v| v.subresources.is_some()) {
            true => version.subresources,
            false => self.subresources,
        }
    }
}

/// A set member; an empty list counts as unset.
fn set_member<'a>(version: &'a Value, key: &str) -> Option<&'a Value> {
    version.get(key).filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

pub(super) fn is_established(definition: &Value) -> bool {
    let conditions = definition.list_at(&["status", "conditions"]);
    conditions
        .iter()
        .any(|c| c.str_at(&["type"]) == Some("Established") && c.str_at(&["status"]) == Some("True"))
}

/// The members of an object; none of anything else.
pub(super) fn members<'a>(value: Option<&'a Value>, empty: &'a Map) -> &'a Map {
    value.and_then(Value::as_object).unwrap_or(empty)
}
