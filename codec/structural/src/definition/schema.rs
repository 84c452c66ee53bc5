//! The schema of a version, and the rules that an update may violate.

use plinth_codec::field::{FieldError, Path};
use plinth_codec::value::Value;

use super::conversion;
use super::parts::MAX_SELECTABLE;
use super::view::{is_established, Validation, Version, View};
use crate::check::{defaults, is_zero, keywords, structure};
use crate::compile;
use crate::props::Props;
use crate::rules;

/// Which rules apply. On an update, those that the old definition satisfied.
pub(super) struct Options {
    /// Each version has a schema.
    pub schema_required: bool,
    /// Versions that are served have a schema.
    pub served_schema_required: bool,
    pub structural: bool,
    pub pruned_defaults: bool,
    pub keywords: keywords::Rules,
    pub conversion: conversion::ConversionRules,
    /// Versions with an unchanged schema: single rules that cost too much are allowed.
    pub costs_kept: Vec<String>,
    /// Versions that may keep too many selectable fields; empty text for all versions together.
    pub selectable_kept: Vec<String>,
}

impl Options {
    pub(super) fn new() -> Options {
        Options {
            schema_required: true,
            served_schema_required: true,
            structural: true,
            pruned_defaults: true,
            keywords: keywords::Rules { valid_type: true, atomic_set: true, map_keys: true },
            conversion: conversion::ConversionRules { known_review_version: true, any_ca_bundle: true },
            costs_kept: Vec::new(),
            selectable_kept: Vec::new(),
        }
    }

    pub(super) fn of_update(new: &View<'_>, old: &View<'_>, old_definition: &Value) -> Options {
        let schemas = || old.schemas();
        let has_schema = |v: &Version<'_>| v.validation.is_some_and(|v| v.schema().is_some());
        let all_have_schemas =
            old.validation.is_some_and(|v| v.schema().is_some()) || old.versions.iter().all(has_schema);
        let follows = |s: Props<'_>| {
            keywords::not_convertible(s).is_none() && structure::errors(&Path::Root, s).is_empty()
        };
        let closed = !new.preserves_unknown();
        let uses_extensions = || new.schemas().any(|s| keywords::has_defaults(s) || has_extensions(s));
        Options {
            schema_required: all_have_schemas,
            served_schema_required: closed,
            structural: closed || schemas().all(follows) || uses_extensions(),
            pruned_defaults: !schemas().any(has_unpruned_defaults),
            keywords: keywords::Rules {
                valid_type: !schemas().any(keywords::has_invalid_type),
                atomic_set: !schemas().any(keywords::has_divisible_set),
                map_keys: !schemas().any(keywords::has_loose_keys),
            },
            conversion: conversion::ConversionRules {
                known_review_version: conversion::has_known_review_version(old),
                any_ca_bundle: !is_established(old_definition) || conversion::has_bad_ca_bundle(old),
            },
            costs_kept: costs_kept(new, old),
            selectable_kept: selectable_kept(new, old),
        }
    }

    pub(super) fn wants_schema(&self, version: &Version<'_>) -> bool {
        self.schema_required || (self.served_schema_required && version.is_served)
    }
}

fn has_extensions(root: Props<'_>) -> bool {
    const EXTENSIONS: [&str; 6] = [
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    ];
    root.any(&mut |s| EXTENSIONS.iter().any(|key| s.get(key).is_some_and(|v| !is_zero(v))))
}

fn has_unpruned_defaults(root: Props<'_>) -> bool {
    if !keywords::has_defaults(root) || !structure::errors(&Path::Root, root).is_empty() {
        return false;
    }
    let Ok((nodes, id)) = compile::compile(root) else { return false };
    let all = defaults::errors(&nodes, id, &Path::Root, root, true);
    all.iter().any(|error| error.message.ends_with(": must not have unknown fields"))
}

/// Versions with an unchanged schema.
fn costs_kept(new: &View<'_>, old: &View<'_>) -> Vec<String> {
    let same = |version: &&Version<'_>| {
        old.versions.iter().any(|before| before.name == version.name)
            && new.schema_of(version.name) == old.schema_of(version.name)
    };
    new.versions.iter().filter(same).map(|version| version.name.to_owned()).collect()
}

/// Versions whose selectable fields were too many before and are the same now.
fn selectable_kept(new: &View<'_>, old: &View<'_>) -> Vec<String> {
    let too_many = |fields: &[Value]| fields.len() > MAX_SELECTABLE;
    let mut kept = Vec::new();
    if too_many(old.selectable) && new.selectable == old.selectable {
        kept.push(String::new());
    }
    for version in &new.versions {
        let before = old.versions.iter().find(|before| before.name == version.name);
        if before.is_some_and(|b| too_many(b.selectable) && b.selectable == version.selectable) {
            kept.push(version.name.to_owned());
        }
    }
    kept
}

/// Keywords that are allowed at the root with a status subresource, by the names of upstream's Go fields.
const AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Validates the schema of a version. `path` is that of its `schema`, or of `spec.validation`, which counts
/// as the first version's.
pub(super) fn errors(
    path: &Path<'_>,
    validation: Validation<'_>,
    version: &str,
    has_status: bool,
    options: &Options,
) -> Vec<FieldError> {
    let (Some(schema), Some(value)) = (validation.schema(), validation.value()) else { return Vec::new() };
    let mut errors = Vec::new();
    let at = path.child("openAPIV3Schema");
    if has_status {
        errors.extend(status_error(&at, schema, value));
    }
    if schema.is("nullable") {
        errors.push(FieldError::forbidden(at.child("nullable"), "nullable cannot be true at the root"));
    }
    // A compile error violates a rule of its own, which is not reported twice.
    let (mut not_compiled, mut compiled) = (None, None);
    if options.structural {
        match (keywords::not_convertible(schema), structure::errors(&at, schema)) {
            (Some(error), _) => not_compiled = Some(error),
            (None, wrong) if !wrong.is_empty() => errors.extend(wrong),
            (None, _) => match compile::compile(schema) {
                Ok((nodes, root)) => {
                    errors.extend(defaults::errors(&nodes, root, &at, schema, options.pruned_defaults));
                    compiled = Some((nodes, root));
                }
                Err(error) => not_compiled = Some(error),
            },
        }
    }
    errors.extend(keywords::errors(&at, schema, options.keywords));
    if let Some((nodes, root)) = compiled {
        let all_else_is_well = errors.is_empty();
        let lets_pass = options.costs_kept.iter().any(|kept| kept == version);
        errors.extend(rules::definition_errors(&nodes, root, &at, all_else_is_well, lets_pass));
    }
    if let (true, Some(error)) = (errors.is_empty(), not_compiled) {
        errors.push(FieldError::invalid(at, &"".into(), error));
    }
    errors
}

/// Keywords at the root that would be lost if only `properties.status` is considered.
fn status_error(path: &Path<'_>, schema: Props<'_>, value: &Value) -> Option<FieldError> {
    let is_set = |key: &str| schema.get(key).is_some_and(|v| !is_zero(v));
    let fields: Vec<&str> = AT_ROOT.iter().map(|(_, name)| *name).collect();
    let only = || {
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            fields.join(" ")
        );
        FieldError::invalid(path, value, why)
    };
    if ["id", "$schema", "$ref"].iter().any(|key| is_set(key)) {
        return Some(only());
    }
    if is_set("type") && schema.kind() != "object" {
        let why = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return Some(FieldError::invalid(path.child("type"), &schema.kind().into(), why));
    }
    let is_known = |key: &str| AT_ROOT.iter().any(|(known, _)| *known == key);
    schema.0.iter().any(|(key, value)| !is_known(key) && !is_zero(value)).then(only)
}
