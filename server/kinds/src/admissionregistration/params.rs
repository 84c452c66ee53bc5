//! `paramKind` of admission policies and `paramRef` of their bindings.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::table::{join, pairs, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::Check::{RequiredOneOf, Selector};
use crate::checks::{check_text, validate};
use crate::columns::or;
use crate::path::{at, list, text};

pub(crate) fn param_kind(kind: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (version_path, given) = (format!("{path}apiVersion"), text(kind, "apiVersion"));
    let (group, version) = given.rsplit_once('/').unwrap_or(("", given));
    let mut invalid = |value: &str, why: &str| errors.push(field::invalid(version_path.as_str(), value, why));
    if given.is_empty() {
        errors.push(field::required(version_path.as_str(), ""));
    } else if group.contains('/') {
        invalid(given, &format!("unexpected GroupVersion string: {given}"));
    } else {
        let bad = names::dns1123_subdomain_errors(group);
        if !group.is_empty() && !bad.is_empty() {
            invalid(group, &bad.join(","));
        }
        let bad = names::dns1035_label_errors(version);
        if version.is_empty() {
            invalid(given, "version must be specified");
        } else if !bad.is_empty() {
            invalid(version, &bad.join(","));
        }
    }
    let kind = text(kind, "kind");
    let bad = names::dns1035_label_errors(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(field::required(format_args!("{path}kind"), ""));
    } else if !bad.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", bad.join(","));
        errors.push(field::invalid(format_args!("{path}kind"), kind, &why));
    }
}

pub(crate) fn param_ref(reference: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (text(reference, "name"), at(reference, "selector"));
    if !name.is_empty() {
        check_text(format_args!("{path}name"), name, names::path_segment_errors, errors);
        if selector.is_some() {
            errors.push(field::forbidden(format_args!("{path}name"), EXCLUSIVE));
        }
    }
    if selector.is_some() {
        validate(&[Selector("selector")], reference, path, errors);
        if !name.is_empty() {
            errors.push(field::forbidden(format_args!("{path}selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && selector.is_none() {
        let path = ParentPath(path);
        errors.push(field::required(path, "one of name or selector must be specified"));
    }
    validate(&[RequiredOneOf("parameterNotFoundAction", &["Deny", "Allow"])], reference, path, errors);
}

/// The columns of the bindings of policies.
pub(crate) const BINDING_COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("PolicyName", "spec.policyName", ""),
    Column::computed("ParamRef", &["spec.paramRef"], param_ref_cell),
    Column::AGE,
];

/// The kind of a policy's parameters.
pub(crate) const PARAM_KIND_COLUMN: Column =
    Column::computed("ParamKind", &["spec.paramKind"], param_kind_cell);

fn param_kind_cell(policy: &Value, _: Now) -> Cell<'_> {
    match at(policy, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")).into(),
        None => "<unset>".into(),
    }
}

/// The parameters of a binding: a name with its namespace, else the selector as Go prints the object.
fn param_ref_cell(binding: &Value, _: Now) -> Cell<'_> {
    let Some(reference) = at(binding, "spec.paramRef") else { return "<unset>".into() };
    match (text(reference, "name"), at(reference, "selector")) {
        ("", Some(selector)) => go_label_selector(selector).into(),
        ("", None) => "<unset>".into(),
        (name, _) => format!("{}/{name}", or(text(reference, "namespace"), "*")).into(),
    }
}

/// A label selector object in the notation of Go's generated printers.
fn go_label_selector(selector: &Value) -> String {
    let labels: String = pairs(selector, "matchLabels").map(|(k, v)| format!("{k}: {v},")).collect();
    let expressions: String = list(selector, "matchExpressions")
        .iter()
        .map(|expression| {
            let (key, operator) = (text(expression, "key"), text(expression, "operator"));
            let values = join(list(expression, "values").iter().filter_map(Value::as_str), " ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
