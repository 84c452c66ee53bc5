//! SubjectAccessReview and its variants: the authorizers' decision for a request, and the rules of a user.
//!
//! Upstream: kubernetes `pkg/registry/authorization` and `pkg/apis/authorization/validation`.

use plinth_codec::selector::{FieldRequirement, FieldSelector, LabelSelector, Operator, Requirement};
use plinth_codec::{names, tree, Map, Value};

use crate::authz::rbac::rules::PolicyRule;
use crate::authz::{Attributes, ResourceTarget, Selectors, Verdict};
use crate::context::Context;
use plinth_api::{ApiError, Cause, User, UserFields};

const GROUP: &str = "authorization.k8s.io";

/// The status of a SubjectAccessReview, LocalSubjectAccessReview or SelfSubjectAccessReview.
///
/// # Errors
/// 422 for a review without or with two kinds of attributes; 400 for a local one of another namespace.
pub(super) async fn access(cx: &Context, review: &Value) -> Result<Value, ApiError> {
    let is_self = cx.resource.row.kind == "SelfSubjectAccessReview";
    let is_local = cx.resource.row.kind == "LocalSubjectAccessReview";
    let errors = errors(review, is_self, is_local);
    if !errors.is_empty() {
        // Upstream's message lacks the kind.
        return Err(ApiError::invalid(GROUP, "", "", errors));
    }
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let named;
    let user = match is_self {
        true => &*cx.user,
        false => {
            named = User::of(spec, UserFields::ACCESS_REVIEW);
            &named
        }
    };
    let text = |key: &str| spec.str_at(&["resourceAttributes", key]).unwrap_or_default();
    let mut ignored = Vec::new();
    let resource_attributes =
        spec.get("resourceAttributes").filter(|resource_attributes| !resource_attributes.is_null());
    let selectors =
        resource_attributes.and_then(|resource_attributes| selectors(resource_attributes, &mut ignored));
    let attributes = match resource_attributes {
        Some(_) => {
            let version = text("version");
            let target = ResourceTarget {
                group: text("group"),
                version: if version.is_empty() { "*" } else { version },
                resource: text("resource"),
                subresource: text("subresource"),
                name: text("name"),
                namespace: text("namespace"),
                selectors: selectors.as_ref(),
            };
            Attributes::resource(user, text("verb"), target)
        }
        None => {
            let text = |key: &str| spec.str_at(&["nonResourceAttributes", key]).unwrap_or_default();
            Attributes::path(user, text("verb"), text("path"))
        }
    };
    let decision = cx.server.authorizer.authorize(&attributes).await;
    let mut status = Map::new();
    status.insert("allowed", decision.allowed());
    if decision.verdict == Verdict::Deny {
        status.insert("denied", true);
    }
    let reason = decision.reason.to_string();
    if !reason.is_empty() {
        status.insert("reason", reason);
    }
    let errors: Vec<String> = decision.error.into_iter().chain(ignored).collect();
    if !errors.is_empty() {
        status.insert("evaluationError", errors.join("; "));
    }
    Ok(Value::Object(status))
}

/// Non-resource attributes in JSON, as upstream's internal type.
fn nonresource_value(attributes: Option<&Value>) -> Value {
    let Some(attributes) = attributes else { return Value::Null };
    let text = |key: &str| attributes.str_at(&[key]).unwrap_or_default();
    tree!({ "Path": text("path"), "Verb": text("verb") })
}

fn errors(review: &Value, is_self: bool, is_local: bool) -> Vec<Cause> {
    let mut errors = Vec::new();
    let at = |key: &str| review.at(&["spec", key]).filter(|value| !value.is_null());
    let (resource, path) = (at("resourceAttributes"), at("nonResourceAttributes"));
    if resource.is_some() && path.is_some() {
        let why = "cannot be specified in combination with resourceAttributes";
        errors.push(Cause::invalid("spec.nonResourceAttributes", nonresource_value(path), why));
    }
    if resource.is_none() && path.is_none() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(Cause::invalid("spec.resourceAttributes", Value::Null, why));
    }
    let is_empty = |key: &str| match at(key) {
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        _ => true,
    };
    if !is_self && is_empty("user") && is_empty("groups") {
        errors.push(Cause::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    for member in ["fieldSelector", "labelSelector"] {
        let selector = resource.and_then(|r| r.get(member)).filter(|selector| !selector.is_null());
        if let Some(selector) = selector {
            selector_errors(selector, &format!("spec.resourceAttributes.{member}"), &mut errors);
        }
    }
    metadata_errors(review, is_local, &mut errors);
    if !is_local {
        return errors;
    }
    if let Some(resource) = resource {
        let namespace = resource.str_at(&["namespace"]).unwrap_or_default();
        if namespace != plinth_api::metadata_text(review, "namespace") {
            let field = "spec.resourceAttributes.namespace";
            errors.push(Cause::invalid(field, namespace, "must match metadata.namespace"));
        }
    }
    if path.is_some() {
        let why = "disallowed on this kind of request";
        errors.push(Cause::invalid("spec.nonResourceAttributes", nonresource_value(path), why));
    }
    errors
}

/// Reviews must have no metadata.
fn metadata_errors(review: &Value, is_local: bool, errors: &mut Vec<Cause>) {
    let Some(metadata) = review.get("metadata").and_then(Value::as_object) else { return };
    let is_zero = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let expected = |key: &str| key == "managedFields" || (is_local && key == "namespace");
    if metadata.iter().all(|(key, value)| expected(key) || is_zero(value)) {
        return;
    }
    let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
    errors.push(Cause::invalid("metadata", metadata.clone(), why));
}

fn selector_errors(selector: &Value, path: &str, errors: &mut Vec<Cause>) {
    let raw = selector.str_at(&["rawSelector"]).unwrap_or_default();
    let requirements = selector.list_at(&["requirements"]);
    if !raw.is_empty() && !requirements.is_empty() {
        let why = "may not specified at the same time as requirements";
        errors.push(Cause::invalid(format!("{path}.rawSelector"), raw, why));
    }
    if raw.is_empty() && requirements.is_empty() {
        let why = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(Cause::required(format!("{path}.requirements"), &why));
    }
    let of_labels = path.ends_with("labelSelector");
    for (i, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.requirements[{i}]");
        let key = requirement.str_at(&["key"]).unwrap_or_default();
        let values = requirement.texts_at(&["values"]);
        if !of_labels && key.is_empty() {
            errors.push(Cause::required(format!("{path}.key"), "must be specified"));
        }
        // An unknown operator may be a newer client's: it restricts nothing.
        match requirement.str_at(&["operator"]).unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(Cause::required(format!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Cause::forbidden(format!("{path}.values"), why));
            }
            _ => {}
        }
        if of_labels {
            let bad = names::qualified_name_errors(key);
            errors.extend(bad.iter().map(|why| Cause::invalid(format!("{path}.key"), key, why)));
            for (j, value) in values.iter().enumerate() {
                let bad = names::label_value_errors(value);
                let path = format!("{path}.values[{j}]");
                errors.extend(bad.iter().map(|why| Cause::invalid(path.as_str(), value.as_str(), why)));
            }
        }
    }
}

/// The selectors of a review. Invalid parts are ignored, which only makes the check broader, and reported.
fn selectors(attributes: &Value, ignored: &mut Vec<String>) -> Option<Selectors> {
    let part = |member: &str| attributes.get(member).filter(|selector| !selector.is_null());
    let mut selectors = Selectors::default();
    let mut report = |member: &str, whole: bool, any: bool| {
        if !whole {
            let how = if any { "partially ignored" } else { "ignored" };
            ignored.push(format!("spec.resourceAttributes.{member} {how} due to parse error"));
        }
    };
    let raw = |selector: &Value| selector.str_at(&["rawSelector"]).unwrap_or_default().to_owned();
    let requirements = |selector: &Value| selector.list_at(&["requirements"]).to_vec();
    if let Some(selector) = part("fieldSelector") {
        let mut whole = true;
        match FieldSelector::parse(&raw(selector)) {
            Ok(parsed) => selectors.fields = parsed.requirements().to_vec(),
            Err(_) => whole = false,
        }
        let list = requirements(selector);
        if !list.is_empty() {
            selectors.fields = list.iter().filter_map(field_requirement).collect();
            whole = selectors.fields.len() == list.len();
        }
        report("fieldSelector", whole, !selectors.fields.is_empty());
    }
    if let Some(selector) = part("labelSelector") {
        let mut whole = true;
        match LabelSelector::parse(&raw(selector)) {
            Ok(parsed) => selectors.labels = parsed.requirements().to_vec(),
            Err(_) => whole = false,
        }
        let list = requirements(selector);
        if !list.is_empty() {
            selectors.labels = list.iter().filter_map(label_requirement).collect();
            whole = selectors.labels.len() == list.len();
        }
        report("labelSelector", whole, !selectors.labels.is_empty());
    }
    (!selectors.fields.is_empty() || !selectors.labels.is_empty()).then_some(selectors)
}

fn field_requirement(requirement: &Value) -> Option<FieldRequirement> {
    let equal = match requirement.str_at(&["operator"])? {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let [value] = requirement.texts_at(&["values"]).try_into().ok()?;
    let field = requirement.str_at(&["key"])?.into();
    Some(FieldRequirement { field, equal, value: value.into() })
}

fn label_requirement(requirement: &Value) -> Option<Requirement> {
    let operator = match requirement.str_at(&["operator"])? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Requirement::new(requirement.str_at(&["key"])?, operator, requirement.texts_at(&["values"])).ok()
}

/// A SelfSubjectRulesReview with its status. Upstream returns neither spec nor metadata of the request.
///
/// # Errors
/// 400 without a namespace.
pub(super) async fn rules(cx: &Context, review: &Value) -> Result<Value, ApiError> {
    let namespace = review.str_at(&["spec", "namespace"]).unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let found = cx.server.authorizer.rules_for(&cx.user, namespace).await;
    let list = |is_path: bool| {
        let rules = found.rules.iter().filter(|rule| rule.paths.is_empty() != is_path);
        rules.map(PolicyRule::to_value).collect::<Vec<_>>()
    };
    let mut status = tree!({
        "resourceRules": list(false),
        "nonResourceRules": list(true),
        "incomplete": found.incomplete,
    });
    if let (Some(error), Some(status)) = (found.error, status.as_object_mut()) {
        status.insert("evaluationError", error);
    }
    Ok(tree!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "SelfSubjectRulesReview",
        "metadata": Map::new(),
        "spec": Map::new(),
        "status": status,
    }))
}
