//! Validation of the volumes of a pod.

use std::collections::{HashMap, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::{names, Value};

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By, Each, Enum, MustBe, Range, Required, RequiredText};
use crate::checks::{check_text, validate};
use crate::path::{at, int, list, text};
use crate::pod_template::container::PULL_POLICIES;
use crate::pod_template::env;
use crate::volume_claim;

/// Reports a second member of a union; `path` ends in a dot.
pub(crate) fn forbid_more(path: FieldPath<'_>, key: &str, why: &str, errors: &mut Vec<Cause>) {
    // Upstream reports two of the volume sources by other names.
    let shown = match key {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        key => key,
    };
    errors.push(field::forbidden(format_args!("{path}{shown}"), why));
}

/// Message for a path that leads out of its volume.
const BACKSTEPS: &str = "must not contain '..'";

const MORE: &str = "may not specify more than 1 volume type";

/// A volume source: its field, the field that upstream reports for errors in it, and its checks.
struct Source(&'static str, &'static str, &'static [Check]);

/// Volume sources of pods, in the order of upstream's validation.
const SOURCES: &[Source] = &[
    Source("emptyDir", "emptyDir", &[]),
    Source("hostPath", "hostPath", HOST_PATH_CHECKS),
    Source(
        "gitRepo",
        "gitRepo",
        &[Required("repository", ""), By(|v, p, f| descending(v, p, "directory", f))],
    ),
    Source("gcePersistentDisk", "persistentDisk", &[Required("pdName", ""), PARTITION]),
    Source("awsElasticBlockStore", "awsElasticBlockStore", &[Required("volumeID", ""), PARTITION]),
    Source("secret", "secret", &[Required("secretName", ""), MODE, Each("items", KEY_TO_PATH)]),
    Source("nfs", "nfs", NFS_CHECKS),
    Source("iscsi", "iscsi", &[Required("targetPortal", ""), By(iscsi), Range("lun", 0, 255)]),
    Source("glusterfs", "glusterfs", &[Required("endpoints", ""), Required("path", "")]),
    Source("flocker", "flocker", &[By(flocker)]),
    Source("persistentVolumeClaim", "persistentVolumeClaim", &[Required("claimName", "")]),
    Source("rbd", "rbd", &[Required("monitors", ""), Required("image", "")]),
    Source("cinder", "cinder", &[Required("volumeID", ""), By(secret_name)]),
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
    Source("csi", "csi", &[By(csi_driver), By(csi_secret)]),
    Source("ephemeral", "ephemeral", &[By(ephemeral)]),
    Source("image", "image", &[Required("reference", ""), MustBe("pullPolicy", PULL_POLICIES)]),
];

const PARTITION: Check = By(|source, path, errors| {
    if let Some(number) = int(source, "partition").filter(|n| !(0..=255).contains(n)) {
        errors.push(field::invalid(
            format_args!("{path}partition"),
            number,
            "must be between 1 and 255, inclusive",
        ));
    }
});

const MODE: Check = By(|source, path, errors| mode(source, path, "defaultMode", errors));

/// Checks of `hostPath`.
pub(crate) const HOST_PATH_CHECKS: &[Check] = &[
    Required("path", ""),
    By(|v, p, f| no_backsteps(text(v, "path"), format_args!("{p}path"), f)),
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
pub(crate) const NFS_CHECKS: &[Check] = &[Required("server", ""), Required("path", ""), By(absolute)];

const KEY_TO_PATH: &[Check] =
    &[Required("key", ""), Required("path", ""), By(key_path), By(|v, p, f| mode(v, p, "mode", f))];

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
    By(secret_name),
];

/// Checks of `scaleIO`.
pub(crate) const SCALE_IO_CHECKS: &[Check] =
    &[Required("gateway", ""), Required("system", ""), Required("volumeName", "")];

/// Validates the volumes of a pod and returns the valid ones by name. `pod` is the pod's name, empty if it
/// has none yet.
pub(crate) fn volumes<'a>(
    spec: &'a Value,
    pod: &str,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) -> HashMap<&'a str, &'a Value> {
    let all = list(spec, "volumes");
    let made: HashSet<String> = all
        .iter()
        .filter(|v| !pod.is_empty() && at(v, "ephemeral").is_some())
        .map(|v| format!("{pod}-{}", text(v, "name")))
        .collect();
    let mut good: HashMap<&str, &Value> = HashMap::new();
    for (i, volume) in all.iter().enumerate() {
        let here = format_args!("{path}volumes[{i}].");
        let (name, mut found) = (text(volume, "name"), Vec::new());
        sources(volume, here, &mut found);
        if !pod.is_empty() && !name.is_empty() && at(volume, "ephemeral.volumeClaimTemplate").is_some() {
            let claim = format!("{pod}-{name}");
            for why in names::dns1123_subdomain_errors(&claim) {
                let why = format!("PVC name \"{claim}\": {why}");
                found.push(field::invalid(format_args!("{here}name"), name, &why));
            }
        }
        validate(&[RequiredText("name", names::dns1123_label_errors)], volume, here, &mut found);
        if good.contains_key(name) {
            found.push(field::duplicate(format_args!("{here}name"), name));
        }
        if found.is_empty() {
            good.insert(name, volume);
        }
        errors.append(&mut found);
        let claim = text(volume, "persistentVolumeClaim.claimName");
        if made.contains(claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(field::invalid(format_args!("{here}persistentVolumeClaim.claimName"), claim, why));
        }
    }
    good
}

fn sources(volume: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut named = 0;
    for Source(key, shown, checks) in SOURCES {
        let Some(source) = at(volume, key) else { continue };
        named += 1;
        if named > 1 {
            forbid_more(path, key, MORE, errors);
            continue;
        }
        validate(checks, source, format_args!("{path}{shown}."), errors);
    }
    let limit = text(volume, "emptyDir.sizeLimit");
    if limit.starts_with('-') {
        let why = "SizeLimit field must be a valid resource quantity";
        errors.push(field::forbidden(format_args!("{path}emptyDir.sizeLimit"), why));
    }
    if named == 0 {
        errors.push(field::required(ParentPath(path), "must specify a volume type"));
    }
}

fn mode(source: &Value, path: FieldPath<'_>, key: &str, errors: &mut Vec<Cause>) {
    if let Some(mode) = int(source, key).filter(|mode| !(0..=0o777).contains(mode)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(field::invalid(format_args!("{path}{key}"), mode, why));
    }
}

/// Reports a path that contains `..`.
pub(crate) fn no_backsteps(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if given.split('/').any(|part| part == "..") {
        errors.push(field::invalid(path, given, BACKSTEPS));
    }
}

fn descending(source: &Value, path: FieldPath<'_>, key: &str, errors: &mut Vec<Cause>) {
    local_path(text(source, key), format_args!("{path}{key}"), errors);
}

/// Validates a relative path without `..`.
pub(crate) fn local_path(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if given.starts_with('/') {
        errors.push(field::invalid(path, given, "must be a relative path"));
    }
    no_backsteps(given, path, errors);
}

/// As [`local_path`]; names that start with two dots are reserved for the kubelet.
fn file_path(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    local_path(given, path, errors);
    if given.starts_with("..") && !given.starts_with("../") {
        errors.push(field::invalid(path, given, "must not start with '..'"));
    }
}

fn key_path(item: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    file_path(text(item, "path"), format_args!("{path}path"), errors);
}

fn absolute(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let given = text(source, "path");
    if !given.starts_with('/') {
        errors.push(field::invalid(format_args!("{path}path"), given, "must be an absolute path"));
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

fn iscsi(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    validate(&[RequiredText("iqn", iscsi_name_errors)], source, path, errors);
    let authenticates = |key: &str| at(source, key).and_then(Value::as_bool) == Some(true);
    if (authenticates("chapAuthDiscovery") || authenticates("chapAuthSession"))
        && at(source, "secretRef").is_none()
    {
        errors.push(field::required(format_args!("{path}secretRef"), ""));
    }
    let initiator = text(source, "initiatorName");
    if !initiator.is_empty() {
        check_text(format_args!("{path}initiatorname"), initiator, iscsi_name_errors, errors);
    }
}

fn flocker(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (name, uuid, here) = (text(source, "datasetName"), text(source, "datasetUUID"), ParentPath(path));
    if name.is_empty() && uuid.is_empty() {
        errors.push(field::required(here, "one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(field::invalid(here, "resource", why));
    }
    if name.contains('/') {
        errors.push(field::invalid(format_args!("{path}datasetName"), name, "must not contain '/'"));
    }
}

fn secret_name(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if at(source, "secretRef").is_some() && text(source, "secretRef.name").is_empty() {
        errors.push(field::required(format_args!("{path}secretRef.name"), ""));
    }
}

fn quobyte(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const WHY: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.push(field::required(format_args!("{path}registry"), WHY));
    } else if text(source, "tenant").len() >= 65 {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(field::required(format_args!("{path}tenant"), why));
    } else {
        for _ in registry.split(',').filter(|pair| !pair.contains(':')) {
            errors.push(field::invalid(format_args!("{path}registry"), registry, WHY));
        }
    }
}

fn downward(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for file in list(source, "items") {
        // Upstream reports the path of the volume source instead of the item.
        downward_file(file, path, errors);
    }
}

fn downward_file(file: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FIELDS: &[&str] =
        &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    let here = ParentPath(path);
    validate(&[Required("path", ""), By(key_path)], file, path, errors);
    match (at(file, "fieldRef"), at(file, "resourceFieldRef")) {
        (Some(of_field), other) => {
            env::field_ref(of_field, FIELDS, format_args!("{path}fieldRef."), errors);
            if other.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(field::invalid(here, "resource", why));
            }
        }
        (None, Some(of_resource)) => {
            env::resource_ref(of_resource, true, format_args!("{path}resourceFieldRef."), errors);
        }
        (None, None) => {
            errors.push(field::required(here, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    mode(file, path, "mode", errors);
}

fn fibre_channel(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (names, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let here = format_args!("{path}targetWWNs");
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            errors.push(field::required(here, "must specify either targetWWNs or wwids, but not both"));
        }
        (false, false) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(field::invalid(here, names.to_vec(), why));
        }
        _ => {}
    }
    if names.is_empty() {
        return;
    }
    match int(source, "lun") {
        None => {
            errors.push(field::required(
                format_args!("{path}lun"),
                "lun is required if targetWWNs is specified",
            ));
        }
        Some(_) => validate(&[Range("lun", 0, 255)], source, path, errors),
    }
}

fn flex_options(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (key, _) in
        at(source, "options").and_then(Value::as_object).into_iter().flat_map(plinth_codec::Map::iter)
    {
        let namespace = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(field::invalid(format_args!("{path}options[{key}]"), key.clone(), why));
        }
    }
}

fn azure_uri(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let Some(kind) = at(source, "kind").and_then(Value::as_str) else { return };
    let (start, form) = match kind {
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    let uri = text(source, "diskURI");
    if !uri.starts_with(start) {
        errors.push(field::not_supported(format_args!("{path}diskURI"), uri, &[form]));
    }
}

/// Validates the sources of a projected volume. Upstream drops sources whose feature gates are off
/// (`clusterTrustBundle`, `podCertificate`).
fn projections(projected: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (mut paths, here) = (HashSet::new(), ParentPath(path));
    for (i, source) in list(projected, "sources").iter().enumerate() {
        let at_source = format_args!("{path}sources[{i}]");
        let mut count = 0;
        for part in ["secret", "configMap"] {
            let Some(named) = at(source, part) else { continue };
            count += 1;
            let path = format_args!("{at_source}.{part}.");
            validate(&[Required("name", ""), Each("items", KEY_TO_PATH)], named, path, errors);
            for item in list(named, "items") {
                once(&mut paths, text(item, "path"), text(named, "name"), format_args!("{here}"), errors);
            }
        }
        if let Some(part) = at(source, "downwardAPI") {
            count += 1;
            for file in list(part, "items") {
                downward_file(file, format_args!("{at_source}.downwardAPI."), errors);
                once(&mut paths, text(file, "path"), text(file, "path"), format_args!("{here}"), errors);
            }
        }
        if let Some(token) = at(source, "serviceAccountToken") {
            count += 1;
            account_token(token, path, format_args!("{at_source}.serviceAccountToken"), errors);
        }
        if count > 1 {
            errors.push(field::forbidden(at_source, "may not specify more than 1 volume type per source"));
        }
    }
}

/// Reports paths that more than one source of a projected volume writes.
fn once<'a>(
    paths: &mut HashSet<&'a str>,
    path: &'a str,
    shown: &str,
    here: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    if !path.is_empty() && !paths.insert(path) {
        errors.push(field::invalid(here, shown, "conflicting duplicate paths"));
    }
}

fn account_token(token: &Value, volume: FieldPath<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let seconds = int(token, "expirationSeconds").unwrap_or(0);
    let here = format_args!("{path}.expirationSeconds");
    if seconds < 600 {
        errors.push(field::invalid(here, seconds, "may not specify a duration less than 10 minutes"));
    } else if seconds > 1 << 32 {
        errors.push(field::invalid(here, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    // Upstream reports the path of the volume instead of the source.
    let here = format_args!("{volume}path");
    match text(token, "path") {
        "" => errors.push(field::required(here, "")),
        given => file_path(given, here, errors),
    }
}

/// Validates a CSI driver name: a DNS subdomain of at most 63 bytes, case-insensitive.
fn csi_driver(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    csi_driver_name(text(source, "driver"), format_args!("{path}driver"), errors);
}

fn csi_secret(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(secret) = at(source, "nodePublishSecretRef") else { return };
    match text(secret, "name") {
        "" => errors.push(field::required(format_args!("{path}nodePublishSecretRef.name"), "")),
        // Upstream omits the reference in the path.
        name => check_text(format_args!("{path}name"), name, names::dns1123_subdomain_errors, errors),
    }
}

fn ephemeral(source: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match at(source, "volumeClaimTemplate") {
        None => errors.push(field::required(format_args!("{path}volumeClaimTemplate"), "")),
        Some(template) => {
            let nothing = Value::object();
            let spec = at(template, "spec").unwrap_or(&nothing);
            volume_claim::validate_spec(spec, format_args!("{path}volumeClaimTemplate.spec."), errors);
        }
    }
}
