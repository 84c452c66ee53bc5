//! The Node authorizer: a kubelet may read what its pods need, and write its own objects.
//!
//! Upstream: kubernetes `plugin/pkg/auth/authorizer/node`. The content of writes is checked at admission
//! (`NodeRestriction`), where the object is known.
//!
//! | module | subject |
//! |---|---|
//! | [`graph`] | pods and the objects they reference, by node |
//! | [`references`] | references of a pod or a volume |

pub mod graph;
pub mod references;

use std::sync::OnceLock;

use super::rbac::bootstrap;
use super::rbac::rules::PolicyRule;
use super::{Attributes, Decision, ResourceTarget, Target};
use crate::feature_gates::FeatureGates;
use graph::{Graph, NodeObject};
use plinth_api::User;
use plinth_storage::{Informer, Store};
use references::ReferenceKind;

/// Prefix of a node's user name, and its group.
const USER_PREFIX_AND_GROUP: (&str, &str) = ("system:node:", "system:nodes");
/// Namespace of the nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The node name of a user; `Some("")` for a node user without a node name.
pub fn identity(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX_AND_GROUP.0).filter(|_| user.is_in(USER_PREFIX_AND_GROUP.1))
}

/// The Node authorizer. Its graph is loaded at the first request of a node: a cluster without kubelets pays
/// nothing for it.
pub(crate) struct NodeAuthorizer {
    graph: Informer<Graph>,
    /// Those of the cluster role `system:node`, which every node has.
    rules: OnceLock<Vec<PolicyRule>>,
    gates: FeatureGates,
}

/// A decision, what makes it, or the object that must be looked up in the graph.
enum Outcome {
    Decided(Decision),
    ByRules,
    NeedsGraph(NodeObject),
}

impl NodeAuthorizer {
    /// Loads pods from that store.
    pub(crate) fn new(store: Store, gates: FeatureGates) -> NodeAuthorizer {
        NodeAuthorizer { graph: Informer::new(store, Graph::default()), rules: OnceLock::new(), gates }
    }

    fn by_rules(&self, attributes: &Attributes<'_>) -> Decision {
        let rules = self.rules.get_or_init(|| {
            let mut objects = bootstrap::objects(&self.gates).into_iter();
            let role = objects.find(|e| e.name == "system:node" && e.plural == "clusterroles");
            role.map(|role| PolicyRule::all_of(&role.object)).unwrap_or_default()
        });
        match rules.iter().any(|rule| rule.allows(attributes.verb, &attributes.target)) {
            true => Decision::ALLOW,
            false => Decision::NO_OPINION,
        }
    }

    /// Decides about requests of nodes; no opinion about others.
    pub(crate) async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = identity(attributes.user) else { return Decision::NO_OPINION };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let Target::Resource(target) = attributes.target else { return self.by_rules(attributes) };
        match decide(node, attributes, &target, &self.gates) {
            Outcome::Decided(decision) => decision,
            Outcome::ByRules => self.by_rules(attributes),
            Outcome::NeedsGraph(_) if target.name.is_empty() => Decision::no_opinion("No Object name found"),
            Outcome::NeedsGraph(object) => {
                let needs = |graph: &Graph| graph.needs(node, object, target.namespace, target.name);
                match self.graph.read(needs).await {
                    Ok(true) => Decision::ALLOW,
                    Ok(false) => unrelated(node),
                    Err(error) => Decision { error: Some(error.message), ..Decision::NO_OPINION },
                }
            }
        }
    }
}

fn unrelated(node: &str) -> Decision {
    Decision::no_opinion(format!("no relationship found between node '{node}' and this object"))
}

fn decide(
    node: &str,
    attributes: &Attributes<'_>,
    target: &ResourceTarget<'_>,
    gates: &FeatureGates,
) -> Outcome {
    let verb = attributes.verb;
    let no = |reason: &'static str| Outcome::Decided(Decision::no_opinion(reason));
    let get = |object: NodeObject| match verb {
        "get" if target.subresource.is_empty() => Outcome::NeedsGraph(object),
        "get" => no("cannot get subresource"),
        _ => no("can only get individual resources of this type"),
    };
    let read = |named: ReferenceKind| match verb {
        "get" | "list" | "watch" if !target.subresource.is_empty() => no("cannot read subresource"),
        "get" | "list" | "watch" if target.namespace.is_empty() => {
            no("can only read namespaced object of this type")
        }
        "get" | "list" | "watch" => Outcome::NeedsGraph(NodeObject::Referenced(named)),
        _ => no("can only read resources of this type"),
    };
    match (target.group, target.resource) {
        ("", "secrets") => read(ReferenceKind::Secret),
        ("", "configmaps") => read(ReferenceKind::ConfigMap),
        ("", "persistentvolumeclaims") if target.subresource == "status" => match verb {
            "update" | "patch" => Outcome::NeedsGraph(NodeObject::Referenced(ReferenceKind::Claim)),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => get(NodeObject::Referenced(ReferenceKind::Claim)),
        ("", "persistentvolumes") => get(NodeObject::Volume),
        ("resource.k8s.io", "resourceclaims") => get(NodeObject::Referenced(ReferenceKind::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments") => get(NodeObject::Attachment),
        ("", "serviceaccounts") => match (verb, target.subresource) {
            ("get", "") => read(ReferenceKind::ServiceAccount),
            ("create", _) if target.name.is_empty() => {
                no("can only create tokens for individual service accounts")
            }
            ("create", "token") => Outcome::NeedsGraph(NodeObject::Referenced(ReferenceKind::ServiceAccount)),
            ("create", _) => no("can only create token subresource of serviceaccount"),
            _ => no("can only create tokens for individual service accounts"),
        },
        ("coordination.k8s.io", "leases") => Outcome::Decided(lease(node, verb, target)),
        ("storage.k8s.io", "csinodes") => Outcome::Decided(csi_node(node, verb, target)),
        ("resource.k8s.io", "resourceslices") => slice(node, verb, target),
        ("", "nodes") => Outcome::Decided(own_node(node, verb, target)),
        ("", "pods") => pod(node, verb, target),
        ("certificates.k8s.io", "podcertificaterequests") => match gates.is_on("PodCertificateRequest") {
            true => certificate_request(node, verb, target),
            false => Outcome::Decided(Decision::NO_OPINION),
        },
        _ => Outcome::ByRules,
    }
}

/// Whether the field selector restricts a collection to that node.
fn selects_node(target: &ResourceTarget<'_>, field: &str, node: &str) -> bool {
    let fields = target.selectors.map(|selectors| selectors.fields.as_slice()).unwrap_or_default();
    fields.iter().any(|r| r.equal && r.field == field && r.value == node)
}

fn lease(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match verb {
        "get" | "create" | "update" | "patch" | "delete" => {}
        _ => return Decision::no_opinion("can only get, create, update, patch, or delete a node lease"),
    }
    if target.namespace != LEASE_NAMESPACE {
        return Decision::no_opinion(format!(
            "can only access leases in the {LEASE_NAMESPACE:?} system namespace"
        ));
    }
    // The name of a new lease is checked at admission.
    match verb == "create" || target.name == node {
        true => Decision::ALLOW,
        false => Decision::no_opinion("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match verb {
        "get" | "create" | "update" | "patch" | "delete" => {}
        _ => return Decision::no_opinion("can only get, create, update, patch, or delete a CSINode"),
    }
    if !target.subresource.is_empty() {
        return Decision::no_opinion("cannot authorize CSINode subresources");
    }
    match verb == "create" || target.name == node {
        true => Decision::ALLOW,
        false => Decision::no_opinion("can only access CSINode with the same name as the requesting node"),
    }
}

fn slice(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Outcome {
    const VERBS: &str = "only the following verbs are allowed for a ResourceSlice: get, watch, list, \
        create, update, patch, delete, deletecollection";
    const FIELD: &str = "can only list/watch/deletecollection resourceslices with nodeName field selector";
    if !target.subresource.is_empty() {
        return Outcome::Decided(Decision::no_opinion("cannot authorize ResourceSlice subresources"));
    }
    Outcome::Decided(match verb {
        "create" => Decision::ALLOW,
        "get" | "update" | "patch" | "delete" => return Outcome::NeedsGraph(NodeObject::Slice),
        "watch" | "list" | "deletecollection" if selects_node(target, "spec.nodeName", node) => {
            Decision::ALLOW
        }
        "watch" | "list" | "deletecollection" => Decision::no_opinion(FIELD),
        _ => Decision::no_opinion(VERBS),
    })
}

fn own_node(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match (target.subresource, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Decision::ALLOW,
        ("", "get" | "list" | "watch") => match target.name {
            name if name == node => Decision::ALLOW,
            "" => {
                Decision::no_opinion(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            name => {
                Decision::no_opinion(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
        },
        _ => Decision::NO_OPINION,
    }
}

fn pod(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Outcome {
    Outcome::Decided(match (target.subresource, verb) {
        ("", "get") => return Outcome::NeedsGraph(NodeObject::Pod),
        ("", "list" | "watch") if selects_node(target, "spec.nodeName", node) => Decision::ALLOW,
        ("", "list" | "watch") if !target.name.is_empty() => return Outcome::NeedsGraph(NodeObject::Pod),
        ("", "list" | "watch") => {
            Decision::no_opinion("can only list/watch pods with spec.nodeName field selector")
        }
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Decision::ALLOW
        }
        _ => Decision::NO_OPINION,
    })
}

fn certificate_request(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Outcome {
    const STATUS: &str = "nodes may not access the status subresource of PodCertificateRequests";
    const FIELD: &str = "can only list/watch podcertificaterequests with nodeName field selector";
    if !target.subresource.is_empty() {
        return Outcome::Decided(Decision::no_opinion(STATUS));
    }
    Outcome::Decided(match verb {
        "create" => Decision::ALLOW,
        "get" => return Outcome::NeedsGraph(NodeObject::CertificateRequest),
        "list" | "watch" if selects_node(target, "spec.nodeName", node) => Decision::ALLOW,
        "list" | "watch" => Decision::no_opinion(FIELD),
        _ => Decision::no_opinion(format!("nodes may not {verb} podcertificaterequests")),
    })
}

#[cfg(test)]
mod tests;
