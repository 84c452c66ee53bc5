//! Selectors: every operator of labels, the field selectors of each kind as upstream has them.

use http::Method;
use plinth_tests::samples;
use plinth_tests::server::{namespace, shared};
use serde_json::{json, Value};

use super::{items, reader};

#[tokio::test]
async fn every_operator_of_label_selectors() {
    let server = shared().await;
    let mut client = reader(server, "labels").await;
    client.create("none", json!({})).await;
    client.create("red", json!({"colour": "red", "size": "3", "a.b/c": ""})).await;
    client.create("blue", json!({"colour": "blue", "size": "10"})).await;
    // Selector, percent-encoded where it must be, and what it finds among `blue`, `none` and `red`.
    let rows: &[(&str, &[&str])] = &[
        ("colour%3Dred", &["red"]),
        ("colour%3D%3Dred", &["red"]),
        ("colour!%3Dred", &["blue", "none"]),
        ("colour+in+(red,blue)", &["blue", "red"]),
        ("colour+notin+(red)", &["blue", "none"]),
        ("colour", &["blue", "red"]),
        ("!colour", &["none"]),
        ("size%3E3", &["blue"]),
        ("size%3C10", &["red"]),
        ("colour,size%3E3", &["blue"]),
        ("colour%3Dred,colour%3Dblue", &[]),
        ("a.b/c%3D", &["red"]),
        ("", &["blue", "none", "red"]),
    ];
    for (selector, expected) in rows {
        let (status, list) = client.list(&format!("labelSelector={selector}")).await;
        assert_eq!(status, 200, "{selector}: {list}");
        let names: Vec<String> =
            items(&list).into_iter().map(|(n, _)| n).filter(|n| n != "kube-root-ca.crt").collect();
        assert_eq!(names, *expected, "{selector}");
    }
    for bad in ["colour+in+red", "colour%3D%3D%3Dred", "-x%3D1", "x+in+()x", "size%3Ex"] {
        let (status, answer) = client.list(&format!("labelSelector={bad}")).await;
        assert_eq!((status, answer["reason"].as_str()), (400, Some("BadRequest")), "{bad}: {answer}");
    }
}

/// API version, kind, collection (`NS` stands for the test's namespace), what the sample is given on top, and
/// for each field its value, which must find the object; another value must not.
type Row = (&'static str, &'static str, &'static str, fn() -> Value, &'static [(&'static str, &'static str)]);

const FIELDS: &[Row] = &[
    (
        "v1",
        "Pod",
        "/api/v1/namespaces/NS/pods",
        || json!({"spec": {"nodeName": "n-1", "schedulerName": "own", "restartPolicy": "Never", "serviceAccountName": "default"}}),
        &[
            ("spec.nodeName", "n-1"),
            ("spec.restartPolicy", "Never"),
            ("spec.schedulerName", "own"),
            ("spec.serviceAccountName", "default"),
            ("spec.hostNetwork", "false"),
            ("status.phase", "Pending"),
            ("status.podIP", ""),
            ("status.nominatedNodeName", ""),
        ],
    ),
    (
        "v1",
        "Event",
        "/api/v1/namespaces/NS/events",
        || {
            json!({
                "involvedObject": {"kind": "Pod", "name": "x", "uid": "u-1", "apiVersion": "v1", "resourceVersion": "7", "fieldPath": "spec"},
                "reason": "Because", "reportingComponent": "me", "source": {"component": "it"}, "type": "Normal"
            })
        },
        &[
            ("involvedObject.kind", "Pod"),
            ("involvedObject.name", "x"),
            ("involvedObject.uid", "u-1"),
            ("involvedObject.apiVersion", "v1"),
            ("involvedObject.resourceVersion", "7"),
            ("involvedObject.fieldPath", "spec"),
            ("reason", "Because"),
            ("reportingComponent", "me"),
            ("source", "it"),
            ("type", "Normal"),
        ],
    ),
    (
        "v1",
        "Secret",
        "/api/v1/namespaces/NS/secrets",
        || json!({"type": "example.com/x"}),
        &[("type", "example.com/x")],
    ),
    ("v1", "Namespace", "/api/v1/namespaces", || json!({}), &[("status.phase", "Active")]),
    (
        "v1",
        "Node",
        "/api/v1/nodes",
        || json!({"spec": {"unschedulable": true}}),
        &[("spec.unschedulable", "true")],
    ),
    (
        "v1",
        "Service",
        "/api/v1/namespaces/NS/services",
        || json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}}),
        &[("spec.clusterIP", "None"), ("spec.type", "ClusterIP")],
    ),
    (
        "v1",
        "ReplicationController",
        "/api/v1/namespaces/NS/replicationcontrollers",
        || json!({}),
        &[("status.replicas", "0")],
    ),
    (
        "apps/v1",
        "ReplicaSet",
        "/apis/apps/v1/namespaces/NS/replicasets",
        || json!({}),
        &[("status.replicas", "0")],
    ),
    ("batch/v1", "Job", "/apis/batch/v1/namespaces/NS/jobs", || json!({}), &[("status.successful", "0")]),
    (
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        || json!({"spec": {"signerName": "example.com/signer"}}),
        &[("spec.signerName", "example.com/signer")],
    ),
];

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, from) => *into = from,
    }
}

#[tokio::test]
async fn field_selectors_of_every_kind() {
    let server = shared().await;
    let mut client = reader(server, "fields").await;
    let namespace = client.collection.split('/').nth(4).expect("a namespace").to_owned();
    for (api_version, kind, collection, extra, fields) in FIELDS {
        let name = plinth_tests::server::unique("selected");
        let mut object = match *kind {
            "Namespace" => json!({"metadata": {"name": name}}),
            _ => serde_json::to_value(samples::of(api_version, kind, &name, &namespace)).expect("JSON"),
        };
        merge(&mut object, extra());
        let path = collection.replace("NS", &namespace);
        client.write(Method::POST, &path, object).await;
        let namespaced = collection.contains("NS");
        let everywhere = [
            ("metadata.name", name.as_str()),
            ("metadata.namespace", if namespaced { &namespace } else { "" }),
        ];
        // Cluster-scoped kinds have no namespace to select by.
        let everywhere = &everywhere[..1 + usize::from(namespaced)];
        for (field, value) in everywhere.iter().chain(*fields) {
            let mut found = async |selector: String| {
                let encoded = selector.replace('=', "%3D").replace('/', "%2F");
                let (status, list) = client.ask(&format!("{path}?fieldSelector={encoded}")).await;
                assert_eq!(status, 200, "{kind} {selector}: {list}");
                items(&list).into_iter().any(|(n, _)| n == name)
            };
            assert!(found(format!("{field}={value}")).await, "{kind}: {field}={value}");
            assert!(found(format!("{field}=={value}")).await, "{kind}: {field}=={value}");
            assert!(!found(format!("{field}!={value}")).await, "{kind}: {field}!={value}");
            assert!(!found(format!("{field}=other")).await, "{kind}: {field}=other");
            assert!(found(format!("{field}={value},metadata.name={name}")).await, "{kind}: {field} and name");
        }
    }
}

#[tokio::test]
async fn unsupported_fields_are_named() {
    let server = shared().await;
    let client = server.client().await;
    let namespace = namespace(&client, "fields-bad").await;
    let mut connection = server.connect(plinth_benches::api::client::Protocol::Http2).await;
    let generic = "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    for (resource, field, expected) in [
        ("configmaps", "data.x", generic),
        ("pods", "spec.x", "field label not supported: spec.x"),
        ("secrets", "status.phase", "field label not supported: status.phase"),
        ("events", "x", "field label not supported: x"),
    ] {
        let path = format!("/api/v1/namespaces/{namespace}/{resource}?fieldSelector={field}%3D1");
        let reply = connection.call(&plinth_benches::api::client::Call::get(path)).await.expect("an answer");
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        let refused = (status["code"].as_u64(), status["reason"].as_str());
        assert_eq!(refused, (Some(400), Some("BadRequest")), "{status}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{resource} {field}: {message}");
    }
}
