use std::collections::{HashMap, HashSet};

use plinth_codec::{json, patch, resources, Value};

use plinth_api::Cause;

/// Group, plural, object after defaults, and each error's path and reason, in order.
type Row = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const REQUIRED: &str = "FieldValueRequired";
const INVALID: &str = "FieldValueInvalid";
const NOT_SUPPORTED: &str = "FieldValueNotSupported";
const DUPLICATE: &str = "FieldValueDuplicate";
const FORBIDDEN: &str = "FieldValueForbidden";
const NOT_FOUND: &str = "FieldValueNotFound";

static ROWS: &[Row] = &[
    ("", "pods", r#"{"spec":{"containers":[{"name":"c","image":"web"}]}}"#, &[]),
    ("", "pods", "{}", &[("spec.containers", REQUIRED)]),
    (
        "",
        "pods",
        r#"{"spec":{"containers":[{}]}}"#,
        &[("spec.containers[0].name", REQUIRED), ("spec.containers[0].image", REQUIRED)],
    ),
    (
        "",
        "pods",
        r#"{"spec":{"containers":[{"name":"a","image":"x"},{"name":"a","image":"x"}]}}"#,
        &[("spec.containers[1].name", DUPLICATE)],
    ),
    (
        "",
        "pods",
        r#"{"spec":{"restartPolicy":"X","dnsPolicy":"Y","containers":[{"name":"a","image":"x","imagePullPolicy":"Z","ports":[{"containerPort":99999,"protocol":"Q"}]}]}}"#,
        &[
            ("spec.containers[0].ports[0].containerPort", INVALID),
            ("spec.containers[0].ports[0].protocol", NOT_SUPPORTED),
            ("spec.containers[0].imagePullPolicy", NOT_SUPPORTED),
            ("spec.restartPolicy", NOT_SUPPORTED),
            ("spec.dnsPolicy", NOT_SUPPORTED),
        ],
    ),
    (
        "",
        "pods",
        r#"{"spec":{"containers":[{"name":"a","image":"x","env":[{"name":""},{"name":"a=b"}],"livenessProbe":{},"volumeMounts":[{"name":"v","mountPath":"/v"}],"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}"#,
        &[
            ("spec.containers[0].env[0].name", REQUIRED),
            ("spec.containers[0].env[1].name", INVALID),
            ("spec.containers[0].volumeMounts[0].name", NOT_FOUND),
            ("spec.containers[0].resources.requests", INVALID),
            ("spec.containers[0].livenessProbe", REQUIRED),
        ],
    ),
    (
        "",
        "pods",
        r#"{"spec":{"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/x"}},{"name":"v"}],"containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"-2"}}}]}}"#,
        &[("spec.volumes[0].hostPath", FORBIDDEN), ("spec.containers[0].resources.requests[cpu]", INVALID)],
    ),
    (
        "apps",
        "deployments",
        "{}",
        &[
            ("spec.selector", REQUIRED),
            ("spec.template.metadata.labels", INVALID),
            ("spec.template.spec.containers", REQUIRED),
        ],
    ),
    (
        "apps",
        "deployments",
        r#"{"spec":{"replicas":-1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"c"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}"#,
        &[
            ("spec.replicas", INVALID),
            ("spec.template.metadata.labels", INVALID),
            ("spec.template.spec.restartPolicy", NOT_SUPPORTED),
        ],
    ),
    (
        "batch",
        "cronjobs",
        r#"{"spec":{"schedule":"nope","concurrencyPolicy":"X","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}"#,
        &[("spec.schedule", INVALID), ("spec.concurrencyPolicy", NOT_SUPPORTED)],
    ),
    (
        "batch",
        "jobs",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"x"}]}}}}"#,
        &[
            ("spec.template.spec.restartPolicy", REQUIRED),
            ("spec.selector", REQUIRED),
            ("spec.template.metadata.labels", INVALID),
        ],
    ),
    ("", "services", "{}", &[("spec.ports", REQUIRED)]),
    (
        "",
        "services",
        r#"{"spec":{"type":"X","ports":[{"port":80},{"port":80,"nodePort":30000}]}}"#,
        &[
            ("spec.ports[0].name", REQUIRED),
            ("spec.ports[1].name", REQUIRED),
            ("spec.ports[1]", DUPLICATE),
            ("spec.type", NOT_SUPPORTED),
        ],
    ),
    (
        "",
        "services",
        r#"{"spec":{"ports":[{"port":80,"nodePort":30000}]}}"#,
        &[("spec.ports[0].nodePort", FORBIDDEN)],
    ),
    ("", "services", r#"{"spec":{"type":"ExternalName"}}"#, &[("spec.externalName", REQUIRED)]),
    (
        "",
        "persistentvolumeclaims",
        "{}",
        &[("spec.accessModes", REQUIRED), ("spec.resources[storage]", REQUIRED)],
    ),
    (
        "storage.k8s.io",
        "storageclasses",
        r#"{"reclaimPolicy":"X"}"#,
        &[("provisioner", REQUIRED), ("reclaimPolicy", NOT_SUPPORTED)],
    ),
    (
        "rbac.authorization.k8s.io",
        "roles",
        r#"{"rules":[{"resources":["pods"]}]}"#,
        &[("rules[0].verbs", REQUIRED), ("rules[0].apiGroups", REQUIRED)],
    ),
    (
        "networking.k8s.io",
        "ingresses",
        r#"{"spec":{"rules":[{"host":"A_b","http":{"paths":[{"path":"/","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}"#,
        &[("spec.rules[0].host", INVALID), ("spec.rules[0].http.paths[0].pathType", REQUIRED)],
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        r#"{"spec":{"podSelector":{"matchExpressions":[{"key":"a","operator":"Nope"}]},"policyTypes":["X"]}}"#,
        &[("spec.podSelector.matchExpressions[0].operator", INVALID), ("spec.policyTypes[0]", NOT_SUPPORTED)],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        r#"{"spec":{"minReplicas":2,"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}"#,
        &[("spec.maxReplicas", INVALID)],
    ),
    (
        "policy",
        "poddisruptionbudgets",
        r#"{"spec":{"minAvailable":"150%"}}"#,
        &[("spec.minAvailable", INVALID)],
    ),
    (
        "coordination.k8s.io",
        "leases",
        r#"{"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}"#,
        &[("spec.leaseDurationSeconds", INVALID), ("spec.leaseTransitions", INVALID)],
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        r#"{"webhooks":[{"name":"short","sideEffects":"Some","clientConfig":{}}]}"#,
        &[
            ("webhooks[0].name", INVALID),
            ("webhooks[0].sideEffects", NOT_SUPPORTED),
            ("webhooks[0].clientConfig", REQUIRED),
            ("webhooks[0].admissionReviewVersions", REQUIRED),
        ],
    ),
    (
        "",
        "secrets",
        r#"{"type":"kubernetes.io/tls"}"#,
        &[("data[tls.crt]", REQUIRED), ("data[tls.key]", REQUIRED)],
    ),
    (
        "",
        "nodes",
        r#"{"spec":{"taints":[{"key":"a","effect":"X"}]}}"#,
        &[("metadata.taints[0].effect", NOT_SUPPORTED)],
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        r#"{"metadata":{"name":"system-x"},"value":1}"#,
        &[("metadata.name", FORBIDDEN)],
    ),
];

#[test]
fn invalid_objects_and_their_errors() {
    for (group, plural, text, expected) in ROWS {
        let mut object = json::parse(text.as_bytes()).unwrap();
        let row = crate::of(group, plural);
        row.default(&mut object);
        let errors = row.create_errors(&object);
        let found: Vec<(&str, &str)> = errors.iter().map(|f| (f.field.as_str(), f.reason)).collect();
        assert_eq!(found, *expected, "{plural}: {text}");
    }
}

/// A good object of the table and where in it its rows make their changes.
struct Base<'a> {
    group: &'a str,
    plural: &'a str,
    way: Vec<&'a str>,
    object: Value,
}

/// The value at a path of keys and indexes.
pub(super) fn place<'v>(object: &'v mut Value, way: &[&str]) -> Option<&'v mut Value> {
    way.iter().filter(|step| !step.is_empty()).try_fold(object, |value, step| match step.parse::<usize>() {
        Ok(index) => value.as_array_mut()?.get_mut(index),
        Err(_) => value.get_mut(step),
    })
}

fn found(base: &Base<'_>, mut object: Value) -> Vec<String> {
    let row = crate::of(base.group, base.plural);
    row.default(&mut object);
    let errors = row.create_errors(&object);
    let short = |f: &Cause| format!("{} {}", f.field, f.reason.trim_start_matches("FieldValue"));
    let mut found: Vec<String> = errors.iter().map(short).collect();
    found.sort();
    found
}

#[test]
fn one_row_per_rule() {
    let mut bases: HashMap<&str, Base<'_>> = HashMap::new();
    let mut wrong = Vec::new();
    let mut rows = 0;
    // Read and not built in, so that a row can be tried out without a build.
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/rules.txt");
    let table = std::fs::read_to_string(table).expect("the table");
    for line in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("base ") {
            let parts: Vec<&str> = rest.splitn(4, ' ').collect();
            let [name, resource, way, object] = parts[..] else { panic!("{line}") };
            let (group, plural) = resource.split_once('/').expect("group/plural");
            let object = json::parse(object.as_bytes()).expect(line);
            let base = Base { group, plural, way: way.split('.').collect(), object };
            let errors = found(&base, base.object.clone());
            if !errors.is_empty() {
                wrong.push(format!("{name} is not good: {}", errors.join(", ")));
            }
            bases.insert(name, base);
            continue;
        }
        let parts: Vec<&str> = line.splitn(3, " |").collect();
        let [name, change, expected] = parts[..] else { panic!("{line}") };
        let base = &bases[name];
        let mut object = base.object.clone();
        let target = place(&mut object, &base.way).expect(line);
        let change = json::parse(change.trim().as_bytes()).expect(line);
        *target = patch::merge_patch(target.clone(), change).expect(line);
        let mut expected: Vec<String> =
            expected.split(", ").map(|e| e.trim().to_owned()).filter(|e| !e.is_empty()).collect();
        // One field has a comma in its name.
        if let Some(i) = expected.iter().position(|e| e.ends_with("{topologyKey")) {
            let rest = expected.remove(i + 1);
            expected[i] = format!("{}, {rest}", expected[i]);
        }
        expected.sort();
        let errors = found(base, object);
        if errors != expected {
            wrong.push(format!("{line}\n    found {}", errors.join(", ")));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 300, "the table was read");
}

/// Kinds without a base in the table, and the file that tests their rules, from the top of the repository:
/// they depend on more than one object, or are those of a part that several kinds have.
const TESTED_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("", "configmaps", "server/kinds/src/tests/rules.rs"),
    ("", "events", "server/kinds/src/events/event.rs"),
    ("", "secrets", "server/kinds/src/tests/rules.rs"),
    ("", "serviceaccounts", "server/kinds/src/tests/warnings.rs"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "server/kinds/src/tests/policies.rs"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "server/kinds/src/tests/policies.rs"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "server/kinds/src/tests/policies.rs"),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "server/kinds/src/tests/policies.rs",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions", "codec/structural/src/tests/definition.rs"),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "server/kinds/src/certificates/certificate_signing_request.rs",
    ),
    ("certificates.k8s.io", "clustertrustbundles", "server/kinds/src/certificates/cluster_trust_bundle.rs"),
    (
        "certificates.k8s.io",
        "podcertificaterequests",
        "server/kinds/src/certificates/pod_certificate_request.rs",
    ),
    ("coordination.k8s.io", "leasecandidates", "server/kinds/src/coordination/lease_candidate.rs"),
    ("coordination.k8s.io", "leases", "server/kinds/src/tests/rules.rs"),
    ("events.k8s.io", "events", "server/kinds/src/events/event.rs"),
    ("internal.apiserver.k8s.io", "storageversions", "server/kinds/src/tests/devices.rs"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "server/kinds/src/tests/rbac.rs"),
    ("rbac.authorization.k8s.io", "clusterroles", "server/kinds/src/tests/rbac.rs"),
    ("rbac.authorization.k8s.io", "rolebindings", "server/kinds/src/tests/rbac.rs"),
    ("rbac.authorization.k8s.io", "roles", "server/kinds/src/tests/rbac.rs"),
    ("scheduling.k8s.io", "podgroups", "server/kinds/src/scheduling/pod_group.rs"),
    ("scheduling.k8s.io", "priorityclasses", "server/kinds/src/tests/rules.rs"),
    ("scheduling.k8s.io", "workloads", "server/kinds/src/scheduling/workload.rs"),
    (
        "storagemigration.k8s.io",
        "storageversionmigrations",
        "server/kinds/src/storagemigration/storage_version_migration.rs",
    ),
];

#[test]
fn the_rules_of_every_stored_kind_are_tested() {
    let bases: HashSet<(&str, &str)> = include_str!("rules.txt")
        .lines()
        .filter_map(|line| line.strip_prefix("base ")?.split(' ').nth(1)?.split_once('/'))
        .collect();
    let elsewhere: HashSet<(&str, &str)> =
        TESTED_ELSEWHERE.iter().map(|(group, plural, _)| (*group, *plural)).collect();
    let stored: HashSet<(&str, &str)> = resources::known()
        .table
        .resources
        .iter()
        .filter(|row| row.has_verb("create") && row.has_verb("delete"))
        .map(|row| (row.group.as_str(), row.plural.as_str()))
        .collect();
    let untested: Vec<_> =
        stored.iter().filter(|kind| !bases.contains(kind) && !elsewhere.contains(kind)).collect();
    assert!(untested.is_empty(), "without a base in rules.txt: {untested:?}");
    let needless: Vec<_> =
        elsewhere.iter().filter(|kind| bases.contains(kind) || !stored.contains(kind)).collect();
    assert!(needless.is_empty(), "with a base in rules.txt, or not stored: {needless:?}");
    for (group, plural, file) in TESTED_ELSEWHERE {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // This table names it, too.
        let (before, rest) = text.split_once("const TESTED_ELSEWHERE").unwrap_or((&text, ""));
        let after = rest.split_once("\n];").map_or("", |(_, after)| after);
        let names = names_of(group, plural);
        let is_named = |text: &str| names.iter().any(|name| text.contains(name));
        assert!(text.contains("#[test]"), "{group}/{plural}: no tests in {file}");
        assert!(is_named(before) || is_named(after), "{group}/{plural}: {file} has none of {names:?}");
    }
}

/// What tests name a kind by: its plural, the constants of it, the kind itself.
fn names_of(group: &str, plural: &str) -> Vec<String> {
    let is_it = |row: &&resources::Resource| row.group == group && row.plural == plural;
    let row = resources::known().table.resources.iter().find(is_it).expect(plural);
    let constant = format!(": Resource = (\"{group}\", \"{plural}\")");
    let constants = include_str!("mod.rs").lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("const ")?.split_once(&constant)?;
        Some(name.to_owned())
    });
    [format!("\"{plural}\""), row.kind.to_string()].into_iter().chain(constants).collect()
}

#[test]
fn immutable_fields() {
    // group, plural, old, new, path
    let rows = [
        (
            "",
            "configmaps",
            r#"{"immutable":true,"data":{"a":"b"}}"#,
            r#"{"immutable":true,"data":{"a":"c"}}"#,
            "data",
        ),
        ("", "configmaps", r#"{"immutable":true}"#, "{}", "immutable"),
        ("", "secrets", r#"{"kind":"Secret","type":"a"}"#, r#"{"kind":"Secret","type":"b"}"#, "type"),
        (
            "apps",
            "deployments",
            r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#,
            r#"{"spec":{"selector":{"matchLabels":{"a":"c"}}}}"#,
            "spec.selector",
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            r#"{"roleRef":{"name":"a"}}"#,
            r#"{"roleRef":{"name":"b"}}"#,
            "roleRef",
        ),
        (
            "",
            "services",
            r#"{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.2"}}"#,
            r#"{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.3"}}"#,
            "spec.clusterIPs[0]",
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            r#"{"provisioner":"a"}"#,
            r#"{"provisioner":"b"}"#,
            "provisioner",
        ),
        ("scheduling.k8s.io", "priorityclasses", r#"{"value":1}"#, r#"{"value":2}"#, "value"),
    ];
    for (group, plural, old, new, path) in rows {
        let (old, new) = (json::parse(old.as_bytes()).unwrap(), json::parse(new.as_bytes()).unwrap());
        let row = crate::of(group, plural);
        let errors = row.update_errors(&new, &old);
        assert_eq!(errors.iter().map(|f| f.field.as_str()).collect::<Vec<_>>(), [path], "{plural}");
        assert_eq!(row.update_errors(&old, &old), [], "{plural}");
    }
}
