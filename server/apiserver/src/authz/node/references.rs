//! References of a pod or a volume: the objects that a kubelet needs to run it.
//!
//! Upstream: kubernetes `pkg/api/v1/pod/util.go` and `pkg/api/v1/persistentvolume/util.go`.

use plinth_codec::Value;
use plinth_kinds::MIRROR_ANNOTATION;
use smol_str::{format_smolstr, SmolStr};

/// Kind of an object that may be read because a pod references it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// Named by pods and volumes.
    Secret,
    /// Named by pods.
    ConfigMap,
    /// A PersistentVolumeClaim that a pod mounts.
    Claim,
    /// A ResourceClaim of a pod's devices.
    ResourceClaim,
    /// The account that a pod runs as.
    ServiceAccount,
}

/// Paths of Secret names in a volume of a pod.
const VOLUME_SECRETS: &[&[&str]] = &[
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["secret", "secretName"],
    &["storageos", "secretRef", "name"],
];

/// References to Secrets in a PersistentVolume that its node reads, and whether one without a namespace is in
/// the namespace of the claim.
const PERSISTENT_SECRETS: &[(&[&str], bool)] = &[
    (&["cephfs", "secretRef"], true),
    (&["cinder", "secretRef"], false),
    (&["csi", "nodeExpandSecretRef"], false),
    (&["csi", "nodePublishSecretRef"], false),
    (&["csi", "nodeStageSecretRef"], false),
    (&["flexVolume", "secretRef"], true),
    (&["iscsi", "secretRef"], true),
    (&["rbd", "secretRef"], true),
    (&["scaleIO", "secretRef"], true),
    (&["storageos", "secretRef"], false),
];

/// The objects that a pod references in its namespace, sorted, without duplicates. References of mirror pods
/// are ignored: a node must not gain access to objects through a pod that it has created itself.
pub fn of_pod(pod: &Value) -> Vec<(ReferenceKind, SmolStr)> {
    if pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_some() {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut add = |what: ReferenceKind, name: Option<&str>| {
        out.extend(name.filter(|name| !name.is_empty()).map(|name| (what, SmolStr::new(name))));
    };
    add(ReferenceKind::ServiceAccount, pod.str_at(&["spec", "serviceAccountName"]));
    for secret in pod.list_at(&["spec", "imagePullSecrets"]) {
        add(ReferenceKind::Secret, secret.str_at(&["name"]));
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod.list_at(&["spec", containers]) {
            for from in container.list_at(&["envFrom"]) {
                add(ReferenceKind::Secret, from.str_at(&["secretRef", "name"]));
                add(ReferenceKind::ConfigMap, from.str_at(&["configMapRef", "name"]));
            }
            for variable in container.list_at(&["env"]) {
                add(ReferenceKind::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
                add(ReferenceKind::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
        }
    }
    let pod_name = pod.str_at(&["metadata", "name"]).unwrap_or_default();
    for volume in pod.list_at(&["spec", "volumes"]) {
        for path in VOLUME_SECRETS {
            add(ReferenceKind::Secret, volume.str_at(path));
        }
        add(ReferenceKind::ConfigMap, volume.str_at(&["configMap", "name"]));
        for source in volume.list_at(&["projected", "sources"]) {
            add(ReferenceKind::Secret, source.str_at(&["secret", "name"]));
            add(ReferenceKind::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        add(ReferenceKind::Claim, volume.str_at(&["persistentVolumeClaim", "claimName"]));
        if volume.get("ephemeral").is_some_and(|e| !e.is_null()) {
            let name = volume.str_at(&["name"]).unwrap_or_default();
            add(ReferenceKind::Claim, Some(&format_smolstr!("{pod_name}-{name}")));
        }
    }
    for claim in pod.list_at(&["spec", "resourceClaims"]) {
        add(ReferenceKind::ResourceClaim, claim.str_at(&["resourceClaimName"]));
        if claim.str_at(&["resourceClaimTemplateName"]).is_some() {
            let statuses = pod.list_at(&["status", "resourceClaimStatuses"]);
            let statuses = statuses.iter().find(|s| s.str_at(&["name"]) == claim.str_at(&["name"]));
            add(ReferenceKind::ResourceClaim, statuses.and_then(|s| s.str_at(&["resourceClaimName"])));
        }
    }
    const EXTENDED: &[&str] = &["status", "extendedResourceClaimStatus", "resourceClaimName"];
    add(ReferenceKind::ResourceClaim, pod.str_at(EXTENDED));
    out.sort_unstable();
    out.dedup();
    out
}

/// The Secrets that a PersistentVolume references for its node: namespace and name.
pub(crate) fn of_volume(volume: &Value) -> Vec<(SmolStr, SmolStr)> {
    let Some(spec) = volume.get("spec") else { return Vec::new() };
    let claim_namespace = spec.str_at(&["claimRef", "namespace"]).unwrap_or_default();
    let namespace_or_default = |given: Option<&str>, falls_back: bool| {
        let given = given.filter(|namespace| !namespace.is_empty());
        SmolStr::new(given.unwrap_or(if falls_back { claim_namespace } else { "" }))
    };
    let mut out = Vec::new();
    if let Some(name) = spec.str_at(&["azureFile", "secretName"]).filter(|name| !name.is_empty()) {
        out.push((namespace_or_default(spec.str_at(&["azureFile", "secretNamespace"]), true), name.into()));
    }
    for (path, falls_back) in PERSISTENT_SECRETS {
        let Some(reference) = spec.at(path) else { continue };
        if let Some(name) = reference.str_at(&["name"]).filter(|name| !name.is_empty()) {
            out.push((namespace_or_default(reference.str_at(&["namespace"]), *falls_back), name.into()));
        }
    }
    out
}

/// Volume types that reference an API object, and upstream's name of the object.
const VOLUMES_OF_OBJECTS: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// Volume types that reference none.
const PLAIN_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Sources of a projected volume that reference an object.
const PROJECTED_OBJECTS: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The first API object that a pod references, with upstream's name (`HasAPIObjectReference`); for mirror
/// pods, too.
///
/// # Errors
/// A volume of an unknown type.
pub fn first_of_pod(pod: &Value) -> Result<Option<&'static str>, String> {
    let mut plain = pod.clone();
    if let Some(annotations) = plain.object_at_mut(&["metadata", "annotations"]) {
        annotations.remove(MIRROR_ANNOTATION);
    }
    let names = of_pod(&plain);
    let has = |what: ReferenceKind| names.iter().any(|(named, _)| *named == what);
    let rows = [
        (ReferenceKind::ServiceAccount, "serviceaccounts"),
        (ReferenceKind::Secret, "secrets"),
        (ReferenceKind::ConfigMap, "configmaps"),
    ];
    if let Some((_, what)) = rows.into_iter().find(|(named, _)| has(*named)) {
        return Ok(Some(what));
    }
    if !pod.list_at(&["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in pod.list_at(&["spec", "volumes"]) {
        let is = |kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
        let name = volume.str_at(&["name"]).unwrap_or_default();
        if PLAIN_VOLUMES.iter().any(|kind| is(kind)) {
            continue;
        }
        if let Some((_, what)) = VOLUMES_OF_OBJECTS.iter().find(|(kind, _)| is(kind)) {
            return Ok(Some(what));
        }
        if !is("projected") {
            return Err(format!("unknown volume type for volume  {name:?}"));
        }
        for source in volume.list_at(&["projected", "sources"]) {
            let is = |kind: &str| source.get(kind).is_some_and(|source| !source.is_null());
            if let Some((_, what)) = PROJECTED_OBJECTS.iter().find(|(kind, _)| is(kind)) {
                return Ok(Some(what));
            }
            if !is("downwardAPI") {
                return Err(format!("unknown source for projected volume {name:?}"));
            }
        }
    }
    Ok(None)
}
