//! What may not change once an object is there.

use plinth_codec::{tree, Value};

use super::{at, text};
use plinth_api::api_error::Cause;
use plinth_api::field;

const IMMUTABLE: &str = "field is immutable";

/// Texts that upstream keeps as pointers: absent ones are shown as `null`.
const POINTERS: [&str; 4] = ["eventTime", "preemptionPolicy", "spec.managedBy", "spec.nodeName"];

/// Errors for each of the fields that differs.
pub fn immutable(paths: &[&str], new: &Value, old: &Value, errors: &mut Vec<Cause>) {
    for path in paths {
        if at(new, path) != at(old, path) {
            // A text that is gone is an empty one upstream, where it is no pointer.
            let is_text = at(old, path).is_some_and(|old| old.as_str().is_some()) && !POINTERS.contains(path);
            let gone = if is_text { "".into() } else { Value::Null };
            errors.push(field::invalid(*path, at(new, path).cloned().unwrap_or(gone), IMMUTABLE));
        }
    }
}

/// ConfigMaps and Secrets that were made immutable stay as they are and stay immutable.
pub fn data(new: &Value, old: &Value) -> Vec<Cause> {
    const WHY: &str = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if new.str_at(&["kind"]) == Some("Secret") {
        immutable(&["type"], new, old, &mut errors);
    }
    if old.get("immutable").and_then(Value::as_bool) == Some(true) {
        if new.get("immutable").and_then(Value::as_bool) != Some(true) {
            errors.push(field::forbidden("immutable", WHY));
        }
        let changed = ["data", "binaryData"].into_iter().filter(|part| new.get(part) != old.get(part));
        errors.extend(changed.map(|part| field::forbidden(part, WHY)));
    }
    errors
}

/// What a binding grants can change, never to whom it belongs.
pub fn role_binding(new: &Value, old: &Value) -> Vec<Cause> {
    if at(new, "roleRef") == at(old, "roleRef") {
        return Vec::new();
    }
    // Upstream shows the struct with its Go names.
    let shown = tree!({
        "APIGroup": text(new, "roleRef.apiGroup"),
        "Kind": text(new, "roleRef.kind"),
        "Name": text(new, "roleRef.name"),
    });
    vec![field::invalid("roleRef", shown, "cannot change roleRef")]
}

/// A Service keeps its first cluster address as long as its type has one.
pub fn service(new: &Value, old: &Value) -> Vec<Cause> {
    let ip = |service: &Value| at(service, "spec.clusterIP").and_then(Value::as_str).map(str::to_owned);
    let external = |service: &Value| text(service, "spec.type") == "ExternalName";
    let mut errors = Vec::new();
    let balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let (now, before) = (at(new, "spec.loadBalancerClass"), at(old, "spec.loadBalancerClass"));
    if balanced(new) && balanced(old) && now != before {
        let shown = now.cloned().unwrap_or_default();
        errors.push(field::invalid("spec.loadBalancerClass", shown, "may not change once set"));
    }
    let checked =
        |service: &Value| balanced(service) && text(service, "spec.externalTrafficPolicy") == "Local";
    let health = "spec.healthCheckNodePort";
    if checked(new) && checked(old) && at(new, health) != at(old, health) {
        errors.push(field::forbidden(health, IMMUTABLE));
    }
    let (Some(before), false, false) = (ip(old), external(new), external(old)) else { return errors };
    if ip(new).as_deref() != Some(before.as_str()) {
        let shown = at(new, "spec.clusterIPs").cloned().unwrap_or_default();
        errors.push(field::invalid("spec.clusterIPs[0]", shown, "may not change once set"));
    }
    errors
}

/// What a class stands for.
pub fn storage_class(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    immutable(&["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"], new, old, &mut errors);
    errors
}

/// A priority is given for good.
pub fn priority_class(new: &Value, old: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    if at(new, "value") != at(old, "value") {
        errors.push(field::forbidden("value", "may not be changed in an update."));
    }
    immutable(&["preemptionPolicy"], new, old, &mut errors);
    errors
}
