use super::*;
use crate::authz::tests::{chain, gated_chain, Chain};
use crate::authz::{Mode, Selectors};

/// Node `n1` runs `a/web`, which references one of everything; node `n2` runs `a/other`, which references
/// nothing; `a/waiting` is not bound to a node; `a/mirror` is a mirror pod of `n1` that references a Secret.
fn world() -> Chain {
    let gates = FeatureGates::from_iter(["PodCertificateRequest"]);
    let chain = gated_chain(&[Mode::Node], &gates);
    chain.put("", "pods", r#"{"metadata":{"name":"web","namespace":"a"},"spec":{"nodeName":"n1","serviceAccountName":"runner",
        "imagePullSecrets":[{"name":"pull"}],
        "initContainers":[{"name":"i","env":[{"name":"X","valueFrom":{"secretKeyRef":{"name":"env-secret","key":"k"}}},{"name":"Y","valueFrom":{"configMapKeyRef":{"name":"env-config","key":"k"}}}]}],
        "containers":[{"name":"c","envFrom":[{"secretRef":{"name":"from-secret"}},{"configMapRef":{"name":"from-config"}}]}],
        "volumes":[{"name":"s","secret":{"secretName":"vol-secret"}},{"name":"m","configMap":{"name":"vol-config"}},
            {"name":"p","projected":{"sources":[{"secret":{"name":"proj-secret"}},{"configMap":{"name":"proj-config"}}]}},
            {"name":"c","csi":{"driver":"d","nodePublishSecretRef":{"name":"csi-secret"}}},
            {"name":"d","persistentVolumeClaim":{"claimName":"data"}},{"name":"scratch","ephemeral":{}}],
        "resourceClaims":[{"name":"g","resourceClaimName":"gpu"},{"name":"t","resourceClaimTemplateName":"tpl"}]},
        "status":{"resourceClaimStatuses":[{"name":"t","resourceClaimName":"web-t-1"}],"extendedResourceClaimStatus":{"resourceClaimName":"extended"}}}"#);
    chain.put("", "pods", r#"{"metadata":{"name":"other","namespace":"a"},"spec":{"nodeName":"n2"}}"#);
    chain.put("", "pods", r#"{"metadata":{"name":"waiting","namespace":"a"},"spec":{"volumes":[{"name":"s","secret":{"secretName":"waiting-secret"}}]}}"#);
    chain.put("", "pods", r#"{"metadata":{"name":"mirror","namespace":"a","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n1","volumes":[{"name":"s","secret":{"secretName":"mirror-secret"}}]}}"#);
    chain.put("", "persistentvolumes", r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"namespace":"a","name":"data"},"csi":{"driver":"d","volumeHandle":"h","nodeStageSecretRef":{"namespace":"vault","name":"stage"},"controllerPublishSecretRef":{"namespace":"vault","name":"controller"}}}}"#);
    chain.put("", "persistentvolumes", r#"{"metadata":{"name":"azure"},"spec":{"claimRef":{"namespace":"a","name":"web-scratch"},"azureFile":{"secretName":"file-secret","shareName":"s"}}}"#);
    chain.put("", "persistentvolumes", r#"{"metadata":{"name":"free"},"spec":{}}"#);
    chain.put(
        "storage.k8s.io",
        "volumeattachments",
        r#"{"metadata":{"name":"att"},"spec":{"nodeName":"n1","attacher":"d","source":{}}}"#,
    );
    chain.put("resource.k8s.io", "resourceslices", r#"{"metadata":{"name":"slice"},"spec":{"nodeName":"n1","driver":"d","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}"#);
    chain
}

/// `GROUP/RESOURCE[/SUBRESOURCE] [NAMESPACE/]NAME`, the group `core` for none; `-` means no name.
async fn decide(
    chain: &Chain,
    node: &str,
    verb: &str,
    what: &str,
    selectors: Option<&Selectors>,
) -> Decision {
    let user = User::new(format!("system:node:{node}"), &["system:nodes"]);
    let (resource, object) = what.split_once(' ').unwrap();
    let parts: Vec<&str> = resource.split('/').collect();
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let target = ResourceTarget {
        group: if parts[0] == "core" { "" } else { parts[0] },
        version: "v1",
        resource: parts[1],
        subresource: parts.get(2).copied().unwrap_or_default(),
        name: if name == "-" { "" } else { name },
        namespace,
        selectors,
    };
    chain.authorize(&Attributes::resource(&user, verb, target)).await
}

#[tokio::test]
async fn what_a_nodes_pods_need() {
    let chain = world();
    let needed = [
        "core/secrets a/pull",
        "core/secrets a/env-secret",
        "core/secrets a/from-secret",
        "core/secrets a/vol-secret",
        "core/secrets a/proj-secret",
        "core/secrets a/csi-secret",
        "core/secrets vault/stage",
        "core/secrets a/file-secret",
        "core/configmaps a/env-config",
        "core/configmaps a/from-config",
        "core/configmaps a/vol-config",
        "core/configmaps a/proj-config",
        "core/persistentvolumeclaims a/data",
        "core/persistentvolumeclaims a/web-scratch",
        "core/persistentvolumes pv",
        "core/persistentvolumes azure",
        "core/serviceaccounts a/runner",
        "core/pods a/web",
        "core/pods a/mirror",
        "resource.k8s.io/resourceclaims a/gpu",
        "resource.k8s.io/resourceclaims a/web-t-1",
        "resource.k8s.io/resourceclaims a/extended",
        "storage.k8s.io/volumeattachments att",
        "resource.k8s.io/resourceslices slice",
    ];
    for what in needed {
        assert!(decide(&chain, "n1", "get", what, None).await.allowed(), "{what}");
        let denied = decide(&chain, "n2", "get", what, None).await;
        let reason = "no relationship found between node 'n2' and this object";
        assert_eq!((denied.allowed(), denied.reason.to_string().as_str()), (false, reason), "{what}");
    }
    let not_needed = [
        "core/secrets a/waiting-secret",
        "core/secrets a/mirror-secret",
        "core/secrets vault/controller",
        "core/secrets b/pull",
        "core/configmaps a/pull",
        "core/persistentvolumes free",
        "core/pods a/other",
        "core/pods a/waiting",
        "core/serviceaccounts a/other",
    ];
    for what in not_needed {
        assert!(!decide(&chain, "n1", "get", what, None).await.allowed(), "{what}");
    }
    // Deleted objects no longer grant access.
    chain.delete("core/persistentvolumes/pv");
    assert!(!decide(&chain, "n1", "get", "core/secrets vault/stage", None).await.allowed());
    chain.delete("core/pods/a/web");
    for what in ["core/secrets a/pull", "core/persistentvolumes azure", "core/pods a/web"] {
        assert!(!decide(&chain, "n1", "get", what, None).await.allowed(), "{what} after the pod");
    }
}

#[tokio::test]
async fn requests_by_table() {
    let chain = world();
    let mine = Selectors::of_query("fieldSelector=spec.nodeName%3Dn1");
    let others = Selectors::of_query("fieldSelector=spec.nodeName%3Dn2");
    const SLICES: &str = "can only list/watch/deletecollection resourceslices with nodeName field selector";
    const PODS: &str = "can only list/watch pods with spec.nodeName field selector";
    // verb, target, selectors, the reason of a refusal (`None` when it is allowed)
    let rows = [
        ("list", "core/secrets a/pull", None, None),
        ("watch", "core/configmaps a/vol-config", None, None),
        ("list", "core/secrets a/-", None, Some("No Object name found")),
        ("update", "core/secrets a/pull", None, Some("can only read resources of this type")),
        ("get", "core/secrets pull", None, Some("can only read namespaced object of this type")),
        ("get", "core/secrets/x a/pull", None, Some("cannot read subresource")),
        (
            "list",
            "core/persistentvolumeclaims a/data",
            None,
            Some("can only get individual resources of this type"),
        ),
        ("get", "core/persistentvolumes/status pv", None, Some("cannot get subresource")),
        ("patch", "core/persistentvolumeclaims/status a/data", None, None),
        (
            "get",
            "core/persistentvolumeclaims/status a/data",
            None,
            Some("can only get/update/patch this type"),
        ),
        ("create", "core/serviceaccounts/token a/runner", None, None),
        (
            "create",
            "core/serviceaccounts/token a/other",
            None,
            Some("no relationship found between node 'n1' and this object"),
        ),
        (
            "create",
            "core/serviceaccounts/token a/-",
            None,
            Some("can only create tokens for individual service accounts"),
        ),
        (
            "create",
            "core/serviceaccounts a/x",
            None,
            Some("can only create token subresource of serviceaccount"),
        ),
        ("get", "coordination.k8s.io/leases kube-node-lease/n1", None, None),
        ("create", "coordination.k8s.io/leases kube-node-lease/-", None, None),
        (
            "get",
            "coordination.k8s.io/leases kube-node-lease/n2",
            None,
            Some("can only access node lease with the same name as the requesting node"),
        ),
        (
            "get",
            "coordination.k8s.io/leases a/n1",
            None,
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
        (
            "list",
            "coordination.k8s.io/leases kube-node-lease/-",
            None,
            Some("can only get, create, update, patch, or delete a node lease"),
        ),
        ("update", "storage.k8s.io/csinodes n1", None, None),
        (
            "update",
            "storage.k8s.io/csinodes n2",
            None,
            Some("can only access CSINode with the same name as the requesting node"),
        ),
        ("list", "resource.k8s.io/resourceslices -", mine.as_ref(), None),
        ("list", "resource.k8s.io/resourceslices -", others.as_ref(), Some(SLICES)),
        ("create", "resource.k8s.io/resourceslices -", None, None),
        ("get", "core/nodes n1", None, None),
        ("patch", "core/nodes/status n2", None, None),
        ("get", "core/nodes n2", None, Some("node 'n1' cannot read 'n2', only its own Node object")),
        ("list", "core/nodes -", None, Some("node 'n1' cannot read all nodes, only its own Node object")),
        ("delete", "core/nodes n1", None, Some("")),
        ("list", "core/pods -", mine.as_ref(), None),
        ("watch", "core/pods -", others.as_ref(), Some(PODS)),
        ("list", "core/pods -", None, Some(PODS)),
        ("list", "core/pods a/web", None, None),
        ("create", "core/pods a/-", None, None),
        ("create", "core/pods/eviction a/x", None, None),
        ("update", "core/pods a/web", None, Some("")),
        ("create", "core/pods/exec a/web", None, Some("")),
        ("get", "core/services a/x", None, None),
        ("create", "core/services a/x", None, Some("")),
        ("create", "authorization.k8s.io/subjectaccessreviews -", None, None),
        (
            "patch",
            "certificates.k8s.io/podcertificaterequests a/x",
            None,
            Some("nodes may not patch podcertificaterequests"),
        ),
    ];
    for (verb, what, selectors, refusal) in rows {
        let decision = decide(&chain, "n1", verb, what, selectors).await;
        let found = (!decision.allowed()).then(|| decision.reason.to_string());
        assert_eq!(found.as_deref(), refusal, "{verb} {what}");
    }
}

#[tokio::test]
async fn who_is_a_node() {
    let chain = world();
    let ask = |user: User| async {
        let user = user;
        chain.authorize(&Attributes::resource(&user, "get", NODES)).await
    };
    const NODES: ResourceTarget<'static> = ResourceTarget {
        group: "",
        version: "v1",
        resource: "nodes",
        subresource: "",
        name: "n1",
        namespace: "",
        selectors: None,
    };
    assert!(ask(User::new("system:node:n1", &["system:nodes"])).await.allowed());
    assert!(!ask(User::new("system:node:n1", &["system:authenticated"])).await.allowed());
    assert!(!ask(User::new("n1", &["system:nodes"])).await.allowed());
    let nameless = ask(User::new("system:node:", &["system:nodes"])).await;
    assert_eq!(nameless.reason.to_string(), "unknown node for user \"system:node:\"");
}

#[tokio::test]
async fn certificate_requests_have_a_gate() {
    let (gated, ungated) = (world(), chain(&[Mode::Node]));
    const REQUESTS: &str = "certificates.k8s.io/podcertificaterequests a/-";
    assert!(decide(&gated, "n1", "create", REQUESTS, None).await.allowed());
    let refused = decide(&ungated, "n1", "create", REQUESTS, None).await;
    assert_eq!((refused.allowed(), refused.reason.to_string().as_str()), (false, ""));
}
