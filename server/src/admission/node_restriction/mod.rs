//! `NodeRestriction`: a kubelet may change its own Node, its own pods, and objects that belong to them.
//!
//! Upstream: kubernetes `plugin/pkg/admission/noderestriction`. The Node authorizer
//! ([`plinth_apiserver::authz::node`]) decides which requests a node may make at all; this plugin checks the
//! object.

mod labels;

use plinth_codec::{Map, Value};

use super::call::Call;
use plinth_api::{metadata_text, ApiError, Reason, NODE_USER_PREFIX};
use plinth_apiserver::authz::node::{self, references};
use plinth_apiserver::authz::{Attributes, ResourceTarget};
use plinth_apiserver::context::Operation;
use plinth_kinds::{certificate_signing_request, MIRROR_ANNOTATION};
use plinth_pki::{KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER};

/// Namespace of node leases.
const LEASES: &str = "kube-node-lease";

/// The checked attributes of a request.
#[derive(Clone, Copy, Debug)]
struct RequestAttributes<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    operation: Operation,
    namespace: &'a str,
    name: &'a str,
    new: &'a Value,
    old: &'a Value,
}

/// Objects that the request refers to, if they exist.
#[derive(Debug, Default)]
struct RelatedObjects {
    /// The pod that is evicted, or that a token or certificate is for.
    pod: Option<Value>,
    node: Option<Value>,
    /// The service account that a certificate is for.
    account: Option<Value>,
}

/// A denied request.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// 403 with a reason.
    Forbidden(String),
    /// A referenced object does not exist: plural and name.
    NotFound(&'static str, String),
    /// An error without a code of its own; a retry may succeed.
    Later(String),
}

fn forbid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Forbidden(why.into()))
}

/// Checks requests of nodes; other users pass.
///
/// # Errors
/// 403; 404 when a referenced pod or node does not exist.
pub(super) async fn admit(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let Some(node) = node::identity(&call.cx.user) else { return Ok(()) };
    let info = &call.cx.info;
    let name = if call.name.is_empty() { metadata_text(object, "name") } else { call.name };
    let attributes = RequestAttributes {
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        operation: call.operation,
        namespace: call.namespace,
        name,
        new: object,
        old: call.old.unwrap_or(&Value::Null),
    };
    let related = look_up(call, node, &attributes).await?;
    let mut outcome = match node.is_empty() {
        true => forbid(format!("could not determine node from user {:?}", call.cx.user.name)),
        false => check(node, &attributes, &related),
    };
    let is_token = (attributes.resource, attributes.subresource) == ("serviceaccounts", "token");
    if let (true, Ok(()), Some(pod)) = (is_token, &outcome, &related.pod) {
        outcome = check_audience(call, object, pod).await?;
    }
    outcome.map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => call.forbidden(object, &why),
        Refusal::NotFound(plural, name) => ApiError::not_found("", plural, &name),
        Refusal::Later(why) => ApiError::new(500, Reason::Unknown, why),
    })
}

async fn look_up(
    call: &Call<'_>,
    node: &str,
    attributes: &RequestAttributes<'_>,
) -> Result<RelatedObjects, ApiError> {
    let spec = |path: &[&str]| attributes.new.at(&["spec"]).and_then(|s| s.str_at(path)).unwrap_or_default();
    let mut related = RelatedObjects::default();
    match (attributes.resource, attributes.subresource, attributes.operation) {
        ("pods", "eviction", Operation::Create) => {
            related.pod = get(call, "pods", attributes.namespace, attributes.name).await?;
        }
        ("pods", "", Operation::Create) => related.node = get(call, "nodes", "", node).await?,
        ("serviceaccounts", "token", Operation::Create) => {
            related.pod = get(call, "pods", attributes.namespace, spec(&["boundObjectRef", "name"])).await?;
        }
        ("podcertificaterequests", "", Operation::Create) => {
            related.node = get(call, "nodes", "", spec(&["nodeName"])).await?;
            related.pod = get(call, "pods", attributes.namespace, spec(&["podName"])).await?;
            let account = spec(&["serviceAccountName"]);
            related.account = get(call, "serviceaccounts", attributes.namespace, account).await?;
        }
        _ => {}
    }
    Ok(related)
}

/// Reads an object of the core group.
async fn get(call: &Call<'_>, plural: &str, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
    call.stored_object(("", "v1", plural), namespace, name).await
}

fn check(node: &str, attributes: &RequestAttributes<'_>, related: &RelatedObjects) -> Result<(), Refusal> {
    let creates = attributes.operation == Operation::Create;
    match (attributes.group, attributes.resource, attributes.subresource) {
        ("", "pods", "") => match attributes.operation {
            Operation::Create => check_new_pod(node, attributes.new, related),
            Operation::Delete if node_of(attributes.old) == node => Ok(()),
            Operation::Delete => {
                forbid(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            other => forbid(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                other.as_str()
            )),
        },
        ("", "pods", "status") => check_pod_status(node, attributes),
        ("", "pods", "eviction") => match &related.pod {
            _ if !creates => forbid(format!("unexpected operation {}", attributes.operation.as_str())),
            None => Err(Refusal::NotFound("pods", attributes.name.to_owned())),
            Some(pod) if node_of(pod) == node => Ok(()),
            Some(_) => forbid(format!("node {node} can only evict pods with spec.nodeName set to itself")),
        },
        ("", "pods", other) => {
            forbid(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => check_node(node, attributes),
        ("", "persistentvolumeclaims", "status") => check_claim_status(node, attributes),
        ("", "persistentvolumeclaims", _) => forbid("may only update PVC status"),
        ("", "serviceaccounts", "token") if creates => check_token(node, attributes.new, related),
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            check_certificate_request(node, attributes, related)
        }
        ("coordination.k8s.io", "leases", _) if attributes.namespace != LEASES => {
            forbid(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io", "leases", _) if attributes.name != node => {
            forbid("can only access node lease with the same name as the requesting node")
        }
        ("storage.k8s.io", "csinodes", _) if attributes.name != node => {
            forbid("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => {
            let (verb, slice) = match attributes.operation {
                Operation::Create => ("create", attributes.new),
                Operation::Delete => ("delete", attributes.old),
                _ => return Ok(()),
            };
            match node_of(slice) == node {
                true => Ok(()),
                false => forbid(format!(
                    "can only {verb} ResourceSlice with the same NodeName as the requesting node"
                )),
            }
        }
        ("certificates.k8s.io", "certificatesigningrequests", "") if creates => {
            check_csr(node, attributes.new)
        }
        _ => Ok(()),
    }
}

fn node_of(object: &Value) -> &str {
    object.str_at(&["spec", "nodeName"]).unwrap_or_default()
}

/// A node may only create mirror pods: bound to and owned by itself, and without references to other objects.
fn check_new_pod(node: &str, pod: &Value, related: &RelatedObjects) -> Result<(), Refusal> {
    if pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_none() {
        return forbid(format!(
            "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if node_of(pod) != node {
        return forbid(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.list_at(&["metadata", "ownerReferences"]);
    let owner = match owners {
        [owner] => owner,
        [] => {
            return forbid(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ))
        }
        _ => {
            return forbid(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ))
        }
    };
    let owner_text = |key: &str| owner.str_at(&[key]).unwrap_or_default();
    let owner_flag = |key: &str| owner.get(key).and_then(Value::as_bool).unwrap_or(false);
    if (owner_text("apiVersion"), owner_text("kind"), owner_text("name")) != ("v1", "Node", node) {
        return forbid(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if !owner_flag("controller") {
        return forbid(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner_flag("blockOwnerDeletion") {
        return forbid(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(live) = &related.node else { return Err(Refusal::NotFound("nodes", node.to_owned())) };
    let (uid, live) = (owner_text("uid"), metadata_text(live, "uid"));
    if uid != live {
        return forbid(format!("node {node} UID mismatch: expected {uid} got {live}"));
    }
    match references::first_of_pod(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => forbid(format!("node {node:?} can not create pods that reference {what}")),
        Err(error) => forbid(format!("error checking mirror pod for API references: {error}")),
    }
}

fn check_pod_status(node: &str, attributes: &RequestAttributes<'_>) -> Result<(), Refusal> {
    if attributes.operation != Operation::Update {
        return forbid(format!("unexpected operation {:?}", attributes.operation.as_str()));
    }
    if node_of(attributes.old) != node {
        return forbid(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if labels::of(attributes.old) != labels::of(attributes.new) {
        return forbid(format!("node {node:?} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| -> Vec<(Option<Value>, Option<Value>)> {
        let list = pod.list_at(&["status", "resourceClaimStatuses"]);
        list.iter().map(|s| (s.get("name").cloned(), s.get("resourceClaimName").cloned())).collect()
    };
    if claims(attributes.old) != claims(attributes.new) {
        return forbid(format!("node {node:?} cannot update resource claim statues"));
    }
    const EXTENDED: &[&str] = &["status", "extendedResourceClaimStatus"];
    match attributes.old.at(EXTENDED) == attributes.new.at(EXTENDED) {
        true => Ok(()),
        false => forbid(format!("node {node:?} cannot update extended resource claim status")),
    }
}

fn check_node(node: &str, attributes: &RequestAttributes<'_>) -> Result<(), Refusal> {
    if attributes.name != node {
        return forbid(format!("node {node:?} is not allowed to modify node {:?}", attributes.name));
    }
    const SOURCE: &[&str] = &["spec", "configSource"];
    let (new, old) = (attributes.new, attributes.old);
    let source = new.at(SOURCE).filter(|source| !source.is_null());
    match attributes.operation {
        Operation::Create => {
            if source.is_some() {
                return forbid(format!(
                    "node {node:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            match labels::forbidden(new, &Value::Null) {
                none if none.is_empty() => Ok(()),
                some => forbid(format!(
                    "node {node:?} is not allowed to set the following labels: {}",
                    some.join(", ")
                )),
            }
        }
        Operation::Update => {
            if source.is_some() && source != old.at(SOURCE) {
                return forbid(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if new.list_at(&["spec", "taints"]) != old.list_at(&["spec", "taints"]) {
                return forbid(format!("node {node:?} is not allowed to modify taints"));
            }
            if new.list_at(&["metadata", "ownerReferences"]) != old.list_at(&["metadata", "ownerReferences"])
            {
                return forbid(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            match labels::forbidden(new, old) {
                none if none.is_empty() => Ok(()),
                some => forbid(format!("is not allowed to modify labels: {}", some.join(", "))),
            }
        }
        _ => Ok(()),
    }
}

/// A node may update only capacity and conditions of a claim.
fn check_claim_status(node: &str, attributes: &RequestAttributes<'_>) -> Result<(), Refusal> {
    if attributes.operation != Operation::Update {
        return forbid(format!("unexpected operation {:?}", attributes.operation.as_str()));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        let drop = |members: Option<&mut Map>, names: &[&str]| {
            if let Some(members) = members {
                names.iter().for_each(|name| {
                    members.remove(name);
                });
            }
        };
        drop(claim.object_at_mut(&["metadata"]), &["resourceVersion", "managedFields"]);
        const OWN: [&str; 4] = ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"];
        drop(claim.object_at_mut(&["status"]), &OWN);
        claim
    };
    match rest(attributes.old) == rest(attributes.new) {
        true => Ok(()),
        false => forbid(format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )),
    }
}

/// A node may request tokens only for pods that it runs.
fn check_token(node: &str, request: &Value, related: &RelatedObjects) -> Result<(), Refusal> {
    let reference = |key: &str| request.str_at(&["spec", "boundObjectRef", key]).unwrap_or_default();
    if (reference("apiVersion"), reference("kind")) != ("v1", "Pod") || reference("name").is_empty() {
        return forbid("node requested token not bound to a pod");
    }
    let uid = reference("uid");
    if uid.is_empty() {
        return forbid("node requested token with a pod binding without a uid");
    }
    let Some(pod) = &related.pod else { return Err(Refusal::NotFound("pods", reference("name").to_owned())) };
    if uid != metadata_text(pod, "uid") {
        return forbid(format!("the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"));
    }
    match node_of(pod) == node {
        true => Ok(()),
        false => forbid("node requested token bound to a pod scheduled on a different node"),
    }
}

/// The audience of a token must be one that the pod mounts, that a CSI driver of its volumes requests, or one
/// that the node is authorized for.
async fn check_audience(
    call: &Call<'_>,
    request: &Value,
    pod: &Value,
) -> Result<Result<(), Refusal>, ApiError> {
    let audience = match request.list_at(&["spec", "audiences"]) {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Ok(forbid("node may only request 0 or 1 audiences")),
    };
    for volume in pod.list_at(&["spec", "volumes"]) {
        let projected = volume.list_at(&["projected", "sources"]).iter();
        let tokens = projected.filter_map(|s| s.get("serviceAccountToken").filter(|token| !token.is_null()));
        for token in tokens {
            // The default audience is the server's own.
            if token.str_at(&["audience"]).unwrap_or_default() == audience {
                return Ok(Ok(()));
            }
        }
        if driver_asks_for(call, pod, volume, audience).await? {
            return Ok(Ok(()));
        }
    }
    let user = &call.cx.user;
    let target = ResourceTarget {
        version: "v1",
        resource: audience,
        name: call.name,
        namespace: call.namespace,
        ..ResourceTarget::default()
    };
    let question = Attributes::resource(user, "request-serviceaccounts-token-audience", target);
    Ok(match call.cx.server.authorizer.authorize(&question).await.allowed() {
        true => Ok(()),
        false => forbid(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            user.name
        )),
    })
}

/// Whether the CSI driver of a volume requests tokens for an audience. Volume types that upstream translates
/// to CSI have no driver here.
async fn driver_asks_for(
    call: &Call<'_>,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<bool, ApiError> {
    let claim = match volume.str_at(&["persistentVolumeClaim", "claimName"]) {
        Some(claim) => Some(claim.to_owned()),
        None => volume.get("ephemeral").filter(|e| !e.is_null()).map(|_| {
            format!("{}-{}", metadata_text(pod, "name"), volume.str_at(&["name"]).unwrap_or_default())
        }),
    };
    let driver = match claim {
        None => volume.str_at(&["csi", "driver"]).unwrap_or_default().to_owned(),
        Some(claim) => {
            let claim = get(call, "persistentvolumeclaims", call.namespace, &claim).await?;
            let name = claim.as_ref().and_then(|c| c.str_at(&["spec", "volumeName"])).unwrap_or_default();
            let volume = get(call, "persistentvolumes", "", name).await?;
            volume.as_ref().and_then(|v| v.str_at(&["spec", "csi", "driver"])).unwrap_or_default().to_owned()
        }
    };
    let driver = call.stored_object(("storage.k8s.io", "v1", "csidrivers"), "", &driver).await?;
    let requests = driver.as_ref().map(|d| d.list_at(&["spec", "tokenRequests"])).unwrap_or_default();
    Ok(requests.iter().any(|r| r.str_at(&["audience"]).unwrap_or_default() == audience))
}

/// A node may request certificates only for pods that it runs, with the pod's service account.
fn check_certificate_request(
    node: &str,
    attributes: &RequestAttributes<'_>,
    related: &RelatedObjects,
) -> Result<(), Refusal> {
    if attributes.operation != Operation::Create {
        return forbid(format!("unexpected operation {}", attributes.operation.as_str()));
    }
    if !attributes.subresource.is_empty() {
        return forbid(format!("unexpected subresource {}", attributes.subresource));
    }
    let spec = |key: &str| attributes.new.str_at(&["spec", key]).unwrap_or_default();
    let (node_name, node_uid) = (spec("nodeName"), spec("nodeUID"));
    if node_name != node {
        return forbid(format!(
            "PodCertificateRequest.Spec.NodeName={node_name:?}, which is not the requesting node {node:?}"
        ));
    }
    let later = |why: String| Err(Refusal::Later(why));
    let Some(live_node) = &related.node else {
        return later(format!(
            "while retrieving node {node_name:?} named in the PodCertificateRequest: node {node_name:?} not found"
        ));
    };
    let pod_name = format!("{}/{}", attributes.namespace, spec("podName"));
    if metadata_text(live_node, "uid") != node_uid {
        return later(format!("PodCertificateRequest for pod {pod_name:?} names node UID {node_uid:?}, inconsistent with the running node ({:?})", metadata_text(live_node, "uid")));
    }
    let Some(pod) = &related.pod else {
        return later(format!(
            "while retrieving pod {pod_name:?} named in the PodCertificateRequest: pod {:?} not found",
            spec("podName")
        ));
    };
    if metadata_text(pod, "uid") != spec("podUID") {
        return later(format!("PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {:?}", spec("podUID"), metadata_text(pod, "uid")));
    }
    if node_of(pod) != node_name {
        return forbid(format!(
            "pod {pod_name:?} is not running on node {node_name:?} named in the PodCertificateRequest"
        ));
    }
    if pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_some() {
        return forbid(format!("pod {pod_name:?} is a mirror pod"));
    }
    let (account, live_account) =
        (spec("serviceAccountName"), pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default());
    if account != live_account {
        return forbid(format!("PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({account:?}) that differs from running pod ({live_account:?})"));
    }
    let account_name = format!("{}/{account}", attributes.namespace);
    let Some(account) = &related.account else {
        return later(format!("while retrieving service account {account_name:?} named in the PodCertificateRequest: serviceaccount {account:?} not found"));
    };
    match metadata_text(account, "uid") == spec("serviceAccountUID") {
        true => Ok(()),
        false => later(format!("PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the running service account ({:?})", spec("serviceAccountUID"), metadata_text(account, "uid"))),
    }
}

/// A node may request client certificates only for itself.
pub(crate) fn check_csr(node: &str, csr: &Value) -> Result<(), Refusal> {
    let signer = csr.str_at(&["spec", "signerName"]).unwrap_or_default();
    if !matches!(signer, KUBELET_SERVING_SIGNER | KUBELET_CLIENT_SIGNER) {
        return Ok(());
    }
    let request = match certificate_signing_request::parse(csr) {
        Ok(request) => request,
        Err(error) => return forbid(format!("unable to parse csr: {error}")),
    };
    match request.subject.common_name().strip_prefix(NODE_USER_PREFIX) == Some(node) {
        true => Ok(()),
        false => forbid(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

#[cfg(test)]
mod tests;
