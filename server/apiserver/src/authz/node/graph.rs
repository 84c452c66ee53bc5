//! What each node needs: its pods, what they name, and what hangs on that.
//!
//! Upstream keeps a general graph and walks it from the object to the node
//! (kubernetes `plugin/pkg/auth/authorizer/node/graph.go`). Here a question goes the other way, from the node over its
//! pods: a node has some hundred pods at most, while an object may be named by every pod of a cluster.

use std::collections::{HashMap, HashSet};

use plinth_codec::Value;
use smol_str::SmolStr;

use super::references::{self, Named};
use plinth_api::api_error::ApiError;
use plinth_registry::key;
use plinth_storage::informer::{Change, View};

/// Namespace and name.
pub type Key = (SmolStr, SmolStr);

/// What a node may want to get at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What a pod can name.
    Named(Named),
    /// A pod.
    Pod,
    /// A PersistentVolume.
    Volume,
    /// A VolumeAttachment.
    Attachment,
    /// A ResourceSlice.
    Slice,
    /// A PodCertificateRequest.
    CertificateRequest,
}

#[derive(Debug)]
struct Pod {
    node: SmolStr,
    /// Sorted.
    names: Vec<(Named, SmolStr)>,
}

/// Objects that say themselves which node they are for.
#[derive(Debug, Default)]
struct Labelled(HashMap<Key, SmolStr>);

impl Labelled {
    fn set(&mut self, key: Key, node: Option<&str>) {
        match node.filter(|node| !node.is_empty()) {
            Some(node) => self.0.insert(key, node.into()),
            None => self.0.remove(&key),
        };
    }

    fn is_for(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.0.get(&(namespace.into(), name.into())).is_some_and(|n| n == node)
    }
}

/// Pods that are bound to nodes, and what they need.
#[derive(Debug, Default)]
pub struct Graph {
    /// The pods of each node.
    nodes: HashMap<SmolStr, HashSet<Key>>,
    pods: HashMap<Key, Pod>,
    /// The claim that a PersistentVolume is bound to, and the Secrets that it names.
    volumes: HashMap<SmolStr, (Key, Vec<Key>)>,
    /// The volumes that are bound to a claim.
    claims: HashMap<Key, Vec<SmolStr>>,
    attachments: Labelled,
    slices: Labelled,
    certificate_requests: Labelled,
}

/// What changes of a resource mean.
type Apply = fn(&mut Graph, Key, Option<&Value>);

/// Group, plural and whether namespaced.
const RESOURCES: [(&str, &str, bool, Apply); 5] = [
    ("", "pods", true, Graph::set_pod),
    ("", "persistentvolumes", false, Graph::set_volume),
    ("storage.k8s.io", "volumeattachments", false, |graph, key, object| {
        graph.attachments.set(key, object.and_then(|o| o.str_at(&["spec", "nodeName"])));
    }),
    ("resource.k8s.io", "resourceslices", false, |graph, key, object| {
        graph.slices.set(key, object.and_then(|o| o.str_at(&["spec", "nodeName"])));
    }),
    ("certificates.k8s.io", "podcertificaterequests", true, |graph, key, object| {
        graph.certificate_requests.set(key, object.and_then(|o| o.str_at(&["spec", "nodeName"])));
    }),
];

impl View for Graph {
    // An object only adds to what a node may read.
    const SKIPS_UNDECRYPTABLE: bool = true;

    fn empty(&self) -> Graph {
        Graph::default()
    }

    fn prefixes(&self) -> Vec<String> {
        RESOURCES.iter().map(|(group, plural, ..)| key::resource_prefix(group, plural)).collect()
    }

    fn change(&mut self, change: Change<'_>) -> Result<(), ApiError> {
        for (group, plural, namespaced, apply) in RESOURCES {
            let prefix = key::resource_prefix(group, plural);
            if let Some((namespace, name)) = key::split(&prefix, namespaced, change.key) {
                apply(self, (namespace.into(), name.into()), change.object()?.as_ref());
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Graph {
    fn set_pod(&mut self, key: Key, pod: Option<&Value>) {
        let old = self.pods.remove(&key);
        let node = pod.and_then(|pod| pod.str_at(&["spec", "nodeName"])).filter(|node| !node.is_empty());
        if let Some(old) = old.filter(|old| Some(old.node.as_str()) != node) {
            if let Some(pods) = self.nodes.get_mut(&old.node) {
                pods.remove(&key);
                if pods.is_empty() {
                    self.nodes.remove(&old.node);
                }
            }
        }
        let (Some(pod), Some(node)) = (pod, node) else { return };
        let node = SmolStr::new(node);
        self.nodes.entry(node.clone()).or_default().insert(key.clone());
        self.pods.insert(key, Pod { node, names: references::of_pod(pod) });
    }

    fn set_volume(&mut self, (_, name): Key, volume: Option<&Value>) {
        if let Some((claim, _)) = self.volumes.remove(&name) {
            if let Some(volumes) = self.claims.get_mut(&claim) {
                volumes.retain(|volume| *volume != name);
                if volumes.is_empty() {
                    self.claims.remove(&claim);
                }
            }
        }
        let Some(volume) = volume else { return };
        let Some(claim) = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) else { return };
        let text = |member: &str| SmolStr::new(claim.str_at(&[member]).unwrap_or_default());
        let claim = (text("namespace"), text("name"));
        self.claims.entry(claim.clone()).or_default().push(name.clone());
        self.volumes.insert(name, (claim, references::of_volume(volume)));
    }

    /// Whether a node needs an object. Costs a look at each pod of the node.
    pub fn needs(&self, node: &str, wanted: Wanted, namespace: &str, name: &str) -> bool {
        match wanted {
            Wanted::Pod => {
                let pod = self.pods.get(&(namespace.into(), name.into()));
                pod.is_some_and(|pod| pod.node == node)
            }
            Wanted::Attachment => self.attachments.is_for(namespace, name, node),
            Wanted::Slice => self.slices.is_for(namespace, name, node),
            Wanted::CertificateRequest => self.certificate_requests.is_for(namespace, name, node),
            Wanted::Named(named) => {
                self.names_directly(node, named, namespace, name)
                    || (named == Named::Secret
                        && self
                            .volumes_of(node)
                            .any(|(_, secrets)| secrets.iter().any(|(n, s)| n == namespace && s == name)))
            }
            Wanted::Volume => namespace.is_empty() && self.volumes_of(node).any(|(volume, _)| volume == name),
        }
    }

    fn pods_of(&self, node: &str) -> impl Iterator<Item = (&Key, &Pod)> {
        let keys = self.nodes.get(node).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    fn names_directly(&self, node: &str, named: Named, namespace: &str, name: &str) -> bool {
        let here = self.pods_of(node).filter(|((pod_namespace, _), _)| pod_namespace == namespace);
        here.into_iter().any(|(_, pod)| {
            pod.names.binary_search_by(|(w, n)| w.cmp(&named).then_with(|| n.as_str().cmp(name))).is_ok()
        })
    }

    /// The volumes that are bound to the claims of a node's pods, with the Secrets that they name.
    fn volumes_of(&self, node: &str) -> impl Iterator<Item = (&SmolStr, &Vec<Key>)> {
        let claims = self.pods_of(node).flat_map(|((namespace, _), pod)| {
            let claims = pod.names.iter().filter(|(named, _)| *named == Named::Claim);
            claims.map(move |(_, claim)| (namespace.clone(), claim.clone()))
        });
        let volumes = claims.filter_map(|claim| self.claims.get(&claim)).flatten();
        volumes.filter_map(|volume| Some((volume, &self.volumes.get(volume)?.1)))
    }
}
