//! Definitions of custom resources: the schema of their CustomResourceDefinition, made part of the Kubernetes
//! documents (k8s.io/apiextensions-apiserver, `pkg/controller/openapi`).

use smol_str::SmolStr;

use super::descriptions::ANY_KIND;
use super::schemas::{kind_object, Definitions};
use super::writer::JsonWriter;
use super::{custom_name, CustomSchema, Edition, PublishedResource};
use crate::schema::GVK;
use crate::tree;
use crate::value::{Map, Value};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Writes the object and list definitions of a custom resource as members; nothing for a built-in one.
pub(super) fn definitions(w: &mut JsonWriter, definitions: &mut Definitions, published: &PublishedResource) {
    let Some(custom) = &published.custom else {
        return;
    };
    let resource = published.resource;
    let object = custom_name(&resource.group, &resource.version, &resource.kind);
    let common = Common::new(definitions);
    definitions.provided(&object);
    w.key(&object).object(|w| {
        let schema = object_schema(&common, custom);
        definitions.want_referenced(&schema);
        for (key, member) in schema.iter() {
            w.key(key).value(member);
        }
        closing(w, &resource.gvk(), custom);
    });

    if resource.list_kind.is_empty() {
        return;
    }
    let list = custom_name(&resource.group, &resource.version, &resource.list_kind);
    definitions.provided(&list);
    w.key(&list).object(|w| {
        w.key("type").string("object");
        w.key("required").strings(["items"]);
        w.key("properties").object(|w| {
            w.key("apiVersion").value(&common.api_version);
            w.key("kind").value(&common.kind);
            w.key("metadata");
            definitions.reference(w, &format!("{META}.ListMeta"));
            w.key("items").object(|w| {
                w.key("type").string("array");
                w.key("items");
                definitions.reference(w, &object);
            });
        });
        let gvk = GVK::new(resource.group.clone(), resource.version.clone(), resource.list_kind.clone());
        closing(w, &gvk, custom);
    });
}

fn closing(w: &mut JsonWriter, gvk: &GVK, custom: &CustomSchema) {
    w.key("x-kubernetes-group-version-kind").array(|w| kind_object(w, gvk));
    if !custom.selectable_fields.is_empty() {
        w.key("x-kubernetes-selectable-fields").array(|w| {
            for path in custom.selectable_fields {
                w.object(|w| w.key("fieldPath").string(path.strip_prefix('.').unwrap_or(path)));
            }
        });
    }
}

/// The fields that every object has.
struct Common {
    edition: Edition,
    api_version: Value,
    kind: Value,
    metadata: Value,
}

impl Common {
    fn new(definitions: &Definitions) -> Common {
        let edition = definitions.edition();
        let described = |field, mut members: Map| {
            // These fields have the same description in all kinds.
            if let Some(text) = definitions.descriptions().of(ANY_KIND, Some(field)) {
                members.insert("description", text.into_owned());
            }
            members
        };
        let string = |field| {
            let mut members = Map::new();
            members.insert("type", "string");
            Value::Object(described(field, members))
        };
        let target = format!("{}{META}.ObjectMeta", edition.definitions());
        let mut metadata = described("metadata", Map::new());
        match (edition, metadata.is_empty()) {
            // Before OpenAPI 3.1 a reference may have no sibling keywords.
            (Edition::V3, false) => metadata.insert("allOf", vec![tree!({ "$ref": target })]),
            _ => metadata.insert("$ref", target),
        };
        Common { edition, api_version: string("apiVersion"), kind: string("kind"), metadata: metadata.into() }
    }
}

/// The object's schema with the fields that every object has.
fn object_schema(common: &Common, custom: &CustomSchema) -> Map {
    let edition = common.edition;
    let given = custom.schema.and_then(Value::as_object);
    let preserves = |schema: &Map| schema.get(PRESERVE).and_then(Value::as_bool) == Some(true);
    let schema = match (given, edition) {
        // If any field is listed, kubectl assumes that the list is complete.
        (None, _) => None,
        (Some(given), Edition::V2) if custom.preserve_unknown_fields || preserves(given) => None,
        (Some(given), _) => Some(given),
    };
    let Some(schema) = schema else {
        let mut open = Map::new();
        open.insert("type", "object");
        return open;
    };
    let mut schema = match edition {
        Edition::V3 => schema.clone(),
        Edition::V2 => as_edition_2(schema),
    };
    expand(common, &mut schema);
    if edition == Edition::V2 {
        remove_defaults(&mut schema);
    }
    add_object_properties(common, &mut schema);
    schema
}

/// Sets `apiVersion`, `kind` and `metadata`, which a definition may describe partly.
fn add_object_properties(common: &Common, schema: &mut Map) {
    let properties = schema.entry("properties");
    if properties.as_object().is_none() {
        *properties = Value::object();
    }
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion", common.api_version.clone());
        properties.insert("kind", common.kind.clone());
        properties.insert("metadata", common.metadata.clone());
    }
}

/// Expands two extensions to plain keywords: integers or strings, and embedded objects.
fn expand(common: &Common, schema: &mut Map) {
    let edition = common.edition;
    for_each_child(schema, &mut |child| expand(common, child));
    let is = |schema: &Map, key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
    if is(schema, "x-kubernetes-int-or-string")
        && edition == Edition::V3
        && !has_int_or_string_alternatives(schema)
    {
        let either = int_or_string();
        match schema.contains("anyOf") {
            false => {
                schema.insert("anyOf", either);
            }
            true => {
                let mut all = vec![tree!({ "anyOf": either })];
                if let Some(Value::Array(given)) = schema.remove("allOf") {
                    all.extend(given);
                }
                schema.insert("allOf", all);
            }
        }
    }
    if is(schema, "x-kubernetes-embedded-resource") && !(edition == Edition::V2 && is(schema, PRESERVE)) {
        add_object_properties(common, schema);
        let required = schema.entry("required");
        if required.as_array().is_none() {
            *required = Value::Array(Vec::new());
        }
        if let Some(required) = required.as_array_mut() {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|r| r.as_str() == Some(name)) {
                    required.push(name.into());
                }
            }
        }
    }
}

fn int_or_string() -> Vec<Value> {
    vec![tree!({ "type": "integer" }), tree!({ "type": "string" })]
}

/// Whether the definition has the alternatives itself, as `anyOf` or first in `allOf`.
fn has_int_or_string_alternatives(schema: &Map) -> bool {
    let is_pattern = |any_of: Option<&Value>| any_of.and_then(Value::as_array) == Some(&int_or_string()[..]);
    is_pattern(schema.get("anyOf"))
        || schema
            .get("allOf")
            .and_then(Value::as_array)
            .and_then(<[Value]>::first)
            .is_some_and(|first| is_pattern(first.get("anyOf")))
}

/// Removes keywords that OpenAPI 2.0 does not have, or that kubectl's parser of it does not handle.
fn as_edition_2(schema: &Map) -> Map {
    let mut schema = schema.clone();
    to_edition_2(&mut schema);
    schema
}

fn to_edition_2(schema: &mut Map) {
    for junctor in ["allOf", "anyOf", "oneOf", "not"] {
        schema.remove(junctor);
    }
    let is = |schema: &Map, key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
    let preserves = is(schema, PRESERVE);
    if is(schema, "nullable") {
        for key in ["nullable", "type", "items", "properties"] {
            schema.remove(key);
        }
    }
    if preserves {
        schema.remove("items");
        schema.remove("properties");
    }
    let type_name: Option<SmolStr> = schema.get("type").and_then(Value::as_str).map(SmolStr::from);
    match type_name.as_deref() {
        Some("array") if !schema.contains("items") => drop(schema.remove("type")),
        Some("object") if preserves => drop(schema.remove("type")),
        _ => {}
    }
    // A nullable field cannot be required where `nullable` cannot be expressed.
    let nullable: Vec<SmolStr> = match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            let nullable = properties.iter().filter(|(_, p)| p.get("nullable") == Some(&Value::Bool(true)));
            nullable.map(|(name, _)| name.clone()).collect()
        }
        None => Vec::new(),
    };
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !nullable.iter().any(|n| Some(n.as_str()) == name.as_str()));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    if schema.get("additionalProperties").and_then(|a| a.get("nullable")) == Some(&Value::Bool(true)) {
        schema.remove("required");
    }
    for_each_child(schema, &mut to_edition_2);
}

fn remove_defaults(schema: &mut Map) {
    schema.remove("default");
    for_each_child(schema, &mut remove_defaults);
}

/// Calls `visit` for the schemas of fields, items and map values.
fn for_each_child(schema: &mut Map, visit: &mut dyn FnMut(&mut Map)) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.iter_mut().filter_map(|(_, p)| p.as_object_mut()).for_each(&mut *visit);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(key).and_then(Value::as_object_mut) {
            visit(child);
        }
    }
}
