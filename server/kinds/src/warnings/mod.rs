//! What clients are warned of who write an object that works and is not what they want: deprecated fields, duplicates that
//! get lost, values that mean nothing.
//!
//! Upstream: kubernetes `pkg/api/*/warnings.go`, `pkg/api/*/util.go` and the `WarningsOn…` of its strategies. No more is
//! looked for once there are as many as are told.
//!
//! | what is written | module |
//! |---|---|
//! | pods, and templates of pods | `pod`, files of its volumes that hide each other `paths` |
//! | Services, endpoints, Ingresses, policies of networks | `network` |
//! | volumes, claims, classes, drivers | `storage` |
//! | Secrets with a certificate | `certificate` |
//! | addresses and networks in several forms | `address` |
//! | everything else | here |

mod address;
mod certificate;
mod network;
mod paths;
mod pod;
mod storage;
#[cfg(test)]
mod tests;

use plinth_codec::names::dns1123_label_errors;
use plinth_codec::quantity::Quantity;
use plinth_codec::Value;

pub use certificate::secret;
pub use network::{endpoint_slice, endpoints, ingress, load_balancer_status, network_policy, service};
pub use pod::{cron_job, daemon_set, job, pod, pod_status, pod_template, stateful_set, template};
pub use storage::{capacity, claim, csi_driver, storage_class, volume};

/// As many as are told of one request.
const MOST: usize = 64;

/// What was found so far, [`MOST`] at the most.
#[derive(Debug, Default)]
struct Found(Vec<String>);

impl Found {
    fn add(&mut self, text: impl Into<String>) {
        if !self.is_full() {
            self.0.push(text.into());
        }
    }

    /// Whether there is no use in looking further.
    fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }
}

/// Labels of nodes that are used no longer.
const OLD_LABELS: [(&str, &str); 8] = [
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
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key).map(|(_, why)| *why)
}

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

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.str_at(&["metadata", "annotations", key])
}

/// Requirements on labels of nodes that are used no longer.
fn old_labels_of_expressions(expressions: &[Value], path: &str, found: &mut Found) {
    for (i, expression) in expressions.iter().enumerate() {
        let key = text(expression, "key");
        if let Some(why) = old_label(key) {
            found.add(format!("{path}.matchExpressions[{i}].key: {key} is {why}"));
        }
    }
}

/// Keys of a map that are labels of nodes which are used no longer.
fn old_keys<'a>(map: Option<&'a Value>) -> impl Iterator<Item = (&'static str, &'static str)> + 'a {
    OLD_LABELS.into_iter().filter(move |(key, _)| map.is_some_and(|map| map.get(key).is_some()))
}

/// Whether nothing changed that is wanted of the object.
fn is_same_generation(new: &Value, old: Option<&Value>) -> bool {
    let generation = |object: &Value| int(object, "metadata.generation");
    old.is_some_and(|old| generation(old) == generation(new))
}

/// A name that works and makes odd host names.
fn name_of_pods(new: &Value, old: Option<&Value>, used_in: &str, found: &mut Found) {
    let errors = match old {
        None => dns1123_label_errors(text(new, "metadata.name")),
        Some(_) => return,
    };
    if !errors.is_empty() {
        found.add(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            errors.join(" ")
        ));
    }
}

/// Half bytes are rounded up.
fn half_bytes(amounts: Option<&Value>, resource: &str, path: &str, found: &mut Found) {
    let Some(shown) = amounts.and_then(|amounts| amounts.get(resource)).and_then(Value::as_str) else {
        return;
    };
    if Quantity::parse(shown).is_ok_and(|amount| amount.as_int().is_none()) {
        found.add(format!(
            "{path}[{resource}]: fractional byte value {shown:?} is invalid, must be an integer"
        ));
    }
}

/// Of a Node.
pub fn node(new: &Value, _: Option<&Value>) -> Vec<String> {
    let mut found = Found::default();
    if at(new, "spec.configSource").is_some() {
        found.add("spec.configSource: the feature is removed");
    }
    if !text(new, "spec.externalID").is_empty() {
        found.add("spec.externalID: this field is deprecated, and is unused by Kubernetes");
    }
    address::networks(list(new, "spec.podCIDRs"), "spec.podCIDRs", &mut found);
    found.0
}

/// Of a RuntimeClass.
pub fn runtime_class(new: &Value, _: Option<&Value>) -> Vec<String> {
    let keys = old_keys(at(new, "scheduling.nodeSelector"));
    keys.map(|(_, why)| format!("scheduling.nodeSelector: {why}")).collect()
}

/// Of a ServiceAccount.
pub fn service_account(new: &Value, old: Option<&Value>) -> Vec<String> {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    let has = |account: &Value| annotation(account, ENFORCE).is_some();
    match has(new) && !old.is_some_and(has) {
        true => vec![format!("metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets")],
        false => Vec::new(),
    }
}

/// Of a ResourceSlice.
pub fn resource_slice(new: &Value, _: Option<&Value>) -> Vec<String> {
    let driver = text(new, "spec.driver");
    match driver.chars().any(char::is_uppercase) {
        true => vec![format!(
            "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
        )],
        false => Vec::new(),
    }
}

/// Of policies, their bindings, and webhooks: a name that configuration by files will have for itself.
pub fn reserved_name(new: &Value, _: Option<&Value>) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    match text(new, "metadata.name").ends_with(SUFFIX) {
        true => vec![format!("metadata.name: names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API")],
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
    let mut found = Found::default();
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
            found.add(format!(
                "ResourceQuota {name} ({request}) should be less than limits.{resource} ({limit})"
            ));
        }
    }
    found.0
}
