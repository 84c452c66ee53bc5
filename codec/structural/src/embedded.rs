//! Objects embedded in custom resources: validation of `kind`, `apiVersion` and `metadata`
//! (apiextensions-apiserver, `pkg/apiserver/schema/objectmeta`; apimachinery,
//! `pkg/api/validation/objectmeta.go`).

use plinth_codec::field::{FieldError, Path};
use plinth_codec::names;
use plinth_codec::value::{level, Map, Value};

use super::metadata;
use super::node::{Additional, Node, NodeId};
use super::validate::MAX_ERRORS;

/// Maximum total size of annotations in bytes, keys and values.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The errors of embedded objects anywhere below a value, and of the value itself if `embedded`.
pub(super) fn errors(
    nodes: &[Node],
    id: NodeId,
    path: &Path<'_>,
    value: &Value,
    embedded: bool,
) -> Vec<FieldError> {
    let mut walk = Walk { nodes, errors: Vec::new() };
    if let Some(node) = nodes.get(id.index()) {
        walk.value(node, path, value, embedded);
    }
    walk.errors
}

struct Walk<'a> {
    nodes: &'a [Node],
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn value(&mut self, node: &Node, path: &Path<'_>, value: &Value, embedded: bool) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        level(|| match value {
            Value::Object(map) => {
                if embedded {
                    self.object(path, map);
                }
                for (name, value) in map.iter() {
                    let (id, path) = match (node.property(name), node.additional) {
                        (Some(id), _) => (id, path.child(name)),
                        (None, Additional::Schema(id)) => (id, path.key(name)),
                        _ => continue,
                    };
                    if let Some(node) = self.nodes.get(id.index()) {
                        self.value(node, &path, value, node.embedded_resource);
                    }
                }
            }
            Value::Array(items) => {
                let Some(node) = node.items.and_then(|id| self.nodes.get(id.index())) else { return };
                for (i, item) in items.iter().enumerate() {
                    self.value(node, &path.index(i), item, node.embedded_resource);
                }
            }
            _ => {}
        });
    }

    fn invalid(&mut self, path: Path<'_>, value: &Value, why: impl std::fmt::Display) {
        self.errors.push(FieldError::invalid(path, value, why));
    }

    fn group_version(&mut self, path: Path<'_>, value: &Value, text: &str) {
        if text.matches('/').count() > 1 {
            self.invalid(path, value, format_args!("unexpected GroupVersion string: {text}"));
        }
    }

    fn object(&mut self, path: &Path<'_>, object: &Map) {
        for name in ["apiVersion", "kind"] {
            if !object.contains(name) {
                self.errors.push(FieldError::required(path.child(name), ""));
            }
        }
        for name in ["apiVersion", "kind"] {
            let path = path.child(name);
            match object.get(name) {
                None => {}
                Some(Value::String(text)) if text.is_empty() => {
                    self.invalid(path, &"".into(), "must not be empty");
                }
                Some(value @ Value::String(text)) if name == "apiVersion" => {
                    self.group_version(path, value, text);
                }
                Some(value @ Value::String(text)) => {
                    let errors = names::dns1035_label_errors(&text.to_lowercase());
                    if !errors.is_empty() {
                        let errors = errors.join(",");
                        let why = format!("may have mixed case, but should otherwise match: {errors}");
                        self.invalid(path, value, why);
                    }
                }
                Some(other) => self.invalid(path, other, "must be a string"),
            }
        }
        let Some(given) = object.get("metadata") else { return };
        let path = path.child("metadata");
        match metadata::decode(given.clone(), false, false) {
            Ok(decoded) => self.metadata(&path, &decoded.value),
            Err(error) => self.invalid(path, given, error),
        }
    }

    fn metadata(&mut self, path: &Path<'_>, metadata: &Value) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        for key in ["generateName", "name"] {
            for why in names::path_segment_errors(text(key)) {
                self.invalid(path.child(key), &text(key).into(), why);
            }
        }
        if !text("namespace").is_empty() {
            for why in names::dns1123_label_errors(text("namespace")) {
                self.invalid(path.child("namespace"), &text("namespace").into(), why);
            }
        }
        if let Some(n @ Value::Int(..0)) = metadata.get("generation") {
            self.invalid(path.child("generation"), n, "must be greater than or equal to 0");
        }
        let map = |key: &str| metadata.get(key).and_then(Value::as_object);
        for (key, value) in map("labels").into_iter().flat_map(Map::iter) {
            for why in names::qualified_name_errors(key) {
                self.invalid(path.child("labels"), &key.clone().into(), why);
            }
            for why in names::label_value_errors(value.as_str().unwrap_or_default()) {
                self.invalid(path.child("labels"), value, why);
            }
        }
        let mut size = 0;
        for (key, value) in map("annotations").into_iter().flat_map(Map::iter) {
            for why in names::qualified_name_errors(&key.to_lowercase()) {
                self.invalid(path.child("annotations"), &key.clone().into(), why);
            }
            size += key.len() + value.as_str().map_or(0, str::len);
        }
        if size > MAX_ANNOTATIONS {
            self.errors.push(FieldError::too_long(path.child("annotations"), MAX_ANNOTATIONS as i64));
        }
        for owner in metadata.list_at(&["ownerReferences"]) {
            // As upstream: without an index.
            let path = path.child("ownerReferences");
            for key in ["apiVersion", "kind", "name", "uid"] {
                let value = owner.get(key).and_then(Value::as_str).unwrap_or_default();
                if value.is_empty() {
                    let why = match key {
                        "apiVersion" => "version must not be empty",
                        _ => "must not be empty",
                    };
                    self.invalid(path.child(key), &value.into(), why);
                }
            }
        }
        for finalizer in metadata.list_at(&["finalizers"]) {
            for why in names::qualified_name_errors(finalizer.as_str().unwrap_or_default()) {
                self.invalid(path.child("finalizers"), finalizer, why);
            }
        }
    }
}
