//! What a decision costs with 1,000 roles and 5,000 bindings: the whole chain of the default mode, from the
//! question to the decision, over a store that holds them.
//!
//! `cargo bench -p plinth-benches --bench authz`; figures in `docs/benchmarks.md`.

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use plinth_api::User;
use plinth_apiserver::authz::rbac::GROUP;
use plinth_apiserver::authz::{Attributes, AuthorizationOptions, Authorizer, ResourceTarget};
use plinth_apiserver::feature_gates::FeatureGates;
use plinth_codec::{tree, Value};
use plinth_engine::{Engine, Options, Transaction};
use plinth_registry::{object_key, resource_prefix, Registry};
use plinth_storage::{encode_object, Store};

const ROLES: usize = 1_000;
const BINDINGS: usize = 5_000;
const NAMESPACES: usize = 100;
/// Rules of each role, and what each is about.
const RULES: usize = 10;

/// Role `n` of namespace `n % 100` reads ten resources; binding `n` gives role `n % 1000` to user `n % 500`,
/// to group
/// `n % 50` or to a service account, in the role's namespace. Every tenth is of the cluster.
fn objects() -> Vec<(&'static str, Value)> {
    let mut out = Vec::with_capacity(ROLES + BINDINGS);
    let namespace = |n: usize| format!("ns-{}", n % NAMESPACES);
    for n in 0..ROLES {
        let rules: Vec<Value> = (0..RULES)
            .map(|r| {
                tree!({
                    "apiGroups": tree!(["apps", "example.com"]),
                    "resources": tree!([format!("things{r}"), format!("others{r}/status")]),
                    "verbs": tree!(["get", "list", "watch"]),
                })
            })
            .collect();
        let cluster = n.is_multiple_of(10);
        let mut metadata = tree!({ "name": format!("role-{n}") });
        if !cluster {
            metadata.as_object_mut().unwrap().insert("namespace", namespace(n));
        }
        let plural = if cluster { "clusterroles" } else { "roles" };
        out.push((plural, tree!({ "metadata": metadata, "rules": rules })));
    }
    for n in 0..BINDINGS {
        let role = n % ROLES;
        let cluster = role.is_multiple_of(10);
        let subject = match n % 3 {
            0 => tree!({ "apiGroup": GROUP, "kind": "User", "name": format!("user-{}", n % 500) }),
            1 => tree!({ "apiGroup": GROUP, "kind": "Group", "name": format!("group-{}", n % 50) }),
            _ => tree!({ "kind": "ServiceAccount", "name": "default", "namespace": namespace(n) }),
        };
        let mut metadata = tree!({ "name": format!("binding-{n}") });
        if !cluster {
            metadata.as_object_mut().unwrap().insert("namespace", namespace(role));
        }
        let kind = if cluster { "ClusterRole" } else { "Role" };
        let role_ref = tree!({ "apiGroup": GROUP, "kind": kind, "name": format!("role-{role}") });
        let plural = if cluster { "clusterrolebindings" } else { "rolebindings" };
        out.push((
            plural,
            tree!({ "metadata": metadata, "roleRef": role_ref, "subjects": tree!([subject]) }),
        ));
    }
    out
}

fn fill(store: &Store) {
    let registry = Registry::builtin();
    let mut transaction = Transaction::new();
    for (plural, tree) in objects() {
        let resource = registry.resources.iter().find(|r| r.row.plural == plural).unwrap();
        let text = |member: &str| tree.str_at(&["metadata", member]).unwrap_or_default().to_owned();
        let key = object_key(&resource_prefix(GROUP, plural), &text("namespace"), &text("name"));
        transaction = transaction.put(key, encode_object(resource, tree).unwrap());
        if transaction.len() == 1000 {
            store.engine().transact(std::mem::take(&mut transaction)).wait().unwrap();
        }
    }
    store.engine().transact(transaction).wait().unwrap();
}

fn decisions(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(Engine::open(Options::new(dir.path())).unwrap(), Default::default());
    fill(&store);
    let authorizer =
        Authorizer::new(&AuthorizationOptions::default(), store, &FeatureGates::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut group = criterion.benchmark_group("authz");
    let everybody = "system:authenticated";
    let groups = ["group-1", "group-7", "group-13", everybody];
    let rows = [
        ("a user, by a binding of the namespace", User::new("user-3", &[everybody]), "ns-3", "things9", true),
        ("a user in four groups, by a group", User::new("nobody", &groups), "ns-1", "things9", true),
        ("a user in four groups, refused", User::new("user-3", &groups), "ns-3", "secrets", false),
        (
            "a service account",
            User::new("system:serviceaccount:ns-2:default", &["system:serviceaccounts", everybody]),
            "ns-2",
            "things9",
            true,
        ),
        ("nobody, refused", User::new("nobody", &[everybody]), "ns-3", "things9", false),
        ("system:masters", User::new("admin", &["system:masters"]), "ns-3", "things9", true),
    ];
    for (name, user, namespace, resource, allowed) in rows {
        let target =
            ResourceTarget { group: "apps", version: "v1", resource, namespace, ..ResourceTarget::default() };
        let question = Attributes::resource(&user, "get", target);
        assert_eq!(runtime.block_on(authorizer.authorize(&question)).allowed(), allowed, "{name}");
        group.bench_function(name, |b| {
            b.iter(|| runtime.block_on(authorizer.authorize(black_box(&question))))
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
