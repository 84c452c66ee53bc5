//! Types of the schema model as JSON Schema objects of OpenAPI.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::edition::{Descriptions, Edition, VERSION_INFO};
use super::writer::JsonWriter;
use crate::schema::{
    Field, ListType, MapType, Omit, Scalar, Schema, SchemaOr, StructType, Type, TypeId, UnionType, GVK,
};
use crate::value::{Map, Value};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The kinds that every group version has under its own name: delete options and watch events.
const COMMON_KINDS: [&str; 2] =
    ["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"];

/// The OpenAPI name of a scalar, if it has one.
fn scalar_name(scalar: &Scalar) -> Option<SmolStr> {
    let (package, name) = match scalar {
        Scalar::Quantity => return Some("io.k8s.apimachinery.pkg.api.resource.Quantity".into()),
        Scalar::IntOrString => return Some("io.k8s.apimachinery.pkg.util.intstr.IntOrString".into()),
        Scalar::RawExtension => return Some("io.k8s.apimachinery.pkg.runtime.RawExtension".into()),
        Scalar::Time => (META, "Time"),
        Scalar::MicroTime => (META, "MicroTime"),
        Scalar::Duration => (META, "Duration"),
        Scalar::FieldsV1 => (META, "FieldsV1"),
        Scalar::Json => (APIEXTENSIONS, "JSON"),
        Scalar::SchemaOr(SchemaOr::Array, _) => (APIEXTENSIONS, "JSONSchemaPropsOrArray"),
        Scalar::SchemaOr(SchemaOr::Bool, _) => (APIEXTENSIONS, "JSONSchemaPropsOrBool"),
        Scalar::SchemaOr(SchemaOr::StringArray, _) => (APIEXTENSIONS, "JSONSchemaPropsOrStringArray"),
        _ => return None,
    };
    Some(smol_str::format_smolstr!("{package}.{name}"))
}

/// Writes definitions and records their references, so that the document can be completed.
pub(super) struct Definitions<'a> {
    edition: Edition,
    schema: &'a Schema,
    descriptions: &'a dyn Descriptions,
    /// The group versions whose documents hold the definitions, for [`COMMON_KINDS`].
    versions: &'a [(SmolStr, SmolStr)],
    /// Names referred to and not yet written.
    wanted: BTreeSet<SmolStr>,
    written: BTreeSet<SmolStr>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(
        edition: Edition,
        schema: &'a Schema,
        descriptions: &'a dyn Descriptions,
        versions: &'a [(SmolStr, SmolStr)],
    ) -> Definitions<'a> {
        Definitions {
            edition,
            schema,
            descriptions,
            versions,
            wanted: BTreeSet::new(),
            written: BTreeSet::new(),
        }
    }

    pub(super) fn edition(&self) -> Edition {
        self.edition
    }

    pub(super) fn descriptions(&self) -> &'a dyn Descriptions {
        self.descriptions
    }

    /// Requests the definitions that a tree refers to.
    pub(super) fn want_referenced(&mut self, tree: &Map) {
        for (key, member) in tree.iter() {
            match member {
                Value::String(target) if key == "$ref" => {
                    if let Some(name) = target.strip_prefix(self.edition.definitions()) {
                        self.want(name);
                    }
                }
                Value::Object(map) => self.want_referenced(map),
                Value::Array(items) => {
                    items.iter().filter_map(Value::as_object).for_each(|map| self.want_referenced(map));
                }
                _ => {}
            }
        }
    }

    /// Writes `{"$ref": …}` and requests the definition.
    pub(super) fn reference(&mut self, w: &mut JsonWriter, name: &str) {
        w.object(|w| self.reference_member(w, name));
    }

    fn reference_member(&mut self, w: &mut JsonWriter, name: &str) {
        self.want(name);
        let mut target = String::with_capacity(self.edition.definitions().len() + name.len());
        target.push_str(self.edition.definitions());
        target.push_str(name);
        w.key("$ref").string(&target);
    }

    /// Requests a definition.
    pub(super) fn want(&mut self, name: &str) {
        if !self.written.contains(name) {
            self.wanted.insert(name.into());
        }
    }

    /// Marks a definition as written by the caller.
    pub(super) fn provided(&mut self, name: &str) {
        self.wanted.remove(name);
        self.written.insert(name.into());
    }

    /// Writes the definitions of all names wanted, and of what these refer to, as members of the object
    /// that the writer is in.
    pub(super) fn write_wanted(&mut self, w: &mut JsonWriter) {
        while let Some(name) = self.wanted.pop_first() {
            if !self.written.insert(name.clone()) {
                continue;
            }
            w.key(&name);
            match self.schema.named(&name).and_then(|id| self.schema.structure(id)) {
                Some(structure) => w.object(|w| self.structure(w, structure)),
                None => self.named_scalar(w, &name),
            }
        }
    }

    /// The definitions without fields.
    fn named_scalar(&mut self, w: &mut JsonWriter, name: &str) {
        if name == VERSION_INFO {
            return version_info(w, self.edition);
        }
        let local = name.rsplit('.').next().unwrap_or(name);
        w.object(|w| {
            self.description(w, name, None);
            match (local, self.edition) {
                ("Time" | "MicroTime", _) => {
                    w.key("type").string("string");
                    w.key("format").string("date-time");
                }
                ("Quantity", Edition::V3) => alternatives(w, ["string", "number"]),
                ("IntOrString", Edition::V3) => {
                    w.key("format").string("int-or-string");
                    alternatives(w, ["integer", "string"]);
                }
                ("IntOrString", Edition::V2) => {
                    w.key("type").string("string");
                    w.key("format").string("int-or-string");
                }
                ("Quantity" | "Duration", _) => w.key("type").string("string"),
                // Any JSON value.
                _ if name.starts_with(APIEXTENSIONS) => {}
                _ => w.key("type").string("object"),
            }
        });
    }

    fn structure(&mut self, w: &mut JsonWriter, structure: &StructType) {
        self.description(w, &structure.name, None);
        w.key("type").string("object");
        self.fields(w, structure);
        if structure.atomic {
            w.key("x-kubernetes-map-type").string("atomic");
        }
        let kinds = self.kinds(structure);
        if !kinds.is_empty() {
            w.key("x-kubernetes-group-version-kind")
                .array(|w| kinds.iter().for_each(|kind| kind_object(w, kind)));
        }
        if let Some(union) = &structure.union {
            union_object(w, union);
        }
    }

    /// The kinds that a struct is the body of, in the group versions at hand.
    fn kinds(&self, structure: &StructType) -> Vec<GVK> {
        if !COMMON_KINDS.contains(&structure.name.as_str()) {
            return structure.kinds.clone();
        }
        let Some(kind) = structure.kinds.first().map(|gvk| &gvk.kind) else {
            return Vec::new();
        };
        // Core has the kind itself, so it is always among them.
        let mut versions: BTreeSet<(SmolStr, SmolStr)> = self.versions.iter().cloned().collect();
        versions.insert(("".into(), "v1".into()));
        versions.into_iter().map(|(group, version)| GVK::new(group, version, kind.clone())).collect()
    }

    fn fields(&mut self, w: &mut JsonWriter, structure: &StructType) {
        if structure.fields.is_empty() {
            return;
        }
        let is_list_kind = structure.kinds.iter().any(|gvk| gvk.kind.ends_with("List"));
        w.key("properties").object(|w| {
            for field in &structure.fields {
                w.key(&field.name);
                let unmarked = is_list_kind && field.name == "items";
                self.field(w, &structure.name, field, unmarked);
            }
        });
        if structure.fields.iter().any(|f| f.required) {
            w.key("required").strings(structure.fields.iter().filter(|f| f.required).map(|f| &f.name));
        }
    }

    /// A field; `unmarked` lists carry no list type.
    fn field(&mut self, w: &mut JsonWriter, owner: &str, field: &Field, unmarked: bool) {
        let described = self.descriptions.of(owner, Some(&field.name)).is_some();
        let default = match self.edition {
            Edition::V3 => self.default(field),
            Edition::V2 => None,
        };
        let markers = self.has_markers(field, unmarked);
        w.object(|w| {
            let beside = described || default.is_some() || markers;
            match (self.reference_name(field.type_id), self.edition) {
                // Before OpenAPI 3.1 a reference may have no sibling keywords.
                (Some(name), Edition::V3) if beside => {
                    w.key("allOf").array(|w| self.reference(w, &name));
                }
                (Some(name), _) => self.reference_member(w, &name),
                (None, _) => self.type_members(w, field.type_id),
            }
            self.description(w, owner, Some(&field.name));
            if let Some(default) = &default {
                w.key("default").value(default);
            }
            if markers {
                self.markers(w, field, unmarked);
            }
        });
    }

    /// The default to publish: the declared one, else the zero value of a field that Go cannot omit.
    fn default(&self, field: &Field) -> Option<Value> {
        if field.default.is_some() || field.pointer {
            return field.default.clone();
        }
        match self.schema.get(field.type_id) {
            Type::Scalar(_) if field.omit != Omit::Never => None,
            _ => self.zero(field.type_id),
        }
    }

    /// Go's zero value of a type, if OpenAPI has it.
    fn zero(&self, id: TypeId) -> Option<Value> {
        match self.schema.get(id) {
            Type::Struct(_) => Some(Value::object()),
            Type::Scalar(Scalar::Bool) => Some(false.into()),
            Type::Scalar(Scalar::Int32 | Scalar::Int64) => Some(0i64.into()),
            Type::Scalar(Scalar::Double) => Some(0i64.into()),
            Type::Scalar(Scalar::String { .. }) => Some("".into()),
            _ => None,
        }
    }

    fn reference_name(&self, id: TypeId) -> Option<SmolStr> {
        match self.schema.get(id) {
            Type::Struct(s) if !s.name.is_empty() => Some(s.name.clone()),
            Type::Scalar(scalar) => scalar_name(scalar),
            _ => None,
        }
    }

    /// The type of a list's elements or a map's values.
    fn element(&mut self, w: &mut JsonWriter, id: TypeId) {
        let default = match self.edition {
            Edition::V3 => self.zero(id),
            Edition::V2 => None,
        };
        w.object(|w| {
            match (self.reference_name(id), &default) {
                (Some(name), Some(_)) => w.key("allOf").array(|w| self.reference(w, &name)),
                (Some(name), None) => self.reference_member(w, &name),
                (None, _) => self.type_members(w, id),
            }
            if let Some(default) = &default {
                w.key("default").value(default);
            }
        });
    }

    /// The members of an unnamed type.
    fn type_members(&mut self, w: &mut JsonWriter, id: TypeId) {
        let schema = self.schema;
        match schema.get(id) {
            Type::Struct(structure) => {
                w.key("type").string("object");
                self.fields(w, structure);
            }
            Type::List { element, .. } => {
                w.key("type").string("array");
                w.key("items");
                self.element(w, *element);
            }
            Type::Map { value, .. } => {
                w.key("type").string("object");
                w.key("additionalProperties");
                self.element(w, *value);
            }
            Type::Scalar(scalar) => {
                let (name, format) = match scalar {
                    Scalar::Bool => ("boolean", None),
                    Scalar::Int32 => ("integer", Some("int32")),
                    Scalar::Int64 => ("integer", Some("int64")),
                    Scalar::Double => ("number", Some("double")),
                    Scalar::Bytes => ("string", Some("byte")),
                    Scalar::Any => return,
                    _ => ("string", None),
                };
                w.key("type").string(name);
                if let Some(format) = format {
                    w.key("format").string(format);
                }
                match scalar {
                    Scalar::String { values } if !values.is_empty() => w.key("enum").strings(values),
                    _ => {}
                }
            }
        }
    }

    fn has_markers(&self, field: &Field, unmarked: bool) -> bool {
        self.list_type(field, unmarked).is_some() || field.map == MapType::Atomic || strategy(field).is_some()
    }

    fn markers(&self, w: &mut JsonWriter, field: &Field, unmarked: bool) {
        if let ListType::Map(keys) = &field.list {
            w.key("x-kubernetes-list-map-keys").strings(keys);
        }
        if let Some(list_type) = self.list_type(field, unmarked) {
            w.key("x-kubernetes-list-type").string(list_type);
        }
        if field.map == MapType::Atomic {
            w.key("x-kubernetes-map-type").string("atomic");
        }
        if let Some(key) = &field.patch.merge_key {
            w.key("x-kubernetes-patch-merge-key").string(key);
        }
        if let Some(strategy) = strategy(field) {
            w.key("x-kubernetes-patch-strategy").string(&strategy);
        }
    }

    fn list_type(&self, field: &Field, unmarked: bool) -> Option<&'static str> {
        // Lists that protobuf holds in a message have a Go type of their own, which carries no marker.
        if !matches!(self.schema.get(field.type_id), Type::List { message: false, .. }) {
            return None;
        }
        match field.list {
            ListType::Atomic => (!unmarked).then_some("atomic"),
            ListType::Set => Some("set"),
            ListType::Map(_) => Some("map"),
        }
    }

    fn description(&self, w: &mut JsonWriter, type_name: &str, field: Option<&str>) {
        if let Some(text) = self.descriptions.of(type_name, field) {
            w.key("description").string(&text);
        }
    }
}

/// The response of `/version`; not an API object, so it is not in the schema.
fn version_info(w: &mut JsonWriter, edition: Edition) {
    const REQUIRED: [&str; 9] = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    const OPTIONAL: [&str; 4] =
        ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];
    w.object(|w| {
        w.key("type").string("object");
        w.key("properties").object(|w| {
            for name in OPTIONAL.iter().chain(&REQUIRED) {
                w.key(name).object(|w| {
                    w.key("type").string("string");
                    if edition == Edition::V3 && REQUIRED.contains(name) {
                        w.key("default").string("");
                    }
                });
            }
        });
        w.key("required").strings(REQUIRED);
    });
}

fn alternatives(w: &mut JsonWriter, types: [&str; 2]) {
    w.key("oneOf").array(|w| {
        for name in types {
            w.object(|w| w.key("type").string(name));
        }
    });
}

/// The patch strategies of a field, joined as upstream does.
fn strategy(field: &Field) -> Option<String> {
    let patch = &field.patch;
    let words = [("merge", patch.merge), ("replace", patch.replace), ("retainKeys", patch.retain_keys)];
    let words: Vec<&str> = words.iter().filter(|(_, on)| *on).map(|(word, _)| *word).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// `{"group": …, "kind": …, "version": …}`.
pub(super) fn kind_object(w: &mut JsonWriter, gvk: &GVK) {
    w.object(|w| {
        w.key("group").string(&gvk.group);
        w.key("kind").string(&gvk.kind);
        w.key("version").string(&gvk.version);
    });
}

fn union_object(w: &mut JsonWriter, union: &UnionType) {
    w.key("x-kubernetes-unions").array(|w| {
        w.object(|w| {
            if let Some(discriminator) = &union.discriminator {
                w.key("discriminator").string(discriminator);
            }
            w.key("fields-to-discriminateBy").object(|w| {
                for member in &union.members {
                    // The discriminator's value is the Go name of the member.
                    let mut value = member.to_string();
                    if let Some(first) = value.get_mut(..1) {
                        first.make_ascii_uppercase();
                    }
                    w.key(member).string(&value);
                }
            });
        });
    });
}
