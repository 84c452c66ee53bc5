//! The Node authorizer: a kubelet reads what its own pods need, and writes what is its own.
//!
//! Upstream: kubernetes `plugin/pkg/auth/authorizer/node`. What a write may say is checked at admission
//! (`NodeRestriction`), where the object is known.
//!
//! | module | subject |
//! |---|---|
//! | [`graph`] | pods, and what hangs on them, by node |
//! | [`references`] | what a pod or a volume names |

pub mod graph;
pub mod references;

use std::sync::OnceLock;

use super::rbac::bootstrap;
use super::rbac::rules::PolicyRule;
use super::{Attributes, Decision, ResourceTarget, Target};
use graph::{Graph, Wanted};
use plinth_api::user::User;
use plinth_storage::informer::Informer;
use plinth_storage::Store;
use references::Named;

/// What a node's user name starts with, and the group that it is in.
const NODE: (&str, &str) = ("system:node:", "system:nodes");
/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";

/// The node that a user is: `Some` of an empty text when it is one that does not say which.
pub fn identity(user: &User) -> Option<&str> {
    user.name.strip_prefix(NODE.0).filter(|_| user.is_in(NODE.1))
}

/// The Node authorizer. What it knows of pods is read at the first question of a node: a cluster without kubelets pays
/// nothing for it.
pub struct NodeAuthorizer {
    graph: Informer<Graph>,
}

/// An answer that needs no graph, or the object that the graph is asked for.
enum Answer {
    Is(Decision),
    AsksFor(Wanted),
}

impl NodeAuthorizer {
    /// An authorizer over the pods in that store.
    pub fn new(store: Store) -> NodeAuthorizer {
        NodeAuthorizer { graph: Informer::new(store, Graph::default()) }
    }

    /// Decides about requests of nodes; has no opinion about others.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = identity(attributes.user) else { return Decision::NO_OPINION };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let Target::Resource(target) = attributes.target else { return by_rules(attributes) };
        match answer(node, attributes, &target) {
            Answer::Is(decision) => decision,
            Answer::AsksFor(_) if target.name.is_empty() => Decision::no_opinion("No Object name found"),
            Answer::AsksFor(wanted) => {
                let needs = |graph: &Graph| graph.needs(node, wanted, target.namespace, target.name);
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

/// What every node may do: the rules of the cluster role `system:node`.
fn by_rules(attributes: &Attributes<'_>) -> Decision {
    static RULES: OnceLock<Vec<PolicyRule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let role =
            bootstrap::expected().into_iter().find(|e| e.name == "system:node" && e.plural == "clusterroles");
        role.map(|role| PolicyRule::all_of(&role.object)).unwrap_or_default()
    });
    match rules.iter().any(|rule| rule.allows(attributes.verb, &attributes.target)) {
        true => Decision::ALLOW,
        false => Decision::NO_OPINION,
    }
}

fn answer(node: &str, attributes: &Attributes<'_>, target: &ResourceTarget<'_>) -> Answer {
    let verb = attributes.verb;
    let no = |reason: &'static str| Answer::Is(Decision::no_opinion(reason));
    let get = |wanted: Wanted| match verb {
        "get" if target.subresource.is_empty() => Answer::AsksFor(wanted),
        "get" => no("cannot get subresource"),
        _ => no("can only get individual resources of this type"),
    };
    let read = |named: Named| match verb {
        "get" | "list" | "watch" if !target.subresource.is_empty() => no("cannot read subresource"),
        "get" | "list" | "watch" if target.namespace.is_empty() => {
            no("can only read namespaced object of this type")
        }
        "get" | "list" | "watch" => Answer::AsksFor(Wanted::Named(named)),
        _ => no("can only read resources of this type"),
    };
    match (target.group, target.resource) {
        ("", "secrets") => read(Named::Secret),
        ("", "configmaps") => read(Named::ConfigMap),
        ("", "persistentvolumeclaims") if target.subresource == "status" => match verb {
            "update" | "patch" => Answer::AsksFor(Wanted::Named(Named::Claim)),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => get(Wanted::Named(Named::Claim)),
        ("", "persistentvolumes") => get(Wanted::Volume),
        ("resource.k8s.io", "resourceclaims") => get(Wanted::Named(Named::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments") => get(Wanted::Attachment),
        ("", "serviceaccounts") => match (verb, target.subresource) {
            ("get", "") => read(Named::ServiceAccount),
            ("create", _) if target.name.is_empty() => {
                no("can only create tokens for individual service accounts")
            }
            ("create", "token") => Answer::AsksFor(Wanted::Named(Named::ServiceAccount)),
            ("create", _) => no("can only create token subresource of serviceaccount"),
            _ => no("can only create tokens for individual service accounts"),
        },
        ("coordination.k8s.io", "leases") => Answer::Is(lease(node, verb, target)),
        ("storage.k8s.io", "csinodes") => Answer::Is(csi_node(node, verb, target)),
        ("resource.k8s.io", "resourceslices") => slice(node, verb, target),
        ("", "nodes") => Answer::Is(own_node(node, verb, target)),
        ("", "pods") => pod(node, verb, target),
        ("certificates.k8s.io", "podcertificaterequests") => certificate_request(node, verb, target),
        _ => Answer::Is(by_rules(attributes)),
    }
}

/// Whether a collection is narrowed to what is of that node.
fn selects(target: &ResourceTarget<'_>, field: &str, node: &str) -> bool {
    let fields = target.selectors.map(|selectors| selectors.fields.as_slice()).unwrap_or_default();
    fields.iter().any(|r| r.equal && r.field == field && r.value == node)
}

fn lease(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match verb {
        "get" | "create" | "update" | "patch" | "delete" => {}
        _ => return Decision::no_opinion("can only get, create, update, patch, or delete a node lease"),
    }
    if target.namespace != LEASES {
        return Decision::no_opinion(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    // The name of a new one is known at admission.
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

fn slice(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    const VERBS: &str = "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection";
    const FIELD: &str = "can only list/watch/deletecollection resourceslices with nodeName field selector";
    if !target.subresource.is_empty() {
        return Answer::Is(Decision::no_opinion("cannot authorize ResourceSlice subresources"));
    }
    Answer::Is(match verb {
        "create" => Decision::ALLOW,
        "get" | "update" | "patch" | "delete" => return Answer::AsksFor(Wanted::Slice),
        "watch" | "list" | "deletecollection" if selects(target, "spec.nodeName", node) => Decision::ALLOW,
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

fn pod(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    Answer::Is(match (target.subresource, verb) {
        ("", "get") => return Answer::AsksFor(Wanted::Pod),
        ("", "list" | "watch") if selects(target, "spec.nodeName", node) => Decision::ALLOW,
        ("", "list" | "watch") if !target.name.is_empty() => return Answer::AsksFor(Wanted::Pod),
        ("", "list" | "watch") => {
            Decision::no_opinion("can only list/watch pods with spec.nodeName field selector")
        }
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Decision::ALLOW
        }
        _ => Decision::NO_OPINION,
    })
}

fn certificate_request(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    const STATUS: &str = "nodes may not access the status subresource of PodCertificateRequests";
    const FIELD: &str = "can only list/watch podcertificaterequests with nodeName field selector";
    if !target.subresource.is_empty() {
        return Answer::Is(Decision::no_opinion(STATUS));
    }
    Answer::Is(match verb {
        "create" => Decision::ALLOW,
        "get" => return Answer::AsksFor(Wanted::CertificateRequest),
        "list" | "watch" if selects(target, "spec.nodeName", node) => Decision::ALLOW,
        "list" | "watch" => Decision::no_opinion(FIELD),
        _ => Decision::no_opinion(format!("nodes may not {verb} podcertificaterequests")),
    })
}

#[cfg(test)]
mod tests;
