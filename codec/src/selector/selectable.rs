//! What a resource can be selected by, and the sources of the values.
//!
//! The fields of a built-in resource are data of its kind: those of upstream's `pkg/registry/*/strategy.go`
//! (values) and `pkg/apis/*/v1/conversion.go` (labels and error messages).

use crate::error::quoted;
use crate::Value;
use smol_str::{SmolStr, ToSmolStr};
use std::borrow::Cow;

/// A field that a resource can be selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The label in selectors.
    pub label: &'static str,
    /// The name under which the value is stored; another label may share it.
    pub name: &'static str,
    /// The dotted path of the value, and that of the value where the first has none. A number steps into a
    /// list; an empty path has no value.
    paths: [&'static str; 2],
    /// The value when there is none.
    absent: &'static str,
}

impl SelectableField {
    /// The object's name, which is part of its key.
    pub const NAME: SelectableField = SelectableField::new("metadata.name");
    /// The object's namespace, which is part of its key.
    pub const NAMESPACE: SelectableField = SelectableField::new("metadata.namespace");

    /// A field whose label is its path and the name under which it is stored.
    pub const fn new(label: &'static str) -> SelectableField {
        SelectableField { label, name: label, paths: [label, ""], absent: "" }
    }

    /// With another path than the label; an empty one has no value.
    pub const fn at(self, path: &'static str) -> SelectableField {
        SelectableField { paths: [path, ""], ..self }
    }

    /// With the path of the value where the first one is absent or empty.
    pub const fn or(self, path: &'static str) -> SelectableField {
        SelectableField { paths: [self.paths[0], path], ..self }
    }

    /// With the value of objects that have none.
    pub const fn absent(self, value: &'static str) -> SelectableField {
        SelectableField { absent: value, ..self }
    }

    /// Stored under the name of another field.
    pub const fn stored_as(self, name: &'static str) -> SelectableField {
        SelectableField { name, ..self }
    }

    /// The value in an object, as text; the empty string, or the field's default, when absent.
    pub fn value<'a>(&self, object: &'a Value) -> Cow<'a, str> {
        let paths = self.paths.iter().filter(|path| !path.is_empty());
        let values = paths.filter_map(|path| path.split('.').try_fold(object, child));
        values.map(Value::scalar_text).find(|text| !text.is_empty()).unwrap_or(Cow::Borrowed(self.absent))
    }

    /// Whether this is `metadata.name` or `metadata.namespace`, which are part of the object's key.
    pub fn in_key(&self) -> bool {
        self.name.starts_with("metadata.")
    }
}

fn child<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    }
}

/// What a built-in resource can be selected by.
#[derive(Clone, Copy, Debug)]
pub struct Selectable {
    /// The fields, with the labels of the resource's API group.
    pub fields: &'static [SelectableField],
    /// The error about a label that is none of the fields'.
    pub unsupported: fn(label: &str) -> String,
}

impl Selectable {
    /// Resources without selectable fields of their own.
    pub const METADATA: Selectable = Selectable {
        fields: &[SelectableField::NAME, SelectableField::NAMESPACE],
        unsupported: Selectable::not_a_known_field,
    };

    /// These fields, with the error of most resources that have fields of their own.
    pub const fn new(fields: &'static [SelectableField]) -> Selectable {
        Selectable { fields, unsupported: Selectable::label_not_supported }
    }

    /// The error of most resources with selectable fields of their own, and of custom resources.
    fn label_not_supported(label: &str) -> String {
        format!("field label not supported: {label}")
    }

    /// The error of resources without selectable fields of their own.
    pub fn not_a_known_field(label: &str) -> String {
        let label = quoted(label);
        format!(r#"{label} is not a known field selector: only "metadata.name", "metadata.namespace""#)
    }

    /// The fields whose values are stored in the object header, in its order: each name once, without those
    /// of the key.
    pub fn stored(&self) -> impl Iterator<Item = &'static SelectableField> {
        self.fields.iter().filter(|field| !field.in_key() && field.label == field.name)
    }
}

/// The fields that a custom resource can be selected by: `selectableFields` of one version of its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomFields {
    /// Whether `metadata.namespace` is selectable.
    pub namespaced: bool,
    /// The JSON paths without the leading dot, which are the labels too: `spec.color`.
    pub paths: Vec<SmolStr>,
}

impl CustomFields {
    /// Creates the fields from the paths in a definition: `.spec.color`.
    pub fn new<'a>(namespaced: bool, json_paths: impl IntoIterator<Item = &'a str>) -> CustomFields {
        let paths = json_paths.into_iter().map(|p| p.strip_prefix('.').unwrap_or(p).to_smolstr()).collect();
        CustomFields { namespaced, paths }
    }

    /// Whether the resource can be selected by this field.
    pub fn supports(&self, label: &str) -> bool {
        label == "metadata.name"
            || (label == "metadata.namespace" && self.namespaced)
            || self.paths.iter().any(|path| path == label)
    }

    /// The error about a label that is not supported.
    pub(super) fn unsupported(label: &str) -> String {
        Selectable::label_not_supported(label)
    }

    /// The values in an object, in the order of `paths`; the empty string where there is none.
    pub fn values<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        self.paths.iter().map(move |path| {
            let value = path.split('.').try_fold(object, |v, key| v.get(key));
            (path.as_str(), value.map_or(Cow::Borrowed(""), Value::scalar_text))
        })
    }
}
