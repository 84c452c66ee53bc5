//! PersistentVolumes and their claims.

use plinth_codec::time::Timestamp;
use plinth_codec::Value;

/// A volume tells since when it is in its phase.
pub fn prepare_volume_for_create(volume: &mut Value) {
    if let Some(status) = volume.object_at_mut(&["status"]) {
        status.insert("phase", "Pending");
        status.insert("lastPhaseTransitionTime", Timestamp::now().to_rfc3339());
    }
}

/// What a claim is filled from is said in an old field and in a new one; where one says it, the other says the same
/// (kubernetes `pkg/api/persistentvolumeclaim`).
pub fn prepare_claim_for_create(claim: &mut Value) {
    agree_on_source(claim, None);
}

/// As [`prepare_claim_for_create`]; where the claim had a source, validation sees what the client says of it.
pub fn prepare_claim_for_update(new: &mut Value, old: &Value) {
    agree_on_source(new, Some(old));
}

fn agree_on_source(claim: &mut Value, old: Option<&Value>) {
    let had_source = old.is_some_and(|old| {
        ["dataSource", "dataSourceRef"].iter().any(|key| old.at(&["spec", key]).is_some_and(|v| !v.is_null()))
    });
    let Some(spec) = claim.object_at_mut(&["spec"]) else { return };
    let text = |source: &Value, key: &str| source.str_at(&[key]).unwrap_or_default().to_owned();
    // The old field takes claims and snapshots, and forgets everything else.
    let known = |source: &Value| {
        let named = (text(source, "apiGroup"), text(source, "kind"));
        let named = (named.0.as_str(), named.1.as_str());
        matches!(named, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    if !had_source && spec.get("dataSource").is_some_and(|source| !known(source)) {
        spec.remove("dataSource");
    }
    let present = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    match (present(spec.get("dataSource")), present(spec.get("dataSourceRef"))) {
        (Some(source), None) => {
            spec.insert("dataSourceRef", source);
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            let mut source = reference;
            if let Some(source) = source.as_object_mut() {
                source.remove("namespace");
            }
            spec.insert("dataSource", source);
        }
        _ => {}
    }
}
