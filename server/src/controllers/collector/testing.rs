//! Stored objects for the tests of this directory.

use bytes::Bytes;

use plinth_storage::HeaderFields;

/// A stored object with the given metadata.
pub(super) fn value(uid: &str, deleting: bool, owners: &[&str], metadata: &str) -> Bytes {
    let body = format!("{{\"metadata\":{metadata}}}");
    let header =
        HeaderFields { version: "v1", uid, deleting, owners: owners.to_vec(), ..HeaderFields::default() };
    header.encode(metadata.len(), body.as_bytes())
}

/// An object without owners.
pub(super) fn plain(uid: &str) -> Bytes {
    value(uid, false, &[], r#"{"name":"x"}"#)
}

/// An object that is being deleted and has a finalizer.
pub(super) fn deleting(uid: &str, finalizer: &str) -> Bytes {
    value(uid, true, &[], &format!(r#"{{"name":"x","finalizers":["{finalizer}"]}}"#))
}

fn owned(uid: &str, owners: &[&str], references: &[String]) -> Bytes {
    value(uid, false, owners, &format!(r#"{{"name":"x","ownerReferences":[{}]}}"#, references.join(",")))
}

/// An object with owners, by UID and blockOwnerDeletion.
pub(super) fn dependent(uid: &str, owners: &[(&str, bool)]) -> Bytes {
    let reference = |(uid, blocks): &(&str, bool)| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"{uid}","blockOwnerDeletion":{blocks}}}"#
        )
    };
    let uids: Vec<&str> = owners.iter().map(|(uid, _)| *uid).collect();
    owned(uid, &uids, &owners.iter().map(reference).collect::<Vec<_>>())
}

/// An object with owners of the core group, by kind, name and UID.
pub(super) fn owned_by(uid: &str, owners: &[(&str, &str, &str)]) -> Bytes {
    let reference = |(kind, name, uid): &(&str, &str, &str)| {
        format!(r#"{{"apiVersion":"v1","kind":"{kind}","name":"{name}","uid":"{uid}"}}"#)
    };
    let uids: Vec<&str> = owners.iter().map(|(_, _, uid)| *uid).collect();
    owned(uid, &uids, &owners.iter().map(reference).collect::<Vec<_>>())
}
