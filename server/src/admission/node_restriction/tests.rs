use super::*;
use Operation::{Create, Delete, Update};

fn parse(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => plinth_codec::json::parse(text.as_bytes()).unwrap(),
    }
}

/// The refusal of a request by `node n1`, if any.
fn refusal(
    what: &str,
    operation: Operation,
    new: &str,
    old: &str,
    related: RelatedObjects,
) -> Option<Refusal> {
    let (resource, object) = what.split_once(' ').unwrap();
    let mut parts = resource.split('/');
    let group = parts.next().filter(|group| *group != "core").unwrap_or_default();
    let (resource, subresource) = (parts.next().unwrap(), parts.next().unwrap_or_default());
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let (new, old) = (parse(new), parse(old));
    let attributes =
        RequestAttributes { group, resource, subresource, operation, namespace, name, new: &new, old: &old };
    check("n1", &attributes, &related).err()
}

fn related(pod: &str, node: &str, account: &str) -> RelatedObjects {
    let object = |text: &str| (!text.is_empty()).then(|| parse(text));
    RelatedObjects { pod: object(pod), node: object(node), account: object(account) }
}

const MINE: &str =
    r#"{"metadata":{"name":"p","uid":"u1"},"spec":{"nodeName":"n1","serviceAccountName":"sa"}}"#;
const OTHERS: &str = r#"{"metadata":{"name":"p","uid":"u1"},"spec":{"nodeName":"n2"}}"#;
const NODE: &str = r#"{"metadata":{"name":"n1","uid":"node-uid"}}"#;

#[test]
fn requests_by_table() {
    let node = |rest: &str| format!(r#"{{"metadata":{{"name":"n1"{rest}}},"spec":{{}}}}"#);
    let labels = |labels: &str| node(&format!(r#","labels":{{{labels}}}"#));
    let tainted = r#"{"metadata":{"name":"n1"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}"#;
    let sourced = r#"{"metadata":{"name":"n1"},"spec":{"configSource":{"configMap":{}}}}"#;
    let claim = |status: &str, labels: &str| {
        format!(r#"{{"metadata":{{"name":"c"{labels}}},"spec":{{}},"status":{{{status}}}}}"#)
    };
    const LEASE: &str = "can only access node lease with the same name as the requesting node";
    const STATUS: &str =
        "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions";
    // what, operation, new, old, reason
    let rows: Vec<(&str, Operation, String, String, Option<&str>)> = vec![
        ("core/pods a/p", Delete, String::new(), MINE.into(), None),
        (
            "core/pods a/p",
            Delete,
            String::new(),
            OTHERS.into(),
            Some("node \"n1\" can only delete pods with spec.nodeName set to itself"),
        ),
        (
            "core/pods a/p",
            Update,
            MINE.into(),
            MINE.into(),
            Some("unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods"),
        ),
        (
            "core/pods/exec a/p",
            Create,
            String::new(),
            String::new(),
            Some("unexpected pod subresource \"exec\", only 'status' and 'eviction' are allowed"),
        ),
        ("core/pods/status a/p", Update, MINE.into(), MINE.into(), None),
        (
            "core/pods/status a/p",
            Update,
            OTHERS.into(),
            OTHERS.into(),
            Some("node \"n1\" can only update pod status for pods with spec.nodeName set to itself"),
        ),
        (
            "core/pods/status a/p",
            Update,
            MINE.replace("\"uid\"", "\"labels\":{\"a\":\"b\"},\"uid\""),
            MINE.into(),
            Some("node \"n1\" cannot update labels through pod status"),
        ),
        (
            "core/pods/status a/p",
            Update,
            MINE.replace("\"spec\"", "\"status\":{\"resourceClaimStatuses\":[{\"name\":\"x\"}]},\"spec\""),
            MINE.into(),
            Some("node \"n1\" cannot update resource claim statues"),
        ),
        (
            "core/pods/status a/p",
            Update,
            MINE.replace("\"spec\"", "\"status\":{\"extendedResourceClaimStatus\":{}},\"spec\""),
            MINE.into(),
            Some("node \"n1\" cannot update extended resource claim status"),
        ),
        ("core/nodes n1", Create, labels(r#""kubernetes.io/os":"linux","mine":"x""#), String::new(), None),
        (
            "core/nodes n2",
            Create,
            node(""),
            String::new(),
            Some("node \"n1\" is not allowed to modify node \"n2\""),
        ),
        (
            "core/nodes n1",
            Create,
            labels(r#""k8s.io/b":"","a.k8s.io/a":"""#),
            String::new(),
            Some("node \"n1\" is not allowed to set the following labels: a.k8s.io/a, k8s.io/b"),
        ),
        (
            "core/nodes n1",
            Create,
            sourced.into(),
            String::new(),
            Some("node \"n1\" is not allowed to create pods with a non-nil configSource"),
        ),
        (
            "core/nodes n1",
            Update,
            sourced.into(),
            node(""),
            Some("node \"n1\" is not allowed to update configSource to a new non-nil configSource"),
        ),
        ("core/nodes n1", Update, node(""), sourced.into(), None),
        (
            "core/nodes/status n1",
            Update,
            tainted.into(),
            node(""),
            Some("node \"n1\" is not allowed to modify taints"),
        ),
        (
            "core/nodes n1",
            Update,
            node(r#","ownerReferences":[{"uid":"x"}]"#),
            node(""),
            Some("node \"n1\" is not allowed to modify ownerReferences"),
        ),
        (
            "core/nodes n1",
            Update,
            node(""),
            labels(r#""node-restriction.kubernetes.io/x":"y""#),
            Some("is not allowed to modify labels: node-restriction.kubernetes.io/x"),
        ),
        (
            "core/nodes n1",
            Update,
            labels(r#""topology.kubernetes.io/zone":"b""#),
            labels(r#""topology.kubernetes.io/zone":"a""#),
            None,
        ),
        ("core/nodes n1", Delete, String::new(), node(""), None),
        (
            "core/persistentvolumeclaims a/c",
            Update,
            claim("", ""),
            claim("", ""),
            Some("may only update PVC status"),
        ),
        (
            "core/persistentvolumeclaims/status a/c",
            Update,
            claim(r#""capacity":{"storage":"2Gi"},"conditions":[]"#, ""),
            claim("", ""),
            None,
        ),
        (
            "core/persistentvolumeclaims/status a/c",
            Update,
            claim(r#""phase":"Bound""#, ""),
            claim("", ""),
            Some(STATUS),
        ),
        (
            "core/persistentvolumeclaims/status a/c",
            Update,
            claim("", r#","labels":{"a":"b"}"#),
            claim("", ""),
            Some(STATUS),
        ),
        ("coordination.k8s.io/leases kube-node-lease/n1", Create, String::new(), String::new(), None),
        ("coordination.k8s.io/leases kube-node-lease/n2", Create, String::new(), String::new(), Some(LEASE)),
        (
            "coordination.k8s.io/leases a/n1",
            Update,
            String::new(),
            String::new(),
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
        ("storage.k8s.io/csinodes n1", Create, String::new(), String::new(), None),
        (
            "storage.k8s.io/csinodes n2",
            Delete,
            String::new(),
            String::new(),
            Some("can only access CSINode with the same name as the requesting node"),
        ),
        ("resource.k8s.io/resourceslices s", Create, MINE.into(), String::new(), None),
        (
            "resource.k8s.io/resourceslices s",
            Create,
            OTHERS.into(),
            String::new(),
            Some("can only create ResourceSlice with the same NodeName as the requesting node"),
        ),
        (
            "resource.k8s.io/resourceslices s",
            Delete,
            String::new(),
            OTHERS.into(),
            Some("can only delete ResourceSlice with the same NodeName as the requesting node"),
        ),
        ("resource.k8s.io/resourceslices s", Update, OTHERS.into(), OTHERS.into(), None),
        ("core/events a/e", Create, String::new(), String::new(), None),
        ("core/serviceaccounts a/sa", Create, String::new(), String::new(), None),
    ];
    for (what, operation, new, old, reason) in rows {
        let expected = reason.map(|reason| Refusal::Forbidden(reason.to_owned()));
        assert_eq!(
            refusal(what, operation, &new, &old, RelatedObjects::default()),
            expected,
            "{what} {operation:?} {new}"
        );
    }
}

#[test]
fn mirror_pods_by_table() {
    let pod = |annotations: &str, owners: &str, spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"m","annotations":{{{annotations}}},"ownerReferences":[{owners}]}},"spec":{{"nodeName":"n1"{spec}}}}}"#
        )
    };
    const MIRRORED: &str = r#""kubernetes.io/config.mirror":"x""#;
    let owner = r#"{"apiVersion":"v1","kind":"Node","name":"n1","uid":"node-uid","controller":true}"#;
    let volume = |source: &str| pod(MIRRORED, owner, &format!(r#","volumes":[{{"name":"v",{source}}}]"#));
    let rows: Vec<(String, Option<&str>)> = vec![
        (pod(MIRRORED, owner, ""), None),
        (volume(r#""hostPath":{"path":"/x"}"#), None),
        (pod("", owner, ""), Some("pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods")),
        (pod(MIRRORED, owner, "").replace("\"nodeName\":\"n1\"", "\"nodeName\":\"n2\""), Some("node \"n1\" can only create pods with spec.nodeName set to itself")),
        (pod(MIRRORED, "", ""), Some("node \"n1\" can only create pods with an owner reference set to itself")),
        (pod(MIRRORED, &format!("{owner},{owner}"), ""), Some("node \"n1\" can only create pods with a single owner reference set to itself")),
        (pod(MIRRORED, &owner.replace("n1", "n2"), ""), Some("node \"n1\" can only create pods with an owner reference set to itself")),
        (pod(MIRRORED, &owner.replace("true", "false"), ""), Some("node \"n1\" can only create pods with a controller owner reference set to itself")),
        (pod(MIRRORED, &owner.replace("true", "true,\"blockOwnerDeletion\":true"), ""), Some("node \"n1\" must not set blockOwnerDeletion on an owner reference")),
        (pod(MIRRORED, &owner.replace("node-uid", "other"), ""), Some("node n1 UID mismatch: expected other got node-uid")),
        (pod(MIRRORED, owner, r#","serviceAccountName":"sa""#), Some("node \"n1\" can not create pods that reference serviceaccounts")),
        (pod(MIRRORED, owner, r#","imagePullSecrets":[{"name":"s"}]"#), Some("node \"n1\" can not create pods that reference secrets")),
        (pod(MIRRORED, owner, r#","resourceClaims":[{"name":"c"}]"#), Some("node \"n1\" can not create pods that reference resourceclaims")),
        (volume(r#""configMap":{"name":"c"}"#), Some("node \"n1\" can not create pods that reference configmaps")),
        (volume(r#""csi":{"driver":"d"}"#), Some("node \"n1\" can not create pods that reference csidrivers (via CSI volumes)")),
        (volume(r#""persistentVolumeClaim":{"claimName":"c"}"#), Some("node \"n1\" can not create pods that reference persistentvolumeclaims")),
        (
            volume(r#""projected":{"sources":[{"downwardAPI":{}},{"serviceAccountToken":{"path":"t"}}]}"#),
            Some("node \"n1\" can not create pods that reference serviceaccounts (via projected volumes)"),
        ),
        (volume(r#""new":{}"#), Some("error checking mirror pod for API references: unknown volume type for volume  \"v\"")),
    ];
    for (pod, reason) in rows {
        let expected = reason.map(|reason| Refusal::Forbidden(reason.to_owned()));
        assert_eq!(refusal("core/pods a/m", Create, &pod, "", related("", NODE, "")), expected, "{pod}");
    }
    let gone = refusal("core/pods a/m", Create, &pod(MIRRORED, owner, ""), "", RelatedObjects::default());
    assert_eq!(gone, Some(Refusal::NotFound("nodes", "n1".into())));
}

#[test]
fn tokens_evictions_and_certificates() {
    let token = |reference: &str| format!(r#"{{"spec":{{"boundObjectRef":{{{reference}}}}}}}"#);
    let bound = r#""apiVersion":"v1","kind":"Pod","name":"p","uid":"u1""#;
    let forbidden = |why: &str| Some(Refusal::Forbidden(why.to_owned()));
    let rows = [
        (bound.to_owned(), MINE, None),
        (String::new(), MINE, forbidden("node requested token not bound to a pod")),
        (bound.replace("Pod", "Secret"), MINE, forbidden("node requested token not bound to a pod")),
        (bound.replace("u1", ""), MINE, forbidden("node requested token with a pod binding without a uid")),
        (bound.to_owned(), "", Some(Refusal::NotFound("pods", "p".into()))),
        (
            bound.replace("u1", "u2"),
            MINE,
            forbidden("the UID in the bound object reference (u2) does not match the UID in record. The object might have been deleted and then recreated"),
        ),
        (bound.to_owned(), OTHERS, forbidden("node requested token bound to a pod scheduled on a different node")),
    ];
    for (reference, pod, expected) in rows {
        let refused =
            refusal("core/serviceaccounts/token a/sa", Create, &token(&reference), "", related(pod, "", ""));
        assert_eq!(refused, expected, "{reference} {pod}");
    }
    let evict = |pod: &str| refusal("core/pods/eviction a/p", Create, "{}", "", related(pod, "", ""));
    assert_eq!(evict(MINE), None);
    assert_eq!(evict(OTHERS), forbidden("node n1 can only evict pods with spec.nodeName set to itself"));
    assert_eq!(evict(""), Some(Refusal::NotFound("pods", "p".into())));

    let request = r#"{"spec":{"nodeName":"n1","nodeUID":"node-uid","podName":"p","podUID":"u1","serviceAccountName":"sa","serviceAccountUID":"sa-uid"}}"#;
    let account = r#"{"metadata":{"name":"sa","uid":"sa-uid"}}"#;
    let ask = |request: &str, pod: &str, account: &str| {
        refusal(
            "certificates.k8s.io/podcertificaterequests a/r",
            Create,
            request,
            "",
            related(pod, NODE, account),
        )
    };
    assert_eq!(ask(request, MINE, account), None);
    assert!(matches!(ask(&request.replace("\"n1\"", "\"n2\""), MINE, account), Some(Refusal::Forbidden(_))));
    assert!(matches!(ask(&request.replace("\"u1\"", "\"u2\""), MINE, account), Some(Refusal::Later(_))));
    assert!(matches!(ask(request, OTHERS, account), Some(Refusal::Forbidden(_))));
    assert!(matches!(ask(request, MINE, ""), Some(Refusal::Later(_))));
    assert!(matches!(ask(&request.replace("\"sa\"", "\"sb\""), MINE, account), Some(Refusal::Forbidden(_))));

    // A kubelet's certificate signing request must have its own name.
    use base64::Engine as _;
    let csr = |name: &str, signer: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let request = base64::engine::general_purpose::STANDARD.encode(pem);
        let object = format!(r#"{{"spec":{{"signerName":"{signer}","request":"{request}"}}}}"#);
        refusal(
            "certificates.k8s.io/certificatesigningrequests c",
            Create,
            &object,
            "",
            RelatedObjects::default(),
        )
    };
    assert_eq!(csr("system:node:n1", "kubernetes.io/kubelet-serving"), None);
    let denied = forbidden("can only create a node CSR with CN=system:node:n1");
    assert_eq!(csr("system:node:n2", "kubernetes.io/kube-apiserver-client-kubelet"), denied);
    assert_eq!(csr("anything", "example.com/other"), None);
}
