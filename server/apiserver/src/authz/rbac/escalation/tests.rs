use super::*;
use crate::authz::tests::chain;
use crate::authz::Mode;

fn parse(text: &str) -> Value {
    plinth_codec::json::parse(text.as_bytes()).unwrap()
}

/// `carol` administers roles of namespace `a` and reads pods there, `erin` may escalate and bind, `root` is
/// cluster admin by role.
fn world() -> crate::authz::tests::Chain {
    let chain = chain(&[Mode::Rbac]);
    let put = |plural: &str, object: &str| chain.put(GROUP, plural, object);
    put(
        "clusterroles",
        r#"{"metadata":{"name":"cluster-admin"},"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]},{"verbs":["*"],"nonResourceURLs":["*"]}]}"#,
    );
    put(
        "clusterroles",
        r#"{"metadata":{"name":"pods"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#,
    );
    put(
        "clusterroles",
        r#"{"metadata":{"name":"escalator"},"rules":[{"verbs":["escalate"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"]},{"verbs":["bind"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"resourceNames":["cluster-admin"]}]}"#,
    );
    put(
        "roles",
        r#"{"metadata":{"name":"own","namespace":"a"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#,
    );
    let bind = |namespace: &str, role: &str, user: &str| {
        let object = format!(
            r#"{{"metadata":{{"name":"{user}","namespace":"{namespace}"}},"roleRef":{{"apiGroup":"{GROUP}","kind":"ClusterRole","name":"{role}"}},"subjects":[{{"kind":"User","name":"{user}"}}]}}"#
        );
        put("rolebindings", &object);
    };
    bind("a", "pods", "carol");
    bind("a", "escalator", "erin");
    put(
        "clusterrolebindings",
        &format!(
            r#"{{"metadata":{{"name":"root"}},"roleRef":{{"apiGroup":"{GROUP}","kind":"ClusterRole","name":"cluster-admin"}},"subjects":[{{"kind":"User","name":"root"}}]}}"#
        ),
    );
    chain
}

#[tokio::test]
async fn writes_by_table() {
    let chain = world();
    const PODS: &str =
        r#"{"metadata":{"name":"r"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#;
    const MORE: &str = r#"{"metadata":{"name":"r"},"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]},{"verbs":["get"],"apiGroups":[""],"resources":["nodes"]}]}"#;
    const SUM: &str =
        r#"{"metadata":{"name":"r"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}"#;
    const MISSING: &str = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"carol\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}";
    const ALL: &str = "rolebindings.rbac.authorization.k8s.io \"r\" is forbidden: user \"carol\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    const AGGREGATES: &str = "clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    let binding = |kind: &str, role: &str| {
        format!(
            r#"{{"metadata":{{"name":"r"}},"roleRef":{{"apiGroup":"{GROUP}","kind":"{kind}","name":"{role}"}}}}"#
        )
    };
    let (admin, pods) = (binding("ClusterRole", "cluster-admin"), binding("ClusterRole", "pods"));
    let (own, gone) = (binding("Role", "own"), binding("Role", "gone"));
    let not_found = "rolebindings.rbac.authorization.k8s.io \"gone\" not found";
    // user, plural, namespace, new, old, error
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, Option<&'a str>, Option<&'a str>);
    let rows: &[Row<'_>] = &[
        ("carol", "roles", "a", PODS, None, None),
        ("carol", "roles", "a", MORE, None, Some(MISSING)),
        ("carol", "roles", "a", MORE, Some(PODS), Some(MISSING)),
        ("erin", "roles", "a", MORE, None, None),
        ("root", "roles", "a", MORE, None, None),
        ("root", "clusterroles", "", SUM, None, None),
        ("carol", "clusterroles", "", SUM, None, Some(AGGREGATES)),
        ("carol", "clusterroles", "", r#"{"metadata":{"name":"r"}}"#, Some(SUM), Some(AGGREGATES)),
        ("carol", "rolebindings", "a", &pods, None, None),
        ("carol", "rolebindings", "a", &own, None, None),
        ("carol", "rolebindings", "a", &admin, None, Some(ALL)),
        ("carol", "rolebindings", "a", &gone, None, Some(not_found)),
        ("erin", "rolebindings", "a", &admin, None, None),
        ("root", "clusterrolebindings", "", &admin, None, None),
    ];
    for (user, plural, namespace, new, old, error) in rows {
        let (user, new) = (User::new(*user, &["dev"]), parse(new));
        let old = old.map(parse);
        let write = RoleWrite { user: &user, plural, namespace, name: "", new: &new, old: old.as_ref() };
        let found = check(&chain, write).await.err().map(|error| error.message);
        assert_eq!(found.as_deref(), *error, "{} {plural} {new:?}", user.name);
    }
    // Erin may bind that one cluster role in that one namespace.
    let erin = User::new("erin", &[]);
    for (plural, namespace, binding) in
        [("rolebindings", "b", &admin), ("clusterrolebindings", "", &admin), ("rolebindings", "a", &pods)]
    {
        let new = parse(binding);
        let write = RoleWrite { user: &erin, plural, namespace, name: "", new: &new, old: None };
        assert_eq!(check(&chain, write).await.unwrap_err().code, 403, "{plural} {namespace}");
    }
}

#[tokio::test]
async fn the_collector_and_masters_pass() {
    let chain = world();
    let nobody = User::new("nobody", &[]);
    let masters = User::new("admin", &[MASTERS_GROUP]);
    let old = parse(
        r#"{"metadata":{"name":"r","finalizers":["x"]},"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#,
    );
    let mut new = old.clone();
    new.object_at_mut(&["metadata"]).unwrap().remove("finalizers");
    fn write<'a>(user: &'a User, new: &'a Value, old: Option<&'a Value>) -> RoleWrite<'a> {
        RoleWrite { user, plural: "roles", namespace: "a", name: "r", new, old }
    }
    assert!(check(&chain, write(&nobody, &new, Some(&old))).await.is_ok());
    assert!(check(&chain, write(&nobody, &new, None)).await.is_err());
    assert!(check(&chain, write(&masters, &new, None)).await.is_ok());
    new.object_at_mut(&["metadata", "labels"]).unwrap().insert("a", "b");
    assert!(check(&chain, write(&nobody, &new, Some(&old))).await.is_err());
}
