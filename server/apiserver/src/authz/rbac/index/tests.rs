use super::*;
use crate::authz::{ResourceTarget, Target};

fn key(namespace: &str, name: &str) -> RoleKey {
    RoleKey { namespace: namespace.into(), name: name.into() }
}

fn rule(text: &str) -> PolicyRule {
    super::super::bootstrap::rule(text.split_ascii_whitespace())
}

/// `Role/x` or `ClusterRole/x`, then subjects: `User/a`, `Group/a`, `ServiceAccount/ns/a` or
/// `ServiceAccount//a`.
fn binding(role: &str, subjects: &[&str]) -> Value {
    let (kind, name) = role.split_once('/').unwrap();
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|subject| match subject.split('/').collect::<Vec<_>>().as_slice() {
            [kind, namespace, name] => {
                plinth_codec::tree!({ "kind": *kind, "namespace": *namespace, "name": *name })
            }
            parts => plinth_codec::tree!({ "kind": parts[0], "name": parts[1] }),
        })
        .collect();
    let role_ref = plinth_codec::tree!({ "kind": kind, "name": name });
    plinth_codec::tree!({ "roleRef": role_ref, "subjects": subjects })
}

fn sample() -> Index {
    let mut index = Index::default();
    let pods = vec![rule("get core pods")];
    let secrets = vec![rule("get core secrets")];
    index.set_role(key("", "all-pods"), Some(pods.clone()));
    index.set_role(key("a", "pods"), Some(pods));
    index.set_role(key("a", "secrets"), Some(secrets));
    index.set_binding(key("", "ops"), &binding("ClusterRole/all-pods", &["Group/ops", "User/root"]));
    index.set_binding(key("a", "jane"), &binding("Role/pods", &["User/jane"]));
    index.set_binding(
        key("a", "bots"),
        &binding("Role/secrets", &["ServiceAccount/b/bot", "ServiceAccount//own"]),
    );
    index.set_binding(key("b", "cluster-role-here"), &binding("ClusterRole/all-pods", &["User/jane"]));
    index.set_binding(key("b", "lost"), &binding("Role/gone", &["User/jane"]));
    index
}

fn ask(index: &Index, user: &User, namespace: &str, resource: &str) -> Result<String, Vec<String>> {
    let target = Target::Resource(ResourceTarget { resource, namespace, ..ResourceTarget::default() });
    index.allowing(user, namespace, |rule| rule.allows("get", &target)).map(|grant| grant.to_string())
}

#[test]
fn who_is_bound_by_table() {
    let index = sample();
    let (ops, jane) = (User::new("o", &["x", "ops"]), User::new("jane", &[]));
    let (bot, own) =
        (User::new("system:serviceaccount:b:bot", &[]), User::new("system:serviceaccount:a:own", &[]));
    let other = User::new("system:serviceaccount:b:own", &[]);
    let by_group = "RBAC: allowed by ClusterRoleBinding \"ops\" of ClusterRole \"all-pods\" to Group \"ops\"";
    let by_user = "RBAC: allowed by ClusterRoleBinding \"ops\" of ClusterRole \"all-pods\" to User \"root\"";
    let jane_a = "RBAC: allowed by RoleBinding \"jane/a\" of Role \"pods\" to User \"jane\"";
    let jane_b =
        "RBAC: allowed by RoleBinding \"cluster-role-here/b\" of ClusterRole \"all-pods\" to User \"jane\"";
    let bot_a = "RBAC: allowed by RoleBinding \"bots/a\" of Role \"secrets\" to ServiceAccount \"bot/b\"";
    let own_a = "RBAC: allowed by RoleBinding \"bots/a\" of Role \"secrets\" to ServiceAccount \"own/a\"";
    let rows = [
        (&ops, "a", "pods", Ok(by_group)),
        (&ops, "", "pods", Ok(by_group)),
        (&ops, "a", "secrets", Err(vec![])),
        (&User::new("root", &[]), "z", "pods", Ok(by_user)),
        (&User::new("root", &["ops"]), "z", "pods", Ok(by_group)),
        (&jane, "a", "pods", Ok(jane_a)),
        (&jane, "b", "pods", Ok(jane_b)),
        (&jane, "", "pods", Err(vec![])),
        (&jane, "c", "pods", Err(vec![])),
        (&jane, "b", "secrets", Err(vec!["role.rbac.authorization.k8s.io \"gone\" not found".to_owned()])),
        (&bot, "a", "secrets", Ok(bot_a)),
        (&bot, "b", "secrets", Err(vec![])),
        (&own, "a", "secrets", Ok(own_a)),
        (&other, "a", "secrets", Err(vec![])),
    ];
    for (user, namespace, resource, expected) in rows {
        let found = ask(&index, user, namespace, resource);
        assert_eq!(found, expected.map(str::to_owned), "{} {namespace} {resource}", user.name);
    }
}

#[test]
fn changes_take_the_old_state_away() {
    let mut index = sample();
    let jane = User::new("jane", &[]);
    // The role is changed, deleted and recreated under its bindings.
    index.set_role(key("a", "pods"), Some(vec![rule("get core secrets")]));
    assert!(ask(&index, &jane, "a", "pods").is_err());
    assert!(ask(&index, &jane, "a", "secrets").is_ok());
    index.set_role(key("a", "pods"), None);
    assert_eq!(ask(&index, &jane, "a", "pods").unwrap_err().len(), 1);
    index.set_role(key("a", "pods"), Some(vec![rule("get core pods")]));
    assert!(ask(&index, &jane, "a", "pods").is_ok());
    // The binding's subjects are changed, then it is deleted.
    index.set_binding(key("a", "jane"), &binding("Role/pods", &["User/joe"]));
    assert!(ask(&index, &jane, "a", "pods").is_err());
    assert!(ask(&index, &User::new("joe", &[]), "a", "pods").is_ok());
    index.remove_binding(&key("a", "jane"));
    assert!(ask(&index, &User::new("joe", &[]), "a", "pods").is_err());
}

#[test]
fn nothing_stays_behind() {
    let mut index = sample();
    let bindings: Vec<RoleKey> = index.bindings.keys().cloned().collect();
    bindings.iter().for_each(|key| index.remove_binding(key));
    for key in index.roles.keys().cloned().collect::<Vec<_>>() {
        index.set_role(key, None);
    }
    assert!(index.roles.is_empty() && index.bindings.is_empty());
    assert!(index.subjects.users.is_empty() && index.subjects.groups.is_empty());
}

#[test]
fn a_binding_counts_once_among_the_rules() {
    let mut index = sample();
    index.set_binding(key("a", "twice"), &binding("Role/pods", &["User/joe", "Group/g", "User/joe"]));
    let (rules, errors) = index.rules_for(&User::new("joe", &["g"]), "a");
    assert_eq!((rules.concat(), errors), (vec![rule("get core pods")], vec![]));
}
