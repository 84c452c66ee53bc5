//! `NodeRestriction`: a kubelet changes its own Node, its own pods, and what is its own beside them.
//!
//! Upstream: kubernetes `plugin/pkg/admission/noderestriction`. Which requests a node may make at all is the Node
//! authorizer's question ([`plinth_apiserver::authz::node`]); here the object is known.

mod labels;

use plinth_codec::{Map, Value};

use super::{Call, Operation};
use plinth_api::api_error::ApiError;
use plinth_api::metadata::text;
use plinth_api::user;
use plinth_apiserver::authz::node::{self, references};
use plinth_apiserver::authz::{Attributes, ResourceTarget};
use plinth_kinds::certificate_signing_request;
use plinth_pki::signers;

/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";
/// A pod that stands for one which the node runs of its own accord.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What is asked, and about what.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    operation: Operation,
    namespace: &'a str,
    name: &'a str,
    new: &'a Value,
    old: &'a Value,
}

/// What had to be looked up: the objects that the request names beside its own, where they are there.
#[derive(Debug, Default)]
struct Found {
    /// The pod that is evicted, or that a token or certificate is for.
    pod: Option<Value>,
    /// The node.
    node: Option<Value>,
    /// The account that a certificate is for.
    account: Option<Value>,
}

/// Why a request is refused.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// 403, with that reason.
    Forbidden(String),
    /// What the request stands on is not there: plural and name.
    NotFound(&'static str, String),
    /// An error without a code of its own; a later try may go well.
    Later(String),
}

fn forbid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Forbidden(why.into()))
}

/// Refuses what a node may not do; other users pass.
///
/// # Errors
/// 403; 404 when the pod or node that the request names is not there.
pub(super) async fn admit(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let Some(node) = node::identity(&call.cx.user) else { return Ok(()) };
    let info = &call.cx.info;
    let name = if call.name.is_empty() { text(object, "name") } else { call.name };
    let asked = Asked {
        group: &info.group,
        resource: &info.resource,
        subresource: &info.subresource,
        operation: call.operation,
        namespace: call.namespace,
        name,
        new: object,
        old: call.old.unwrap_or(&Value::Null),
    };
    let found = look_up(call, node, &asked).await?;
    let mut outcome = match node.is_empty() {
        true => forbid(format!("could not determine node from user {:?}", call.cx.user.name)),
        false => check(node, &asked, &found),
    };
    let is_token = (asked.resource, asked.subresource) == ("serviceaccounts", "token");
    if let (true, Ok(()), Some(pod)) = (is_token, &outcome, &found.pod) {
        outcome = check_audience(call, object, pod).await?;
    }
    outcome.map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => call.forbidden(object, &why),
        Refusal::NotFound(plural, name) => ApiError::not_found("", plural, &name),
        Refusal::Later(why) => ApiError::internal(why),
    })
}

async fn look_up(call: &Call<'_>, node: &str, asked: &Asked<'_>) -> Result<Found, ApiError> {
    let spec = |path: &[&str]| asked.new.at(&["spec"]).and_then(|s| s.str_at(path)).unwrap_or_default();
    let mut found = Found::default();
    match (asked.resource, asked.subresource, asked.operation) {
        ("pods", "eviction", Operation::Create) => {
            found.pod = get(call, "pods", asked.namespace, asked.name).await?;
        }
        ("pods", "", Operation::Create) => found.node = get(call, "nodes", "", node).await?,
        ("serviceaccounts", "token", Operation::Create) => {
            found.pod = get(call, "pods", asked.namespace, spec(&["boundObjectRef", "name"])).await?;
        }
        ("podcertificaterequests", "", Operation::Create) => {
            found.node = get(call, "nodes", "", spec(&["nodeName"])).await?;
            found.pod = get(call, "pods", asked.namespace, spec(&["podName"])).await?;
            let account = spec(&["serviceAccountName"]);
            found.account = get(call, "serviceaccounts", asked.namespace, account).await?;
        }
        _ => {}
    }
    Ok(found)
}

/// An object of the core group.
async fn get(call: &Call<'_>, plural: &str, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
    get_of(call, ("", "v1", plural), namespace, name).await
}

async fn get_of(
    call: &Call<'_>,
    (group, version, plural): (&str, &str, &str),
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    if name.is_empty() {
        return Ok(None);
    }
    let Some(resource) = call.cx.registry.get(group, version, plural) else { return Ok(None) };
    let Some(form) = &resource.storage else { return Ok(None) };
    let record = call.cx.stored(form, namespace, name).await?;
    record.map(|record| plinth_storage::object::to_tree(resource, &record)).transpose()
}

fn check(node: &str, asked: &Asked<'_>, found: &Found) -> Result<(), Refusal> {
    let creates = asked.operation == Operation::Create;
    match (asked.group, asked.resource, asked.subresource) {
        ("", "pods", "") => match asked.operation {
            Operation::Create => check_new_pod(node, asked.new, found),
            Operation::Delete if node_of(asked.old) == node => Ok(()),
            Operation::Delete => {
                forbid(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            other => forbid(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                other.as_str()
            )),
        },
        ("", "pods", "status") => check_pod_status(node, asked),
        ("", "pods", "eviction") => match &found.pod {
            _ if !creates => forbid(format!("unexpected operation {}", asked.operation.as_str())),
            None => Err(Refusal::NotFound("pods", asked.name.to_owned())),
            Some(pod) if node_of(pod) == node => Ok(()),
            Some(_) => forbid(format!("node {node} can only evict pods with spec.nodeName set to itself")),
        },
        ("", "pods", other) => {
            forbid(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => check_node(node, asked),
        ("", "persistentvolumeclaims", "status") => check_claim_status(node, asked),
        ("", "persistentvolumeclaims", _) => forbid("may only update PVC status"),
        ("", "serviceaccounts", "token") if creates => check_token(node, asked.new, found),
        ("certificates.k8s.io", "podcertificaterequests", _) => check_certificate_request(node, asked, found),
        ("coordination.k8s.io", "leases", _) if asked.namespace != LEASES => {
            forbid(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io", "leases", _) if asked.name != node => {
            forbid("can only access node lease with the same name as the requesting node")
        }
        ("storage.k8s.io", "csinodes", _) if asked.name != node => {
            forbid("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => {
            let (verb, slice) = match asked.operation {
                Operation::Create => ("create", asked.new),
                Operation::Delete => ("delete", asked.old),
                _ => return Ok(()),
            };
            match node_of(slice) == node {
                true => Ok(()),
                false => forbid(format!(
                    "can only {verb} ResourceSlice with the same NodeName as the requesting node"
                )),
            }
        }
        ("certificates.k8s.io", "certificatesigningrequests", "") if creates => check_csr(node, asked.new),
        _ => Ok(()),
    }
}

fn node_of(object: &Value) -> &str {
    object.str_at(&["spec", "nodeName"]).unwrap_or_default()
}

/// A node makes mirror pods alone: of its own, owned by itself, and naming no other object.
fn check_new_pod(node: &str, pod: &Value, found: &Found) -> Result<(), Refusal> {
    if pod.at(&["metadata", "annotations", MIRROR]).is_none() {
        return forbid(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if node_of(pod) != node {
        return forbid(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod.at(&["metadata", "ownerReferences"]).and_then(Value::as_array).unwrap_or_default();
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
    let Some(live) = &found.node else { return Err(Refusal::NotFound("nodes", node.to_owned())) };
    let (uid, live) = (owner_text("uid"), text(live, "uid"));
    if uid != live {
        return forbid(format!("node {node} UID mismatch: expected {uid} got {live}"));
    }
    match references::first_of_pod(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => forbid(format!("node {node:?} can not create pods that reference {what}")),
        Err(error) => forbid(format!("error checking mirror pod for API references: {error}")),
    }
}

fn check_pod_status(node: &str, asked: &Asked<'_>) -> Result<(), Refusal> {
    if asked.operation != Operation::Update {
        return forbid(format!("unexpected operation {:?}", asked.operation.as_str()));
    }
    if node_of(asked.old) != node {
        return forbid(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if labels::of(asked.old) != labels::of(asked.new) {
        return forbid(format!("node {node:?} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| -> Vec<(Option<Value>, Option<Value>)> {
        let list = pod.at(&["status", "resourceClaimStatuses"]).and_then(Value::as_array).unwrap_or_default();
        list.iter().map(|s| (s.get("name").cloned(), s.get("resourceClaimName").cloned())).collect()
    };
    if claims(asked.old) != claims(asked.new) {
        return forbid(format!("node {node:?} cannot update resource claim statues"));
    }
    const EXTENDED: &[&str] = &["status", "extendedResourceClaimStatus"];
    match asked.old.at(EXTENDED) == asked.new.at(EXTENDED) {
        true => Ok(()),
        false => forbid(format!("node {node:?} cannot update extended resource claim status")),
    }
}

fn check_node(node: &str, asked: &Asked<'_>) -> Result<(), Refusal> {
    if asked.name != node {
        return forbid(format!("node {node:?} is not allowed to modify node {:?}", asked.name));
    }
    const SOURCE: &[&str] = &["spec", "configSource"];
    let (new, old) = (asked.new, asked.old);
    let source = new.at(SOURCE).filter(|source| !source.is_null());
    match asked.operation {
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
            if list(new, &["spec", "taints"]) != list(old, &["spec", "taints"]) {
                return forbid(format!("node {node:?} is not allowed to modify taints"));
            }
            if list(new, &["metadata", "ownerReferences"]) != list(old, &["metadata", "ownerReferences"]) {
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

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

/// Of a claim a node writes how large it is and in which condition.
fn check_claim_status(node: &str, asked: &Asked<'_>) -> Result<(), Refusal> {
    if asked.operation != Operation::Update {
        return forbid(format!("unexpected operation {:?}", asked.operation.as_str()));
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
    match rest(asked.old) == rest(asked.new) {
        true => Ok(()),
        false => forbid(format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )),
    }
}

/// A token that a node asks for belongs to a pod that it runs.
fn check_token(node: &str, request: &Value, found: &Found) -> Result<(), Refusal> {
    let reference = |key: &str| request.str_at(&["spec", "boundObjectRef", key]).unwrap_or_default();
    if (reference("apiVersion"), reference("kind")) != ("v1", "Pod") || reference("name").is_empty() {
        return forbid("node requested token not bound to a pod");
    }
    let uid = reference("uid");
    if uid.is_empty() {
        return forbid("node requested token with a pod binding without a uid");
    }
    let Some(pod) = &found.pod else { return Err(Refusal::NotFound("pods", reference("name").to_owned())) };
    if uid != text(pod, "uid") {
        return forbid(format!("the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"));
    }
    match node_of(pod) == node {
        true => Ok(()),
        false => forbid("node requested token bound to a pod scheduled on a different node"),
    }
}

/// A token's audience is one that the pod mounts, that a CSI driver of its volumes asks for, or one that the node
/// is authorized for.
async fn check_audience(
    call: &Call<'_>,
    request: &Value,
    pod: &Value,
) -> Result<Result<(), Refusal>, ApiError> {
    let audience = match list(request, &["spec", "audiences"]) {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Ok(forbid("node may only request 0 or 1 audiences")),
    };
    for volume in list(pod, &["spec", "volumes"]) {
        let projected = list(volume, &["projected", "sources"]).iter();
        let tokens = projected.filter_map(|s| s.get("serviceAccountToken").filter(|token| !token.is_null()));
        for token in tokens {
            // What the field says when it is left out is the server's own audience.
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

/// Whether the CSI driver of a volume asks for tokens of an audience. Volume types that upstream translates to CSI have no
/// driver here.
async fn driver_asks_for(
    call: &Call<'_>,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<bool, ApiError> {
    let claim = match volume.str_at(&["persistentVolumeClaim", "claimName"]) {
        Some(claim) => Some(claim.to_owned()),
        None => volume
            .get("ephemeral")
            .filter(|e| !e.is_null())
            .map(|_| format!("{}-{}", text(pod, "name"), volume.str_at(&["name"]).unwrap_or_default())),
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
    let driver = get_of(call, ("storage.k8s.io", "v1", "csidrivers"), "", &driver).await?;
    let requests = driver.as_ref().map(|d| list(d, &["spec", "tokenRequests"])).unwrap_or_default();
    Ok(requests.iter().any(|r| r.str_at(&["audience"]).unwrap_or_default() == audience))
}

/// A certificate that a node asks for is for a pod that it runs, as the account that the pod runs as.
fn check_certificate_request(node: &str, asked: &Asked<'_>, found: &Found) -> Result<(), Refusal> {
    if asked.operation != Operation::Create {
        return forbid(format!("unexpected operation {}", asked.operation.as_str()));
    }
    if !asked.subresource.is_empty() {
        return forbid(format!("unexpected subresource {}", asked.subresource));
    }
    let spec = |key: &str| asked.new.str_at(&["spec", key]).unwrap_or_default();
    let (node_name, node_uid) = (spec("nodeName"), spec("nodeUID"));
    if node_name != node {
        return forbid(format!(
            "PodCertificateRequest.Spec.NodeName={node_name:?}, which is not the requesting node {node:?}"
        ));
    }
    let later = |why: String| Err(Refusal::Later(why));
    let Some(live_node) = &found.node else {
        return later(format!(
            "while retrieving node {node_name:?} named in the PodCertificateRequest: nodes {node_name:?} not found"
        ));
    };
    let pod_name = format!("{}/{}", asked.namespace, spec("podName"));
    if text(live_node, "uid") != node_uid {
        return later(format!("PodCertificateRequest for pod {pod_name:?} names node UID {node_uid:?}, inconsistent with the running node ({:?})", text(live_node, "uid")));
    }
    let Some(pod) = &found.pod else {
        return later(format!(
            "while retrieving pod {pod_name:?} named in the PodCertificateRequest: pods {:?} not found",
            spec("podName")
        ));
    };
    if text(pod, "uid") != spec("podUID") {
        return later(format!("PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {:?}", spec("podUID"), text(pod, "uid")));
    }
    if node_of(pod) != node_name {
        return forbid(format!(
            "pod {pod_name:?} is not running on node {node_name:?} named in the PodCertificateRequest"
        ));
    }
    if pod.at(&["metadata", "annotations", MIRROR]).is_some() {
        return forbid(format!("pod {pod_name:?} is a mirror pod"));
    }
    let (account, live_account) =
        (spec("serviceAccountName"), pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default());
    if account != live_account {
        return forbid(format!("PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({account:?}) that differs from running pod ({live_account:?})"));
    }
    let account_name = format!("{}/{account}", asked.namespace);
    let Some(account) = &found.account else {
        return later(format!("while retrieving service account {account_name:?} named in the PodCertificateRequest: serviceaccounts {account:?} not found"));
    };
    match text(account, "uid") == spec("serviceAccountUID") {
        true => Ok(()),
        false => later(format!("PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the running service account ({:?})", spec("serviceAccountUID"), text(account, "uid"))),
    }
}

/// A kubelet's certificate carries its own name.
pub(crate) fn check_csr(node: &str, csr: &Value) -> Result<(), Refusal> {
    let signer = csr.str_at(&["spec", "signerName"]).unwrap_or_default();
    if !matches!(signer, signers::KUBELET_SERVING | signers::KUBELET_CLIENT) {
        return Ok(());
    }
    let request = match certificate_signing_request::parse(csr) {
        Ok(request) => request,
        Err(error) => return forbid(format!("unable to parse csr: {error}")),
    };
    match request.subject.common_name().strip_prefix(user::NODE_PREFIX) == Some(node) {
        true => Ok(()),
        false => forbid(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

#[cfg(test)]
mod tests;
