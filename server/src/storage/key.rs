//! Where an object lies in the engine's key space.
//!
//! `GROUP/RESOURCE/NAMESPACE/NAME`, and `GROUP/RESOURCE/NAME` for cluster-scoped resources; the core
//! group is written `core`. No part can contain `/`: names and namespaces are checked before a
//! key is made. The order of keys is the order of lists, and is upstream's: bytewise over the whole
//! key, so that namespace `a-b` comes before `a`.

use plinth_engine::KeyRange;

/// The prefix of a resource's keys, up to and with the slash.
pub fn resource_prefix(group: &str, resource: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{group}/{resource}/")
}

/// The key of an object; `namespace` is empty for cluster-scoped resources.
pub fn object(prefix: &str, namespace: &str, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + namespace.len() + name.len() + 1);
    key.extend_from_slice(prefix.as_bytes());
    if !namespace.is_empty() {
        key.extend_from_slice(namespace.as_bytes());
        key.push(b'/');
    }
    key.extend_from_slice(name.as_bytes());
    key
}

/// The prefix of a collection: one namespace's objects, or all of the resource when it is empty.
pub fn collection(prefix: &str, namespace: &str) -> Vec<u8> {
    match namespace.is_empty() {
        true => prefix.as_bytes().to_vec(),
        false => format!("{prefix}{namespace}/").into_bytes(),
    }
}

/// The range of the keys that start with `prefix`.
pub fn range(prefix: &[u8]) -> KeyRange {
    KeyRange::prefix(prefix.to_vec())
}

/// Namespace and name out of a key of that resource. The namespace is empty for cluster-scoped ones.
pub fn split<'a>(prefix: &str, namespaced: bool, key: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let rest = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    match namespaced {
        true => rest.split_once('/'),
        false => Some(("", rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_split_into_what_made_them() {
        let pods = resource_prefix("", "pods");
        let key = object(&pods, "default", "web");
        assert_eq!(key, b"core/pods/default/web");
        assert_eq!(split(&pods, true, &key), Some(("default", "web")));
        let nodes = resource_prefix("", "nodes");
        assert_eq!(split(&nodes, false, &object(&nodes, "", "n1")), Some(("", "n1")));
        assert_eq!(split(&nodes, false, &key), None);
    }

    #[test]
    fn a_namespace_prefix_is_no_other_namespace() {
        let pods = resource_prefix("", "pods");
        assert!(!object(&pods, "a-b", "x").starts_with(&collection(&pods, "a")));
    }
}
