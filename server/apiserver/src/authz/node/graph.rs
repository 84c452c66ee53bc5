//! Index of the objects that each node needs: its pods, what they reference, and the volumes of their claims.
//!
//! Upstream keeps a general graph and walks it from the object to the node (kubernetes
//! `plugin/pkg/auth/authorizer/node/graph.go`). Here the search starts at the node and visits its pods: a
//! node has some hundred pods at most, while an object may be referenced by every pod of a cluster.

use std::collections::{HashMap, HashSet};

use plinth_codec::Value;
use smol_str::SmolStr;

use super::references::{self, ReferenceKind};
use plinth_api::ApiError;
use plinth_registry::{resource_prefix, split_key};
use plinth_storage::{InformerChange, InformerView};

/// Namespace and name.
pub(crate) type ObjectNames = (SmolStr, SmolStr);

/// An object that a node requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeObject {
    /// An object that pods reference.
    Referenced(ReferenceKind),
    /// A pod that is bound to a node.
    Pod,
    /// A PersistentVolume, which refers to Secrets.
    Volume,
    /// A VolumeAttachment of a node.
    Attachment,
    /// A ResourceSlice that a node publishes.
    Slice,
    /// A PodCertificateRequest of a pod on a node.
    CertificateRequest,
}

#[derive(Debug)]
struct Pod {
    node: SmolStr,
    /// References of the pod, sorted.
    names: Vec<(ReferenceKind, SmolStr)>,
}

/// Node names of objects that specify the node they are for.
#[derive(Debug, Default)]
struct NodeNames(HashMap<ObjectNames, SmolStr>);

impl NodeNames {
    fn set(&mut self, key: ObjectNames, node: Option<&str>) {
        match node.filter(|node| !node.is_empty()) {
            Some(node) => self.0.insert(key, node.into()),
            None => self.0.remove(&key),
        };
    }

    fn matches(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.0.get(&(namespace.into(), name.into())).is_some_and(|n| n == node)
    }
}

/// Pods that are bound to nodes, and what they reference.
#[derive(Debug, Default)]
pub struct Graph {
    /// The pods of each node.
    nodes: HashMap<SmolStr, HashSet<ObjectNames>>,
    pods: HashMap<ObjectNames, Pod>,
    /// By PersistentVolume: the claim that it is bound to, and the Secrets that it references.
    volumes: HashMap<SmolStr, (ObjectNames, Vec<ObjectNames>)>,
    /// By claim: the volumes that are bound to it.
    claims: HashMap<ObjectNames, Vec<SmolStr>>,
    attachments: NodeNames,
    slices: NodeNames,
    certificate_requests: NodeNames,
}

/// Applies a changed or deleted object.
type Apply = fn(&mut Graph, ObjectNames, Option<&Value>);

/// Group, plural, whether namespaced, and how changes are applied.
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

impl InformerView for Graph {
    // Objects only add to what a node may read, so unreadable ones can be ignored.
    const SKIPS_UNDECRYPTABLE: bool = true;

    fn empty(&self) -> Graph {
        Graph::default()
    }

    fn prefixes(&self) -> Vec<String> {
        RESOURCES.iter().map(|(group, plural, ..)| resource_prefix(group, plural)).collect()
    }

    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError> {
        for (group, plural, namespaced, apply) in RESOURCES {
            let prefix = resource_prefix(group, plural);
            if let Some((namespace, name)) = split_key(&prefix, namespaced, change.key) {
                apply(self, (namespace.into(), name.into()), change.object()?.as_ref());
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Graph {
    fn set_pod(&mut self, key: ObjectNames, pod: Option<&Value>) {
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

    fn set_volume(&mut self, (_, name): ObjectNames, volume: Option<&Value>) {
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

    /// Whether a node needs an object. Visits each pod of the node.
    pub fn needs(&self, node: &str, object: NodeObject, namespace: &str, name: &str) -> bool {
        match object {
            NodeObject::Pod => {
                let pod = self.pods.get(&(namespace.into(), name.into()));
                pod.is_some_and(|pod| pod.node == node)
            }
            NodeObject::Attachment => self.attachments.matches(namespace, name, node),
            NodeObject::Slice => self.slices.matches(namespace, name, node),
            NodeObject::CertificateRequest => self.certificate_requests.matches(namespace, name, node),
            NodeObject::Referenced(named) => {
                self.references_directly(node, named, namespace, name)
                    || (named == ReferenceKind::Secret
                        && self
                            .volumes_of(node)
                            .any(|(_, secrets)| secrets.iter().any(|(n, s)| n == namespace && s == name)))
            }
            NodeObject::Volume => {
                namespace.is_empty() && self.volumes_of(node).any(|(volume, _)| volume == name)
            }
        }
    }

    fn pods_of(&self, node: &str) -> impl Iterator<Item = (&ObjectNames, &Pod)> {
        let keys = self.nodes.get(node).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    fn references_directly(&self, node: &str, named: ReferenceKind, namespace: &str, name: &str) -> bool {
        let in_namespace = self.pods_of(node).filter(|((pod_namespace, _), _)| pod_namespace == namespace);
        in_namespace.into_iter().any(|(_, pod)| {
            pod.names.binary_search_by(|(w, n)| w.cmp(&named).then_with(|| n.as_str().cmp(name))).is_ok()
        })
    }

    /// The volumes that are bound to claims of a node's pods, with the Secrets that they reference.
    fn volumes_of(&self, node: &str) -> impl Iterator<Item = (&SmolStr, &Vec<ObjectNames>)> {
        let claims = self.pods_of(node).flat_map(|((namespace, _), pod)| {
            let claims = pod.names.iter().filter(|(named, _)| *named == ReferenceKind::Claim);
            claims.map(move |(_, claim)| (namespace.clone(), claim.clone()))
        });
        let volumes = claims.filter_map(|claim| self.claims.get(&claim)).flatten();
        volumes.filter_map(|volume| Some((volume, &self.volumes.get(volume)?.1)))
    }
}
