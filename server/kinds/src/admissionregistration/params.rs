//! `paramKind` of admission policies and `paramRef` of their bindings.

use plinth_codec::table::{join, pairs, Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::Check::{RequiredOneOf, Selector, Text};
use crate::checks::Part;
use crate::columns::or;
use crate::path::{at, list, text};

pub(crate) fn param_kind(reference: &Part<'_>) {
    let given = reference.text("apiVersion");
    let (group, version) = given.rsplit_once('/').unwrap_or(("", given));
    let invalid = |value: &str, why: &str| reference.invalid("apiVersion", value, why);
    if given.is_empty() {
        reference.required("apiVersion", "");
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
    let kind = reference.text("kind");
    let bad = names::dns1035_label_errors(&kind.to_lowercase());
    if kind.is_empty() {
        reference.required("kind", "");
    } else if !bad.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", bad.join(","));
        reference.invalid("kind", kind, &why);
    }
}

pub(crate) fn param_ref(reference: &Part<'_>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (has_name, has_selector) = (!reference.text("name").is_empty(), reference.has("selector"));
    reference.check(&[Text("name", names::path_segment_errors)]);
    if has_name && has_selector {
        reference.forbidden("name", EXCLUSIVE);
    }
    reference.check(&[Selector("selector")]);
    if has_name && has_selector {
        reference.forbidden("selector", EXCLUSIVE);
    }
    if !has_name && !has_selector {
        reference.required("", "one of name or selector must be specified");
    }
    reference.check(&[RequiredOneOf("parameterNotFoundAction", &["Deny", "Allow"])]);
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
