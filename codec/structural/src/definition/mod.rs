//! Whether a CustomResourceDefinition is valid (apiextensions-apiserver,
//! `pkg/apis/apiextensions/validation`).
//!
//! Definitions come as trees of apiextensions.k8s.io/v1, decoded against the built-in schema and defaulted.
//! With one version, or several with equal parts, errors name the fields of upstream's internal form, as
//! upstream does: `spec.validation.openAPIV3Schema`, `spec.additionalPrinterColumns[0].JSONPath`,
//! `spec.subresources`, `spec.conversion.webhookClientConfig`.
//!
//! | module | subject |
//! |---|---|
//! | `view` | the internal form, with common parts of all versions at the top |
//! | `schema` | the schema of a version |
//! | `parts` | columns, subresources, selectable fields, names, deprecation |
//! | `conversion` | conversion by webhook |

mod conversion;
mod parts;
mod schema;
mod view;

use plinth_codec::error::quoted;
use plinth_codec::field::{FieldError, Path};
use plinth_codec::names;
use plinth_codec::value::Value;

use super::check::keywords;
use super::props::Props;
use parts::one_of;
use schema::Options;
use view::{is_established, Validation, Version, View};

/// The annotation with the approval of a definition in a protected group.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Validates a new definition: `spec`, `status` and the approval annotation. The other rules of `metadata`
/// are those of all objects; that the name must be `<plural>.<group>` is checked here.
pub fn validate(definition: &Value) -> Vec<FieldError> {
    let view = View::new(definition);
    let mut errors = Vec::from_iter(name_errors(definition, &view));
    errors.extend(spec_errors(&view, &Options::new()));
    errors.extend(validate_status_update(definition));
    errors.extend(stored_version_errors(definition, &view));
    errors.extend(approval_errors(definition, &view, None));
    errors.extend(preserve_errors(definition, None));
    errors
}

/// Validates an update of a definition. Rules that the old definition violates are not applied.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (view, before) = (View::new(new), View::new(old));
    let mut errors = spec_errors(&view, &Options::of_update(&view, &before, old));
    let path = Path::Root;
    let path = path.child("spec");
    let names = path.child("names");
    let mut immutable = vec![
        (path.child("group"), view.text("group"), before.text("group")),
        (names.child("plural"), view.name("plural"), before.name("plural")),
    ];
    if is_established(old) {
        immutable.insert(0, (path.child("scope"), view.text("scope"), before.text("scope")));
        immutable.insert(1, (names.child("kind"), view.name("kind"), before.name("kind")));
    }
    for (path, new, old) in immutable {
        if new != old {
            errors.push(FieldError::invalid(path, &new.into(), "field is immutable"));
        }
    }
    errors.extend(validate_status_update(new));
    errors.extend(stored_version_errors(new, &view));
    errors.extend(approval_errors(new, &view, Some(old)));
    errors.extend(preserve_errors(new, Some(old)));
    errors
}

/// Validates a write to `/status` of a definition.
pub fn validate_status_update(new: &Value) -> Vec<FieldError> {
    let path = Path::Root;
    let path = path.child("status");
    match new.at(&["status", "acceptedNames"]).and_then(Value::as_object) {
        Some(names) => parts::name_errors(&path.child("acceptedNames"), names),
        None => Vec::new(),
    }
}

/// Warnings for a written definition: unknown formats, which are not checked.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |definition: &Value| -> Vec<String> {
        let view = View::new(definition);
        let mut all: Vec<String> = Vec::new();
        for format in view.schemas().flat_map(keywords::unknown_formats) {
            if !all.contains(&format) {
                all.push(format);
            }
        }
        all
    };
    let before = old.map(formats).unwrap_or_default();
    let new = formats(new).into_iter().filter(|format| !before.contains(format));
    new.map(|format| format!("unrecognized format {}", quoted(&format))).collect()
}

fn name_errors(definition: &Value, view: &View<'_>) -> Option<FieldError> {
    let name = definition.str_at(&["metadata", "name"]).unwrap_or_default();
    let required = format!("{}.{}", view.name("plural"), view.text("group"));
    (name != required).then(|| {
        FieldError::invalid("metadata.name", &name.into(), r#"must be spec.names.plural+"."+spec.group"#)
    })
}

fn spec_errors(view: &View<'_>, options: &Options) -> Vec<FieldError> {
    let root = Path::Root;
    let path = root.child("spec");
    let mut errors = Vec::new();
    errors.extend(group_error(&path.child("group"), view.text("group")));
    errors.extend(one_of(&path.child("scope"), view.text("scope"), &["Cluster", "Namespaced"]));
    errors.extend(missing_schemas(&path.child("versions"), view, options));
    if view.preserves_unknown() && view.schemas().any(keywords::has_defaults) {
        let path = path.child("preserveUnknownFields");
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(path, &true.into(), why));
    }
    for (i, version) in view.versions.iter().enumerate() {
        errors.extend(version_errors(&path.child("versions").index(i), version, view, options));
    }
    errors.extend(versions_errors(&path, view));
    let names_path = path.child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if view.name(name).is_empty() {
            errors.push(FieldError::required(names_path.child(name), ""));
        }
    }
    errors.extend(parts::name_errors(&names_path, view.names));
    errors.extend(common_errors(&path, view, options));
    errors.extend(conversion::errors(&path.child("conversion"), view, &options.conversion));
    errors
}

fn group_error(path: &Path<'_>, group: &str) -> Option<FieldError> {
    if group.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let wrong = names::dns1123_subdomain_errors(group);
    match (wrong.is_empty(), group.contains('.')) {
        (false, _) => Some(FieldError::invalid(path, &group.into(), wrong.join(","))),
        (true, false) => {
            Some(FieldError::invalid(path, &group.into(), "should be a domain with at least one dot"))
        }
        (true, true) => None,
    }
}

/// Versions without a required schema.
fn missing_schemas(path: &Path<'_>, view: &View<'_>, options: &Options) -> Vec<FieldError> {
    let has_schema = |validation: Option<Validation<'_>>| validation.is_some_and(|v| v.schema().is_some());
    let mut errors = Vec::new();
    if has_schema(view.validation) {
        return errors;
    }
    let why = if options.schema_required { "" } else { "because otherwise all fields are pruned" };
    for (i, version) in view.versions.iter().enumerate() {
        if !has_schema(version.validation) && options.wants_schema(version) {
            errors.push(FieldError::required(path.index(i).child("schema").child("openAPIV3Schema"), why));
        }
    }
    errors
}

fn version_errors(
    path: &Path<'_>,
    version: &Version<'_>,
    view: &View<'_>,
    options: &Options,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let wrong = names::dns1035_label_errors(version.name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path.child("name"), &version.name.into(), wrong.join(",")));
    }
    errors.extend(parts::deprecation_errors(path, version));
    if let Some(validation) = version.validation {
        let status = view.subresources_of(version).is_some_and(parts::has_status);
        errors.extend(schema::errors(&path.child("schema"), validation, version.name, status, options));
    }
    if let Some(subresources) = version.subresources {
        errors.extend(parts::subresource_errors(&path.child("subresources"), subresources));
    }
    errors.extend(parts::column_errors(&path.child("additionalPrinterColumns"), version.columns));
    if !version.selectable.is_empty() {
        let at = path.child("selectableFields");
        match version.validation.and_then(|v| v.schema()) {
            Some(schema) => {
                let bounded = !options.selectable_kept.iter().any(|name| name == version.name);
                errors.extend(parts::selectable_errors(&at, version.selectable, schema, bounded));
            }
            None => {
                let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.push(FieldError::invalid(at, &"".into(), why));
            }
        }
    }
    errors
}

/// The errors of the list of versions.
fn versions_errors(path: &Path<'_>, view: &View<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let versions_path = path.child("versions");
    let all = view.spec.get("versions").unwrap_or(&Value::Null);
    let mut seen: Vec<&str> = view.versions.iter().map(|version| version.name).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        errors.push(FieldError::invalid(versions_path, all, "must contain unique version names"));
    }
    if view.versions.iter().filter(|version| version.is_storage).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(versions_path, all, why));
    }
    // The first version under its old name, where it has a name.
    if let Some(first) = view.versions.first().filter(|first| !first.name.is_empty()) {
        let wrong = names::dns1035_label_errors(first.name);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(path.child("version"), &first.name.into(), wrong.join(",")));
        }
    }
    errors
}

/// The errors of the parts that are common to all versions.
fn common_errors(path: &Path<'_>, view: &View<'_>, options: &Options) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(validation) = view.validation {
        let status = view.all_subresources().any(parts::has_status);
        let first = view.versions.first().map_or("", |version| version.name);
        errors.extend(schema::errors(&path.child("validation"), validation, first, status, options));
    }
    if let Some(subresources) = view.subresources {
        errors.extend(parts::subresource_errors(&path.child("subresources"), subresources));
    }
    errors.extend(parts::column_errors(&path.child("additionalPrinterColumns"), view.columns));
    if !view.selectable.is_empty() {
        let at = path.child("selectableFields");
        match view.validation {
            Some(validation) => {
                let bounded = !options.selectable_kept.iter().any(String::is_empty);
                let schema = validation.schema().unwrap_or(Props::of(&Value::Null));
                errors.extend(parts::selectable_errors(&at, view.selectable, schema, bounded));
            }
            None => {
                let why = "may only be set when validations.schema is included";
                errors.push(FieldError::invalid(at, &"".into(), why));
            }
        }
    }
    errors
}

fn stored_version_errors(definition: &Value, view: &View<'_>) -> Vec<FieldError> {
    let root = Path::Root;
    let status = root.child("status");
    let path = status.child("storedVersions");
    let given = definition.at(&["status", "storedVersions"]);
    let stored = given.and_then(Value::as_array).unwrap_or_default();
    let shown = given.unwrap_or(&Value::Null);
    if stored.is_empty() {
        return vec![FieldError::invalid(path, shown, "must have at least one stored version")];
    }
    let is_stored = |name: &str| stored.iter().any(|v| v.as_str() == Some(name));
    let mut errors: Vec<FieldError> = view
        .versions
        .iter()
        .filter(|version| version.is_storage && !is_stored(version.name))
        .map(|version| {
            FieldError::invalid(path, shown, format_args!("must have the storage version {}", version.name))
        })
        .collect();
    for (i, name) in stored.iter().enumerate() {
        let text = name.as_str().unwrap_or_default();
        if !view.versions.iter().any(|version| version.name == text) {
            let why = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {text} and \
                 removes {text} from status.storedVersions"
            );
            errors.push(FieldError::invalid(path.index(i), name, why));
        }
    }
    errors
}

/// The approval state of a definition in a protected group.
#[derive(PartialEq, Eq)]
enum Approval {
    Invalid,
    Missing,
    Approved,
    Bypassed,
}

impl Approval {
    fn of(definition: &Value) -> Approval {
        match approval(definition) {
            "" => Approval::Missing,
            text if text.starts_with("unapproved") => Approval::Bypassed,
            text => match plinth_codec::url::parse(text, true) {
                Ok(url) if !url.host.is_empty() && !url.scheme.is_empty() => Approval::Approved,
                _ => Approval::Invalid,
            },
        }
    }
}

fn approval(definition: &Value) -> &str {
    definition.str_at(&["metadata", "annotations", APPROVAL]).unwrap_or_default()
}

fn approval_errors(definition: &Value, view: &View<'_>, old: Option<&Value>) -> Option<FieldError> {
    let group = view.text("group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|g| group == *g || group.ends_with(&format!(".{g}")));
    let state = Approval::of(definition);
    if !is_protected || old.is_some_and(|old| Approval::of(old) == state) {
        return None;
    }
    let path = format!("metadata.annotations[{APPROVAL}]");
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let must = format!("protected groups must have approval annotation {}", quoted(APPROVAL));
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(path, format!("{must}, {SEE}"))),
        Approval::Invalid => {
            let why = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            Some(FieldError::invalid(path, &approval(definition).into(), why))
        }
    }
}

fn preserve_errors(definition: &Value, old: Option<&Value>) -> Option<FieldError> {
    let preserves =
        |d: &Value| d.at(&["spec", "preserveUnknownFields"]).and_then(Value::as_bool) == Some(true);
    (preserves(definition) && !old.is_some_and(preserves)).then(|| {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        FieldError::invalid("spec.preserveUnknownFields", &true.into(), why)
    })
}
