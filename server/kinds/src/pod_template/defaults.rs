//! Defaults of pod templates and of the specs of pods.

use plinth_codec::{Map, Value};

use crate::defaults::DefaultRule::{
    self, Computed, Ensure, Field, ForEach, IfPresent, NonZero, RoundQuantities,
};
use crate::defaults::Literal::{Bool, EmptyObject, Int, OptionalStr, Str};
use crate::volume_claim::CLAIM_SPEC_DEFAULTS;

/// `rw-r--r--`.
const FILE_MODE: i64 = 0o644;

/// An hour, in seconds.
const TOKEN_LIFETIME: i64 = 3600;

/// Defaults of a pod template.
pub(crate) const TEMPLATE_DEFAULTS: &[DefaultRule] =
    &[Ensure("metadata", &[]), Ensure("spec", SPEC_DEFAULTS)];

/// Defaults of the spec of a pod or template.
pub(crate) const SPEC_DEFAULTS: &[DefaultRule] = &[
    Field("dnsPolicy", Str("ClusterFirst")),
    Field("restartPolicy", Str("Always")),
    Field("securityContext", EmptyObject),
    Field("terminationGracePeriodSeconds", Int(30)),
    Field("schedulerName", Str("default-scheduler")),
    Computed(service_account_alias),
    ForEach("volumes", VOLUME_DEFAULTS),
    ForEach("initContainers", CONTAINER_DEFAULTS),
    ForEach("containers", CONTAINER_DEFAULTS),
    ForEach("ephemeralContainers", CONTAINER_DEFAULTS),
    RoundQuantities("overhead"),
];

const CONTAINER_DEFAULTS: &[DefaultRule] = &[
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
            IfPresent("valueFrom.fieldRef", FIELD_REF_DEFAULTS),
            IfPresent("valueFrom.fileKeyRef", &[Field("optional", Bool(false))]),
        ],
    ),
    IfPresent("livenessProbe", PROBE_DEFAULTS),
    IfPresent("readinessProbe", PROBE_DEFAULTS),
    IfPresent("startupProbe", PROBE_DEFAULTS),
    IfPresent("lifecycle.postStart.httpGet", HTTP_GET_DEFAULTS),
    IfPresent("lifecycle.preStop.httpGet", HTTP_GET_DEFAULTS),
];

const FIELD_REF_DEFAULTS: &[DefaultRule] = &[Field("apiVersion", Str("v1"))];

const HTTP_GET_DEFAULTS: &[DefaultRule] = &[Field("path", Str("/")), Field("scheme", Str("HTTP"))];

const PROBE_DEFAULTS: &[DefaultRule] = &[
    NonZero("timeoutSeconds", 1),
    NonZero("periodSeconds", 10),
    NonZero("successThreshold", 1),
    NonZero("failureThreshold", 3),
    IfPresent("httpGet", HTTP_GET_DEFAULTS),
    IfPresent("grpc", &[Field("service", OptionalStr(""))]),
];

const VOLUME_DEFAULTS: &[DefaultRule] = &[
    Computed(empty_dir),
    IfPresent("secret", &[Field("defaultMode", Int(FILE_MODE))]),
    IfPresent("configMap", &[Field("defaultMode", Int(FILE_MODE))]),
    IfPresent(
        "downwardAPI",
        &[
            Field("defaultMode", Int(FILE_MODE)),
            ForEach("items", &[IfPresent("fieldRef", FIELD_REF_DEFAULTS)]),
        ],
    ),
    IfPresent("projected", &[Field("defaultMode", Int(FILE_MODE)), ForEach("sources", PROJECTION_DEFAULTS)]),
    IfPresent(
        "ephemeral.volumeClaimTemplate",
        &[Ensure("metadata", &[]), IfPresent("spec", CLAIM_SPEC_DEFAULTS)],
    ),
    IfPresent("image", &[Computed(image_volume_pull_policy)]),
    IfPresent("hostPath", HOST_PATH_DEFAULTS),
    IfPresent("iscsi", ISCSI_DEFAULTS),
    IfPresent("rbd", RBD_DEFAULTS),
    IfPresent("azureDisk", AZURE_DISK_DEFAULTS),
    IfPresent("scaleIO", SCALE_IO_DEFAULTS),
];

const PROJECTION_DEFAULTS: &[DefaultRule] = &[
    IfPresent("downwardAPI", &[ForEach("items", &[IfPresent("fieldRef", FIELD_REF_DEFAULTS)])]),
    IfPresent("serviceAccountToken", &[Field("expirationSeconds", Int(TOKEN_LIFETIME))]),
];

/// Defaults that volumes of pods and PersistentVolumes share.
pub(crate) const HOST_PATH_DEFAULTS: &[DefaultRule] = &[Field("type", OptionalStr(""))];

/// See [`HOST_PATH_DEFAULTS`].
pub(crate) const ISCSI_DEFAULTS: &[DefaultRule] = &[Field("iscsiInterface", Str("default"))];

/// See [`HOST_PATH_DEFAULTS`].
pub(crate) const RBD_DEFAULTS: &[DefaultRule] =
    &[Field("pool", Str("rbd")), Field("user", Str("admin")), Field("keyring", Str("/etc/ceph/keyring"))];

/// See [`HOST_PATH_DEFAULTS`].
pub(crate) const AZURE_DISK_DEFAULTS: &[DefaultRule] = &[
    Field("cachingMode", Str("ReadWrite")),
    Field("fsType", OptionalStr("ext4")),
    Field("readOnly", Bool(false)),
    Field("kind", Str("Shared")),
];

/// See [`HOST_PATH_DEFAULTS`].
pub(crate) const SCALE_IO_DEFAULTS: &[DefaultRule] =
    &[Field("storageMode", Str("ThinProvisioned")), Field("fsType", Str("xfs"))];

/// A volume without a source gets an `emptyDir`.
fn empty_dir(volume: &mut Map) {
    if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
        volume.insert("emptyDir", Value::object());
    }
}

/// `Always` for the tag `latest`, explicit or implied.
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

/// Whether the tag of an image reference is `latest`; false for malformed ones
/// (`github.com/distribution/reference`).
fn is_latest(image: &str) -> bool {
    const MAX_TAG_LENGTH: usize = 128;
    let (name, has_digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    // The first component may be a host, which may have upper case letters.
    let path = match repository.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => repository,
    };
    let is_tag_start = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_tag = |tag: &str| {
        tag.len() <= MAX_TAG_LENGTH
            && tag.starts_with(is_tag_start)
            && tag.chars().all(|c| is_tag_start(c) || c == '.' || c == '-')
    };
    if !path.split('/').all(is_path_component) || !tag.is_none_or(is_tag) {
        return false;
    }
    tag.map_or(!has_digest, |tag| tag == "latest")
}

/// Lower case letters and digits, separated by one period, one or two underscores, or any number of dashes.
fn is_path_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |between: &str| {
        matches!(between, "." | "_" | "__") || (!between.is_empty() && between.bytes().all(|b| b == b'-'))
    };
    text.starts_with(is_word)
        && text.ends_with(is_word)
        && text.split(is_word).all(|between| between.is_empty() || is_separator(between))
}

/// `serviceAccount` is the deprecated alias of `serviceAccountName`; both are set.
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
