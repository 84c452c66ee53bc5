//! Defaults of pods and of everything that holds a pod template.

use plinth_codec::{Map, Value};

use super::Literal::{Empty, Flag, Number, OptionalText, Text};
use super::Rule::{Amounts, By, Counted, Each, Field, In, Made};
use super::{at, fill_from, Rule};

/// `rw-r--r--`, as decimal number.
const FILE_MODE: i64 = 0o644;
/// An hour, in seconds.
const TOKEN_LIFETIME: i64 = 3600;

/// Defaults of a Pod: those of its spec, and some that a template does not get.
pub const POD: &[Rule] = &[
    Made("spec", SPEC),
    Made("spec", &[Field("enableServiceLinks", Flag(true)), By(pod_only)]),
    In("status", &[By(|status| super::agree(status, "podIP", "podIPs", Some("ip")))]),
];

/// Defaults of a pod template.
pub const TEMPLATE: &[Rule] = &[Made("metadata", &[]), Made("spec", SPEC)];

/// Defaults of a pod's spec, wherever it is.
pub const SPEC: &[Rule] = &[
    Field("dnsPolicy", Text("ClusterFirst")),
    Field("restartPolicy", Text("Always")),
    Field("securityContext", Empty),
    Field("terminationGracePeriodSeconds", Number(30)),
    Field("schedulerName", Text("default-scheduler")),
    By(service_account_alias),
    Each("volumes", VOLUME),
    Each("initContainers", CONTAINER),
    Each("containers", CONTAINER),
    Each("ephemeralContainers", CONTAINER),
    Amounts("overhead"),
];

const CONTAINER: &[Rule] = &[
    Field("resources", Empty),
    Amounts("resources.limits"),
    Amounts("resources.requests"),
    Field("terminationMessagePath", Text("/dev/termination-log")),
    Field("terminationMessagePolicy", Text("File")),
    By(image_pull_policy),
    Each("ports", &[Field("protocol", Text("TCP"))]),
    Each(
        "env",
        &[In("valueFrom.fieldRef", FIELD_REF), In("valueFrom.fileKeyRef", &[Field("optional", Flag(false))])],
    ),
    In("livenessProbe", PROBE),
    In("readinessProbe", PROBE),
    In("startupProbe", PROBE),
    In("lifecycle.postStart.httpGet", HTTP_GET),
    In("lifecycle.preStop.httpGet", HTTP_GET),
];

const FIELD_REF: &[Rule] = &[Field("apiVersion", Text("v1"))];

const HTTP_GET: &[Rule] = &[Field("path", Text("/")), Field("scheme", Text("HTTP"))];

const PROBE: &[Rule] = &[
    Counted("timeoutSeconds", 1),
    Counted("periodSeconds", 10),
    Counted("successThreshold", 1),
    Counted("failureThreshold", 3),
    In("httpGet", HTTP_GET),
    In("grpc", &[Field("service", OptionalText(""))]),
];

const VOLUME: &[Rule] = &[
    By(empty_dir),
    In("secret", &[Field("defaultMode", Number(FILE_MODE))]),
    In("configMap", &[Field("defaultMode", Number(FILE_MODE))]),
    In(
        "downwardAPI",
        &[Field("defaultMode", Number(FILE_MODE)), Each("items", &[In("fieldRef", FIELD_REF)])],
    ),
    In("projected", &[Field("defaultMode", Number(FILE_MODE)), Each("sources", PROJECTION)]),
    In("ephemeral.volumeClaimTemplate", &[Made("metadata", &[]), In("spec", CLAIM_SPEC)]),
    In("image", &[By(image_volume_pull_policy)]),
    In("hostPath", HOST_PATH),
    In("iscsi", ISCSI),
    In("rbd", RBD),
    In("azureDisk", AZURE_DISK),
    In("scaleIO", SCALE_IO),
];

const PROJECTION: &[Rule] = &[
    In("downwardAPI", &[Each("items", &[In("fieldRef", FIELD_REF)])]),
    In("serviceAccountToken", &[Field("expirationSeconds", Number(TOKEN_LIFETIME))]),
];

/// Defaults of a claim's spec.
pub const CLAIM_SPEC: &[Rule] = &[Field("volumeMode", Text("Filesystem"))];

/// Defaults that volumes of pods and PersistentVolumes share.
pub const HOST_PATH: &[Rule] = &[Field("type", OptionalText(""))];
/// See [`HOST_PATH`].
pub const ISCSI: &[Rule] = &[Field("iscsiInterface", Text("default"))];
/// See [`HOST_PATH`].
pub const RBD: &[Rule] =
    &[Field("pool", Text("rbd")), Field("user", Text("admin")), Field("keyring", Text("/etc/ceph/keyring"))];
/// See [`HOST_PATH`].
pub const AZURE_DISK: &[Rule] = &[
    Field("cachingMode", Text("ReadWrite")),
    Field("fsType", OptionalText("ext4")),
    Field("readOnly", Flag(false)),
    Field("kind", Text("Shared")),
];
/// See [`HOST_PATH`].
pub const SCALE_IO: &[Rule] = &[Field("storageMode", Text("ThinProvisioned")), Field("fsType", Text("xfs"))];

/// A volume without a source is an empty directory.
fn empty_dir(volume: &mut Map) {
    if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
        volume.insert("emptyDir", Value::object());
    }
}

/// `Always` for the tag `latest`, said or meant.
fn image_pull_policy(container: &mut Map) {
    set_pull_policy(container, "imagePullPolicy", "image");
}

fn image_volume_pull_policy(image: &mut Map) {
    set_pull_policy(image, "pullPolicy", "reference");
}

fn set_pull_policy(object: &mut Map, policy: &str, image: &str) {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    if text(policy).is_empty() {
        let value = if is_latest(text(image)) { "Always" } else { "IfNotPresent" };
        object.insert(policy, value);
    }
}

/// Whether an image reference means the tag `latest`; one that cannot be read does not (`github.com/distribution/reference`).
fn is_latest(image: &str) -> bool {
    const LONGEST_TAG: usize = 128;
    let (name, has_digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    // The first part may be a host, which may have capitals; the rest may not.
    let path = match repository.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => repository,
    };
    let is_tag_start = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_tag = |tag: &str| {
        tag.len() <= LONGEST_TAG
            && tag.starts_with(is_tag_start)
            && tag.chars().all(|c| is_tag_start(c) || c == '.' || c == '-')
    };
    if !path.split('/').all(is_path_component) || !tag.is_none_or(is_tag) {
        return false;
    }
    tag.map_or(!has_digest, |tag| tag == "latest")
}

/// Small letters and digits, with one point, one or two underscores or any number of dashes between them.
fn is_path_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |between: &str| {
        matches!(between, "." | "_" | "__") || (!between.is_empty() && between.bytes().all(|b| b == b'-'))
    };
    text.starts_with(is_word)
        && text.ends_with(is_word)
        && text.split(is_word).all(|between| between.is_empty() || is_separator(between))
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are shown.
fn service_account_alias(spec: &mut Map) {
    let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = match text("serviceAccountName") {
        name if name.is_empty() => text("serviceAccount"),
        name => name,
    };
    if !name.is_empty() {
        spec.insert("serviceAccountName", name.as_str());
        spec.insert("serviceAccount", name);
    }
}

/// Requests default to limits; on the host's network a port is the host's port; a negative grace period is one second.
fn pod_only(spec: &mut Map) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_int).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds", 1);
    }
    let on_host = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for part in ["containers", "initContainers"] {
        let list = spec.get_mut(part).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            requests_from_limits(container);
            if on_host {
                let ports = container.get_mut("ports").and_then(Value::as_array_mut);
                ports.into_iter().flatten().filter_map(Value::as_object_mut).for_each(host_port);
            }
        }
    }
}

fn requests_from_limits(container: &mut Map) {
    let limits = at(container, "resources.limits").and_then(Value::as_object).cloned();
    if let Some(limits) = limits.filter(|limits| !limits.is_empty()) {
        fill_from(container, "resources.requests", &limits);
    }
}

fn host_port(port: &mut Map) {
    if port.get("hostPort").is_none_or(|v| matches!(v, Value::Null | Value::Int(0))) {
        if let Some(number) = port.get("containerPort").cloned() {
            port.insert("hostPort", number);
        }
    }
}
