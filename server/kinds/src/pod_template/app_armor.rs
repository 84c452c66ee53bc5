//! AppArmor profiles in annotations, from before there was a field. They are copied into the field when a pod
//! is created.
//!
//! Upstream: kubernetes `pkg/registry/core/pod/strategy.go` and `pkg/apis/core/validation`.

use plinth_codec::{tree, Value};

use crate::checks::Part;

/// Prefix of the annotation; the container's name follows.
pub(crate) const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

const SPEC_LISTS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

const PROFILE: [&str; 2] = ["securityContext", "appArmorProfile"];

/// Maximum length of a profile's name, in bytes.
const MAX_LENGTH: usize = 4095;

fn annotation<'a>(pod: &'a Value, container: &Value) -> Option<&'a str> {
    let name = container.str_at(&["name"]).unwrap_or_default();
    pod.str_at(&["metadata", "annotations", &format!("{APP_ARMOR_ANNOTATION}{name}")])
}

fn is_annotated(pod: &Value) -> bool {
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object);
    annotations.is_some_and(|all| all.iter().any(|(key, _)| key.starts_with(APP_ARMOR_ANNOTATION)))
}

fn containers<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod.list_at(&["spec", list])
}

fn is_for_windows(pod: &Value) -> bool {
    pod.str_at(&["spec", "os", "name"]) == Some("windows")
}

/// Converts the value of an annotation to that of the field; `None` if it is invalid.
pub(crate) fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(tree!({ "type": "Unconfined" })),
        "runtime/default" => Some(tree!({ "type": "RuntimeDefault" })),
        local => {
            let name = local.strip_prefix("localhost/")?;
            let is_good = !name.is_empty() && name.trim() == name && name.len() <= MAX_LENGTH;
            is_good.then(|| tree!({ "localhostProfile": name, "type": "Localhost" }))
        }
    }
}

/// Sets the field of each container that has only the annotation, where it differs from the pod's.
pub(crate) fn fill(pod: &mut Value) {
    if is_for_windows(pod) || !is_annotated(pod) {
        return;
    }
    let of_pod = pod.at(&["spec"]).and_then(|spec| spec.at(&PROFILE)).cloned();
    for list in LISTS {
        let profiles: Vec<Option<Value>> = containers(pod, list)
            .iter()
            .map(|container| match container.at(&PROFILE).is_some_and(|field| !field.is_null()) {
                true => None,
                false => profile_of(annotation(pod, container)?).filter(|new| Some(new) != of_pod.as_ref()),
            })
            .collect();
        let containers = pod.object_at_mut(&["spec"]).and_then(|spec| spec.get_mut(list));
        let containers = containers.and_then(Value::as_array_mut).into_iter().flatten();
        for (container, profile) in containers.zip(profiles) {
            let Some(profile) = profile else { continue };
            if let Some(context) = container.object_at_mut(&[PROFILE[0]]) {
                context.insert(PROFILE[1], profile);
            }
        }
    }
}

/// Errors of the annotations of a pod or template: unknown container or invalid profile. `annotations` is the
/// path of the annotations.
pub(crate) fn annotation_errors(pod: &Part<'_>, annotations: &str) {
    for (key, value) in pod.members("metadata.annotations") {
        let Some(name) = key.strip_prefix(APP_ARMOR_ANNOTATION) else { continue };
        let here = format_args!("{annotations}[{key}]");
        let mut named = LISTS.iter().flat_map(|list| containers(pod.value(), list));
        if !named.any(|container| container.str_at(&["name"]) == Some(name)) {
            pod.invalid(here, name, "container not found");
        }
        let value = value.as_str().unwrap_or_default();
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
            pod.invalid(here, value, &format!("invalid AppArmor profile name: {value:?}"));
        }
    }
}

/// Validates a new pod: annotations must agree with the field.
pub(crate) fn validate_create(pod: &Part<'_>) {
    if !is_annotated(pod.value()) || is_for_windows(pod.value()) {
        return;
    }
    let of_pod = pod.at("spec").and_then(|spec| spec.at(&PROFILE));
    for container in SPEC_LISTS.into_iter().flat_map(|list| pod.each(list)) {
        let profile = container.value().at(&PROFILE).filter(|field| !field.is_null()).or(of_pod);
        let Some((profile, shown)) = profile.zip(annotation(pod.value(), container.value())) else {
            continue;
        };
        let kind = profile.str_at(&["type"]).unwrap_or_default();
        let agrees = match kind {
            "Unconfined" => shown == "unconfined",
            "RuntimeDefault" => shown == "runtime/default",
            "Localhost" => shown.starts_with("localhost/"),
            _ => true,
        };
        if !agrees {
            let why = "apparmor type in annotation and field must match";
            container.forbidden("securityContext.appArmorProfile.type", why);
        } else if kind == "Localhost"
            && shown.strip_prefix("localhost/") != profile.str_at(&["localhostProfile"])
        {
            let why = "apparmor profile in annotation and field must match";
            container.forbidden("securityContext.appArmorProfile.localhostProfile", why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ErrorList;
    use plinth_codec::json;

    fn pod(annotation: &str, of_pod: &str, of_container: &str) -> Value {
        let text = format!(
            r#"{{"metadata":{{"annotations":{{"{APP_ARMOR_ANNOTATION}a":"{annotation}"}}}},
                "spec":{{"securityContext":{of_pod},"containers":[{{"name":"a","securityContext":{of_container}}}]}}}}"#
        );
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn annotations_become_fields() {
        const UNCONFINED: &str = r#"{"appArmorProfile":{"type":"Unconfined"}}"#;
        // annotation, context of the pod, context of the container, type and file of the container's profile
        // afterwards
        let rows = [
            ("unconfined", "{}", "{}", Some("Unconfined"), None),
            ("runtime/default", "{}", "{}", Some("RuntimeDefault"), None),
            ("localhost/x", "{}", "{}", Some("Localhost"), Some("x")),
            ("localhost/", "{}", "{}", None, None),
            ("localhost/ x", "{}", "{}", None, None),
            ("other", "{}", "{}", None, None),
            ("unconfined", UNCONFINED, "{}", None, None),
            ("runtime/default", "{}", UNCONFINED, Some("Unconfined"), None),
        ];
        for (annotation, of_pod, of_container, kind, file) in rows {
            let mut pod = pod(annotation, of_pod, of_container);
            fill(&mut pod);
            let container = &pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0];
            let profile = |member| container.at(&PROFILE).and_then(|profile| profile.str_at(&[member]));
            assert_eq!((profile("type"), profile("localhostProfile")), (kind, file), "{annotation}");
        }
    }

    #[test]
    fn annotations_and_fields_agree() {
        const DEFAULT: &str = r#"{"appArmorProfile":{"type":"RuntimeDefault"}}"#;
        const LOCAL: &str = r#"{"appArmorProfile":{"type":"Localhost","localhostProfile":"x"}}"#;
        let rows: [(&str, &str, &[&str]); 6] = [
            ("runtime/default", DEFAULT, &[]),
            ("unconfined", DEFAULT, &["spec.containers[0].securityContext.appArmorProfile.type"]),
            ("localhost/x", LOCAL, &[]),
            ("localhost/y", LOCAL, &["spec.containers[0].securityContext.appArmorProfile.localhostProfile"]),
            ("other", "{}", &["metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]"]),
            ("", "{}", &[]),
        ];
        for (annotation, of_container, fields) in rows {
            let pod = pod(annotation, "{}", of_container);
            let found = ErrorList::of(&pod, |pod| {
                validate_create(pod);
                annotation_errors(pod, "metadata.annotations");
            });
            let found: Vec<&str> = found.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(found, fields, "{annotation}");
        }
    }
}
