//! Warnings about pods and pod templates.

use std::collections::{HashMap, HashSet};

use plinth_codec::names::label_value_errors;
use plinth_codec::Value;

use crate::path::{at, int_or_zero, list, text};
use crate::pod_template::app_armor::{self, APP_ARMOR_ANNOTATION};
use crate::pod_template::volume_paths;
use crate::volume_claim;
use crate::warnings::address::{warn_ip, warn_ips};
use crate::warnings::node_labels::{deprecated_keys, deprecated_label, warn_expressions};
use crate::warnings::{annotation, is_same_generation, warn_fractional_bytes, warn_pod_name, Warnings};

/// Annotations of pods that no longer have an effect.
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

const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";

const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warnings of a workload whose name becomes part of its pods' names: about the name and `spec.template`. On
/// an update only when the generation changed.
pub(crate) fn template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Warnings::default();
    warn_pod_name(new, old, "Pod names and hostnames", &mut found);
    if !is_same_generation(new, old) {
        warn_template(new, "spec.template", &mut found);
    }
    found.into_vec()
}

pub(crate) fn warn_template(new: &Value, path: &str, found: &mut Warnings) {
    if let Some(template) = at(new, path) {
        warn_pod(template, &format!("{path}."), found);
    }
}

/// Adds the warnings of a pod or template; `path` is empty for a pod and ends in a dot for a template.
pub(crate) fn warn_pod(pod: &Value, path: &str, found: &mut Warnings) {
    let nothing = Value::object();
    let spec = pod.get("spec").unwrap_or(&nothing);
    placement(spec, path, found);
    for (key, why) in OLD_ANNOTATIONS.iter().filter(|(key, _)| annotation(pod, key).is_some()) {
        found.add(format!("{path}metadata.annotations[{key}]: {why}"));
    }
    volumes(spec, path, found);
    duplicates(spec, path, found);
    for resource in ["memory", "ephemeral-storage"] {
        warn_fractional_bytes(at(spec, "overhead"), resource, &format!("{path}spec.overhead"), found);
    }
    containers_values(pod, spec, path, found);
    const RULES: [fn(&Value, &str, &mut Warnings); 2] = [ports, port_names];
    for rule in RULES {
        if !found.is_full() {
            rule(spec, path, found);
        }
    }
    if int_or_zero(spec, "terminationGracePeriodSeconds") < 0 {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        found.add(format!("{path}spec.terminationGracePeriodSeconds: {why}"));
    }
    pod_affinity(spec, path, found);
    const SERVERS: &str = "dnsConfig.nameservers";
    warn_ips(list(spec, SERVERS), &format!("{path}spec.{SERVERS}"), found);
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        warn_ip(text(alias, "ip"), &format!("{path}spec.hostAliases[{i}].ip"), found);
    }
}

/// Node selector, affinity, topology spread constraints and other fields for scheduling.
fn placement(spec: &Value, path: &str, found: &mut Warnings) {
    for (key, why) in deprecated_keys(at(spec, "nodeSelector")) {
        found.add(format!("{path}spec.nodeSelector[{key}]: {why}"));
    }
    const TERMS: &str =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    for (i, term) in list(spec, TERMS).iter().enumerate() {
        let here = format!("{path}spec.{TERMS}[{i}]");
        warn_expressions(list(term, "matchExpressions"), &here, found);
    }
    const PREFERRED: &str = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in list(spec, PREFERRED).iter().enumerate() {
        let expressions = list(term, "preference.matchExpressions");
        preferred(expressions, &format!("{path}spec.{PREFERRED}[{i}].preference"), found);
    }
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let (here, key) =
            (format!("{path}spec.topologySpreadConstraints[{i}]"), text(constraint, "topologyKey"));
        if let Some(why) = deprecated_label(key) {
            found.add(format!("{here}.topologyKey: {key} is {why}"));
        }
        if at(constraint, "labelSelector").is_none() {
            found.add(format!("{here}.labelSelector: {NO_SELECTOR}"));
        }
    }
}

/// Preferred node affinity: deprecated labels, and values that are invalid as label values and so never
/// match.
fn preferred(expressions: &[Value], path: &str, found: &mut Warnings) {
    for (i, expression) in expressions.iter().enumerate() {
        let here = format!("{path}.matchExpressions[{i}]");
        let key = text(expression, "key");
        if let Some(why) = deprecated_label(key) {
            found.add(format!("{here}.key: {key} is {why}"));
        }
        for (j, value) in list(expression, "values").iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            for why in label_value_errors(value) {
                found.add(format!("{here}.values[{j}]: {value} is invalid, {why}"));
            }
        }
    }
}

fn volumes(spec: &Value, path: &str, found: &mut Warnings) {
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let here = format!("{path}spec.volumes[{i}]");
        for (key, why) in DEPRECATED_VOLUMES.iter().filter(|(key, _)| at(volume, key).is_some()) {
            found.add(deprecated_source(key, why, &here));
        }
        const CLAIM: &str = "ephemeral.volumeClaimTemplate.spec";
        volume_claim::warn_spec(at(volume, CLAIM), &format!("{here}.{CLAIM}"), found);
        if found.is_full() {
            return;
        }
    }
    volume_paths::overlaps(list(spec, "volumes"), found);
}

fn duplicates(spec: &Value, path: &str, found: &mut Warnings) {
    for (part, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for (i, entry) in list(spec, part).iter().enumerate() {
            let given = text(entry, key);
            if !seen.insert(given) && !found.is_full() {
                found.add(format!("{path}spec.{part}[{i}].{key}: duplicate {key} {given:?}"));
            }
        }
    }
    for (i, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() && !found.is_full() {
            found.add(format!("{path}spec.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
}

/// Containers in the order in which upstream visits them, with their paths.
fn containers<'a>(spec: &'a Value, path: &'a str) -> impl Iterator<Item = (String, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |part| {
        list(spec, part).iter().enumerate().map(move |(i, c)| (format!("{path}spec.{part}[{i}]"), c))
    })
}

/// Seccomp profiles in annotations, fractional byte quantities, and variables that hide others.
fn containers_values(pod: &Value, spec: &Value, path: &str, found: &mut Warnings) {
    const PROFILE: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
    let is_annotated = |key: &str| annotation(pod, key).is_some();
    if at(spec, "securityContext.seccompProfile").is_none() && is_annotated(SECCOMP_OF_POD) {
        found.add(format!("{path}metadata.annotations[{SECCOMP_OF_POD}]: {PROFILE}"));
    }
    for (here, container) in containers(spec, path) {
        if found.is_full() {
            return;
        }
        let key = format!("{SECCOMP}{}", text(container, "name"));
        if at(container, "securityContext.seccompProfile").is_none() && is_annotated(&key) {
            found.add(format!("{path}metadata.annotations[{key}]: {PROFILE}"));
        }
        if !path.is_empty() {
            warn_app_armor_of_template(pod, spec, container, path, found);
        }
        for resource in ["memory", "ephemeral-storage"] {
            for part in ["limits", "requests"] {
                let amounts = container.at(&["resources", part]);
                warn_fractional_bytes(amounts, resource, &format!("{here}.resources.{part}"), found);
            }
        }
        let mut seen = HashSet::new();
        for (i, variable) in list(container, "env").iter().enumerate() {
            let (name, value) = (text(variable, "name"), text(variable, "value"));
            if seen.insert(name) || found.is_full() {
                continue;
            }
            let reference = format!("$({name})");
            // A variable that refers to its previous definition is intended.
            let builds_on =
                at(variable, "valueFrom").is_none() && value != reference && value.contains(&reference);
            if !builds_on {
                found.add(format!("{here}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"));
            }
        }
    }
}

const APP_ARMOR_WHY: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;

/// AppArmor annotations of a template that differ from the pod-level profile.
fn warn_app_armor_of_template(
    pod: &Value,
    spec: &Value,
    container: &Value,
    path: &str,
    found: &mut Warnings,
) {
    let key = format!("{APP_ARMOR_ANNOTATION}{}", text(container, "name"));
    let Some(shown) = annotation(pod, &key) else { return };
    let is_as_the_pods = || {
        let profile = app_armor::profile_of(shown);
        profile.is_some() && profile.as_ref() == at(spec, "securityContext.appArmorProfile")
    };
    if at(container, "securityContext.appArmorProfile").is_none() && !is_as_the_pods() {
        found.add(format!("{path}metadata.annotations[{key}]: {APP_ARMOR_WHY}"));
    }
}

/// AppArmor annotations of a pod, including those that were copied to the field or duplicate it.
pub(crate) fn warn_app_armor_of_pod(pod: &Value, found: &mut Warnings) {
    if text(pod, "spec.os.name") == "windows" {
        return;
    }
    let Some(spec) = pod.get("spec") else { return };
    for (_, container) in containers(spec, "") {
        let key = format!("{APP_ARMOR_ANNOTATION}{}", text(container, "name"));
        let Some(shown) = annotation(pod, &key) else { continue };
        let field = at(container, "securityContext.appArmorProfile");
        let profile = app_armor::profile_of(shown);
        if profile.is_none() || field == profile.as_ref() {
            found.add(format!("metadata.annotations[{key}]: {APP_ARMOR_WHY}"));
        }
    }
}

fn ports(spec: &Value, path: &str, found: &mut Warnings) {
    struct Port<'a> {
        path: String,
        ip: &'a str,
        host: i64,
    }
    /// How many ports of the same number a port is compared with; no more warnings would be sent.
    const COMPARED: usize = 64;
    let mut all: HashMap<(i64, &str), Vec<Port<'_>>> = HashMap::new();
    for (here, container) in containers(spec, path) {
        for (i, port) in list(container, "ports").iter().enumerate() {
            let (name, ip, protocol) = (text(port, "name"), text(port, "hostIP"), text(port, "protocol"));
            let (host, number) = (int_or_zero(port, "hostPort"), int_or_zero(port, "containerPort"));
            if !ip.is_empty() && host == 0 {
                found.add(format!("{here}.ports[{i}]: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}"));
            }
            let port = Port { path: format!("{here}.ports[{i}]"), ip, host };
            let others = all.entry((number, protocol)).or_default();
            for other in others.iter().take(COMPARED) {
                let ambiguous = port.ip.is_empty() != other.ip.is_empty();
                let what = match port.host == other.host {
                    true if port.ip == other.ip => "duplicate",
                    _ if port.host == 0 || other.host == 0 => "overlapping",
                    true if ambiguous => "dangerously ambiguous",
                    _ => continue,
                };
                if !found.is_full() {
                    found.add(format!("{}: {what} port definition with {}", port.path, other.path));
                }
            }
            if others.len() < COMPARED {
                others.push(port);
            }
        }
    }
}

fn port_names(spec: &Value, path: &str, found: &mut Warnings) {
    let mut seen: HashMap<&str, String> = HashMap::new();
    for (here, container) in containers(spec, path) {
        for (i, port) in list(container, "ports").iter().enumerate() {
            let (name, here) = (text(port, "name"), format!("{here}.ports[{i}]"));
            match seen.get(name) {
                _ if name.is_empty() => {}
                Some(other) if !found.is_full() => found.add(format!(
                    "{here}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                Some(_) => {}
                None => drop(seen.insert(name, here)),
            }
        }
    }
}

fn pod_affinity(spec: &Value, path: &str, found: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let here = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in list(spec, &here).iter().enumerate() {
            if at(term, "labelSelector").is_none() && !found.is_full() {
                found.add(format!("{path}spec.{here}[{i}].labelSelector: {NO_SELECTOR}"));
            }
        }
        let here = format!("affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in list(spec, &here).iter().enumerate() {
            if at(term, "podAffinityTerm.labelSelector").is_none() && !found.is_full() {
                found.add(format!("{path}spec.{here}[{i}].podAffinityTerm.labelSelector: {NO_SELECTOR}"));
            }
        }
    }
}

/// Deprecated volume sources of pods and PersistentVolumes.
pub(crate) const DEPRECATED_VOLUMES: [(&str, &str); 9] = [
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

/// The warning about a deprecated volume source; upstream reports `storageos` by its Go name.
pub(crate) fn deprecated_source(key: &str, why: &str, path: &str) -> String {
    let shown = if key == "storageos" { "storageOS" } else { key };
    format!("{path}.{shown}: {why}")
}
