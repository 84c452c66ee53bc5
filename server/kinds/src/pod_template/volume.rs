//! Validation of the volumes of a pod.

use std::collections::{HashMap, HashSet};

use plinth_codec::{names, Value};

use crate::certificates::pod_certificate_request::{
    MAX_EXPIRATION, MAX_KUBERNETES_EXPIRATION, MIN_EXPIRATION,
};
use crate::certificates::signer_name::{is_kubernetes_signer, signer_name};
use crate::checks::qualified_names::{csi_driver_name, user_annotations};
use crate::checks::Check::{
    self, Always, AtMostOne, By, Each, Enum, In, Is, MustBe, Range, Required, RequiredText, Set, Within,
};
use crate::checks::{Part, PartError};
use crate::path::{at, text};
use crate::pod_template::env;
use crate::pod_template::file_paths::{file_path, local_path, no_backsteps};
use crate::volume_claim;

/// Valid pull policies of images, of containers and of volumes.
pub(crate) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// A volume source: its field, the field that upstream reports for errors in it, and its checks.
pub(crate) struct Source(pub(crate) &'static str, pub(crate) &'static str, pub(crate) &'static [Check]);

/// Volume sources of pods, in the order of upstream's validation.
const SOURCES: &[Source] = &[
    Source("emptyDir", "emptyDir", &[]),
    Source("hostPath", "hostPath", HOST_PATH_CHECKS),
    Source("gitRepo", "gitRepo", &[Required("repository", ""), Is("directory", local_path)]),
    Source("gcePersistentDisk", "persistentDisk", &[Required("pdName", ""), PARTITION]),
    Source("awsElasticBlockStore", "awsElasticBlockStore", &[Required("volumeID", ""), PARTITION]),
    Source("secret", "secret", &[Required("secretName", ""), MODE, Each("items", KEY_TO_PATH)]),
    Source("nfs", "nfs", NFS_CHECKS),
    Source("iscsi", "iscsi", &[Required("targetPortal", ""), By(iscsi), Range("lun", 0, 255)]),
    Source("glusterfs", "glusterfs", &[Required("endpoints", ""), Required("path", "")]),
    Source("flocker", "flocker", &[By(flocker)]),
    Source("persistentVolumeClaim", "persistentVolumeClaim", &[Required("claimName", "")]),
    Source("rbd", "rbd", &[Required("monitors", ""), Required("image", "")]),
    Source("cinder", "cinder", &[Required("volumeID", ""), SECRET_NAME]),
    Source("cephfs", "cephfs", &[Required("monitors", "")]),
    Source("quobyte", "quobyte", &[By(quobyte), Required("volume", "")]),
    Source("downwardAPI", "downwardAPI", &[MODE, By(downward)]),
    Source("fc", "fc", &[By(fibre_channel)]),
    Source("flexVolume", "flexVolume", &[Required("driver", ""), By(flex_options)]),
    Source("configMap", "configMap", &[Required("name", ""), MODE, Each("items", KEY_TO_PATH)]),
    Source("azureFile", "azureFile", &[Required("secretName", ""), Required("shareName", "")]),
    Source("vsphereVolume", "vsphereVolume", &[Required("volumePath", "")]),
    Source("photonPersistentDisk", "photonPersistentDisk", &[Required("pdID", "")]),
    Source("portworxVolume", "portworxVolume", &[Required("volumeID", "")]),
    Source("azureDisk", "azureDisk", AZURE_DISK_CHECKS),
    Source("storageos", "storageos", STORAGE_OS_CHECKS),
    Source("projected", "projected", &[MODE, By(projections)]),
    Source("scaleIO", "scaleIO", SCALE_IO_CHECKS),
    Source("csi", "csi", &[Is("driver", csi_driver_name), By(csi_secret)]),
    Source("ephemeral", "ephemeral", &[By(ephemeral)]),
    Source("image", "image", &[Required("reference", ""), MustBe("pullPolicy", PULL_POLICIES)]),
];

const PARTITION: Check = Within("partition", 0, 255, "must be between 1 and 255, inclusive");

const MODE: Check = mode("defaultMode");

const fn mode(key: &'static str) -> Check {
    Within(key, 0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
}

const SECRET_NAME: Check = In("secretRef", &[Required("name", "")]);

/// Checks of `hostPath`.
pub(crate) const HOST_PATH_CHECKS: &[Check] = &[
    Required("path", ""),
    Is("path", no_backsteps),
    Enum(
        "type",
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    ),
];

/// Checks of `nfs`.
pub(crate) const NFS_CHECKS: &[Check] = &[
    Required("server", ""),
    Required("path", ""),
    By(|source| {
        if !source.text("path").starts_with('/') {
            source.invalid("path", source.text("path"), "must be an absolute path");
        }
    }),
];

const KEY_TO_PATH: &[Check] =
    &[Required("key", ""), Required("path", ""), Is("path", file_path), mode("mode")];

/// Checks of `azureDisk`.
pub(crate) const AZURE_DISK_CHECKS: &[Check] = &[
    Required("diskName", ""),
    Required("diskURI", ""),
    Enum("cachingMode", &["None", "ReadOnly", "ReadWrite"]),
    Enum("kind", &["Dedicated", "Managed", "Shared"]),
    By(azure_uri),
];

const STORAGE_OS_CHECKS: &[Check] = &[
    RequiredText("volumeName", names::dns1123_label_errors),
    Check::Text("volumeNamespace", names::dns1123_label_errors),
    SECRET_NAME,
];

/// Checks of `scaleIO`.
pub(crate) const SCALE_IO_CHECKS: &[Check] =
    &[Required("gateway", ""), Required("system", ""), Required("volumeName", "")];

/// Validates the volumes of a pod and returns the valid ones by name. `pod` is the pod's name, empty if it
/// has none yet.
pub(crate) fn volumes<'a>(spec: &Part<'a>, pod: &str) -> HashMap<&'a str, &'a Value> {
    let of_ephemeral: HashSet<String> = spec
        .list("volumes")
        .iter()
        .filter(|v| !pod.is_empty() && at(v, "ephemeral").is_some())
        .map(|v| format!("{pod}-{}", text(v, "name")))
        .collect();
    let mut good: HashMap<&str, &Value> = HashMap::new();
    for (volume, value) in spec.each("volumes").zip(spec.list("volumes")) {
        let (name, before) = (text(value, "name"), volume.errors());
        sources(&volume);
        if !pod.is_empty() && !name.is_empty() && volume.has("ephemeral.volumeClaimTemplate") {
            let claim = format!("{pod}-{name}");
            for why in names::dns1123_subdomain_errors(&claim) {
                volume.invalid("name", name, &format!("PVC name \"{claim}\": {why}"));
            }
        }
        volume.check(&[RequiredText("name", names::dns1123_label_errors)]);
        if good.contains_key(name) {
            volume.duplicate("name", name);
        }
        if volume.errors() == before {
            good.insert(name, value);
        }
        let claim = volume.text("persistentVolumeClaim.claimName");
        if of_ephemeral.contains(claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            volume.invalid("persistentVolumeClaim.claimName", claim, why);
        }
    }
    good
}

fn sources(volume: &Part<'_>) {
    let first = first_source(volume, SOURCES);
    forbid_more_sources(volume, SOURCES);
    if volume.text("emptyDir.sizeLimit").starts_with('-') {
        volume.forbidden("emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity");
    }
    if first.is_none() {
        volume.required("", "must specify a volume type");
    }
}

/// Validates the first source of a volume and returns its field.
pub(crate) fn first_source(volume: &Part<'_>, sources: &[Source]) -> Option<&'static str> {
    let Source(key, shown, checks) = sources.iter().find(|source| volume.has(source.0))?;
    volume.field_as(key, shown).check(checks);
    Some(key)
}

/// Reports all sources of a volume but the first one.
pub(crate) fn forbid_more_sources(volume: &Part<'_>, sources: &[Source]) {
    for Source(key, ..) in sources.iter().filter(|source| volume.has(source.0)).skip(1) {
        // Upstream reports two of them by other names.
        let shown = match *key {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            key => key,
        };
        volume.forbidden(shown, "may not specify more than 1 volume type");
    }
}

/// Errors of an iSCSI qualified name in one of its three forms.
pub(crate) fn iscsi_name_errors(name: &str) -> Vec<String> {
    let matches = |pattern: &str| plinth_codec::regexp::is_match(pattern, name);
    let (known, good) = match name.get(..3) {
        Some("iqn") => (true, matches(r"iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$")),
        Some("eui") => (true, matches(r"^eui.[[:alnum:]]{16}$")),
        Some("naa") => (true, matches(r"^naa.[[:alnum:]]{32}$")),
        _ => (false, false),
    };
    match (known, good) {
        (true, true) => Vec::new(),
        (true, false) => vec!["must be valid format".into()],
        (false, _) => vec!["must be valid format starting with iqn, eui, or naa".into()],
    }
}

fn iscsi(source: &Part<'_>) {
    source.check(&[RequiredText("iqn", iscsi_name_errors)]);
    if ["chapAuthDiscovery", "chapAuthSession"].iter().any(|key| source.is_true(key)) {
        source.check(&[Set("secretRef", "")]);
    }
    let initiator = source.text("initiatorName");
    if !initiator.is_empty() {
        source.check_text("initiatorname", initiator, iscsi_name_errors);
    }
}

fn flocker(source: &Part<'_>) {
    let (name, uuid) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        source.required("", "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        source.invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        source.invalid("datasetName", name, "must not contain '/'");
    }
}

fn quobyte(source: &Part<'_>) {
    const WHY: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.text("registry");
    if registry.is_empty() {
        source.required("registry", WHY);
    } else if source.text("tenant").len() >= 65 {
        source.required("tenant", "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !pair.contains(':')) {
            source.invalid("registry", registry, WHY);
        }
    }
}

fn downward(source: &Part<'_>) {
    for file in source.list("items") {
        // Upstream reports the path of the volume source instead of the item.
        source.with_value(file, "", downward_file);
    }
}

fn downward_file(file: &Part<'_>) {
    const FIELDS: &[&str] =
        &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    file.check(&[Required("path", ""), Is("path", file_path)]);
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(of_field), other) => {
            env::field_ref(&of_field, FIELDS);
            if other.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                file.invalid("", "resource", why);
            }
        }
        (None, Some(of_resource)) => env::resource_ref(&of_resource, true),
        (None, None) => file.required("", "one of fieldRef and resourceFieldRef is required"),
    }
    file.check(&[mode("mode")]);
}

fn fibre_channel(source: &Part<'_>) {
    match (source.is_empty("targetWWNs"), source.is_empty("wwids")) {
        (true, true) => {
            source.required("targetWWNs", "must specify either targetWWNs or wwids, but not both");
        }
        (false, false) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            source.invalid("targetWWNs", source.shown("targetWWNs"), why);
        }
        _ => {}
    }
    if !source.is_empty("targetWWNs") {
        source.check(&[Set("lun", "lun is required if targetWWNs is specified"), Range("lun", 0, 255)]);
    }
}

fn flex_options(source: &Part<'_>) {
    for (key, option) in source.entries("options") {
        let namespace = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            option.invalid("", key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_uri(source: &Part<'_>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let Some(kind) = source.set_text("kind") else { return };
    let (start, form) = match kind {
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    let uri = source.text("diskURI");
    if !uri.starts_with(start) {
        source.not_supported("diskURI", uri, &[form]);
    }
}

/// Validates the sources of a projected volume.
fn projections(projected: &Part<'_>) {
    let mut paths = HashSet::new();
    // Reports paths that more than one source writes.
    let mut once = |path: &str, shown: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            projected.invalid("", shown, "conflicting duplicate paths");
        }
    };
    for source in projected.each("sources") {
        for named in ["secret", "configMap"].into_iter().filter_map(|part| source.get(part)) {
            named.check(&[Required("name", ""), Each("items", KEY_TO_PATH)]);
            named.list("items").iter().for_each(|item| once(text(item, "path"), named.text("name")));
        }
        for file in source.list("downwardAPI.items") {
            source.with_value(file, "downwardAPI", downward_file);
            once(text(file, "path"), text(file, "path"));
        }
        if let Some(token) = source.get("serviceAccountToken") {
            account_token(&token, projected);
        }
        if let Some(certificate) = source.get("podCertificate") {
            pod_certificate(&certificate, &mut once);
        }
        source.check(&[AtMostOne(
            &["secret", "configMap", "downwardAPI", "serviceAccountToken", "podCertificate"],
            PartError::Forbidden("may not specify more than 1 volume type per source"),
        )]);
    }
}

fn account_token(token: &Part<'_>, volume: &Part<'_>) {
    token_duration(token, token.number("expirationSeconds"));
    // Upstream reports the path of the volume instead of the source.
    match token.text("path") {
        "" => volume.required("path", ""),
        given => volume.apply_to("path", given, file_path),
    }
}

/// Validates a certificate that the kubelet requests; its paths are those of the volume, too.
fn pod_certificate(certificate: &Part<'_>, once: &mut impl FnMut(&str, &str)) {
    const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    const PATHS: &[&str] = &["credentialBundlePath", "keyPath", "certificateChainPath"];
    const EXPIRATION: &str = "maxExpirationSeconds";
    let signer = certificate.text("signerName");
    signer_name(&certificate.field("signerName"));
    user_annotations(certificate, "userAnnotations");
    certificate.one_of("keyType", KEY_TYPES);
    certificate.in_range(EXPIRATION, MIN_EXPIRATION, i64::MAX, || {
        format!("if provided, maxExpirationSeconds must be >= {MIN_EXPIRATION}").into()
    });
    let most = if is_kubernetes_signer(signer) { MAX_KUBERNETES_EXPIRATION } else { MAX_EXPIRATION };
    certificate.in_range(EXPIRATION, i64::MIN, most, || {
        format!("if provided, maxExpirationSeconds must be <= {most}").into()
    });
    for key in PATHS {
        let path = certificate.text(key);
        if !path.is_empty() {
            certificate.apply(key, file_path);
            once(path, path);
        }
    }
    if PATHS.iter().all(|key| certificate.text(key).is_empty()) {
        certificate
            .required("", "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}

/// Validates `expirationSeconds` of a token.
pub(crate) fn token_duration(request: &Part<'_>, seconds: i64) {
    let why = match seconds {
        ..600 => "may not specify a duration less than 10 minutes",
        600..=0x1_0000_0000 => return,
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    request.invalid("expirationSeconds", seconds, why);
}

fn csi_secret(source: &Part<'_>) {
    let Some(secret) = source.get("nodePublishSecretRef") else { return };
    match secret.text("name") {
        "" => secret.required("name", ""),
        // Upstream omits the reference in the path.
        name => source.check_text("name", name, names::dns1123_subdomain_errors),
    }
}

fn ephemeral(source: &Part<'_>) {
    match source.get("volumeClaimTemplate") {
        None => source.required("volumeClaimTemplate", ""),
        Some(template) => template.check(&[Always("spec", volume_claim::SPEC_CHECKS)]),
    }
}
