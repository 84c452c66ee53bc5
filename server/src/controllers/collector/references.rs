//! Owner references and the collector's finalizers, extracted from a stored object without parsing all of it.

use plinth_codec::{json, Value};
use sha2::{Digest, Sha256};

use plinth_api::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use plinth_storage::Stored;

/// A UID in 16 bytes: a UUID as it is, any other string as a hash. Only the index uses it; decisions about an
/// object compare the strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uid([u8; 16]);

impl Uid {
    /// The UID of a string.
    pub(super) fn of(text: &str) -> Uid {
        if let Ok(uuid) = uuid::Uuid::try_parse(text) {
            return Uid(uuid.into_bytes());
        }
        let mut short = [0; 16];
        short.iter_mut().zip(Sha256::digest(text.as_bytes())).for_each(|(to, from)| *to = from);
        Uid(short)
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// `blockOwnerDeletion`.
    pub(super) blocks: bool,
}

impl OwnerReference {
    /// Group and version of its API.
    pub(super) fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}

/// The JSON of the owner references; empty when there are none. Equal bytes are equal references.
pub(super) fn raw<'a>(stored: &Stored<'a>) -> &'a [u8] {
    match stored.owners().next() {
        Some(_) => list_member(stored.metadata(), b"\"ownerReferences\":["),
        None => b"",
    }
}

/// The references of [`raw`] JSON.
pub(super) fn parse(raw: &[u8]) -> Vec<OwnerReference> {
    let Ok(list) = json::parse(raw) else { return Vec::new() };
    let text = |owner: &Value, key: &str| owner.str_at(&[key]).unwrap_or_default().to_owned();
    let reference = |owner: &Value| OwnerReference {
        api_version: text(owner, "apiVersion"),
        kind: text(owner, "kind"),
        name: text(owner, "name"),
        uid: text(owner, "uid"),
        blocks: owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true),
    };
    list.as_array().unwrap_or_default().iter().map(reference).collect()
}

/// The collector's work before an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finalizer {
    /// Orphan the dependents.
    Orphan,
    /// Delete the dependents first.
    Foreground,
}

impl Finalizer {
    /// Name in `metadata.finalizers`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Finalizer::Orphan => FINALIZER_ORPHAN,
            Finalizer::Foreground => FINALIZER_FOREGROUND,
        }
    }
}

/// The collector's finalizer of the object, whether or not it is being deleted.
pub(super) fn finalizer(stored: &Stored) -> Option<Finalizer> {
    let list = json::parse(list_member(stored.metadata(), b"\"finalizers\":[")).ok()?;
    let has = |name: &str| list.as_array().unwrap_or_default().iter().any(|f| f.as_str() == Some(name));
    match (has(FINALIZER_ORPHAN), has(FINALIZER_FOREGROUND)) {
        (true, _) => Some(Finalizer::Orphan),
        (false, true) => Some(Finalizer::Foreground),
        (false, false) => None,
    }
}

/// The finalizer that the collector has to process now.
pub(super) fn pending(stored: &Stored) -> Option<Finalizer> {
    if stored.deleting() {
        finalizer(stored)
    } else {
        None
    }
}

/// The list that follows `start` in canonical JSON, including brackets. `start` is a member name and a
/// bracket, so it cannot occur inside of a string, whose quotes are escaped, nor in `managedFields`, whose
/// names begin with `f:`.
fn list_member<'a>(metadata: &'a [u8], start: &[u8]) -> &'a [u8] {
    let Some(at) = memchr::memmem::find(metadata, start) else { return b"" };
    let list = metadata.get(at + start.len() - 1..).unwrap_or_default();
    json::container_len(list).and_then(|len| list.get(..len)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::value;
    use super::*;

    #[test]
    fn references_are_found_behind_strings_that_look_like_them() {
        let metadata = r#"{"name":"x","annotations":{"a":"\"ownerReferences\":[]","b":"]"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a]\"[","uid":"u-1","blockOwnerDeletion":true},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"u-2"}],"finalizers":["example.com/x","orphan"],"managedFields":[{"fieldsV1":{"f:metadata":{"f:finalizers":{".":{}}}}}]}"#;
        let bytes = value("u", false, &["u-1", "u-2"], metadata);
        let stored = Stored::parse(&bytes).unwrap();
        let owners = parse(raw(&stored));
        assert_eq!(owners.len(), 2);
        assert_eq!((owners[0].name.as_str(), owners[0].blocks), ("a]\"[", true));
        assert_eq!((owners[1].uid.as_str(), owners[1].blocks), ("u-2", false));
        assert_eq!((finalizer(&stored), pending(&stored)), (Some(Finalizer::Orphan), None));
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let bytes = value("u", true, &[], r#"{"name":"x"}"#);
        let stored = Stored::parse(&bytes).unwrap();
        assert_eq!((raw(&stored), finalizer(&stored)), (&b""[..], None));
        for cut in [&b""[..], b"{", b"\"finalizers\":[", b"\"finalizers\":[\"a\\"] {
            assert_eq!(list_member(cut, b"\"finalizers\":["), b"");
        }
    }

    #[test]
    fn uids_differ_whatever_their_form() {
        let texts = ["", "u-1", "u-2", "00000000-0000-0000-0000-000000000001"];
        let uids: std::collections::BTreeSet<Uid> = texts.iter().map(|t| Uid::of(t)).collect();
        assert_eq!(uids.len(), texts.len());
    }
}
