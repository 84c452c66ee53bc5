//! The flow schemas and priority levels that every server has: upstream's mandatory and suggested ones.
//!
//! Facts from k8s.io/apiserver `pkg/apis/flowcontrol/bootstrap/default.go`.

use plinth_codec::{tree, Map, Value};

/// The annotation that says whether the server keeps the spec of an object as it should be.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Group and version of the objects.
pub const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Requests that find no seat: refused, or put into so many queues, hands of so many, so many in a queue.
#[derive(Clone, Copy, Debug)]
enum When {
    Exempt,
    Reject,
    Queue(i64, i64, i64),
}

/// Name, whether it is mandatory, nominal shares, lendable percent, what happens without a seat.
const LEVELS: &[(&str, bool, i64, i64, When)] = &[
    ("exempt", true, 0, 0, When::Exempt),
    ("catch-all", true, 5, 0, When::Reject),
    ("system", false, 30, 33, When::Queue(64, 6, 50)),
    ("node-high", false, 40, 25, When::Queue(64, 6, 50)),
    ("leader-election", false, 10, 0, When::Queue(16, 4, 50)),
    ("workload-high", false, 40, 50, When::Queue(128, 6, 50)),
    ("workload-low", false, 100, 90, When::Queue(128, 6, 50)),
    ("global-default", false, 20, 50, When::Queue(128, 6, 50)),
];

#[derive(Clone, Copy, Debug)]
enum Who {
    Group(&'static str),
    User(&'static str),
    /// All service accounts of kube-system.
    KubeSystem,
}

/// What a schema is about: verbs, group, resources, cluster scope; or verbs and paths.
#[derive(Clone, Copy, Debug)]
enum What {
    Resources(&'static [&'static str], &'static str, &'static [&'static str], bool),
    Paths(&'static [&'static str], &'static [&'static str]),
}

const EVERYTHING: &[What] = &[What::Resources(&["*"], "*", &["*"], true), What::Paths(&["*"], &["*"])];
const EVERYBODY: &[Who] = &[Who::Group("system:unauthenticated"), Who::Group("system:authenticated")];

struct SchemaRow {
    name: &'static str,
    mandatory: bool,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    who: &'static [Who],
    what: &'static [What],
}

const fn schema(
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    who: &'static [Who],
    what: &'static [What],
) -> SchemaRow {
    SchemaRow { name, mandatory: false, level, precedence, distinguisher, who, what }
}

const SCHEMAS: &[SchemaRow] = &[
    SchemaRow {
        mandatory: true,
        ..schema("exempt", "exempt", 1, "", &[Who::Group("system:masters")], EVERYTHING)
    },
    SchemaRow { mandatory: true, ..schema("catch-all", "catch-all", 10000, "ByUser", EVERYBODY, EVERYTHING) },
    schema(
        "probes",
        "exempt",
        2,
        "",
        EVERYBODY,
        &[What::Paths(&["get"], &["/healthz", "/readyz", "/livez"])],
    ),
    schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        &[Who::User("system:kube-controller-manager"), Who::User("system:kube-scheduler"), Who::KubeSystem],
        &[What::Resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false)],
    ),
    schema(
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        &[Who::Group("system:nodes")],
        &[
            What::Resources(&["*"], "", &["nodes", "nodes/status"], true),
            What::Resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ],
    ),
    schema("system-nodes", "system", 500, "ByUser", &[Who::Group("system:nodes")], EVERYTHING),
    schema(
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        &[Who::User("system:kube-controller-manager")],
        EVERYTHING,
    ),
    schema(
        "kube-scheduler",
        "workload-high",
        800,
        "ByNamespace",
        &[Who::User("system:kube-scheduler")],
        EVERYTHING,
    ),
    schema(
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        &[Who::KubeSystem],
        EVERYTHING,
    ),
    schema(
        "service-accounts",
        "workload-low",
        9000,
        "ByUser",
        &[Who::Group("system:serviceaccounts")],
        EVERYTHING,
    ),
    schema("global-default", "global-default", 9900, "ByUser", EVERYBODY, EVERYTHING),
];

/// An object that every server has.
pub struct Bootstrap {
    /// Plural resource.
    pub resource: &'static str,
    /// Name.
    pub name: &'static str,
    /// Whether its spec is put right whatever its annotation says.
    pub mandatory: bool,
    /// The object as it is created.
    pub object: Value,
}

/// All of them: levels first, since schemas name them.
pub fn objects() -> Vec<Bootstrap> {
    let levels = LEVELS.iter().map(|row| Bootstrap {
        resource: "prioritylevelconfigurations",
        name: row.0,
        mandatory: row.1,
        object: level(row),
    });
    let schemas = SCHEMAS.iter().map(|row| Bootstrap {
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

fn level(&(name, _, shares, lendable, when): &(&str, bool, i64, i64, When)) -> Value {
    let limited = |response: Value| {
        let limited = tree!({
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": response,
        });
        tree!({ "type": "Limited", "limited": limited })
    };
    let spec = match when {
        When::Exempt => tree!({
            "type": "Exempt",
            "exempt": tree!({ "nominalConcurrencyShares": shares, "lendablePercent": lendable }),
        }),
        When::Reject => limited(tree!({ "type": "Reject" })),
        When::Queue(queues, hand, length) => limited(tree!({
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

fn flow_schema(row: &SchemaRow) -> Value {
    let names = |list: &[&str]| list.iter().map(|name| Value::from(*name)).collect::<Vec<_>>();
    let subjects: Vec<Value> = row
        .who
        .iter()
        .map(|who| match who {
            Who::Group(name) => tree!({ "kind": "Group", "group": tree!({ "name": *name }) }),
            Who::User(name) => tree!({ "kind": "User", "user": tree!({ "name": *name }) }),
            Who::KubeSystem => tree!({
                "kind": "ServiceAccount",
                "serviceAccount": tree!({ "namespace": "kube-system", "name": "*" }),
            }),
        })
        .collect();
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for what in row.what {
        match what {
            What::Resources(verbs, group, plurals, cluster_scope) => {
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
            What::Paths(verbs, urls) => {
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
