//! Volumes, claims, storage classes and drivers.

use super::network::named_default;
use super::read::{at, items, join, or, str_at};
use super::Computation;
use crate::Value;

pub const CLASS_NAME: Computation = Computation {
    reads: &["metadata.name", "metadata.annotations"],
    cell: |class, _| {
        named_default(
            class,
            &[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ],
        )
    },
};

/// The phase, unless the object waits to be deleted.
pub const PHASE: Computation = Computation {
    reads: &["metadata.deletionTimestamp", "status.phase"],
    cell: |object, _| match at(object, "metadata.deletionTimestamp") {
        Some(_) => "Terminating".into(),
        None => str_at(object, "status.phase").into(),
    },
};

/// The storage class: an old annotation wins over the field.
pub const STORAGE_CLASS: Computation = Computation {
    reads: &["metadata.annotations", "spec.storageClassName"],
    cell: |object, _| {
        let annotations = at(object, "metadata.annotations");
        let annotated = annotations.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
        annotated.and_then(Value::as_str).unwrap_or(str_at(object, "spec.storageClassName")).into()
    },
};

/// Access modes in short, always in the same order.
fn access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let held = |mode| modes.iter().any(|m| m.as_str() == Some(mode));
    join(short.into_iter().filter(|(mode, _)| held(mode)).map(|(_, short)| short), ",")
}

pub const VOLUME_ACCESS_MODES: Computation = Computation {
    reads: &["spec.accessModes"],
    cell: |volume, _| access_modes(items(volume, "spec.accessModes")).into(),
};

pub const VOLUME_CLAIM: Computation = Computation {
    reads: &["spec.claimRef.namespace", "spec.claimRef.name"],
    cell: |volume, _| match at(volume, "spec.claimRef") {
        Some(claim) => format!("{}/{}", str_at(claim, "namespace"), str_at(claim, "name")).into(),
        None => "".into(),
    },
};

fn is_bound(claim: &Value) -> bool {
    !str_at(claim, "spec.volumeName").is_empty()
}

pub const CLAIM_CAPACITY: Computation = Computation {
    reads: &["spec.volumeName", "status.capacity.storage"],
    cell: |claim, _| match is_bound(claim) {
        true => or(str_at(claim, "status.capacity.storage"), "0").into(),
        false => "".into(),
    },
};

pub const CLAIM_ACCESS_MODES: Computation = Computation {
    reads: &["spec.volumeName", "status.accessModes"],
    cell: |claim, _| match is_bound(claim) {
        true => access_modes(items(claim, "status.accessModes")).into(),
        false => "".into(),
    },
};

pub const DRIVER_TOKEN_REQUESTS: Computation = Computation {
    reads: &["spec.tokenRequests[].audience"],
    cell: |driver, _| match at(driver, "spec.tokenRequests") {
        None => "<unset>".into(),
        Some(_) => {
            join(items(driver, "spec.tokenRequests").iter().map(|r| str_at(r, "audience")), ",").into()
        }
    },
};
