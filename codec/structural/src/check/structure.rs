//! Structural schemas: each field is specified outside of junctors, with a type, and junctors hold value
//! validations only.

use plinth_codec::field::{FieldError, Path};
use plinth_codec::regexp;
use plinth_codec::value::{level, Value};

use super::is_zero;
use crate::props::{AdditionalProps, Props};

/// The position of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Root,
    Item,
    Field,
}

/// The reasons why a schema is not structural, in document order. `path` is that of `openAPIV3Schema`.
pub(crate) fn errors(path: &Path<'_>, root: Props<'_>) -> Vec<FieldError> {
    let mut check = Check { errors: Vec::new() };
    check.invariants(root, Position::Root, path);
    check.value_completeness(root, Some(root), path, path);
    check.errors.sort_by_cached_key(ToString::to_string);
    check.errors
}

struct Check {
    errors: Vec<FieldError>,
}

impl Check {
    fn forbid(&mut self, path: Path<'_>, why: &str) {
        self.errors.push(FieldError::forbidden(path, why));
    }

    fn require(&mut self, path: Path<'_>, why: impl std::fmt::Display) {
        self.errors.push(FieldError::required(path, why));
    }

    fn refuse(&mut self, path: Path<'_>, value: impl Into<Value>, why: impl std::fmt::Display) {
        self.errors.push(FieldError::invalid(path, &value.into(), why));
    }

    fn invariants(&mut self, s: Props<'_>, place: Position, path: &Path<'_>) {
        level(|| self.invariants_here(s, place, path));
    }

    fn invariants_here(&mut self, s: Props<'_>, place: Position, path: &Path<'_>) {
        match s.item() {
            Some(item) => self.invariants(item, Position::Item, &path.child("items")),
            None if s.kind() == "array" => self.require(path.child("items"), "must be specified"),
            None => {}
        }
        let fields = path.child("properties");
        for (name, schema) in s.named("properties") {
            self.invariants(schema, Position::Field, &fields.key(name));
        }
        let additional = path.child("additionalProperties");
        if s.has("additionalProperties") && place == Position::Root {
            self.forbid(additional, "must not be used at the root");
        }
        if let Some(schema) = s.additional_schema() {
            self.invariants(schema, Position::Field, &additional);
        }

        if s.int_or_string() && s.preserves() {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.refuse(path, true, "must be false if x-kubernetes-int-or-string is true");
        }
        if s.int_or_string() && s.embeds() {
            let path = path.child("x-kubernetes-embedded-resource");
            self.refuse(path, true, "must be false if x-kubernetes-int-or-string is true");
        }
        let is_first_int_or_string =
            s.schemas("allOf").next().is_some_and(Props::has_int_or_string_alternatives);
        self.value_validation(s, s.has_int_or_string_alternatives(), is_first_int_or_string, path);

        let kind = s.kind();
        if s.embeds() && kind != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            match kind.is_empty() {
                true => self.require(path.child("type"), why),
                false => self.refuse(path.child("type"), kind, why),
            }
        } else if kind.is_empty() && !s.int_or_string() && !s.preserves() {
            let why = match place {
                Position::Root => "must not be empty at the root",
                Position::Item => "must not be empty for specified array items",
                Position::Field => "must not be empty for specified object fields",
            };
            self.require(path.child("type"), why);
        }
        if s.embeds() && s.has("additionalProperties") {
            self.forbid(additional, "must not be used if x-kubernetes-embedded-resource is set");
        }
        if place == Position::Root && !kind.is_empty() && kind != "object" {
            self.refuse(path.child("type"), kind, "must be object at the root");
        }
        let has_metadata = place == Position::Root || s.embeds();
        for name in ["kind", "apiVersion"] {
            if let Some(field) = s.property(name).filter(|f| has_metadata && f.kind() != "string") {
                self.refuse(fields.key(name).child("type"), field.kind(), "must be string");
            }
        }
        if let Some(metadata) = s.property("metadata") {
            self.metadata(metadata, has_metadata, place, &fields.key("metadata"));
        }
        if s.embeds() && !s.preserves() && s.named("properties").len() == 0 {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.require(fields, why);
        }
    }

    /// The schema of `metadata` may restrict names and nothing else.
    fn metadata(&mut self, s: Props<'_>, has_metadata: bool, place: Position, path: &Path<'_>) {
        if has_metadata && s.kind() != "object" {
            self.refuse(path.child("type"), s.kind(), "must be object");
        }
        let is_allowed = |(key, value): (&smol_str::SmolStr, &Value)| match key.as_str() {
            "type" | "default" => true,
            "properties" => s.named("properties").all(|(n, _)| matches!(n.as_str(), "name" | "generateName")),
            // `false` counts as set.
            "additionalProperties" => value.is_null(),
            _ => is_zero(value),
        };
        if place == Position::Root && !s.0.iter().all(is_allowed) {
            let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.forbid(*path, why);
        }
    }

    /// `skip_any` and `skip_first` allow the alternatives that `x-kubernetes-int-or-string` implies.
    fn value_validation(&mut self, s: Props<'_>, skip_any: bool, skip_first: bool, path: &Path<'_>) {
        for key in ["anyOf", "allOf", "oneOf"] {
            let junctor = path.child(key);
            for (i, nested) in s.schemas(key).enumerate() {
                match key {
                    "anyOf" if skip_any => {}
                    "allOf" => self.nested(nested, skip_first && i == 0, &junctor.index(i)),
                    _ => self.nested(nested, false, &junctor.index(i)),
                }
            }
        }
        if let Some(not) = s.not() {
            self.nested(not, false, &path.child("not"));
        }
        let pattern = s.text("pattern");
        if !pattern.is_empty() {
            if let Err(error) = regexp::compile(pattern) {
                let why = format!("must be a valid regular expression, but isn't: {error}");
                self.refuse(path.child("pattern"), pattern, why);
            }
        }
    }

    fn nested(&mut self, s: Props<'_>, skip_any: bool, path: &Path<'_>) {
        level(|| self.nested_here(s, skip_any, path));
    }

    fn nested_here(&mut self, s: Props<'_>, skip_any: bool, path: &Path<'_>) {
        self.value_validation(s, skip_any, false, path);
        if let Some(item) = s.item() {
            self.nested(item, false, &path.child("items"));
        }
        let fields = path.child("properties");
        for (name, schema) in s.named("properties") {
            self.nested(schema, false, &fields.key(name));
        }
        if matches!(s.additional(), Some(AdditionalProps::Schema(_) | AdditionalProps::Bool(true))) {
            self.forbid(path.child("additionalProperties"), "must be undefined to be structural");
        }
        for (key, must_be) in [
            ("type", "empty"),
            ("default", "undefined"),
            ("title", "empty"),
            ("description", "empty"),
            ("nullable", "false"),
            ("x-kubernetes-preserve-unknown-fields", "false"),
            ("x-kubernetes-embedded-resource", "false"),
            ("x-kubernetes-int-or-string", "false"),
            ("x-kubernetes-list-map-keys", "empty"),
            ("x-kubernetes-list-type", "undefined"),
            ("x-kubernetes-map-type", "undefined"),
            ("x-kubernetes-validations", "empty"),
        ] {
            let is_set = match must_be {
                "undefined" => s.has(key),
                _ => s.get(key).is_some_and(|v| !is_zero(v)),
            };
            if is_set {
                self.forbid(path.child(key), &format!("must be {must_be} to be structural"));
            }
        }
        if s.property("metadata").is_some() {
            self.forbid(fields.key("metadata"), "must not be specified in a nested context");
        }
    }

    /// Each value validation `v` has a structural counterpart `s`.
    fn value_completeness(&mut self, v: Props<'_>, s: Option<Props<'_>>, at: &Path<'_>, from: &Path<'_>) {
        if let Some(not) = v.not() {
            self.completeness(not, s, at, &from.child("not"));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let junctor = from.child(key);
            for (i, nested) in v.schemas(key).enumerate() {
                self.completeness(nested, s, at, &junctor.index(i));
            }
        }
    }

    fn completeness(&mut self, v: Props<'_>, s: Option<Props<'_>>, at: &Path<'_>, from: &Path<'_>) {
        let Some(s) = s else {
            return self.require(*at, format_args!("because it is defined in {from}"));
        };
        level(|| {
            self.value_completeness(v, Some(s), at, from);
            if let Some(item) = v.item() {
                self.completeness(item, s.item(), &at.child("items"), &from.child("items"));
            }
            let (at, from) = (at.child("properties"), from.child("properties"));
            for (name, nested) in v.named("properties") {
                self.completeness(nested, s.property(name), &at.key(name), &from.key(name));
            }
        });
    }
}
