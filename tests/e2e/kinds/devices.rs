//! Devices (`resource.k8s.io`): what is refused and in which words, defaults, statuses.

use plinth_tests::requests::{create, send};
use plinth_tests::server::{namespace, shared, unique};
use serde_json::{json, Value};

const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const NULL: &Value = &Value::Null;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn slice(rest: &Value) -> Value {
    let mut spec = json!({ "driver": "d.example.com", "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 }, "nodeName": "n" });
    for (key, value) in rest.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

/// The whole message, since clients match on it.
#[tokio::test]
async fn broken_objects_are_refused_in_upstreams_words() {
    let client = shared().await.client().await;
    let costly = "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, a == f))))))";
    let capacity = |policy: Value| {
        slice(&json!({ "devices": [{ "name": "d", "allowMultipleAllocations": true,
            "capacity": { "memory": { "value": "8Gi", "requestPolicy": policy } } }] }))
    };
    // collection, kind, spec, message after `is invalid: `
    let rows: [(&str, &str, Value, &str); 12] = [
        (
            CLASSES,
            "DeviceClass",
            json!({ "selectors": [{ "cel": { "expression": "device.name == 'x'" } }] }),
            "spec.selectors[0].cel.expression: Invalid value: \"device.name == 'x'\": compilation failed: ERROR: <input>:1:7: undefined field 'name'\n | device.name == 'x'\n | ......^",
        ),
        (
            CLASSES,
            "DeviceClass",
            json!({ "selectors": [{ "cel": { "expression": "device.driver" } }] }),
            "spec.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
        ),
        (
            CLASSES,
            "DeviceClass",
            json!({ "selectors": [{ "cel": { "expression": costly } }] }),
            "spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit",
        ),
        (
            CLASSES,
            "DeviceClass",
            json!({ "extendedResourceName": "gpu" }),
            "spec.extendedResourceName: Invalid value: \"gpu\": must be a valid extended resource name",
        ),
        (
            CLASSES,
            "DeviceClass",
            json!({ "config": [{ "opaque": { "driver": "d.example.com", "parameters": [1] } }] }),
            "spec.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ),
        (
            SLICES,
            "ResourceSlice",
            slice(&json!({ "allNodes": true })),
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
        ),
        (
            SLICES,
            "ResourceSlice",
            slice(&json!({ "devices": [{ "name": "d", "attributes": { "a/b": { "version": "v1" } } }] })),
            "spec.devices[0].attributes[a/b].version: Invalid value: \"v1\": must be a string compatible with semver.org spec 2.0.0",
        ),
        (
            SLICES,
            "ResourceSlice",
            slice(&json!({ "devices": [{ "name": "d", "taints": [{ "key": "k", "effect": "Soon" }] }] })),
            "spec.devices[0].taints[0].effect: Unsupported value: \"Soon\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ),
        (
            SLICES,
            "ResourceSlice",
            capacity(json!({ "default": "3Gi", "validValues": ["1Gi", "2Gi"] })),
            "spec.devices[0].capacity[memory].requestPolicy.validValues: Invalid value: \"3Gi\": default value is not valid according to the requestPolicy",
        ),
        (
            SLICES,
            "ResourceSlice",
            capacity(json!({ "default": "1Gi", "validRange": { "min": "2Gi", "max": "9Gi" } })),
            "[spec.devices[0].capacity[memory].requestPolicy.validRange.min: Invalid value: \"1Gi\": default is less than min: 2Gi, spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: \"9Gi\": max is larger than capacity value: 8Gi]",
        ),
        (
            SLICES,
            "ResourceSlice",
            slice(&json!({ "devices": [{ "name": "d", "bindingConditions": ["a.example.com/ready"] }] })),
            "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        ),
        (
            SLICES,
            "ResourceSlice",
            slice(&json!({ "sharedCounters": [{ "name": "c", "counters": { "Memory": { "value": "1" } } }] })),
            "spec.sharedCounters[0].counters: Invalid value: \"Memory\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
    ];
    for (collection, kind, spec, message) in rows {
        let name = unique("broken");
        let refused = send(&client, "POST", collection, &object(kind, &name, &spec)).await;
        let expected = format!("{kind}.resource.k8s.io {name:?} is invalid: {message}");
        assert_eq!((refused.code, refused.text_at("/message")), (422, expected.as_str()), "{spec}");
    }
}

#[tokio::test]
async fn a_class_keeps_what_it_has_and_a_slice_gets_what_it_lacks() {
    let client = shared().await.client().await;
    let name = unique("class");
    let expression = r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.ready && gpu.memory > 4)"#;
    let spec = json!({ "selectors": [{ "cel": { "expression": expression } }], "extendedResourceName": "example.com/gpu" });
    create(&client, CLASSES, &object("DeviceClass", &name, &spec)).await;
    let path = format!("{CLASSES}/{name}");
    let labelled = send(&client, "MERGE", &path, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!((labelled.code, labelled.body["metadata"]["generation"].as_i64()), (200, Some(1)));
    assert_eq!(labelled.body["spec"], spec);
    assert_eq!(send(&client, "DELETE", &path, NULL).await.code, 200);

    let name = unique("slice");
    let devices = json!([{ "name": "d", "taints": [{ "key": "k", "effect": "NoSchedule" }],
        "attributes": { "a": { "int": 1 }, "b": { "int": 2, "ints": [1] } },
        "nodeAllocatableResourceMappings": { "cpu": {} } }]);
    let made =
        create(&client, SLICES, &object("ResourceSlice", &name, &slice(&json!({ "devices": devices }))))
            .await;
    let device = &made["spec"]["devices"][0];
    assert!(device["taints"][0]["timeAdded"].is_string(), "{device}");
    // Fields behind gates that are off.
    assert_eq!(device["attributes"]["b"], json!({ "int": 2 }));
    assert_eq!(device["nodeAllocatableResourceMappings"], Value::Null);
    let path = format!("{SLICES}/{name}");
    let moved =
        send(&client, "MERGE", &path, &json!({ "spec": { "nodeName": "m", "driver": "e.example.com" } }))
            .await;
    assert_eq!(
        moved.text_at("/message"),
        format!("ResourceSlice.resource.k8s.io {name:?} is invalid: [spec.driver: Invalid value: \"e.example.com\": field is immutable, spec.nodeName: Invalid value: \"m\": field is immutable]")
    );
    assert_eq!(send(&client, "DELETE", &path, NULL).await.code, 200);
}

#[tokio::test]
async fn the_status_of_a_claim_names_what_it_asks_for() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "devices").await;
    let claims = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    let spec = json!({ "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "c" } }] } });
    create(&client, &claims, &object("ResourceClaim", "c", &spec)).await;
    let path = format!("{claims}/c/status");
    let result =
        |request: &str| json!({ "request": request, "driver": "d.example.com", "pool": "p", "device": "x" });
    let status = |request: &str| json!({ "status": { "allocation": { "devices": { "results": [result(request)] } } } });
    let refused = send(&client, "MERGE", &path, &status("s")).await;
    assert_eq!(
        refused.text_at("/message"),
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation.devices.results[0].request: Invalid value: \"s\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    );
    assert_eq!(send(&client, "MERGE", &path, &status("r")).await.code, 200);
    let reported = |device: &str| {
        json!({ "status": { "devices": [{ "driver": "d.example.com", "pool": "p", "device": device,
            "networkData": { "ips": ["10.1.2.3/8"] } }] } })
    };
    let refused = send(&client, "MERGE", &path, &reported("y")).await;
    assert_eq!(
        refused.text_at("/message"),
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices[0]: Invalid value: {\"Driver\":\"d.example.com\",\"Pool\":\"p\",\"Device\":\"y\",\"ShareID\":\"\"}: must be an allocated device in the claim"
    );
    assert_eq!(send(&client, "MERGE", &path, &reported("x")).await.code, 200);
    // What drivers reported goes with the allocation.
    let freed = send(&client, "MERGE", &path, &json!({ "status": { "allocation": null } })).await;
    assert_eq!((freed.code, &freed.body["status"]), (200, &json!({})), "{}", freed.text);
}
