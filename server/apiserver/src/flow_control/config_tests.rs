//! The default objects: classification of requests, and the effect of invalid objects.

use plinth_codec::tree;

use super::*;
use plinth_api::{parse_route, User};

fn levels(seats: u32) -> Levels {
    Levels::new(seats, FlowMetrics::new(&prometheus::Registry::new()).unwrap())
}

fn of(resource: &str) -> Vec<Value> {
    let objects = bootstrap::objects().into_iter().filter(|o| o.resource == resource);
    objects.map(|o| o.object).collect()
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|g| (*g).to_owned()).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn classify(config: &Config, user: &User, method: &str, uri: &str) -> (String, String, String) {
    let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
    let route = parse_route(&method.parse().unwrap(), path, query).unwrap();
    let verb = method.to_ascii_lowercase();
    let digest = RequestDigest::new(user, &route, &verb);
    let schema = config.classify(&digest).unwrap();
    (schema.name.clone(), schema.level.name().to_owned(), schema.distinguisher.of(&digest).to_owned())
}

/// User, groups, request; expected schema, level, flow.
#[test]
fn requests_belong_to_upstreams_schemas() {
    let mut levels = levels(600);
    let (config, references) = levels.apply_objects(&of("prioritylevelconfigurations"), &of("flowschemas"));
    assert!(references.iter().all(|r| r.found), "{references:?}");
    let authenticated = "system:authenticated";
    let accounts = &["system:serviceaccounts", authenticated][..];
    let node = &["system:nodes", authenticated][..];
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, &'a str, [&'a str; 3]);
    let rows: &[Row] = &[
        ("admin", &["system:masters", authenticated], "GET", "/api/v1/pods", ["exempt", "exempt", ""]),
        ("admin", &["system:masters"], "GET", "/metrics", ["exempt", "exempt", ""]),
        ("system:anonymous", &["system:unauthenticated"], "GET", "/livez", ["probes", "exempt", ""]),
        ("x", &[authenticated], "GET", "/readyz/ping", ["probes", "exempt", ""]),
        ("x", &[authenticated], "POST", "/livez", ["global-default", "global-default", "x"]),
        ("x", &[authenticated], "GET", "/livezx", ["global-default", "global-default", "x"]),
        (
            "system:kube-scheduler",
            &[authenticated],
            "PUT",
            lease,
            ["system-leader-election", "leader-election", "system:kube-scheduler"],
        ),
        (
            "system:kube-scheduler",
            &[authenticated],
            "DELETE",
            lease,
            ["kube-scheduler", "workload-high", "kube-system"],
        ),
        (
            "system:kube-controller-manager",
            &[authenticated],
            "GET",
            "/api/v1/namespaces/n/pods",
            ["kube-controller-manager", "workload-high", "n"],
        ),
        (
            "system:serviceaccount:kube-system:job-controller",
            accounts,
            "PUT",
            lease,
            ["system-leader-election", "leader-election", "system:serviceaccount:kube-system:job-controller"],
        ),
        (
            "system:serviceaccount:kube-system:job-controller",
            accounts,
            "GET",
            "/api/v1/namespaces/n/pods",
            ["kube-system-service-accounts", "workload-high", "n"],
        ),
        (
            "system:serviceaccount:kube-system-not:x",
            accounts,
            "GET",
            "/api/v1/pods",
            ["service-accounts", "workload-low", "system:serviceaccount:kube-system-not:x"],
        ),
        (
            "system:node:n",
            node,
            "PATCH",
            "/api/v1/nodes/n/status",
            ["system-node-high", "node-high", "system:node:n"],
        ),
        ("system:node:n", node, "PUT", lease, ["system-node-high", "node-high", "system:node:n"]),
        ("system:node:n", node, "GET", "/api/v1/nodes/n/proxy", ["system-nodes", "system", "system:node:n"]),
        ("system:node:n", node, "GET", "/api/v1/pods", ["system-nodes", "system", "system:node:n"]),
        ("jane", &[authenticated], "GET", "/api/v1/pods", ["global-default", "global-default", "jane"]),
        ("odd", &[], "GET", "/api/v1/pods", ["catch-all", "catch-all", "odd"]),
    ];
    for (name, groups, method, uri, expected) in rows {
        let (schema, level, flow) = classify(&config, &user(name, groups), method, uri);
        assert_eq!([schema.as_str(), level.as_str(), flow.as_str()], *expected, "{name} {method} {uri}");
    }
}

#[test]
fn mandatory_objects_are_there_whatever_is_deleted() {
    let mut levels = levels(600);
    let (config, references) = levels.apply_objects(&[], &[]);
    assert!(references.is_empty());
    let admin = user("admin", &["system:masters"]);
    assert_eq!(classify(&config, &admin, "GET", "/api/v1/pods").1, "exempt");
    let jane = user("jane", &["system:authenticated"]);
    assert_eq!(classify(&config, &jane, "GET", "/api/v1/pods").1, "catch-all");
    assert_eq!(levels.levels["catch-all"].limit, 600, "the only level has all the seats");
}

fn schema_of(name: &str, level: &str, precedence: i64) -> Value {
    let rule = tree!({
        "subjects": vec![tree!({ "kind": "User", "user": tree!({ "name": "*" }) })],
        "resourceRules": vec![tree!({
            "verbs": vec![Value::from("*")],
            "apiGroups": vec![Value::from("*")],
            "resources": vec![Value::from("*")],
            "namespaces": vec![Value::from("team")],
        })],
    });
    tree!({
        "metadata": tree!({ "name": name, "uid": format!("uid-of-{name}") }),
        "spec": tree!({
            "priorityLevelConfiguration": tree!({ "name": level }),
            "matchingPrecedence": precedence,
            "rules": vec![rule],
        }),
    })
}

#[test]
fn the_lower_precedence_wins_and_ties_go_by_name() {
    let mut levels = levels(100);
    let given = [schema_of("b", "catch-all", 7), schema_of("c", "exempt", 8), schema_of("a", "catch-all", 7)];
    let (config, _) = levels.apply_objects(&of("prioritylevelconfigurations"), &given);
    let jane = user("jane", &["system:authenticated"]);
    assert_eq!(classify(&config, &jane, "GET", "/api/v1/namespaces/team/pods").0, "a");
    let other_namespace = classify(&config, &jane, "GET", "/api/v1/namespaces/other/pods").0;
    assert_eq!(other_namespace, "catch-all");
    let cluster_wide = classify(&config, &jane, "GET", "/api/v1/pods").0;
    assert_eq!(cluster_wide, "catch-all", "without clusterScope a rule holds in namespaces only");
    let uid = &config.schemas.iter().find(|s| s.name == "a").unwrap().uid;
    assert_eq!(uid, "uid-of-a");
}

#[test]
fn a_schema_without_its_level_is_reported_and_left_out() {
    let mut levels = levels(100);
    let broken = tree!({
        "metadata": tree!({ "name": "broken" }),
        "spec": tree!({ "type": "Limited", "limited": tree!({ "limitResponse": tree!({ "type": "Queue" }) }) }),
    });
    let given = [schema_of("dangles", "nowhere", 7), schema_of("half", "broken", 8)];
    let (config, references) = levels.apply_objects(&[broken], &given);
    let found: Vec<_> = references.iter().map(|r| (r.schema.as_str(), r.level.as_str(), r.found)).collect();
    assert_eq!(found, [("dangles", "nowhere", false), ("half", "broken", false)]);
    let jane = user("jane", &["system:authenticated"]);
    assert_eq!(classify(&config, &jane, "GET", "/api/v1/namespaces/team/pods").0, "catch-all");
}

#[test]
fn a_level_without_an_object_stays_until_it_is_idle() {
    let mut levels = levels(100);
    let (config, _) = levels.apply_objects(&of("prioritylevelconfigurations"), &of("flowschemas"));
    let jane = user("jane", &["system:authenticated"]);
    let route = parse_route(&hyper::Method::GET, "/api/v1/pods", None).unwrap();
    let schema = config.classify(&RequestDigest::new(&jane, &route, "get")).unwrap().clone();
    let Ok(super::super::level::Arrived::Served(seat)) =
        schema.level.arrive(1, 1, super::super::waiting::RequestDump::example)
    else {
        panic!()
    };
    levels.apply_objects(&[], &[]);
    assert!(levels.levels.contains_key("global-default"));
    schema.level.finish(seat);
    levels.apply_objects(&[], &[]);
    assert!(!levels.levels.contains_key("global-default"));
}
