//! `LimitRanger`: containers get the namespace's default requests and limits, and must observe its minima and
//! maxima.
//!
//! Upstream: kubernetes `plugin/pkg/admission/limitranger`. Errors are in the order of the resources' names.

use std::fmt::Write as _;
use std::sync::Arc;

use plinth_codec::quantity::Quantity;
use plinth_codec::{Map, Value};

use super::call::Call;
use super::resource_list::{self, ResourceList, Total};
use plinth_api::{is_deleting, ApiError};
use plinth_storage::ObjectCache;

/// Annotation that lists the defaults that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

async fn ranges(call: &Call<'_>, ranges: &ObjectCache) -> Result<Vec<Arc<Value>>, ApiError> {
    let going = call.old.is_some_and(is_deleting);
    if going {
        return Ok(Vec::new());
    }
    let server = &call.cx.server;
    ranges.objects(&server.store, call.namespace).await
}

fn limits(range: &Value) -> &[Value] {
    range.list_at(&["spec", "limits"])
}

fn kind(limit: &Value) -> &str {
    limit.str_at(&["type"]).unwrap_or_default()
}

/// Sets the defaults of each LimitRange of the namespace.
///
/// # Errors
/// When the ranges cannot be read.
pub(super) async fn admit(call: &Call<'_>, cache: &ObjectCache, pod: &mut Value) -> Result<(), ApiError> {
    for range in ranges(call, cache).await? {
        fill_in(pod, &range);
    }
    Ok(())
}

fn fill_in(pod: &mut Value, range: &Value) {
    let mut defaults = [("requests", "request", Map::new()), ("limits", "limit", Map::new())];
    for limit in limits(range).iter().filter(|limit| kind(limit) == "Container") {
        for ((_, _, target), key) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
            for (name, amount) in limit.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
                target.insert(name.clone(), amount.clone());
            }
        }
    }
    let mut notes = Vec::new();
    for (part, label) in [("containers", "container"), ("initContainers", "init container")] {
        let list = pod.get_mut("spec").and_then(|spec| spec.get_mut(part)).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let name = container.str_at(&["name"]).unwrap_or_default().to_owned();
            for (part, word, defaults) in &defaults {
                let set = add_missing(container, part, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {word} for {label} {name}", set.join(", ")));
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    if let Some(annotations) = pod.object_at_mut(&["metadata", "annotations"]) {
        annotations.insert(ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Adds missing quantities to a container; returns their names, sorted.
fn add_missing(container: &mut Value, part: &str, defaults: &Map) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let Some(amounts) = container.object_at_mut(&["resources", part]) else { return Vec::new() };
    let missing: Vec<_> = defaults.iter().filter(|(name, _)| !amounts.contains(name)).collect();
    for (name, amount) in &missing {
        amounts.insert((*name).clone(), (*amount).clone());
    }
    let mut names: Vec<String> = missing.iter().map(|(name, _)| name.to_string()).collect();
    names.sort_unstable();
    names
}

/// Checks a pod or claim against each LimitRange of the namespace.
///
/// # Errors
/// 403 with all violations of a LimitRange.
pub(super) async fn validate(call: &Call<'_>, cache: &ObjectCache, object: &Value) -> Result<(), ApiError> {
    for range in ranges(call, cache).await? {
        let errors = match call.cx.resource.plural() {
            "pods" => pod_errors(object, &range),
            _ => claim_errors(object, &range),
        };
        match errors.as_slice() {
            [] => {}
            [error] => return Err(call.forbidden(object, error)),
            errors => return Err(call.forbidden(object, &format!("[{}]", errors.join(", ")))),
        }
    }
    Ok(())
}

fn pod_errors(pod: &Value, range: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let containers = |part: &str| pod.list_at(&["spec", part]);
    for limit in limits(range) {
        match kind(limit) {
            "Container" => {
                for container in containers("containers").iter().chain(containers("initContainers")) {
                    let amounts = |part| ResourceList::of(container.at(&["resources", part]));
                    check(limit, &amounts("requests"), &amounts("limits"), &mut errors);
                }
            }
            "Pod" => {
                let of = |part| resource_list::of_pod(pod, part, Total::Spec);
                check(limit, &of("requests"), &of("limits"), &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn check(limit: &Value, requests: &ResourceList, limits: &ResourceList, errors: &mut Vec<String>) {
    let kind = kind(limit);
    for (name, least) in ResourceList::of(limit.get("min")).0 {
        errors.extend(below(kind, &name, least, requests, limits));
    }
    for (name, most) in ResourceList::of(limit.get("max")).0 {
        errors.extend(above(kind, &name, most, requests, limits));
    }
    for (name, most) in ResourceList::of(limit.get("maxLimitRequestRatio")).0 {
        errors.extend(ratio(kind, &name, most, requests, limits));
    }
}

fn claim_errors(claim: &Value, range: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let requests = ResourceList::of(claim.at(&["spec", "resources", "requests"]));
    for limit in limits(range).iter().filter(|limit| kind(limit) == "PersistentVolumeClaim") {
        for (name, least) in ResourceList::of(limit.get("min")).0 {
            errors.extend(below(kind(limit), &name, least, &requests, &ResourceList::default()));
        }
        for (name, most) in ResourceList::of(limit.get("max")).0 {
            let start = format!("maximum {name} usage per {} is {}", kind(limit), most.canonical());
            match requests.get(&name) {
                None => errors.push(format!("{start}.  No request is specified")),
                Some(requested) if requested > most => {
                    errors.push(format!("{start}, but request is {}", requested.canonical()));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn below(
    kind: &str,
    name: &str,
    least: Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let mut error = format!("minimum {name} usage per {kind} is {}", least.canonical());
    let written = match (requests.get(name), limits.get(name)) {
        (None, _) => write!(error, ".  No request is specified"),
        (Some(requested), _) if requested < least => {
            write!(error, ", but request is {}", requested.canonical())
        }
        (_, Some(limit)) if limit < least => write!(error, ", but limit is {}", limit.canonical()),
        _ => return None,
    };
    written.ok().map(|()| error)
}

fn above(
    kind: &str,
    name: &str,
    most: Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let mut error = format!("maximum {name} usage per {kind} is {}", most.canonical());
    let written = match (requests.get(name), limits.get(name)) {
        (_, None) => write!(error, ".  No limit is specified"),
        (_, Some(limit)) if limit > most => write!(error, ", but limit is {}", limit.canonical()),
        (Some(requested), _) if requested > most => {
            write!(error, ", but request is {}", requested.canonical())
        }
        _ => return None,
    };
    written.ok().map(|()| error)
}

fn ratio(
    kind: &str,
    name: &str,
    most: Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {kind} is {}", most.canonical());
    let given = |amounts: &ResourceList| amounts.get(name).filter(|amount| amount.sign() != 0);
    let Some(requested) = given(requests) else {
        return Some(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = given(limits) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    // Exact in thousandths if they fit; upstream uses whole numbers beyond.
    let scaled = |amount: Quantity| amount.value(-3) as f64;
    let found = scaled(limit) / scaled(requested);
    (found > scaled(most) / 1000.0).then(|| format!("{start}, but provided ratio is {found:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn defaults_fill_what_is_missing_and_say_so() {
        let range = parse(
            r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"1","memory":"1Gi"},"defaultRequest":{"cpu":"100m"}}]}}"#,
        );
        let mut pod = parse(
            r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"2"}}}],"initContainers":[{"name":"i"}]}}"#,
        );
        fill_in(&mut pod, &range);
        let container = &pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0];
        assert_eq!(container.str_at(&["resources", "limits", "cpu"]), Some("2"));
        assert_eq!(container.str_at(&["resources", "limits", "memory"]), Some("1Gi"));
        assert_eq!(container.str_at(&["resources", "requests", "cpu"]), Some("100m"));
        assert_eq!(
            pod.str_at(&["metadata", "annotations", ANNOTATION]),
            Some("LimitRanger plugin set: cpu request for container a; memory limit for container a; cpu request for init container i; cpu, memory limit for init container i")
        );
    }

    #[test]
    fn bounds_are_kept() {
        // one limit, resources of the container, errors
        let rows: [(&str, &str, &[&str]); 7] = [
            (r#"{"type":"Container","min":{"cpu":"1"}}"#, r#"{"requests":{"cpu":"2"}}"#, &[]),
            (
                r#"{"type":"Container","min":{"cpu":"1"}}"#,
                "{}",
                &["minimum cpu usage per Container is 1.  No request is specified"],
            ),
            (
                r#"{"type":"Container","min":{"cpu":"1"}}"#,
                r#"{"requests":{"cpu":"10m"}}"#,
                &["minimum cpu usage per Container is 1, but request is 10m"],
            ),
            (
                r#"{"type":"Container","max":{"cpu":"1"}}"#,
                r#"{"limits":{"cpu":"2"}}"#,
                &["maximum cpu usage per Container is 1, but limit is 2"],
            ),
            (
                r#"{"type":"Pod","max":{"memory":"1Gi"}}"#,
                "{}",
                &["maximum memory usage per Pod is 1Gi.  No limit is specified"],
            ),
            (
                r#"{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}"#,
                r#"{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}"#,
                &["cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000"],
            ),
            (
                r#"{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}"#,
                r#"{"requests":{"cpu":"500m"},"limits":{"cpu":"1"}}"#,
                &[],
            ),
        ];
        for (limit, resources, expected) in rows {
            let range = parse(&format!(r#"{{"spec":{{"limits":[{limit}]}}}}"#));
            let pod =
                parse(&format!(r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#));
            assert_eq!(pod_errors(&pod, &range), expected, "{limit} {resources}");
        }
        let range = parse(
            r#"{"spec":{"limits":[{"type":"PersistentVolumeClaim","max":{"storage":"1Gi"},"min":{"storage":"1Mi"}}]}}"#,
        );
        let claim = parse(r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#);
        assert_eq!(
            claim_errors(&claim, &range),
            ["maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"]
        );
    }
}
