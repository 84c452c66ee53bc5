//! Usage of objects and scopes of quotas. Pure functions over trees.
//!
//! Upstream: kubernetes `pkg/quota/v1/evaluator/core`. Objects of every namespaced resource count as
//! `count/PLURAL.GROUP`.

use std::collections::{BTreeMap, BTreeSet};

use plinth_codec::quantity::Quantity;
use plinth_codec::selector::{LabelSelector, SelectorError};
use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};

use super::super::resource_list::{self, ResourceList, Total};
use super::devices::{self, DeviceNames, REQUESTS_OF_CLASS};
use plinth_kinds::quantities::{is_extended, is_native};
use plinth_registry::ResourceType;

/// Resources that had a name in quotas before `count/` was introduced.
const OLD_NAMES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const HUGE_PAGES: &str = "hugepages-";
/// The deprecated annotation for a claim's class.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn one() -> Quantity {
    Quantity::ONE
}

fn count(number: usize) -> Quantity {
    Quantity::parse(&number.to_string()).unwrap_or(Quantity::ZERO)
}

fn object_count(group: &str, plural: &str) -> String {
    match group.is_empty() {
        true => format!("count/{plural}"),
        false => format!("count/{plural}.{group}"),
    }
}

/// The resource of counted objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    group: &'a str,
    plural: &'a str,
    /// For custom resources only the number of objects counts, even if a built-in one has the same name.
    is_custom: bool,
    /// Without them claims count under the names of their classes alone.
    devices: Option<&'a DeviceNames>,
}

impl<'a> Counted<'a> {
    pub(super) const PODS: Counted<'static> =
        Counted { group: "", plural: "pods", is_custom: false, devices: None };

    pub(crate) fn new(resource: &'a ResourceType) -> Counted<'a> {
        let (group, plural) = (resource.group(), resource.plural());
        Counted { group, plural, is_custom: resource.is_custom(), devices: None }
    }

    /// With names under which devices of claims count.
    pub(crate) fn with_devices(self, devices: Option<&'a DeviceNames>) -> Counted<'a> {
        Counted { devices, ..self }
    }

    /// Whether its objects are claims of devices.
    pub(crate) fn is_device_claims(self) -> bool {
        self.builtin() == Some(("resource.k8s.io", "resourceclaims"))
    }

    /// Group and plural of a built-in resource.
    pub(super) fn builtin(self) -> Option<(&'a str, &'a str)> {
        (!self.is_custom).then_some((self.group, self.plural))
    }

    /// Group and plural.
    pub(super) fn names(self) -> (&'a str, &'a str) {
        (self.group, self.plural)
    }

    #[cfg(test)]
    pub(super) fn of_builtin(group: &'a str, plural: &'a str) -> Counted<'a> {
        Counted { group, plural, is_custom: false, devices: None }
    }
}

/// Whether objects of a resource can have usage of the given name.
pub(crate) fn is_about(counted: Counted<'_>, name: &str) -> bool {
    if name == object_count(counted.group, counted.plural) {
        return true;
    }
    let Some(builtin) = counted.builtin() else { return false };
    match builtin {
        ("", "pods") => {
            let amount = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
            name == "pods"
                || COMPUTE.contains(&amount)
                || name.starts_with(HUGE_PAGES)
                || name.starts_with(REQUESTS_OF_CLASS)
                || name.strip_prefix("requests.").is_some_and(|n| n.starts_with(HUGE_PAGES) || !is_native(n))
        }
        ("", "services") => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        ("", "persistentvolumeclaims") => {
            let of_class = name.split_once(STORAGE_CLASS).map_or(name, |(_, rest)| rest);
            matches!(of_class, "persistentvolumeclaims" | "requests.storage")
        }
        ("resource.k8s.io", "resourceclaims") => devices::is_about(counted.devices, name),
        ("", plural) => OLD_NAMES.contains(&plural) && name == plural,
        _ => false,
    }
}

/// The usage of an object at a time.
pub(crate) fn of(counted: Counted<'_>, object: &Value, now: Timestamp) -> ResourceList {
    let mut used = BTreeMap::new();
    used.insert(object_count(counted.group, counted.plural), one());
    let Some(builtin) = counted.builtin() else { return ResourceList(used) };
    match builtin {
        ("", "pods") if runs(object, now) => {
            used.insert("pods".to_owned(), one());
            let of = |part| resource_list::of_pod(object, part, Total::InEffect);
            used.extend(compute(&of("requests"), &of("limits")).0);
        }
        ("", "services") => {
            used.insert("services".to_owned(), one());
            let ports = object.list_at(&["spec", "ports"]);
            let kind = object.str_at(&["spec", "type"]).unwrap_or_default();
            let allocates =
                object.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool) != Some(false);
            let given = |port: &&Value| port.get("nodePort").and_then(Value::as_int).unwrap_or(0) != 0;
            let node_ports = match kind {
                "NodePort" => ports.len(),
                "LoadBalancer" if allocates => ports.len(),
                "LoadBalancer" => ports.iter().filter(given).count(),
                _ => 0,
            };
            used.insert("services.nodeports".to_owned(), count(node_ports));
            used.insert("services.loadbalancers".to_owned(), count(usize::from(kind == "LoadBalancer")));
        }
        ("", "persistentvolumeclaims") => used.extend(of_claim(object)),
        ("resource.k8s.io", "resourceclaims") => {
            used.extend(devices::of_claim(object, counted.devices));
        }
        ("", plural) if OLD_NAMES.contains(&plural) => {
            used.insert(plural.to_owned(), one());
        }
        _ => {}
    }
    ResourceList(used)
}

fn of_claim(claim: &Value) -> BTreeMap<String, Quantity> {
    let class = claim
        .str_at(&["metadata", "annotations", BETA_CLASS])
        .or_else(|| claim.str_at(&["spec", "storageClassName"]))
        .filter(|class| !class.is_empty());
    // Whole bytes, rounded up.
    let whole = |amount: Quantity| amount.plus(Quantity::of_int(amount.value(0)).minus(amount));
    let amount = |path: &[&str]| {
        let amount = ResourceList::of(claim.at(path)).get("storage");
        amount.map(|amount| if amount.as_int().is_some() { amount } else { whole(amount) })
    };
    let requested = amount(&["spec", "resources", "requests"]);
    // While a claim is resized the larger size counts.
    let storage = requested.max(amount(&["status", "allocatedResources"]).filter(|_| requested.is_some()));
    let mut used = BTreeMap::new();
    for (name, amount) in [("persistentvolumeclaims", Some(one())), ("requests.storage", storage)] {
        let Some(amount) = amount else { continue };
        used.insert(name.to_owned(), amount);
        if let Some(class) = class {
            used.insert(format!("{class}{STORAGE_CLASS}{name}"), amount);
        }
    }
    used
}

/// Requests and limits under their names in quotas.
fn compute(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut used = BTreeMap::new();
    for name in COMPUTE {
        if let Some(request) = requests.get(name) {
            used.insert(name.to_owned(), request);
            used.insert(format!("requests.{name}"), request);
        }
        if let Some(limit) = limits.get(name) {
            used.insert(format!("limits.{name}"), limit);
        }
    }
    for (name, request) in &requests.0 {
        if name.starts_with(HUGE_PAGES) {
            used.insert(name.clone(), *request);
        }
        let quota = format!("requests.{name}");
        if name.starts_with(HUGE_PAGES) || is_extended(name) || quota.starts_with(REQUESTS_OF_CLASS) {
            used.insert(quota, *request);
        }
    }
    ResourceList(used)
}

/// Whether a pod has not terminated and is not overdue: other pods only count as objects.
fn runs(pod: &Value, now: Timestamp) -> bool {
    !matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"))
        && overdue_after(pod).is_none_or(|end| now <= end)
}

/// Until when a pod counts that is being deleted: a node that is lost deletes none of its pods, and others
/// could not take their place otherwise. As upstream, the grace period after the time of the deletion, which
/// itself is a grace period after the request.
pub(crate) fn overdue_after(pod: &Value) -> Option<Timestamp> {
    let deletion = Timestamp::parse(pod.str_at(&["metadata", "deletionTimestamp"])?).ok()?;
    let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int)?;
    Some(Timestamp { seconds: deletion.seconds.saturating_add(grace), ..deletion })
}

/// The requests and limits that a quota requires and that containers lack, as a message.
pub(super) fn missing_requests(pod: &Value, names: &[&str]) -> Option<String> {
    const REQUIRED: [&str; 6] =
        ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    let whole = ["requests", "limits"].iter().any(|part| {
        let amounts = pod.at(&["spec", "resources", part]).and_then(Value::as_object);
        amounts.is_some_and(|amounts| !amounts.is_empty())
    });
    if whole {
        return None;
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let containers = |key: &str| pod.list_at(&["spec", key]);
    for container in containers("containers").iter().chain(containers("initContainers")) {
        let amounts = |part| ResourceList::of(container.at(&["resources", part]));
        let given = compute(&amounts("requests"), &amounts("limits"));
        for name in names.iter().filter(|name| REQUIRED.contains(name) && given.get(name).is_none()) {
            missing.entry(name).or_default().push(container.str_at(&["name"]).unwrap_or_default());
        }
    }
    let messages = missing.into_iter().map(|(name, mut containers)| {
        containers.sort_unstable();
        containers.dedup();
        format!("{name} for: {}", containers.join(","))
    });
    let messages: Vec<String> = messages.collect();
    (!messages.is_empty()).then(|| format!("must specify {}", messages.join("; ")))
}

/// A term of a quota's scopes.
#[derive(Clone, Debug)]
pub(super) struct ScopeTerm<'a> {
    pub scope: &'a str,
    pub operator: &'a str,
    pub values: Vec<&'a str>,
}

/// The terms of a quota's scopes, of both fields.
pub(super) fn scope_terms(quota: &Value) -> Vec<ScopeTerm<'_>> {
    let plain = quota.list_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
    let plain = plain.map(|scope| ScopeTerm { scope, operator: "Exists", values: Vec::new() });
    let selected = quota.list_at(&["spec", "scopeSelector", "matchExpressions"]).iter().map(|term| {
        let text = |key: &str| term.str_at(&[key]).unwrap_or_default();
        let values = term.list_at(&["values"]).iter().filter_map(Value::as_str).collect();
        ScopeTerm { scope: text("scopeName"), operator: text("operator"), values }
    });
    plain.chain(selected).collect()
}

/// Whether an object matches a quota's scopes. Scopes apply to pods, so a quota with scopes applies only to
/// these and to claims with a volume attributes class.
pub(crate) fn in_scope(quota: &Value, counted: Counted<'_>, object: &Value) -> bool {
    scope_terms(quota).iter().all(|term| term.matches(counted, object))
}

impl ScopeTerm<'_> {
    /// Whether an object is in the scope.
    pub(super) fn matches(&self, counted: Counted<'_>, object: &Value) -> bool {
        match counted.builtin() {
            Some(("", "pods")) => self.matches_pod(object),
            Some(("", "persistentvolumeclaims")) if self.scope == "VolumeAttributesClass" => {
                let classes = attributes_classes(object);
                match classes.is_empty() {
                    true => self.matches_name(None),
                    false => classes.iter().any(|class| self.matches_name(Some(class))),
                }
            }
            _ => false,
        }
    }

    fn matches_pod(&self, pod: &Value) -> bool {
        let deadline = pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_int);
        let ends = deadline.is_some_and(|seconds| seconds >= 0);
        let best_effort = || plinth_kinds::quality_of_service(pod) == "BestEffort";
        match self.scope {
            "Terminating" => ends,
            "NotTerminating" => !ends,
            "BestEffort" => best_effort(),
            "NotBestEffort" => !best_effort(),
            "PriorityClass" => {
                let class = pod.str_at(&["spec", "priorityClassName"]);
                self.matches_name(class.filter(|class| !class.is_empty()))
            }
            "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
            _ => false,
        }
    }

    fn matches_name(&self, name: Option<&str>) -> bool {
        let selector = self.selector();
        selector.is_ok_and(|s| s.matches(|key| name.filter(|_| key == self.scope)))
    }

    /// The term as a selector of one label.
    ///
    /// # Errors
    /// An operator that is none, or values that do not go with it.
    pub(super) fn selector(&self) -> Result<LabelSelector, SelectorError> {
        let values: Vec<Value> = self.values.iter().map(|value| Value::from(*value)).collect();
        let mut term = Map::new();
        term.insert("key", self.scope);
        term.insert("operator", self.operator);
        term.insert("values", values);
        LabelSelector::from_object(Some(&tree!({ "matchExpressions": tree!([Value::Object(term)]) })))
    }
}

/// As Go prints it, in errors.
impl std::fmt::Display for ScopeTerm<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.scope, self.operator, self.values.join(" "))
    }
}

/// The volume attributes classes that a claim asks for, has, or is being changed to. It counts in the scope
/// of each.
pub(crate) fn attributes_classes(claim: &Value) -> BTreeSet<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.iter().filter_map(|path| claim.str_at(path)).filter(|class| !class.is_empty()).collect()
}

fn has_cross_namespace_affinity(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        term.get("namespaces").and_then(Value::as_array).is_some_and(|n| !n.is_empty())
            || term.get("namespaceSelector").is_some_and(|s| !s.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |key| pod.list_at(&["spec", "affinity", kind, key]);
        let weighted = terms("preferredDuringSchedulingIgnoredDuringExecution").iter();
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || weighted.filter_map(|term| term.get("podAffinityTerm")).any(crosses)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn shown(amounts: &ResourceList) -> String {
        let all = amounts.0.iter().map(|(name, amount)| format!("{name}={}", amount.canonical()));
        all.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn what_objects_use() {
        // group, plural, object, usage
        let rows = [
            ("apps", "deployments", "{}", "count/deployments.apps=1"),
            ("", "secrets", "{}", "count/secrets=1,secrets=1"),
            (
                "",
                "pods",
                r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","example.com/gpu":"2"},"limits":{"memory":"1Gi"}}}]}}"#,
                "count/pods=1,cpu=1,limits.memory=1Gi,pods=1,requests.cpu=1,requests.example.com/gpu=2",
            ),
            (
                "",
                "pods",
                r#"{"spec":{"containers":[{"resources":{"requests":{"deviceclass.resource.kubernetes.io/gpu":"1","kubernetes.io/x":"1"}}}]}}"#,
                "count/pods=1,pods=1,requests.deviceclass.resource.kubernetes.io/gpu=1",
            ),
            ("", "pods", r#"{"status":{"phase":"Failed"}}"#, "count/pods=1"),
            (
                "",
                "pods",
                r#"{"spec":{"overhead":{"cpu":"250m","memory":"1Mi"},"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}"#,
                "count/pods=1,cpu=250m,limits.cpu=1250m,memory=1Mi,pods=1,requests.cpu=250m,requests.memory=1Mi",
            ),
            (
                "",
                "services",
                r#"{"spec":{"type":"NodePort","ports":[{},{}]}}"#,
                "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2",
            ),
            (
                "",
                "services",
                r#"{"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"nodePort":3},{}]}}"#,
                "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
            ),
            (
                "",
                "persistentvolumeclaims",
                r#"{"spec":{"storageClassName":"fast","resources":{"requests":{"storage":"1Gi"}}}}"#,
                "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
            ),
            (
                "",
                "persistentvolumeclaims",
                r#"{"spec":{"resources":{"requests":{"storage":"1500m"}}},"status":{"allocatedResources":{"storage":"1.1Ki"}}}"#,
                "count/persistentvolumeclaims=1,persistentvolumeclaims=1,requests.storage=1127",
            ),
            (
                "resource.k8s.io",
                "resourceclaims",
                r#"{"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"g","allocationMode":"ExactCount","count":1}},{"deviceClassName":"g","allocationMode":"ExactCount","count":1},{"firstAvailable":[{"deviceClassName":"g","allocationMode":"ExactCount","count":3},{"deviceClassName":"g","allocationMode":"ExactCount","count":1},{"deviceClassName":"h","allocationMode":"All"}]}]}}}"#,
                "count/resourceclaims.resource.k8s.io=1,g.deviceclass.resource.k8s.io/devices=5,h.deviceclass.resource.k8s.io/devices=32",
            ),
            (
                "resource.k8s.io",
                "resourceclaims",
                r#"{"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"g","allocationMode":"ExactCount","count":9223372036854775807}},{"exactly":{"deviceClassName":"g","allocationMode":"ExactCount","count":9223372036854775807}}]}}}"#,
                "count/resourceclaims.resource.k8s.io=1,g.deviceclass.resource.k8s.io/devices=9223372036854775807",
            ),
        ];
        for (group, plural, object, usage) in rows {
            let counted = Counted::of_builtin(group, plural);
            let used = of(counted, &parse(object), Timestamp::ZERO);
            assert_eq!(shown(&used), usage);
            assert!(used.0.keys().all(|name| is_about(counted, name)), "{usage}");
            // A custom resource of that name is different.
            let custom = Counted { is_custom: true, ..counted };
            assert_eq!(
                shown(&of(custom, &parse(object), Timestamp::ZERO)),
                format!("{}=1", object_count(group, plural))
            );
            let about: Vec<&String> = used.0.keys().filter(|name| is_about(custom, name)).collect();
            assert_eq!(about, [&object_count(group, plural)]);
        }
        assert!(!is_about(Counted::of_builtin("", "pods"), "requests.storage"));
        assert!(!is_about(Counted::of_builtin("", "services"), "cpu"));
    }

    #[test]
    fn scopes_choose_objects() {
        // spec of the quota, pod, in scope
        let rows = [
            ("{}", "{}", true),
            (r#"{"scopes":["Terminating"]}"#, r#"{"spec":{"activeDeadlineSeconds":5}}"#, true),
            (r#"{"scopes":["Terminating"]}"#, "{}", false),
            (r#"{"scopes":["NotTerminating","BestEffort"]}"#, r#"{"spec":{"containers":[{}]}}"#, true),
            (
                r#"{"scopes":["BestEffort"]}"#,
                r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}"#,
                false,
            ),
            (
                r#"{"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}"#,
                r#"{"spec":{"priorityClassName":"high"}}"#,
                true,
            ),
            (
                r#"{"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}"#,
                "{}",
                false,
            ),
            (
                r#"{"scopes":["CrossNamespacePodAffinity"]}"#,
                r#"{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"namespaceSelector":{}}]}}}}"#,
                true,
            ),
        ];
        for (spec, pod, expected) in rows {
            let quota = parse(&format!(r#"{{"spec":{spec}}}"#));
            assert_eq!(
                in_scope(&quota, Counted::of_builtin("", "pods"), &parse(pod)),
                expected,
                "{spec} {pod}"
            );
        }
        let claim = parse(
            r#"{"spec":{"volumeAttributesClassName":"new"},"status":{"currentVolumeAttributesClassName":"old","modifyVolumeStatus":{"targetVolumeAttributesClassName":"between"}}}"#,
        );
        // operator, values, whether the claim is in scope, whether one without a class is
        let rows = [
            ("In", r#"["new"]"#, true, false),
            ("In", r#"["old"]"#, true, false),
            ("In", r#"["between"]"#, true, false),
            ("In", r#"["other"]"#, false, false),
            ("NotIn", r#"["new","old"]"#, true, true),
            ("NotIn", r#"["new","old","between"]"#, false, true),
            ("Exists", "[]", true, false),
            ("DoesNotExist", "[]", false, true),
        ];
        for (operator, values, expected, without) in rows {
            let quota = parse(&format!(
                r#"{{"spec":{{"scopeSelector":{{"matchExpressions":[{{"scopeName":"VolumeAttributesClass","operator":"{operator}","values":{values}}}]}}}}}}"#
            ));
            let claims = Counted::of_builtin("", "persistentvolumeclaims");
            assert_eq!(in_scope(&quota, claims, &claim), expected, "{operator} {values}");
            assert_eq!(in_scope(&quota, claims, &parse("{}")), without, "{operator} {values}");
        }
        let scoped = parse(r#"{"spec":{"scopes":["BestEffort"]}}"#);
        assert!(!in_scope(&scoped, Counted::of_builtin("", "services"), &parse("{}")));
    }

    #[test]
    fn a_pod_counts_until_it_is_overdue() {
        let pods = Counted::of_builtin("", "pods");
        let used = |metadata: &str, now: &str| {
            let pod = parse(&format!(r#"{{"metadata":{metadata}}}"#));
            shown(&of(pods, &pod, Timestamp::parse(now).unwrap()))
        };
        let deleted = r#"{"deletionTimestamp":"2026-01-02T03:04:30Z","deletionGracePeriodSeconds":30}"#;
        assert_eq!(used(deleted, "2026-01-02T03:05:00Z"), "count/pods=1,pods=1");
        assert_eq!(used(deleted, "2026-01-02T03:05:01Z"), "count/pods=1");
        let without_grace = r#"{"deletionTimestamp":"2026-01-02T03:04:30Z"}"#;
        assert_eq!(used(without_grace, "2027-01-02T03:05:01Z"), "count/pods=1,pods=1");
    }

    #[test]
    fn containers_must_set_what_a_quota_requires() {
        let pod = parse(
            r#"{"spec":{"containers":[{"name":"b"},{"name":"a"},{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#,
        );
        assert_eq!(
            missing_requests(&pod, &["cpu", "limits.memory", "pods"]).as_deref(),
            Some("must specify cpu for: a,b; limits.memory for: a,b,c")
        );
        assert_eq!(missing_requests(&pod, &["pods"]), None);
        assert_eq!(
            missing_requests(
                &parse(r#"{"spec":{"resources":{"requests":{"cpu":"1"}},"containers":[{}]}}"#),
                &["cpu"]
            ),
            None
        );
    }
}
