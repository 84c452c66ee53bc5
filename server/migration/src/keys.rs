//! Where kube-apiserver keeps which object in etcd, below its prefix (`/registry`).
//!
//! | objects | key |
//! |---|---|
//! | built-in kinds | `PATH/[NAMESPACE/]NAME`, where PATH is the plural name but for seven resources |
//! | custom resources | `GROUP/PLURAL/[NAMESPACE/]NAME` |
//!
//! Facts of kubernetes `test/integration/etcd/data.go` (v1.36).

use std::collections::HashMap;
use std::sync::Arc;

use plinth_registry::{is_custom_key, key_without_start, split_key, Registry, ResourceType};

/// Group and plural name of resources whose path is another one.
const PATHS: [(&str, &str, &str); 7] = [
    ("", "services", "services/specs"),
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("networking.k8s.io", "ingresses", "ingress"),
    ("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions"),
];
/// What kube-apiserver keeps for itself and builds again from the objects: addresses of its replicas, and
/// bitmaps of what Services hold.
const INTERNAL: [&str; 3] = ["masterleases/", "peerserverleases/", "ranges/"];
/// The key that kube-apiserver reads to see whether etcd answers. kine has it, etcd has not.
const HEALTH: &str = "health";

/// What a key is for.
#[derive(Debug)]
pub enum Located<'a> {
    /// An object of a built-in kind; `namespace` is empty for those without one.
    Builtin {
        /// The resource, in its storage version.
        resource: &'a Arc<ResourceType>,
        /// Empty for an object of the cluster.
        namespace: &'a str,
        /// As in `metadata.name`.
        name: &'a str,
    },
    /// An object of a custom resource, if there is a definition for it.
    Custom {
        /// Group of the definition, in upstream's form.
        group: &'a str,
        /// The plural name.
        plural: &'a str,
        /// Namespace and name, or the name.
        rest: &'a str,
    },
    /// Not an object: kube-apiserver builds it again.
    Internal,
    /// Nothing that is known here.
    Unknown,
}

/// The built-in resources by their paths.
#[derive(Debug)]
pub struct UpstreamKeys {
    resources: HashMap<String, Arc<ResourceType>>,
}

impl UpstreamKeys {
    /// The paths of the built-in resources.
    pub fn new(registry: &Registry) -> UpstreamKeys {
        let builtin = registry.stored().filter(|resource| !resource.is_custom());
        let resources = builtin.map(|resource| (path(resource).to_owned(), resource.clone())).collect();
        UpstreamKeys { resources }
    }

    /// What a key is for, without the prefix and the slash behind it.
    pub fn locate<'a>(&'a self, key: &'a str) -> Located<'a> {
        if key == HEALTH || INTERNAL.iter().any(|internal| key.starts_with(internal)) {
            return Located::Internal;
        }
        let slashes: Vec<usize> = key.match_indices('/').map(|(at, _)| at).collect();
        // The longer path first: `services/specs` and `services`.
        for end in slashes.iter().take(2).rev() {
            let Some(resource) = self.resources.get(&key[..*end]) else { continue };
            let rest = &key[end + 1..];
            return match (resource.row.namespaced, rest.split_once('/')) {
                (true, Some((namespace, name))) if is_segment(namespace) && is_segment(name) => {
                    Located::Builtin { resource, namespace, name }
                }
                (false, None) if is_segment(rest) => Located::Builtin { resource, namespace: "", name: rest },
                _ => Located::Unknown,
            };
        }
        let mut parts = key.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(group), Some(plural), Some(rest)) if group.contains('.') && is_segment(plural) => {
                Located::Custom { group, plural, rest }
            }
            _ => Located::Unknown,
        }
    }
}

/// Whether it can be a name in a key.
pub(crate) fn is_segment(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

/// Where kube-apiserver keeps the objects of a built-in resource.
fn path(resource: &ResourceType) -> &str {
    let row = PATHS
        .iter()
        .find(|(group, plural, _)| resource.row.group == *group && resource.row.plural == *plural);
    row.map_or(resource.plural(), |(_, _, path)| path)
}

/// Where kube-apiserver keeps an object, below its prefix, from the key here; none for a key that is no
/// object's.
pub fn upstream(registry: &Registry, own: &[u8]) -> Option<String> {
    if is_custom_key(own) {
        return String::from_utf8(key_without_start(own).to_vec()).ok();
    }
    let resource = registry.of_key(own)?;
    let form = resource.storage.as_ref()?;
    let (namespace, name) = split_key(&form.prefix, resource.row.namespaced, own)?;
    let path = path(resource);
    Some(match namespace.is_empty() {
        true => format!("{path}/{name}"),
        false => format!("{path}/{namespace}/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_registry::object_key;

    #[test]
    fn keys_are_those_of_kube_apiserver() {
        let registry = Registry::builtin();
        let keys = UpstreamKeys::new(&registry);
        for (upstream_key, own) in [
            ("pods/ns/a", "core/pods/ns/a"),
            ("services/specs/ns/a", "core/services/ns/a"),
            ("services/endpoints/ns/a", "core/endpoints/ns/a"),
            ("minions/a", "core/nodes/a"),
            ("controllers/ns/a", "core/replicationcontrollers/ns/a"),
            ("ingress/ns/a", "networking.k8s.io/ingresses/ns/a"),
            ("deployments/ns/a", "apps/deployments/ns/a"),
            ("events/ns/a", "core/events/ns/a"),
            ("clusterroles/system:a", "rbac.authorization.k8s.io/clusterroles/system:a"),
            ("ipaddresses/10.0.0.1", "networking.k8s.io/ipaddresses/10.0.0.1"),
            ("apiregistration.k8s.io/apiservices/v1.a.b", "apiregistration.k8s.io/apiservices/v1.a.b"),
            (
                "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
                "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
            ),
        ] {
            let Located::Builtin { resource, namespace, name } = keys.locate(upstream_key) else {
                panic!("{upstream_key} was not found")
            };
            let prefix = &resource.storage.as_ref().unwrap().prefix;
            assert_eq!(object_key(prefix, namespace, name), own.as_bytes());
            assert_eq!(upstream(&registry, own.as_bytes()).as_deref(), Some(upstream_key));
        }
        let custom = b"_custom/namespaced/example.com/cars/ns/a";
        assert_eq!(upstream(&registry, custom).as_deref(), Some("example.com/cars/ns/a"));
        assert_eq!(upstream(&registry, b"allocations/nodeports/30000"), None);
    }

    #[test]
    fn other_keys_are_distinguished() {
        let registry = Registry::builtin();
        let keys = UpstreamKeys::new(&registry);
        let custom = |key| matches!(keys.locate(key), Located::Custom { .. });
        assert!(custom("example.com/cars/ns/a") && custom("example.com/cars/a"));
        for internal in ["masterleases/10.0.0.1", "ranges/serviceips", "peerserverleases/x", "health"] {
            assert!(matches!(keys.locate(internal), Located::Internal), "{internal}");
        }
        for unknown in [
            "",
            "health/x",
            "pods",
            "pods/",
            "pods/a",
            "pods/a/b/c",
            "minions/a/b",
            "podsecuritypolicy/p",
            "pods//a",
            "minions/",
        ] {
            assert!(matches!(keys.locate(unknown), Located::Unknown), "{unknown}");
        }
    }
}
