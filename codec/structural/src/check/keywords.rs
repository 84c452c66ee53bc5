//! Which keywords are allowed, and in which combinations.

use plinth_codec::field::{FieldError, Path};
use plinth_codec::value::{level, Value};

use crate::compile;
use crate::node::Kind;
use crate::props::{AdditionalProps, Items, Props};
use crate::prune::is_meta_field;

/// Rules that an update may violate if the old definition did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Types are those of OpenAPI.
    pub valid_type: bool,
    /// Elements of sets are atomic.
    pub atomic_set: bool,
    /// Keys of lists of type `map` are required or have defaults, elements of sets and maps are not nullable.
    pub map_keys: bool,
}

/// The errors of a schema and its subschemas. `path` is that of `openAPIV3Schema`.
pub(crate) fn errors(path: &Path<'_>, root: Props<'_>, rules: Rules) -> Vec<FieldError> {
    let mut check = Check { rules, errors: Vec::new() };
    check.schema(path, root, true, Scope::default());
    check.errors
}

/// The context of a schema.
#[derive(Clone, Default)]
struct Scope {
    /// In `metadata`, `kind` or `apiVersion` of an object.
    metadata: bool,
    /// Why defaults are not allowed.
    no_defaults: Option<String>,
}

struct Check {
    rules: Rules,
    errors: Vec<FieldError>,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

impl Check {
    fn forbid(&mut self, path: Path<'_>, why: &str) {
        self.errors.push(FieldError::forbidden(path, why));
    }

    fn require(&mut self, path: Path<'_>, why: &str) {
        self.errors.push(FieldError::required(path, why));
    }

    fn refuse(&mut self, path: Path<'_>, value: &Value, why: &str) {
        self.errors.push(FieldError::invalid(path, value, why));
    }

    /// A keyword that requires a type.
    fn wants_type(&mut self, path: &Path<'_>, schema: Props<'_>, wanted: &str, why: &str) {
        match schema.kind() {
            kind if kind == wanted => {}
            "" => self.require(path.child("type"), why),
            kind => self.refuse(path.child("type"), &kind.into(), why),
        }
    }

    fn schema(&mut self, path: &Path<'_>, schema: Props<'_>, is_root: bool, inside: Scope) {
        level(|| self.schema_here(path, schema, is_root, inside));
    }

    fn schema_here(&mut self, path: &Path<'_>, schema: Props<'_>, is_root: bool, inside: Scope) {
        self.own(path, schema, &inside);
        if schema.is("uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbid(path.child("uniqueItems"), why);
        }
        if let Some(additional) = schema.additional() {
            let path = path.child("additionalProperties");
            if schema.named("properties").len() != 0 && !matches!(additional, AdditionalProps::Bool(true)) {
                self.forbid(path, "additionalProperties and properties are mutual exclusive");
            }
            if let AdditionalProps::Schema(values) = additional {
                let mut inside = inside.clone();
                if inside.metadata {
                    let why = "inside additionalProperties applying to object metadata";
                    inside.no_defaults = Some(why.to_owned());
                }
                self.schema(&path, values, false, inside);
            }
        }
        let fields = path.child("properties");
        for (name, field) in schema.named("properties") {
            let mut inside = inside.clone();
            if (is_root || schema.embeds()) && is_meta_field(name) {
                inside.metadata = true;
                if is_root {
                    inside.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.schema(&fields.key(name), field, false, inside);
        }
        if let Some(not) = schema.not() {
            self.schema(&path.child("not"), not, false, inside.clone());
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            let junctor = path.child(key);
            for (i, nested) in schema.schemas(key).enumerate() {
                self.schema(&junctor.index(i), nested, false, inside.clone());
            }
        }
        let definitions = path.child("definitions");
        for (name, nested) in schema.named("definitions") {
            self.schema(&definitions.key(name), nested, false, inside.clone());
        }
        let items = path.child("items");
        match schema.items() {
            Some(Items::One(item)) => self.schema(&items, item, false, inside.clone()),
            Some(Items::Many(list)) => {
                for (i, item) in list.iter().enumerate() {
                    self.schema(&items.index(i), Props::of(item), false, inside.clone());
                }
            }
            None => {}
        }
        let dependencies = path.child("dependencies");
        for (name, dependency) in schema.members("dependencies").iter() {
            if let Some(nested) = dependency.as_object() {
                self.schema(&dependencies.key(name), Props(nested), false, inside.clone());
            }
        }
        self.extensions(path, schema);
        if self.rules.map_keys {
            self.errors.extend(map_key_errors(path, schema));
        }
    }

    /// Checks of the schema itself.
    fn own(&mut self, path: &Path<'_>, schema: Props<'_>, inside: &Scope) {
        let kind = schema.kind();
        if self.rules.valid_type && !kind.is_empty() && !TYPES.contains(&kind) {
            self.errors.push(FieldError::not_supported(path.child("type"), &kind.into(), &TYPES));
        }
        if let (Some(reason), true) = (&inside.no_defaults, schema.has("default")) {
            self.forbid(path.child("default"), &format!("must not be set {reason}"));
        }
        for (key, is_set) in [
            ("id", !schema.text("id").is_empty()),
            ("additionalItems", schema.has("additionalItems")),
            ("patternProperties", schema.named("patternProperties").len() != 0),
            ("definitions", schema.named("definitions").len() != 0),
            ("dependencies", schema.has("dependencies")),
            ("$ref", schema.has("$ref")),
        ] {
            if is_set {
                self.forbid(path.child(key), &format!("{key} is not supported"));
            }
        }
        if kind == "null" {
            self.forbid(path.child("type"), "type cannot be set to null, use nullable as an alternative");
        }
        if matches!(schema.items(), Some(Items::Many(list)) if !list.is_empty()) {
            self.forbid(path.child("items"), "items must be a schema object and not an array");
        }
        if inside.metadata && schema.embeds() {
            let path = path.child("x-kubernetes-embedded-resource");
            self.forbid(path, "must not be used inside of resource meta");
        }
    }

    fn extensions(&mut self, path: &Path<'_>, schema: Props<'_>) {
        const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
        const LIST_TYPE: &str = "x-kubernetes-list-type";
        const MAP_TYPE: &str = "x-kubernetes-map-type";
        const KEYS: &str = "x-kubernetes-list-map-keys";
        if schema.has(PRESERVE) && !schema.preserves() {
            self.refuse(path.child(PRESERVE), &false.into(), "must be true or undefined");
        }
        if schema.has(MAP_TYPE) {
            self.wants_type(path, schema, "object", "must be object if x-kubernetes-map-type is specified");
            let given = schema.text(MAP_TYPE);
            if !matches!(given, "atomic" | "granular") {
                let path = path.child(MAP_TYPE);
                self.errors.push(FieldError::not_supported(path, &given.into(), &["atomic", "granular"]));
            }
        }
        let list_type = schema.get(LIST_TYPE).and_then(Value::as_str);
        let items = path.child("items");
        if let Some(list_type) = list_type {
            let before = self.errors.len();
            self.wants_type(path, schema, "array", "must be array if x-kubernetes-list-type is specified");
            if let Some(item) = schema.item().filter(|_| list_type == "set" && self.errors.len() == before) {
                self.set_elements(&items, item);
            }
            if !matches!(list_type, "atomic" | "set" | "map") {
                let supported = ["atomic", "set", "map"];
                self.errors.push(FieldError::not_supported(
                    path.child(LIST_TYPE),
                    &list_type.into(),
                    &supported,
                ));
            }
        }
        let keys: Vec<&str> = schema.strings(KEYS).collect();
        if !keys.is_empty() && list_type != Some("map") {
            let why = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => self.require(path.child(LIST_TYPE), why),
                Some(other) => self.refuse(path.child(LIST_TYPE), &other.into(), why),
            }
        }
        if list_type != Some("map") {
            return;
        }
        if keys.is_empty() {
            self.require(path.child(KEYS), "must not be empty if x-kubernetes-list-type is map");
        }
        let item = match schema.items() {
            None => return self.require(items, "must have a schema if x-kubernetes-list-type is map"),
            Some(Items::Many(_)) => {
                let shown = schema.get("items").unwrap_or(&Value::Null);
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                return self.refuse(items, shown, why);
            }
            Some(Items::One(item)) => item,
        };
        if item.kind() != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            return self.refuse(items.child("type"), &item.kind().into(), why);
        }
        let all = schema.get(KEYS).unwrap_or(&Value::Null);
        for (i, key) in keys.iter().enumerate() {
            match item.property(key) {
                None => self.refuse(path.child(KEYS), all, "entries must all be names of item properties"),
                Some(field) if matches!(field.kind(), "array" | "object") => {
                    let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let fields = items.child("properties");
                    self.refuse(fields.key(key).child("type"), &item.kind().into(), why);
                }
                Some(_) => {}
            }
            if keys[..i].contains(key) {
                self.refuse(path.child(KEYS), all, "must not contain duplicate entries");
            }
        }
    }

    fn set_elements(&mut self, items: &Path<'_>, item: Props<'_>) {
        if !self.rules.atomic_set || is_atomic(item) {
            return;
        }
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = item.get("x-kubernetes-list-type").cloned().unwrap_or_default();
        let key = match item.kind() {
            "array" => "x-kubernetes-list-type",
            _ => "x-kubernetes-map-type",
        };
        self.refuse(items.child(key), &shown, why);
    }
}

/// Whether a schema is atomic.
fn is_atomic(schema: Props<'_>) -> bool {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    match schema.kind() {
        "array" => text("x-kubernetes-list-type").is_none_or(|t| t == "atomic"),
        "object" => text("x-kubernetes-map-type") == Some("atomic"),
        _ => true,
    }
}

/// The errors of keys and elements of sets and maps.
fn map_key_errors(path: &Path<'_>, schema: Props<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list_type = schema.text("x-kubernetes-list-type");
    let Some(item) = schema.item().filter(|_| matches!(list_type, "set" | "map")) else { return errors };
    let items = path.child("items");
    if item.is("nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(items.child("nullable"), why));
    }
    if list_type != "map" {
        return errors;
    }
    let fields = items.child("properties");
    for key in schema.strings("x-kubernetes-list-map-keys") {
        let Some(field) = item.property(key) else { continue };
        let path = fields.key(key);
        if !item.strings("required").any(|name| name == key) && !field.has("default") {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(path.child("default"), why));
        }
        if field.is("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(path.child("nullable"), why));
        }
    }
    errors
}

/// Whether a schema, or a subschema, has an unknown type.
pub(crate) fn has_invalid_type(root: Props<'_>) -> bool {
    root.any(&mut |s| !s.kind().is_empty() && !TYPES.contains(&s.kind()))
}

/// Whether a set, here or in a subschema, has elements that are not atomic.
pub(crate) fn has_divisible_set(root: Props<'_>) -> bool {
    root.any(&mut |s| {
        s.text("x-kubernetes-list-type") == "set" && s.item().is_some_and(|item| !is_atomic(item))
    })
}

/// Whether keys or elements of a set or map, here or in a subschema, violate the rules.
pub(crate) fn has_loose_keys(root: Props<'_>) -> bool {
    root.any(&mut |s| !map_key_errors(&Path::Root, s).is_empty())
}

/// Whether there is a default, here or in a subschema.
pub(crate) fn has_defaults(root: Props<'_>) -> bool {
    root.any(&mut |s| s.has("default"))
}

/// The first keyword that structural schemas do not have, as a compile error.
pub(crate) fn not_convertible(root: Props<'_>) -> Option<compile::CompileError> {
    let mut found = None;
    root.any(&mut |s| {
        found = compile::unsupported(s).or_else(|| compile::unconvertible(s));
        found.is_some()
    });
    found
}

/// Unknown formats, which are not checked, in order, each once.
pub(crate) fn unknown_formats(root: Props<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    root.any(&mut |s| {
        let format = s.text("format");
        let kind = match s.int_or_string() {
            true => Some(Kind::Any),
            false => Kind::parse(s.kind()),
        };
        let is_known = kind.is_some_and(|kind| crate::format::is_known(kind, format));
        if !format.is_empty() && !is_known && !all.iter().any(|f| f == format) {
            all.push(format.to_owned());
        }
        false
    });
    all.sort_unstable();
    all
}
