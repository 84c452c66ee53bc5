//! [`StructuralSchema`]: the compiled schema of one version, and the steps that a write and a read take with
//! it.

use std::sync::OnceLock;

use plinth_codec::error::{DecodeError, StrictError, MAX_STRICT_ERRORS};
use plinth_codec::field::{FieldError, Path};
use plinth_codec::patch::goprint;
use plinth_codec::schema::{Schema, GVK};
use plinth_codec::value::Value;
use smol_str::format_smolstr;

use crate::compile::{self, CompileError};
use crate::node::{Kind, Node, NodeId};
use crate::props::Props;
use crate::rules::{self, RuleSet};
use crate::{defaulting, embedded, list_type, metadata, model, prune, validate};

/// The compiled schema of one version of a CustomResourceDefinition.
#[derive(Debug)]
pub struct StructuralSchema {
    pub(crate) nodes: Box<[Node]>,
    pub(crate) root: NodeId,
    /// The rules, compiled when the first object is checked.
    rules: OnceLock<RuleSet>,
}

/// Options of [`StructuralSchema::conform`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conform {
    /// Whether to report unknown fields (`fieldValidation` of `Warn` and `Strict`).
    pub strict: bool,
    /// Whether fields of metadata with a wrong type are dropped instead of refused: for stored objects.
    pub drop_invalid_metadata: bool,
}

/// Why an object cannot be decoded by its schema.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConformError {
    /// `kind` or `apiVersion` is not a string.
    #[error(".{field} accessor error: {value} is of the type {found}, expected string")]
    TypeMeta {
        /// `kind` or `apiVersion`.
        field: &'static str,
        /// The value as Go prints it.
        value: String,
        /// Go's name of the type that it has.
        found: &'static str,
    },
    /// The metadata cannot be decoded.
    #[error(transparent)]
    Metadata(#[from] DecodeError),
    /// A field of an embedded object has a wrong type.
    #[error("{0}")]
    Embedded(FieldError),
}

impl StructuralSchema {
    /// Compiles `openAPIV3Schema`. Defaults are pruned, equal subschemas are merged. `O(n log n)`.
    ///
    /// # Errors
    /// For schemas that [`definition::validate`](crate::definition::validate) refuses.
    pub fn compile(open_api_v3_schema: &Value) -> Result<StructuralSchema, CompileError> {
        let (nodes, root) = compile::compile(Props::of(open_api_v3_schema))?;
        Ok(StructuralSchema { nodes: nodes.into_boxed_slice(), root, rules: OnceLock::new() })
    }

    /// The node of an id; ids come from the same schema.
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Number of distinct schemas, including the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always false: there is at least the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether any field has a default. Without, [`StructuralSchema::default`] does nothing.
    pub fn has_defaults(&self) -> bool {
        self.node(self.root).defaults_below
    }

    /// Equivalent of decoding for built-in kinds: decodes metadata, removes unknown fields and `null`s that
    /// are neither allowed nor defaulted, decodes the metadata of embedded objects. Returns the unknown
    /// fields (only if `strict`, at most [`MAX_STRICT_ERRORS`]). The object is changed in place, after an
    /// error partly.
    ///
    /// # Errors
    /// When metadata has a wrong type.
    pub fn conform(&self, object: &mut Value, how: &Conform) -> Result<Vec<StrictError>, ConformError> {
        for field in ["kind", "apiVersion"] {
            if let Some(value) = object.get(field).filter(|v| v.as_str().is_none()) {
                return Err(ConformError::TypeMeta {
                    field,
                    value: goprint::value(value),
                    found: goprint::type_name(value),
                });
            }
        }
        let mut strict = Vec::new();
        if let Some(metadata) = object.get_mut("metadata") {
            let decoded = metadata::decode(std::mem::take(metadata), how.strict, how.drop_invalid_metadata)?;
            *metadata = decoded.value;
            strict.extend(decoded.strict.into_iter().map(|error| match error {
                StrictError::UnknownField(field) | StrictError::DuplicateField(field) => {
                    StrictError::UnknownField(format_smolstr!("metadata.{field}"))
                }
                other => other,
            }));
        }
        let mut unknown = prune::Unknown::new(how.strict);
        prune::prune_object(&self.nodes, self.root, object, &mut unknown);
        strict.extend(unknown.sorted().into_iter().map(StrictError::UnknownField));
        self.drop_nulls(object, |_| true);
        let mut coercer = metadata::Coercer {
            nodes: &self.nodes,
            drop_invalid: how.drop_invalid_metadata,
            strict: how.strict,
            unknown: Vec::new(),
        };
        coercer.value(&Path::Root, object, self.node(self.root), false).map_err(ConformError::Embedded)?;
        coercer.unknown.sort_unstable();
        strict.extend(coercer.unknown.into_iter().map(StrictError::UnknownField));
        strict.truncate(MAX_STRICT_ERRORS);
        Ok(strict)
    }

    /// Normalizes an object that was merged by an apply and so not decoded: drops empty fields of metadata
    /// and of the metadata of embedded objects, and removes a `null` that no schema with a type refuses.
    /// Values of wrong types are left for validation.
    pub fn normalize(&self, object: &mut Value) {
        self.drop_nulls(object, |node| node.kind == Kind::Any && !node.int_or_string);
        if let Some(metadata) = object.get_mut("metadata") {
            if let Ok(decoded) = metadata::decode(metadata.clone(), false, false) {
                *metadata = decoded.value;
            }
        }
        // The first error ends the walk, and the object is refused for it.
        drop(metadata::Coercer::strict(&self.nodes).value(&Path::Root, object, self.node(self.root), false));
    }

    /// Removes members that are `null` where that is not allowed and there is no default.
    fn drop_nulls(&self, object: &mut Value, of: fn(&Node) -> bool) {
        let metadata = object.get_mut("metadata").map(std::mem::take);
        defaulting::drop_nulls(&self.nodes, Some(self.root), object, of);
        if let (Some(metadata), Some(object)) = (metadata, object.as_object_mut()) {
            object.insert("metadata", metadata);
        }
    }

    /// Fills in defaults where fields are absent, or `null` and not allowed to be. Returns whether anything
    /// changed. Free without defaults.
    pub fn default(&self, object: &mut Value) -> bool {
        defaulting::default(&self.nodes, self.root, object)
    }

    /// Validates a new object: types, bounds, formats, embedded objects, duplicates in sets and maps, then
    /// the CEL rules unless one of these errors prevents that. The object is conformed and defaulted. The
    /// rules of `metadata`, of `kind` and `apiVersion` and of `/scale` are not included. Errors are in
    /// upstream's order.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.validate_inline(object, None).unwrap_or_default()
    }

    /// As [`StructuralSchema::validate`], but `None` when the rules cost more units than `inline_limit`.
    pub fn validate_inline(&self, object: &Value, inline_limit: Option<u64>) -> Option<Vec<FieldError>> {
        let mut errors = validate::errors(&self.nodes, self.root, &Path::Root, object);
        errors.extend(embedded::errors(&self.nodes, self.root, &Path::Root, object, false));
        errors.extend(list_type::errors(&self.nodes, self.root, object));
        self.evaluate_rules(errors, object, None, inline_limit)
    }

    /// Validates an update of an object. Errors of unchanged values are ignored (CRDValidationRatcheting).
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update_inline(new, old, None).unwrap_or_default()
    }

    /// As [`StructuralSchema::validate_update`], but `None` when the rules cost more units than
    /// `inline_limit`.
    pub fn validate_update_inline(
        &self,
        new: &Value,
        old: &Value,
        inline_limit: Option<u64>,
    ) -> Option<Vec<FieldError>> {
        let mut errors = validate::update_errors(&self.nodes, self.root, &Path::Root, new, Some(old));
        errors.extend(embedded::errors(&self.nodes, self.root, &Path::Root, new, false));
        errors.extend(self.list_errors(new, old));
        self.evaluate_rules(errors, new, Some(old), inline_limit)
    }

    /// As [`StructuralSchema::validate_update`], for a write to `/status`: only the schema of `status` is
    /// applied.
    pub fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_status_update_inline(new, old, None).unwrap_or_default()
    }

    /// As [`StructuralSchema::validate_status_update`], but `None` when the rules cost more units than
    /// `inline_limit`.
    pub fn validate_status_update_inline(
        &self,
        new: &Value,
        old: &Value,
        inline_limit: Option<u64>,
    ) -> Option<Vec<FieldError>> {
        let mut errors = Vec::new();
        if let (Some(id), Some(status)) = (self.node(self.root).property("status"), new.get("status")) {
            let path = Path::Root;
            let path = path.child("status");
            errors = validate::update_errors(&self.nodes, id, &path, status, old.get("status"));
        }
        errors.extend(self.list_errors(new, old));
        self.evaluate_rules(errors, new, Some(old), inline_limit)
    }

    /// Adds the errors of the rules, unless a blocking error was found.
    fn evaluate_rules(
        &self,
        mut errors: Vec<FieldError>,
        new: &Value,
        old: Option<&Value>,
        inline_limit: Option<u64>,
    ) -> Option<Vec<FieldError>> {
        if !self.node(self.root).rules_below {
            return Some(errors);
        }
        if errors.iter().any(rules::is_blocking) {
            errors.push(rules::not_checked());
            return Some(errors);
        }
        let set = self.rules.get_or_init(|| RuleSet::compile(&self.nodes, self.root));
        errors.extend(rules::errors(&self.nodes, self.root, set, new, old, inline_limit)?);
        Some(errors)
    }

    /// Duplicates in sets and maps, unless the old object has some already.
    fn list_errors(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let errors = list_type::errors(&self.nodes, self.root, new);
        match errors.is_empty() || list_type::errors(&self.nodes, self.root, old).is_empty() {
            true => errors,
            false => Vec::new(),
        }
    }

    /// The schema model of this version, for server-side apply: its one kind is `kind`, with `apiVersion`,
    /// `kind` and `metadata` as every object has them. Takes memory of its own, so it should be built on
    /// demand and cached.
    pub fn model(&self, kind: GVK) -> Schema {
        model::build(&self.nodes, self.root, kind)
    }
}
