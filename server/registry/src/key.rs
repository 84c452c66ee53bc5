//! Keys of objects in the engine.
//!
//! | kind | scope | key |
//! |---|---|---|
//! | built-in | namespaced | `GROUP/RESOURCE/NAMESPACE/NAME` |
//! | built-in | cluster | `GROUP/RESOURCE/NAME` |
//! | custom | namespaced | `_custom/namespaced/GROUP/RESOURCE/NAMESPACE/NAME` |
//! | custom | cluster | `_custom/cluster/GROUP/RESOURCE/NAME` |
//!
//! The core group is written `core`. The order of keys is the order of lists, and is upstream's: bytewise
//! over the whole key, so that namespace `a-b` comes before `a`.
//!
//! Two different objects never have one key, and the range of one collection holds no key of another,
//! whatever groups, resources, namespaces and names are:
//!
//! 1. No built-in group is `_custom`, so the first segment separates custom from built-in resources. The
//!    second one separates the scopes of custom resources: a definition may be created again with another
//!    scope.
//! 2. A slash ends a segment, and no segment contains one (`segment`). So a prefix that ends with a slash
//!    begins another one only where both are the same resource's.
//! 3. The keys of one collection all have the same number of segments, since a resource has one scope.
//!
//! `key_tests.rs` tries this with random definitions, kinds, namespaces and names.

use std::borrow::Cow;

use plinth_engine::KeyRange;

/// Prefix of the keys of namespaced custom resources.
const CUSTOM_NAMESPACED: &str = "_custom/namespaced/";
/// Prefix of the keys of cluster-scoped custom resources.
const CUSTOM_CLUSTER: &str = "_custom/cluster/";

/// The prefix of a built-in resource's keys, including the slash.
pub fn resource_prefix(group: &str, resource: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{}/{}/", segment(group), segment(resource))
}

/// The prefix of a custom resource's keys, including the slash.
pub fn custom_prefix(group: &str, resource: &str, namespaced: bool) -> String {
    let start = if namespaced { CUSTOM_NAMESPACED } else { CUSTOM_CLUSTER };
    format!("{start}{}/{}/", segment(group), segment(resource))
}

/// Escapes a group, resource, namespace or name. Valid ones are unchanged: none contains a slash or a percent
/// sign. Invalid ones, from a URL or a damaged definition, still get a unique key.
fn segment(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| matches!(byte, b'/' | b'%')) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace('%', "%25").replace('/', "%2F")),
    }
}

/// The key of an object; `namespace` is empty for cluster-scoped resources.
pub fn object_key(prefix: &str, namespace: &str, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + namespace.len() + name.len() + 1);
    key.extend_from_slice(prefix.as_bytes());
    if !namespace.is_empty() {
        key.extend_from_slice(segment(namespace).as_bytes());
        key.push(b'/');
    }
    key.extend_from_slice(segment(name).as_bytes());
    key
}

/// The prefix of a collection: one namespace's objects, or all of the resource when it is empty.
pub fn collection_prefix(prefix: &str, namespace: &str) -> Vec<u8> {
    match namespace.is_empty() {
        true => prefix.as_bytes().to_vec(),
        false => format!("{prefix}{}/", segment(namespace)).into_bytes(),
    }
}

/// The range of the keys that start with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> KeyRange {
    KeyRange::prefix(prefix.to_vec())
}

/// Splits a key of the resource into namespace and name. The namespace is empty for cluster-scoped ones.
pub fn split_key<'a>(prefix: &str, namespaced: bool, key: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let rest = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    match namespaced {
        true => rest.split_once('/'),
        false => Some(("", rest)),
    }
}

/// The prefix of the resource that a key belongs to, including the slash.
pub fn key_prefix(key: &[u8]) -> Option<&[u8]> {
    let start = key.len() - key_without_start(key).len();
    let mut slashes = key.iter().enumerate().skip(start).filter(|(_, byte)| **byte == b'/');
    let (end, _) = slashes.nth(1)?;
    key.get(..=end)
}

/// Whether a key belongs to a custom resource.
pub fn is_custom_key(key: &[u8]) -> bool {
    key_without_start(key).len() < key.len()
}

/// `GROUP/RESOURCE/...` of any key. Encryption binds values to this (and to whether they are custom, by their
/// header), and messages show it.
pub fn key_without_start(key: &[u8]) -> &[u8] {
    let starts = [CUSTOM_NAMESPACED, CUSTOM_CLUSTER];
    starts.iter().find_map(|start| key.strip_prefix(start.as_bytes())).unwrap_or(key)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
