//! Mandatory and suggested flow schemas and priority levels, as upstream's.
//!
//! Data from k8s.io/apiserver `pkg/apis/flowcontrol/bootstrap/default.go`.

use plinth_api::MASTERS_GROUP;
use plinth_codec::{tree, Map, Value};

/// The annotation that enables updates of an object's spec by the server.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Group and version of the objects.
pub const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Handling of requests without a free seat: rejected, or queued with number of queues, hand size and queue
/// length.
#[derive(Clone, Copy, Debug)]
enum LimitResponse {
    Exempt,
    Reject,
    Queue(i64, i64, i64),
}

/// Name, whether mandatory, nominal shares, lendable percent, limit response.
const LEVELS: &[(&str, bool, i64, i64, LimitResponse)] = &[
    ("exempt", true, 0, 0, LimitResponse::Exempt),
    ("catch-all", true, 5, 0, LimitResponse::Reject),
    ("system", false, 30, 33, LimitResponse::Queue(64, 6, 50)),
    ("node-high", false, 40, 25, LimitResponse::Queue(64, 6, 50)),
    ("leader-election", false, 10, 0, LimitResponse::Queue(16, 4, 50)),
    ("workload-high", false, 40, 50, LimitResponse::Queue(128, 6, 50)),
    ("workload-low", false, 100, 90, LimitResponse::Queue(128, 6, 50)),
    ("global-default", false, 20, 50, LimitResponse::Queue(128, 6, 50)),
];

#[derive(Clone, Copy, Debug)]
enum BootstrapSubject {
    Group(&'static str),
    User(&'static str),
    /// All service accounts of kube-system.
    KubeSystem,
}

/// Rule of a flow schema: verbs, group, resources, cluster scope; or verbs and paths.
#[derive(Clone, Copy, Debug)]
enum BootstrapRule {
    Resources(&'static [&'static str], &'static str, &'static [&'static str], bool),
    Paths(&'static [&'static str], &'static [&'static str]),
}

const EVERYTHING: &[BootstrapRule] =
    &[BootstrapRule::Resources(&["*"], "*", &["*"], true), BootstrapRule::Paths(&["*"], &["*"])];
const ALL_USERS: &[BootstrapSubject] =
    &[BootstrapSubject::Group("system:unauthenticated"), BootstrapSubject::Group("system:authenticated")];

struct FlowSchemaRow {
    name: &'static str,
    mandatory: bool,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    subjects: &'static [BootstrapSubject],
    rules: &'static [BootstrapRule],
}

const fn schema(
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    subjects: &'static [BootstrapSubject],
    rules: &'static [BootstrapRule],
) -> FlowSchemaRow {
    FlowSchemaRow { name, mandatory: false, level, precedence, distinguisher, subjects, rules }
}

const SCHEMAS: &[FlowSchemaRow] = &[
    FlowSchemaRow {
        mandatory: true,
        ..schema("exempt", "exempt", 1, "", &[BootstrapSubject::Group(MASTERS_GROUP)], EVERYTHING)
    },
    FlowSchemaRow {
        mandatory: true,
        ..schema("catch-all", "catch-all", 10000, "ByUser", ALL_USERS, EVERYTHING)
    },
    schema(
        "probes",
        "exempt",
        2,
        "",
        ALL_USERS,
        &[BootstrapRule::Paths(&["get"], &["/healthz", "/readyz", "/livez"])],
    ),
    schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        &[
            BootstrapSubject::User("system:kube-controller-manager"),
            BootstrapSubject::User("system:kube-scheduler"),
            BootstrapSubject::KubeSystem,
        ],
        &[BootstrapRule::Resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false)],
    ),
    schema(
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        &[BootstrapSubject::Group("system:nodes")],
        &[
            BootstrapRule::Resources(&["*"], "", &["nodes", "nodes/status"], true),
            BootstrapRule::Resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ],
    ),
    schema("system-nodes", "system", 500, "ByUser", &[BootstrapSubject::Group("system:nodes")], EVERYTHING),
    schema(
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        &[BootstrapSubject::User("system:kube-controller-manager")],
        EVERYTHING,
    ),
    schema(
        "kube-scheduler",
        "workload-high",
        800,
        "ByNamespace",
        &[BootstrapSubject::User("system:kube-scheduler")],
        EVERYTHING,
    ),
    schema(
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        &[BootstrapSubject::KubeSystem],
        EVERYTHING,
    ),
    schema(
        "service-accounts",
        "workload-low",
        9000,
        "ByUser",
        &[BootstrapSubject::Group("system:serviceaccounts")],
        EVERYTHING,
    ),
    schema("global-default", "global-default", 9900, "ByUser", ALL_USERS, EVERYTHING),
];

/// A mandatory or suggested object.
pub struct BootstrapConfig {
    /// Plural resource.
    pub resource: &'static str,
    /// Name of the FlowSchema or priority level.
    pub name: &'static str,
    /// Whether its spec is always reconciled, regardless of the annotation.
    pub mandatory: bool,
    /// The object as it is created.
    pub object: Value,
}

/// All objects: levels first, since schemas reference them.
pub fn objects() -> Vec<BootstrapConfig> {
    let levels = LEVELS.iter().map(|row| BootstrapConfig {
        resource: "prioritylevelconfigurations",
        name: row.0,
        mandatory: row.1,
        object: level(row),
    });
    let schemas = SCHEMAS.iter().map(|row| BootstrapConfig {
        resource: "flowschemas",
        name: row.name,
        mandatory: row.mandatory,
        object: flow_schema(row),
    });
    levels.chain(schemas).collect()
}

fn metadata(name: &str) -> Value {
    let annotations: Map = [(AUTO_UPDATE.into(), Value::from("true"))].into_iter().collect();
    tree!({ "name": name, "annotations": annotations })
}

fn level(&(name, _, shares, lendable, response): &(&str, bool, i64, i64, LimitResponse)) -> Value {
    let limited = |response: Value| {
        let limited = tree!({
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": response,
        });
        tree!({ "type": "Limited", "limited": limited })
    };
    let spec = match response {
        LimitResponse::Exempt => tree!({
            "type": "Exempt",
            "exempt": tree!({ "nominalConcurrencyShares": shares, "lendablePercent": lendable }),
        }),
        LimitResponse::Reject => limited(tree!({ "type": "Reject" })),
        LimitResponse::Queue(queues, hand, length) => limited(tree!({
            "type": "Queue",
            "queuing": tree!({ "queues": queues, "handSize": hand, "queueLengthLimit": length }),
        })),
    };
    tree!({
        "apiVersion": API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": metadata(name),
        "spec": spec,
    })
}

fn flow_schema(row: &FlowSchemaRow) -> Value {
    let names = |list: &[&str]| list.iter().map(|name| Value::from(*name)).collect::<Vec<_>>();
    let subjects: Vec<Value> = row
        .subjects
        .iter()
        .map(|subject| match subject {
            BootstrapSubject::Group(name) => tree!({ "kind": "Group", "group": tree!({ "name": *name }) }),
            BootstrapSubject::User(name) => tree!({ "kind": "User", "user": tree!({ "name": *name }) }),
            BootstrapSubject::KubeSystem => tree!({
                "kind": "ServiceAccount",
                "serviceAccount": tree!({ "namespace": "kube-system", "name": "*" }),
            }),
        })
        .collect();
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in row.rules {
        match rule {
            BootstrapRule::Resources(verbs, group, plurals, cluster_scope) => {
                let mut rule = Map::new();
                rule.insert("verbs", names(verbs));
                rule.insert("apiGroups", names(&[*group]));
                rule.insert("resources", names(plurals));
                if *cluster_scope {
                    rule.insert("clusterScope", true);
                }
                rule.insert("namespaces", names(&["*"]));
                resources.push(Value::Object(rule));
            }
            BootstrapRule::Paths(verbs, urls) => {
                paths.push(tree!({ "verbs": names(verbs), "nonResourceURLs": names(urls) }));
            }
        }
    }
    let mut rule = Map::new();
    rule.insert("subjects", subjects);
    if !resources.is_empty() {
        rule.insert("resourceRules", resources);
    }
    if !paths.is_empty() {
        rule.insert("nonResourceRules", paths);
    }
    let mut spec = Map::new();
    spec.insert("priorityLevelConfiguration", tree!({ "name": row.level }));
    spec.insert("matchingPrecedence", row.precedence);
    if !row.distinguisher.is_empty() {
        spec.insert("distinguisherMethod", tree!({ "type": row.distinguisher }));
    }
    spec.insert("rules", vec![Value::Object(rule)]);
    tree!({
        "apiVersion": API_VERSION,
        "kind": "FlowSchema",
        "metadata": metadata(row.name),
        "spec": spec,
    })
}
