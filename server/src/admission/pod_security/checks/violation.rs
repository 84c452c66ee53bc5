//! What checks read of a pod, and how they word violations.

use plinth_codec::{Map, Value};

/// A violation of a standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admission::pod_security) struct Violation {
    /// Short reason, like `host namespaces`.
    pub reason: String,
    /// Details; may be empty.
    pub detail: String,
}

/// A pod or pod template.
pub(in crate::admission::pod_security) struct Pod<'a> {
    pub annotations: Option<&'a Map>,
    pub spec: &'a Value,
}

pub(super) fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

pub(super) fn containers<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    let spec = pod.spec;
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |part| spec.list_at(&[part]))
}

pub(super) fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

pub(super) fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let each: Vec<String> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    each.join(", ")
}

pub(super) fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    match count {
        1 => one,
        _ => many,
    }
}

/// `containers "a", "b"`.
pub(super) fn named_containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names.iter().copied()))
}

/// `pod and container "a"`: where a forbidden value is set.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(named_containers(names));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

/// The names of the containers for which a test holds.
pub(super) fn bad<'a>(pod: &Pod<'a>, test: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod).filter(test).map(name).collect()
}

pub(super) fn context_flag(object: &Value, path: &[&str]) -> Option<bool> {
    object.at(&["securityContext"])?.at(path)?.as_bool()
}
