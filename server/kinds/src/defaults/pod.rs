//! Defaults of pods and of everything that holds a pod template.

use plinth_codec::{Map, Value};

use super::DefaultRule::{Computed, Ensure, Field, ForEach, IfPresent, NonZero, RoundQuantities};
use super::Literal::{Bool, EmptyObject, Int, OptionalStr, Str};
use super::{at, fill_from, DefaultRule};

/// `rw-r--r--`, as decimal number.
const FILE_MODE: i64 = 0o644;
/// An hour, in seconds.
const TOKEN_LIFETIME: i64 = 3600;

/// Defaults of a Pod: those of its spec, and some that a template does not get.
pub const POD: &[DefaultRule] = &[
    Ensure("spec", SPEC),
    Ensure("spec", &[Field("enableServiceLinks", Bool(true)), Computed(pod_only)]),
    IfPresent("status", &[Computed(|status| super::agree(status, "podIP", "podIPs", Some("ip")))]),
];

/// Defaults of a pod template.
pub const TEMPLATE: &[DefaultRule] = &[Ensure("metadata", &[]), Ensure("spec", SPEC)];

/// Defaults of a pod's spec, wherever it is.
pub const SPEC: &[DefaultRule] = &[
    Field("dnsPolicy", Str("ClusterFirst")),
    Field("restartPolicy", Str("Always")),
    Field("securityContext", EmptyObject),
    Field("terminationGracePeriodSeconds", Int(30)),
    Field("schedulerName", Str("default-scheduler")),
    Computed(service_account_alias),
    ForEach("volumes", VOLUME),
    ForEach("initContainers", CONTAINER),
    ForEach("containers", CONTAINER),
    ForEach("ephemeralContainers", CONTAINER),
    RoundQuantities("overhead"),
];

const CONTAINER: &[DefaultRule] = &[
    Field("resources", EmptyObject),
    RoundQuantities("resources.limits"),
    RoundQuantities("resources.requests"),
    Field("terminationMessagePath", Str("/dev/termination-log")),
    Field("terminationMessagePolicy", Str("File")),
    Computed(image_pull_policy),
    ForEach("ports", &[Field("protocol", Str("TCP"))]),
    ForEach(
        "env",
        &[
            IfPresent("valueFrom.fieldRef", FIELD_REF),
            IfPresent("valueFrom.fileKeyRef", &[Field("optional", Bool(false))]),
        ],
    ),
    IfPresent("livenessProbe", PROBE),
    IfPresent("readinessProbe", PROBE),
    IfPresent("startupProbe", PROBE),
    IfPresent("lifecycle.postStart.httpGet", HTTP_GET),
    IfPresent("lifecycle.preStop.httpGet", HTTP_GET),
];

const FIELD_REF: &[DefaultRule] = &[Field("apiVersion", Str("v1"))];

const HTTP_GET: &[DefaultRule] = &[Field("path", Str("/")), Field("scheme", Str("HTTP"))];

const PROBE: &[DefaultRule] = &[
    NonZero("timeoutSeconds", 1),
    NonZero("periodSeconds", 10),
    NonZero("successThreshold", 1),
    NonZero("failureThreshold", 3),
    IfPresent("httpGet", HTTP_GET),
    IfPresent("grpc", &[Field("service", OptionalStr(""))]),
];

const VOLUME: &[DefaultRule] = &[
    Computed(empty_dir),
    IfPresent("secret", &[Field("defaultMode", Int(FILE_MODE))]),
    IfPresent("configMap", &[Field("defaultMode", Int(FILE_MODE))]),
    IfPresent(
        "downwardAPI",
        &[Field("defaultMode", Int(FILE_MODE)), ForEach("items", &[IfPresent("fieldRef", FIELD_REF)])],
    ),
    IfPresent("projected", &[Field("defaultMode", Int(FILE_MODE)), ForEach("sources", PROJECTION)]),
    IfPresent("ephemeral.volumeClaimTemplate", &[Ensure("metadata", &[]), IfPresent("spec", CLAIM_SPEC)]),
    IfPresent("image", &[Computed(image_volume_pull_policy)]),
    IfPresent("hostPath", HOST_PATH),
    IfPresent("iscsi", ISCSI),
    IfPresent("rbd", RBD),
    IfPresent("azureDisk", AZURE_DISK),
    IfPresent("scaleIO", SCALE_IO),
];

const PROJECTION: &[DefaultRule] = &[
    IfPresent("downwardAPI", &[ForEach("items", &[IfPresent("fieldRef", FIELD_REF)])]),
    IfPresent("serviceAccountToken", &[Field("expirationSeconds", Int(TOKEN_LIFETIME))]),
];

/// Defaults of a claim's spec.
pub const CLAIM_SPEC: &[DefaultRule] = &[Field("volumeMode", Str("Filesystem"))];

/// Defaults that volumes of pods and PersistentVolumes share.
pub const HOST_PATH: &[DefaultRule] = &[Field("type", OptionalStr(""))];
/// See [`HOST_PATH`].
pub const ISCSI: &[DefaultRule] = &[Field("iscsiInterface", Str("default"))];
/// See [`HOST_PATH`].
pub const RBD: &[DefaultRule] =
    &[Field("pool", Str("rbd")), Field("user", Str("admin")), Field("keyring", Str("/etc/ceph/keyring"))];
/// See [`HOST_PATH`].
pub const AZURE_DISK: &[DefaultRule] = &[
    Field("cachingMode", Str("ReadWrite")),
    Field("fsType", OptionalStr("ext4")),
    Field("readOnly", Bool(false)),
    Field("kind", Str("Shared")),
];
/// See [`HOST_PATH`].
pub const SCALE_IO: &[DefaultRule] =
    &[Field("storageMode", Str("ThinProvisioned")), Field("fsType", Str("xfs"))];

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
