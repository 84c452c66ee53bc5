//! `--runtime-config` and `--feature-gates`.

use http::Request;
use kube::client::Body;
use kube::Client;
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::requests::{answer, create, send};
use plinth_tests::server::{client_of, launch, start_ready};
use serde_json::{json, Value};

const SERVICE_CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const BETA_CIDRS: &str = "/apis/networking.k8s.io/v1beta1/servicecidrs";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NULL: &Value = &Value::Null;

#[tokio::test]
async fn versions_and_resources_are_switched_on_and_off() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let code = async |path: &str| send(&client, "GET", path, NULL).await.code;
    assert_eq!((code(BETA_CIDRS).await, code("/apis/batch/v1/jobs").await), (404, 200));
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "kept", "namespace": "default" },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } });
    create(&client, "/apis/batch/v1/namespaces/default/jobs", &job).await;
    server.terminate().await.expect("end");

    let flags = "--runtime-config=networking.k8s.io/v1beta1=true,apps/v1/daemonsets=false,batch/v1=false";
    let mut server = start_ready(&launch, dir.path(), &[flags, "--runtime-config=api/alpha=false"]).await;
    let client = client_of(&server.kubeconfig()).await;
    let get = async |path: &str| send(&client, "GET", path, NULL).await;
    // Written in one version, read in the other.
    let made = json!({ "apiVersion": "networking.k8s.io/v1beta1", "kind": "ServiceCIDR", "metadata": { "name": "more" },
        "spec": { "cidrs": ["10.77.0.0/16"] } });
    let made = create(&client, BETA_CIDRS, &made).await;
    assert_eq!(made["apiVersion"], "networking.k8s.io/v1beta1");
    let stable = get(&format!("{SERVICE_CIDRS}/more")).await;
    assert_eq!(stable.text_at("/apiVersion"), "networking.k8s.io/v1");
    assert_eq!(stable.body["spec"], made["spec"]);
    let list = get(BETA_CIDRS).await;
    assert_eq!(list.text_at("/kind"), "ServiceCIDRList");
    assert_eq!(list.body["items"].as_array().map(Vec::len), Some(2), "{}", list.text);
    for path in [BETA_CIDRS, SERVICE_CIDRS] {
        let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let request = Request::get(path).header("accept", accept).body(Body::empty()).expect("request");
        let partial = answer(&client, request).await;
        let kind = partial.text_at("/items/0/kind");
        assert_eq!(kind, "PartialObjectMetadata", "{path}: {}", partial.text);
    }
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let patched = send(&client, "MERGE", &format!("{BETA_CIDRS}/more"), &labels).await;
    assert_eq!((patched.code, patched.text_at("/metadata/labels/a")), (200, "b"));
    let watch = get(&format!("{BETA_CIDRS}?watch=true&timeoutSeconds=1&resourceVersion=0")).await;
    assert!(
        watch.text.contains("networking.k8s.io/v1beta1") && watch.text.contains("10.77.0.0/16"),
        "{}",
        watch.text
    );
    assert_eq!(send(&client, "DELETE", &format!("{BETA_CIDRS}/more"), NULL).await.code, 200);

    // What is off is nowhere.
    assert_eq!(get("/apis/apps/v1/namespaces/default/daemonsets").await.code, 404);
    assert_eq!(get("/apis/apps/v1/namespaces/default/deployments").await.code, 200);
    for path in ["/apis/batch", "/apis/batch/v1", "/apis/batch/v1/jobs"] {
        let answer = get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (404, "404 page not found\n"), "{path}");
    }
    let resources = get("/apis/apps/v1").await.text;
    assert!(resources.contains("statefulsets") && !resources.contains("daemonsets"), "{resources}");
    let groups = get("/apis").await.text;
    assert!(groups.contains("networking.k8s.io/v1beta1") && !groups.contains("\"batch\""), "{groups}");
    let index = get("/openapi/v3").await.text;
    assert!(index.contains("apis/networking.k8s.io/v1beta1") && !index.contains("apis/batch"), "{index}");
    let swagger = get("/openapi/v2").await.text;
    assert!(swagger.contains("/apis/networking.k8s.io/v1beta1/servicecidrs"));
    assert!(!swagger.contains("/apis/batch/v1/jobs") && !swagger.contains("/apis/apps/v1/daemonsets"));
    let object = async |name: &str| get(&format!("{API_SERVICES}/{name}")).await;
    eventually("the APIServices follow", async || {
        let beta = object("v1beta1.networking.k8s.io").await;
        beta.body["spec"]["versionPriority"] == 9 && object("v1.batch").await.code == 404
    })
    .await;
    server.terminate().await.expect("end");

    // Nothing is lost.
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let get = async |path: &str| send(&client, "GET", path, NULL).await;
    assert_eq!(get("/apis/batch/v1/namespaces/default/jobs/kept").await.code, 200);
    assert_eq!((get(BETA_CIDRS).await.code, get("/apis/batch").await.code), (404, 200));
    server.terminate().await.expect("end");
}

/// Every optional version that is implemented takes objects, also those of the other version.
#[tokio::test]
async fn optional_versions_take_objects() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server =
        start_ready(&launch, dir.path(), &["--runtime-config=api/beta=true,api/alpha=true"]).await;
    let client = client_of(&server.kubeconfig()).await;
    // path of the collection, other versions, object
    for (group, versions, collection, object) in [
        (
            "coordination.k8s.io",
            &["v1beta1", "v1alpha2"][..],
            "namespaces/default/leasecandidates",
            json!({ "kind": "LeaseCandidate", "spec": { "leaseName": "l", "binaryVersion": "1.36.0", "strategy": "a/b" } }),
        ),
        (
            "storage.k8s.io",
            &["v1beta1", "v1"],
            "volumeattributesclasses",
            json!({ "kind": "VolumeAttributesClass", "driverName": "example.com", "parameters": { "a": "b" } }),
        ),
        (
            "admissionregistration.k8s.io",
            &["v1alpha1", "v1beta1", "v1"],
            "mutatingadmissionpolicybindings",
            json!({ "kind": "MutatingAdmissionPolicyBinding", "spec": { "policyName": "p" } }),
        ),
        (
            "resource.k8s.io",
            &["v1alpha3", "v1beta2"],
            "devicetaintrules",
            json!({ "kind": "DeviceTaintRule", "spec": { "deviceSelector": { "driver": "d.example.com" },
                "taint": { "key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" } } }),
        ),
        (
            "resource.k8s.io",
            &["v1alpha3"],
            "resourcepoolstatusrequests",
            json!({ "kind": "ResourcePoolStatusRequest", "spec": { "driver": "d.example.com" } }),
        ),
        (
            "resource.k8s.io",
            &["v1beta1", "v1beta2", "v1"],
            "deviceclasses",
            json!({ "kind": "DeviceClass", "spec": { "extendedResourceName": "example.com/d" } }),
        ),
        (
            "resource.k8s.io",
            &["v1beta2", "v1"],
            "namespaces/default/resourceclaims",
            json!({ "kind": "ResourceClaim", "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "c" } }] } } }),
        ),
    ] {
        for version in versions {
            let mut made = object.clone();
            made["apiVersion"] = json!(format!("{group}/{version}"));
            made["metadata"] = json!({ "name": format!("by-{version}") });
            let path = |version: &str| format!("/apis/{group}/{version}/{collection}");
            let made = create(&client, &path(version), &made).await;
            for other in versions {
                let read = send(&client, "GET", &format!("{}/by-{version}", path(other)), NULL).await;
                assert_eq!(read.text_at("/apiVersion"), format!("{group}/{other}"));
                assert_eq!(read.body["spec"], made["spec"], "{group} {version} {other}");
            }
        }
    }
    let bad = json!({ "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": { "name": "x" },
        "spec": { "leaseName": "l", "binaryVersion": "1", "strategy": "a/b" } });
    let refused =
        send(&client, "POST", "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates", &bad)
            .await;
    assert_eq!((refused.code, refused.fields()), (422, vec!["spec.binaryVersion"]));
    devices_of_v1beta1_have_a_form_of_their_own(&client).await;
    clients_of_deprecated_versions_are_warned(&client).await;
    storage_versions_name_what_servers_store(&client).await;
    server.terminate().await.expect("end");
}

/// The same objects in both forms, errors in the words of `v1`, and no right that the other form hides.
async fn devices_of_v1beta1_have_a_form_of_their_own(client: &Client) {
    let path = |version: &str, collection: &str| format!("/apis/resource.k8s.io/{version}/{collection}");
    let object = |version: &str, kind: &str, name: &str, spec: &Value| {
        json!({ "apiVersion": format!("resource.k8s.io/{version}"), "kind": kind,
            "metadata": { "name": name }, "spec": spec })
    };
    let one = json!({ "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{ "cel": { "expression": "true" } }] });
    let any = json!({ "name": "x", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1 });
    let mut flat = one.clone();
    flat["name"] = json!("r");
    let alternatives = json!({ "name": "s", "firstAvailable": [any] });
    let mut without_class = alternatives.clone();
    without_class["deviceClassName"] = json!("");
    let old_claim = json!({ "devices": { "requests": [flat, without_class] } });
    let new_claim = json!({ "devices": { "requests": [{ "name": "r", "exactly": one }, alternatives] } });
    let device = json!({ "attributes": { "model": { "string": "m" } }, "capacity": { "memory": { "value": "1Gi" } },
        "taints": [{ "key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" }] });
    let mut flat = device.clone();
    flat["name"] = json!("d");
    let slice = |devices: Value| {
        json!({ "driver": "d.example.com", "nodeName": "n", "devices": devices,
            "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 } })
    };
    let (old_slice, new_slice) = (slice(json!([{ "name": "d", "basic": device }])), slice(json!([flat])));
    let template = |spec: &Value| json!({ "spec": spec, "metadata": {} });
    for (collection, kind, old, new) in [
        ("namespaces/default/resourceclaims", "ResourceClaim", &old_claim, &new_claim),
        (
            "namespaces/default/resourceclaimtemplates",
            "ResourceClaimTemplate",
            &template(&old_claim),
            &template(&new_claim),
        ),
        ("resourceslices", "ResourceSlice", &old_slice, &new_slice),
    ] {
        for (version, spec) in [("v1beta1", old), ("v1", new)] {
            let name = format!("of-{version}");
            let made = create(client, &path(version, collection), &object(version, kind, &name, spec)).await;
            assert_eq!(&made["spec"], spec, "{kind} {version}");
            for (other, spec) in [("v1beta1", old), ("v1beta2", new), ("v1", new)] {
                let path = format!("{}/{name}", path(other, collection));
                let mut read = send(client, "GET", &path, NULL).await.body;
                assert_eq!(&read["spec"], spec, "{kind} {version} {other}");
                // Neither the other form nor its defaults are a change.
                read["metadata"]["labels"] = json!({ "by": other });
                let written = send(client, "PUT", &path, &read).await;
                assert_eq!((written.code, &written.body["spec"]), (200, spec), "{}", written.text);
                let labels = json!({ "metadata": { "labels": { "patched": other } } });
                let patched = send(client, "MERGE", &path, &labels).await;
                assert_eq!((patched.code, &patched.body["spec"]), (200, spec), "{}", patched.text);
            }
        }
    }

    let claims = path("v1beta1", "namespaces/default/resourceclaims");
    for (request, fields) in [
        (
            json!({ "name": "r", "deviceClassName": "c", "count": -1 }),
            "spec.devices.requests[0].exactly.count",
        ),
        (json!({ "name": "r", "count": 1 }), "spec.devices.requests[0].exactly.deviceClassName"),
        (json!({ "name": "r" }), "spec.devices.requests[0]"),
        (json!({ "name": "r", "deviceClassName": "c", "firstAvailable": [any] }), "spec.devices.requests[0]"),
        (
            json!({ "name": "r", "deviceClassName": "c", "adminAccess": true }),
            "spec.devices.requests[0].adminAccess",
        ),
    ] {
        let spec = json!({ "devices": { "requests": [request] } });
        let refused = send(client, "POST", &claims, &object("v1beta1", "ResourceClaim", "bad", &spec)).await;
        assert_eq!((refused.code, refused.fields()[0]), (422, fields), "{request} {}", refused.text);
    }
    let devices = json!([{ "name": "d", "basic": { "attributes": { "a": { "int": 1, "bool": true } } } }]);
    let bad = object("v1beta1", "ResourceSlice", "bad", &slice(devices));
    let refused = send(client, "POST", &path("v1beta1", "resourceslices"), &bad).await;
    assert_eq!(
        (refused.code, refused.fields()),
        (422, vec!["spec.devices[0].attributes[a]"]),
        "{}",
        refused.text
    );
}

async fn clients_of_deprecated_versions_are_warned(client: &Client) {
    const DEPRECATED: &[(&str, &str, &str)] = &[
        (
            "networking.k8s.io/v1beta1/ipaddresses",
            "networking.k8s.io/v1beta1 IPAddress",
            "1.34+, unavailable in v1.37+",
        ),
        (
            "networking.k8s.io/v1beta1/servicecidrs",
            "networking.k8s.io/v1beta1 ServiceCIDR",
            "1.34+, unavailable in v1.37+",
        ),
        (
            "storage.k8s.io/v1beta1/volumeattributesclasses",
            "storage.k8s.io/v1beta1 VolumeAttributesClass",
            "1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
        ),
        (
            "admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies",
            "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicybindings",
            "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "coordination.k8s.io/v1beta1/leasecandidates",
            "coordination.k8s.io/v1beta1 LeaseCandidate",
            "1.36+, unavailable in v1.39+",
        ),
        (
            "coordination.k8s.io/v1alpha2/leasecandidates",
            "coordination.k8s.io/v1alpha2 LeaseCandidate",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1beta2/deviceclasses",
            "resource.k8s.io/v1beta2 DeviceClass",
            "1.36+, unavailable in v1.39+",
        ),
        (
            "resource.k8s.io/v1beta2/resourceclaims",
            "resource.k8s.io/v1beta2 ResourceClaim",
            "1.36+, unavailable in v1.39+",
        ),
        (
            "resource.k8s.io/v1beta2/resourceclaimtemplates",
            "resource.k8s.io/v1beta2 ResourceClaimTemplate",
            "1.36+, unavailable in v1.39+",
        ),
        (
            "resource.k8s.io/v1beta2/resourceslices",
            "resource.k8s.io/v1beta2 ResourceSlice",
            "1.36+, unavailable in v1.39+",
        ),
        (
            "resource.k8s.io/v1beta1/deviceclasses",
            "resource.k8s.io/v1beta1 DeviceClass",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1beta1/resourceclaims",
            "resource.k8s.io/v1beta1 ResourceClaim",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1beta1/resourceclaimtemplates",
            "resource.k8s.io/v1beta1 ResourceClaimTemplate",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1beta1/resourceslices",
            "resource.k8s.io/v1beta1 ResourceSlice",
            "1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1alpha3/devicetaintrules",
            "resource.k8s.io/v1alpha3 DeviceTaintRule",
            "1.36+, unavailable in v1.39+",
        ),
    ];
    for (path, what, since) in DEPRECATED {
        let read = send(client, "GET", &format!("/apis/{path}"), NULL).await;
        assert_eq!(read.warnings, [format!("299 - \"{what} is deprecated in v{since}\"")], "{path}");
    }
    for path in ["resource.k8s.io/v1beta2/devicetaintrules", "networking.k8s.io/v1/servicecidrs"] {
        let read = send(client, "GET", &format!("/apis/{path}"), NULL).await;
        assert_eq!((read.code, read.warnings), (200, vec![]), "{path}");
    }
    let metrics = send(client, "GET", "/metrics", NULL).await.text;
    let family = "apiserver_requested_deprecated_apis{group=\"coordination.k8s.io\",removed_release=\"1.38\"";
    assert!(metrics.contains(family), "{family}");
}

async fn storage_versions_name_what_servers_store(client: &Client) {
    const COLLECTION: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let named = |name: &str| {
        json!({ "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": { "name": name }, "spec": {} })
    };
    let refused = send(client, "POST", COLLECTION, &named("leases")).await;
    assert_eq!(
        refused.text_at("/message"),
        "StorageVersion.internal.apiserver.k8s.io \"leases\" is invalid: metadata.name: Invalid value: \"leases\": name must be in the form of <group>.<resource>"
    );
    create(client, COLLECTION, &named("coordination.k8s.io.leases")).await;
    let path = format!("{COLLECTION}/coordination.k8s.io.leases/status");
    let server = |encoding: &str| {
        json!({ "apiServerID": "a", "encodingVersion": encoding,
        "decodableVersions": ["coordination.k8s.io/v1"] })
    };
    let status = |encoding: &str| {
        json!({ "status": { "storageVersions": [server(encoding)],
        "commonEncodingVersion": "coordination.k8s.io/v1" } })
    };
    let refused = send(client, "MERGE", &path, &status("coordination.k8s.io/v2")).await;
    assert_eq!(
        refused.fields(),
        ["status.storageVersions[0].decodableVersions", "status.commonEncodingVersion"]
    );
    assert_eq!(send(client, "MERGE", &path, &status("coordination.k8s.io/v1")).await.code, 200);
}

/// The server itself reads and writes what it needs, whatever is served.
#[tokio::test]
async fn a_server_runs_on_what_is_switched_off() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let flags = "--runtime-config=api/all=false,/v1=true,apps/v1/deployments=true";
    let mut server = start_ready(&launch, dir.path(), &[flags]).await;
    let client = client_of(&server.kubeconfig()).await;
    let groups = send(&client, "GET", "/apis", NULL).await;
    let names: Vec<&str> = groups.body["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["name"].as_str())
        .collect();
    assert_eq!(names, ["apps"]);
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } });
    create(&client, "/api/v1/namespaces", &namespace).await;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" } });
    create(&client, "/api/v1/namespaces/n/configmaps", &map).await;
    assert_eq!(send(&client, "DELETE", "/api/v1/namespaces/n", NULL).await.code, 200);
    eventually("the namespace is gone", async || {
        send(&client, "GET", "/api/v1/namespaces/n", NULL).await.code == 404
    })
    .await;
    server.terminate().await.expect("end");
}

/// No client can reach what is switched off, nor remove its finalizers: it does not hold its namespace, and
/// is deleted once it is served again and its finalizers are gone.
#[tokio::test]
async fn what_is_switched_off_does_not_hold_its_namespace() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } });
    create(&client, "/api/v1/namespaces", &namespace).await;
    const JOBS: &str = "/apis/batch/v1/namespaces/n/jobs";
    for (name, finalizers) in [("free", json!([])), ("held", json!(["example.com/hold"]))] {
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "finalizers": finalizers },
            "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } });
        create(&client, JOBS, &job).await;
    }
    server.terminate().await.expect("end");

    let mut server = start_ready(&launch, dir.path(), &["--runtime-config=batch/v1=false"]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "DELETE", "/api/v1/namespaces/n", NULL).await.code, 200);
    eventually("the namespace is gone", async || {
        send(&client, "GET", "/api/v1/namespaces/n", NULL).await.code == 404
    })
    .await;
    server.terminate().await.expect("end");

    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let get = async |name: &str| send(&client, "GET", &format!("{JOBS}/{name}"), NULL).await;
    assert_eq!(get("free").await.code, 404);
    let held = get("held").await;
    assert!(held.body["metadata"]["deletionTimestamp"].is_string(), "{}", held.text);
    let freed = json!({ "metadata": { "finalizers": null } });
    assert_eq!(send(&client, "MERGE", &format!("{JOBS}/held"), &freed).await.code, 200);
    assert_eq!(get("held").await.code, 404);
    server.terminate().await.expect("end");
}

/// Who owns fields in a version that is switched off stays their owner.
#[tokio::test]
async fn owners_in_a_version_that_is_off_stay_owners() {
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let mut server =
        start_ready(&launch, dir.path(), &["--runtime-config=storage.k8s.io/v1beta1=true"]).await;
    let client = client_of(&server.kubeconfig()).await;
    let path = |version: &str| format!("/apis/storage.k8s.io/{version}/volumeattributesclasses");
    let made = json!({ "apiVersion": "storage.k8s.io/v1beta1", "kind": "VolumeAttributesClass",
        "metadata": { "name": "c", "labels": { "a": "b" } }, "driverName": "example.com", "parameters": { "a": "b" } });
    create(&client, &format!("{}?fieldManager=first", path("v1beta1")), &made).await;
    server.terminate().await.expect("end");

    let mut server = start_ready(&launch, dir.path(), &[]).await;
    let client = client_of(&server.kubeconfig()).await;
    let labels = json!({ "metadata": { "labels": { "c": "d" } } });
    let patched = send(&client, "MERGE", &format!("{}/c?fieldManager=second", path("v1")), &labels).await;
    let managers = patched.body["metadata"]["managedFields"].as_array().into_iter().flatten();
    let managers: Vec<_> =
        managers.map(|entry| (entry["manager"].clone(), entry["apiVersion"].clone())).collect();
    let expected = [("first", "storage.k8s.io/v1beta1"), ("second", "storage.k8s.io/v1")];
    assert_eq!(
        managers,
        expected.map(|(manager, version)| (json!(manager), json!(version))),
        "{}",
        patched.text
    );
    server.terminate().await.expect("end");
}

#[test]
fn what_cannot_be_switched_is_refused_with_its_name() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    for (flag, message) in [
        (
            "--runtime-config=apps/v9=true",
            "--runtime-config: group version apps/v9 that has not been registered",
        ),
        ("--runtime-config=example.com/v1=true", "--runtime-config: unknown api groups example.com/v1"),
        ("--feature-gates=Nonesuch=true", "--feature-gates: unrecognized feature gate: Nonesuch"),
        (
            "--feature-gates=HPAScaleToZero=true",
            "--feature-gates: cannot set feature gate HPAScaleToZero to true: it is not implemented",
        ),
        (
            "--feature-gates=WatchList=false",
            "--feature-gates: cannot set feature gate WatchList to false: it cannot be switched off",
        ),
        (
            "--feature-gates=SidecarContainers=false",
            "--feature-gates: cannot set feature gate SidecarContainers to false, feature is locked to true",
        ),
    ] {
        let path = data.to_str().expect("a path in UTF-8");
        let output = launch().command(["serve", "--secure-port=0", "--data-dir", path, flag]).outcome();
        assert_eq!(output.status.code(), Some(1), "{flag}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {message}\n"));
        assert!(!data.exists(), "nothing was made");
    }
}

#[tokio::test]
async fn a_policy_for_a_version_that_is_off_sees_the_one_that_is_on() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let launch = launch();
    let dir = launch.data_dir().expect("directory");
    let flag = "--runtime-config=networking.k8s.io/v1beta1=true,networking.k8s.io/v1/servicecidrs=false";
    let mut server = start_ready(&launch, dir.path(), &[flag]).await;
    let client = client_of(&server.kubeconfig()).await;
    assert_eq!(send(&client, "GET", SERVICE_CIDRS, NULL).await.code, 404);
    for match_policy in ["Equivalent", "Exact"] {
        let name = match_policy.to_lowercase();
        let rule = json!({ "operations": ["CREATE"], "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"],
            "resources": ["servicecidrs"] });
        let policy = json!({ "metadata": { "name": name }, "spec": {
            "matchConstraints": { "matchPolicy": match_policy, "resourceRules": [rule] },
            "validations": [{ "expression": format!("object.metadata.name != 'no-{name}'"), "message": "refused" },
                { "expression": "object.apiVersion == 'networking.k8s.io/v1'", "message": "another version" }] } });
        create(&client, POLICIES, &policy).await;
        let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } });
        create(&client, &POLICIES.replace("policies", "policybindings"), &binding).await;
    }
    let beta = |name: &str| {
        json!({ "apiVersion": "networking.k8s.io/v1beta1", "kind": "ServiceCIDR", "metadata": { "name": name },
            "spec": { "cidrs": ["10.78.0.0/16"] } })
    };
    let refused = send(&client, "POST", BETA_CIDRS, &beta("no-equivalent")).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    assert!(
        refused.text.contains("refused") && !refused.text.contains("another version"),
        "{}",
        refused.text
    );
    assert_eq!(send(&client, "POST", BETA_CIDRS, &beta("no-exact")).await.code, 201);
    server.terminate().await.expect("end");
}
