//! What clients are warned of who write an object that works and is not what they want: deprecated fields, duplicates that
//! get lost, values that mean nothing.
//!
//! Upstream: kubernetes `pkg/api/{pod,node,service,persistentvolume}` and the `WarningsOn…` of its strategies. No more is
//! looked for once there are as many as are told.

use std::collections::{HashMap, HashSet};

use plinth_codec::quantity::Quantity;
use plinth_codec::Value;

/// As many as are told of one request.
const MOST: usize = 64;

/// Labels of nodes that have other names by now.
const OLD_LABELS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
];

/// Annotations of pods that do nothing any more.
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

/// Sources of volumes that are deprecated, of pods and of PersistentVolumes.
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).unwrap_or_default()
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

fn int(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_int).unwrap_or(0)
}

/// Of a pod; who changes one is a program and is not warned.
pub fn pod(new: &Value, old: Option<&Value>) -> Vec<String> {
    match old {
        Some(_) => Vec::new(),
        None => of_pod(new, ""),
    }
}

/// Of the pods that an object makes: those of `spec.template`. A change is warned of when it is one of what is wanted.
pub fn template(new: &Value, old: Option<&Value>) -> Vec<String> {
    of_template(new, old, "spec.template")
}

/// Of the pods of the Jobs that a CronJob makes.
pub fn cron_job(new: &Value, old: Option<&Value>) -> Vec<String> {
    of_template(new, old, "spec.jobTemplate.spec.template")
}

/// Of the pods of a PodTemplate.
pub fn pod_template(new: &Value, old: Option<&Value>) -> Vec<String> {
    of_template(new, old, "template")
}

fn of_template(new: &Value, old: Option<&Value>, path: &str) -> Vec<String> {
    let generation = |object: &Value| int(object, "metadata.generation");
    let same = old.is_some_and(|old| generation(old) == generation(new));
    match at(new, path).filter(|_| !same) {
        Some(template) => of_pod(template, &format!("{path}.")),
        None => Vec::new(),
    }
}

/// Of a PersistentVolume.
pub fn volume(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if text(new, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    const TERMS: &str = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (i, term) in list(new, TERMS).iter().enumerate() {
        old_labels_of_term(term, &format!("{TERMS}[{i}]"), &mut warnings);
    }
    let spec = new.get("spec").and_then(Value::as_object);
    for (key, why) in OLD_VOLUMES {
        // Upstream calls one of them as its own struct does.
        let shown = if key == "storageos" { "storageOS" } else { key };
        if spec.and_then(|spec| spec.get(key)).is_some_and(|source| !source.is_null()) {
            warnings.push(format!("spec.{shown}: {why}"));
        }
    }
    warnings
}

/// Of a Service.
pub fn service(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if new.str_at(&["metadata", "annotations", "service.kubernetes.io/topology-aware-hints"]).is_some() {
        warnings.push("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead".to_owned());
    }
    let kind = text(new, "spec.type");
    let headless = kind == "ClusterIP" && text(new, "spec.clusterIP") == "None";
    let has_external = !list(new, "spec.externalIPs").is_empty();
    if headless {
        if !text(new, "spec.loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if has_external {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if !matches!(text(new, "spec.sessionAffinity"), "" | "None") {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    } else if has_external && kind != "ExternalName" {
        let why = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(why.to_owned());
    }
    if kind == "ExternalName" && has_external {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(new, "spec.externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(new, "spec.trafficDistribution") == "PreferClose" {
        let why = r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#;
        warnings.push(why.to_owned());
    }
    warnings
}

/// Of a Secret: certificate and key that are none.
pub fn secret(new: &Value, _: Option<&Value>) -> Vec<String> {
    use base64::engine::general_purpose::STANDARD;
    use base64::Engine as _;
    if text(new, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let has_pem = |key: &str| {
        let data = new.str_at(&["data", key]).and_then(|data| STANDARD.decode(data).ok()).unwrap_or_default();
        data.windows(b"-----BEGIN ".len()).any(|start| start == b"-----BEGIN ")
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !has_pem(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

/// Of a CSIDriver: tokens that it gets where they may end up in logs.
pub fn csi_driver(new: &Value, old: Option<&Value>) -> Vec<String> {
    const WHY: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    let requests = list(new, "spec.tokenRequests");
    let changed = old.is_none_or(|old| list(old, "spec.tokenRequests") != requests);
    match changed && !requests.is_empty() && at(new, "spec.serviceAccountTokenInSecrets").is_none() {
        true => vec![WHY.to_owned()],
        false => Vec::new(),
    }
}

/// Of a ResourceQuota: requests that may be more than what limits allow.
pub fn quota(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let amount = |key: String| {
        let shown = new.str_at(&["spec", "hard", &key])?;
        Some((Quantity::parse(shown).ok()?, shown.to_owned()))
    };
    let mut warnings = Vec::new();
    // CPU and memory have a shorter name for requests, too.
    let rows = [("cpu", true), ("memory", true), ("storage", false), ("ephemeral-storage", false)];
    for (resource, bare) in rows {
        let mut name = format!("requests.{resource}");
        let mut request = amount(name.clone());
        if request.is_none() && bare {
            name = resource.to_owned();
            request = amount(name.clone());
        }
        let pair = request.zip(amount(format!("limits.{resource}")));
        if let Some(((_, request), (_, limit))) = pair.filter(|((request, _), (limit, _))| request > limit) {
            warnings.push(format!(
                "ResourceQuota {name} ({request}) should be less than limits.{resource} ({limit})"
            ));
        }
    }
    warnings
}

fn old_labels_of_term(term: &Value, path: &str, warnings: &mut Vec<String>) {
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        let key = text(expression, "key");
        if let Some((_, why)) = OLD_LABELS.iter().find(|(old, _)| *old == key) {
            warnings.push(format!("{path}.matchExpressions[{i}].key: {key} is {why}"));
        }
    }
}

/// `path` is empty for a pod and ends in a dot for a template.
fn of_pod(pod: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let nothing = Value::object();
    let spec = pod.get("spec").unwrap_or(&nothing);
    let annotation = |key: &str| pod.str_at(&["metadata", "annotations", key]);
    placement(spec, path, &mut warnings);
    for (key, why) in OLD_ANNOTATIONS.iter().filter(|(key, _)| annotation(key).is_some()) {
        warnings.push(format!("{path}metadata.annotations[{key}]: {why}"));
    }
    const RULES: [fn(&Value, &str, &mut Vec<String>); 6] =
        [volumes, duplicates, containers_values, ports, port_names, pod_affinity];
    for rule in RULES {
        if warnings.len() < MOST {
            rule(spec, path, &mut warnings);
        }
    }
    if int(spec, "terminationGracePeriodSeconds") < 0 {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{path}spec.terminationGracePeriodSeconds: {why}"));
    }
    warnings
}

/// Where the pod may run.
fn placement(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (key, why) in OLD_LABELS {
        if spec.at(&["nodeSelector", key]).is_some() {
            warnings.push(format!("{path}spec.nodeSelector[{key}]: {why}"));
        }
    }
    const TERMS: &str =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    for (i, term) in list(spec, TERMS).iter().enumerate() {
        old_labels_of_term(term, &format!("{path}spec.{TERMS}[{i}]"), warnings);
    }
    const PREFERRED: &str = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in list(spec, PREFERRED).iter().enumerate() {
        if let Some(preference) = at(term, "preference") {
            old_labels_of_term(preference, &format!("{path}spec.{PREFERRED}[{i}].preference"), warnings);
        }
    }
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let (here, key) =
            (format!("{path}spec.topologySpreadConstraints[{i}]"), text(constraint, "topologyKey"));
        if let Some((_, why)) = OLD_LABELS.iter().find(|(old, _)| *old == key) {
            warnings.push(format!("{here}.topologyKey: {key} is {why}"));
        }
        if at(constraint, "labelSelector").is_none() {
            warnings.push(format!("{here}.labelSelector: {NO_SELECTOR}"));
        }
    }
}

fn volumes(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        for (key, why) in OLD_VOLUMES.iter().filter(|(key, _)| at(volume, key).is_some()) {
            let shown = if *key == "storageos" { "storageOS" } else { key };
            warnings.push(format!("{path}spec.volumes[{i}].{shown}: {why}"));
        }
        if warnings.len() >= MOST {
            return;
        }
    }
}

fn duplicates(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (part, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for (i, entry) in list(spec, part).iter().enumerate() {
            let given = text(entry, key);
            if !seen.insert(given) && warnings.len() < MOST {
                warnings.push(format!("{path}spec.{part}[{i}].{key}: duplicate {key} {given:?}"));
            }
        }
    }
    for (i, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() && warnings.len() < MOST {
            warnings.push(format!("{path}spec.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
}

/// Containers in the order in which upstream visits them, with their paths.
fn containers<'a>(spec: &'a Value, path: &'a str) -> impl Iterator<Item = (String, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |part| {
        list(spec, part).iter().enumerate().map(move |(i, c)| (format!("{path}spec.{part}[{i}]"), c))
    })
}

/// Half bytes, and variables that hide others.
fn containers_values(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        half_bytes(at(spec, "overhead"), resource, &format!("{path}spec.overhead"), warnings);
    }
    for (here, container) in containers(spec, path) {
        for resource in ["memory", "ephemeral-storage"] {
            for part in ["limits", "requests"] {
                let amounts = container.at(&["resources", part]);
                half_bytes(amounts, resource, &format!("{here}.resources.{part}"), warnings);
            }
        }
        let mut seen = HashSet::new();
        for (i, variable) in list(container, "env").iter().enumerate() {
            let (name, value) = (text(variable, "name"), text(variable, "value"));
            if seen.insert(name) || warnings.len() >= MOST {
                continue;
            }
            let reference = format!("$({name})");
            // One that builds on the one before is meant.
            let builds_on =
                at(variable, "valueFrom").is_none() && value != reference && value.contains(&reference);
            if !builds_on {
                warnings.push(format!("{here}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"));
            }
        }
    }
}

fn half_bytes(amounts: Option<&Value>, resource: &str, path: &str, warnings: &mut Vec<String>) {
    let Some(shown) = amounts.and_then(|amounts| amounts.get(resource)).and_then(Value::as_str) else {
        return;
    };
    if Quantity::parse(shown).is_ok_and(|amount| amount.as_int().is_none()) {
        warnings.push(format!(
            "{path}[{resource}]: fractional byte value {shown:?} is invalid, must be an integer"
        ));
    }
}

fn ports(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    struct Port<'a> {
        path: String,
        ip: &'a str,
        host: i64,
    }
    /// Others of one number that a port is compared with: more cannot all be told.
    const COMPARED: usize = 64;
    let mut all: HashMap<(i64, &str), Vec<Port<'_>>> = HashMap::new();
    for (here, container) in containers(spec, path) {
        for (i, port) in list(container, "ports").iter().enumerate() {
            let key = (int(port, "containerPort"), text(port, "protocol"));
            let port = Port {
                path: format!("{here}.ports[{i}]"),
                ip: text(port, "hostIP"),
                host: int(port, "hostPort"),
            };
            let others = all.entry(key).or_default();
            for other in others.iter().take(COMPARED) {
                let ambiguous = port.ip.is_empty() != other.ip.is_empty();
                let what = match port.host == other.host {
                    true if port.ip == other.ip => "duplicate",
                    _ if port.host == 0 || other.host == 0 => "overlapping",
                    true if ambiguous => "dangerously ambiguous",
                    _ => continue,
                };
                if warnings.len() < MOST {
                    warnings.push(format!("{}: {what} port definition with {}", port.path, other.path));
                }
            }
            if others.len() < COMPARED {
                others.push(port);
            }
        }
    }
}

fn port_names(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen: HashMap<&str, String> = HashMap::new();
    for (here, container) in containers(spec, path) {
        for (i, port) in list(container, "ports").iter().enumerate() {
            let (name, here) = (text(port, "name"), format!("{here}.ports[{i}]"));
            match seen.get(name) {
                _ if name.is_empty() => {}
                Some(other) if warnings.len() < MOST => warnings.push(format!(
                    "{here}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                Some(_) => {}
                None => drop(seen.insert(name, here)),
            }
        }
    }
}

fn pod_affinity(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let here = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in list(spec, &here).iter().enumerate() {
            if at(term, "labelSelector").is_none() && warnings.len() < MOST {
                warnings.push(format!("{path}spec.{here}[{i}].labelSelector: {NO_SELECTOR}"));
            }
        }
        let here = format!("affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in list(spec, &here).iter().enumerate() {
            if at(term, "podAffinityTerm.labelSelector").is_none() && warnings.len() < MOST {
                warnings.push(format!("{path}spec.{here}[{i}].podAffinityTerm.labelSelector: {NO_SELECTOR}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    type Rule = fn(&Value, Option<&Value>) -> Vec<String>;

    #[test]
    fn one_row_per_warning() {
        // rule, object, starts of the warnings
        let rows: &[(Rule, &str, &[&str])] = &[
            (pod, r#"{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"}}}"#, &["spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14"]),
            (pod, r#"{"spec":{"topologySpreadConstraints":[{"topologyKey":"a"}]}}"#, &["spec.topologySpreadConstraints[0].labelSelector: a null"]),
            (pod, r#"{"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/critical-pod":""}}}"#, &["metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional"]),
            (pod, r#"{"spec":{"volumes":[{"name":"a","gitRepo":{}},{"name":"b","storageos":{}}]}}"#, &["spec.volumes[0].gitRepo: deprecated in v1.11, and", "spec.volumes[1].storageOS: deprecated"]),
            (pod, r#"{"spec":{"hostAliases":[{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}]}}"#, &["spec.hostAliases[1].ip: duplicate ip \"1.1.1.1\""]),
            (pod, r#"{"spec":{"imagePullSecrets":[{"name":""}]}}"#, &["spec.imagePullSecrets[0].name: invalid empty name"]),
            (pod, r#"{"spec":{"containers":[{"resources":{"limits":{"memory":"1500m"}}}]}}"#, &["spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\""]),
            (pod, r#"{"spec":{"containers":[{"env":[{"name":"A","value":"x"},{"name":"A","value":"y"}]}]}}"#, &["spec.containers[0].env[1]: hides previous definition of \"A\""]),
            (pod, r#"{"spec":{"containers":[{"env":[{"name":"A","value":"x"},{"name":"A","value":"$(A)y"}]}]}}"#, &[]),
            (pod, r#"{"spec":{"containers":[{"ports":[{"containerPort":80,"protocol":"TCP"}]},{"ports":[{"containerPort":80,"protocol":"TCP"}]}]}}"#, &["spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]"]),
            (pod, r#"{"spec":{"containers":[{"ports":[{"containerPort":80,"protocol":"TCP","hostPort":80},{"containerPort":80,"protocol":"TCP"}]}]}}"#, &["spec.containers[0].ports[1]: overlapping port definition"]),
            (pod, r#"{"spec":{"containers":[{"ports":[{"name":"a","containerPort":80}]},{"ports":[{"name":"a","containerPort":81}]}]}}"#, &["spec.containers[1].ports[0]: duplicate port name \"a\""]),
            (pod, r#"{"spec":{"terminationGracePeriodSeconds":-1}}"#, &["spec.terminationGracePeriodSeconds: must be >= 0"]),
            (pod, r#"{"spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{}}]}}}}"#, &["spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector"]),
            (template, r#"{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}"#, &["spec.template.spec.terminationGracePeriodSeconds"]),
            (cron_job, r#"{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}}}"#, &["spec.jobTemplate.spec.template.spec.terminationGracePeriodSeconds"]),
            (volume, r#"{"spec":{"persistentVolumeReclaimPolicy":"Recycle","cephfs":{}}}"#, &["spec.persistentVolumeReclaimPolicy: The Recycle", "spec.cephfs: deprecated in v1.28"]),
            (service, r#"{"spec":{"type":"ClusterIP","externalIPs":["1.1.1.1"],"trafficDistribution":"PreferClose"}}"#, &["spec.externalIPs is deprecated", "spec.trafficDistribution: \"PreferClose\""]),
            (service, r#"{"spec":{"type":"ClusterIP","externalName":"a.b"}}"#, &["spec.externalName is ignored"]),
            (secret, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"eHg=","tls.key":"eHg="}}"#, &["tls: failed to find any PEM data in certificate input"]),
            (secret, r#"{"type":"kubernetes.io/tls","data":{"tls.crt":"LS0tLS1CRUdJTiBY","tls.key":"eHg="}}"#, &["tls: failed to find any PEM data in key input"]),
            (csi_driver, r#"{"spec":{"tokenRequests":[{"audience":"a"}]}}"#, &["spec.serviceAccountTokenInSecrets is unset"]),
            (csi_driver, r#"{"spec":{"tokenRequests":[{"audience":"a"}],"serviceAccountTokenInSecrets":false}}"#, &[]),
            (quota, r#"{"spec":{"hard":{"requests.cpu":"2","limits.cpu":"1"}}}"#, &["ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"]),
        ];
        for (rule, object, starts) in rows {
            let found = rule(&parse(object), None);
            assert_eq!(found.len(), starts.len(), "{object}: {found:?}");
            for (found, start) in found.iter().zip(*starts) {
                assert!(found.starts_with(start), "{found}");
            }
        }
    }

    #[test]
    fn who_changes_nothing_is_not_warned() {
        let pod_object = parse(r#"{"spec":{"terminationGracePeriodSeconds":-1}}"#);
        assert_eq!(pod(&pod_object, Some(&pod_object)), Vec::<String>::new());
        let set = parse(
            r#"{"metadata":{"generation":2},"spec":{"template":{"spec":{"terminationGracePeriodSeconds":-1}}}}"#,
        );
        assert_eq!(template(&set, Some(&set)), Vec::<String>::new());
        let before = parse(r#"{"metadata":{"generation":1}}"#);
        assert_eq!(template(&set, Some(&before)).len(), 1);
    }

    #[test]
    fn thousands_of_ports_are_compared_with_few() {
        let port = r#"{"containerPort":80,"protocol":"TCP"}"#;
        let ports = vec![port; 50_000].join(",");
        let found = pod(&parse(&format!(r#"{{"spec":{{"containers":[{{"ports":[{ports}]}}]}}}}"#)), None);
        assert_eq!(found.len(), MOST);
    }
}
