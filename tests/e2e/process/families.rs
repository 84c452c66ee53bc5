//! Clusters of IPv6, and of both families.

use std::net::{IpAddr, Ipv6Addr, TcpListener};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use kube::Client;
use plinth_tests::eventually;
use plinth_tests::https::{HttpsOptions, HttpsServer};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::outcome::Outcome;
use plinth_tests::requests::{create, send};
use plinth_tests::server::{client_of, launch, start_ready, TestServer};
use serde_json::{json, Value};

const LOOPBACK: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Whether this machine has IPv6; the tests of `what` are skipped without it.
fn has_ipv6(what: &str) -> bool {
    let has = TcpListener::bind((LOOPBACK, 0)).is_ok();
    if !has {
        println!("skipped: {what}: this machine has no ::1");
    }
    has
}

async fn get(client: &Client, path: &str) -> Value {
    let answer = send(client, "GET", path, &Value::Null).await;
    assert_eq!(answer.code, 200, "{path}: {}", answer.text);
    answer.body
}

fn service(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"port": 80}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Families, policy and the families of the addresses of a Service that is created.
async fn families(client: &Client, name: &str, spec: &Value) -> Result<String, String> {
    let answer = send(client, "POST", SERVICES, &service(name, spec)).await;
    match answer.code {
        201 => Ok(shown(&answer.body)),
        _ => Err(answer.text_at("/message").to_owned()),
    }
}

fn shown(service: &Value) -> String {
    let spec = &service["spec"];
    let family = |address: &Value| match address.as_str() {
        Some("None") => "None",
        Some(address) if address.contains(':') => "6",
        Some(_) => "4",
        None => "?",
    };
    let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let addresses: Vec<&str> = list(&spec["clusterIPs"]).iter().map(family).collect();
    let families: Vec<String> =
        list(&spec["ipFamilies"]).iter().map(|f| f.as_str().unwrap_or("?").to_owned()).collect();
    format!(
        "{} {} {}",
        families.join(","),
        spec["ipFamilyPolicy"].as_str().unwrap_or("?"),
        addresses.join(",")
    )
}

#[tokio::test]
async fn a_cluster_of_ipv6_alone() {
    if !has_ipv6("a cluster of IPv6") {
        return;
    }
    let flags = ["--service-cluster-ip-range=fd00:10::/112", "--advertise-address=fd00:99::1"];
    let server = TestServer::start_on(LOOPBACK, &flags).await;
    let address = format!("https://[::1]:{}", server.port());
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).expect("kubeconfig");
    assert!(kubeconfig.contains(&format!("server: {address}\n")), "{kubeconfig}");
    let client = server.client().await;

    let kubernetes = get(&client, &format!("{SERVICES}/kubernetes")).await;
    assert_eq!(kubernetes["spec"]["clusterIPs"], json!(["fd00:10::1"]));
    assert_eq!(shown(&kubernetes), "IPv6 SingleStack 6");
    let slice = get(&client, SLICE).await;
    assert_eq!(
        (&slice["addressType"], &slice["endpoints"][0]["addresses"]),
        (&json!("IPv6"), &json!(["fd00:99::1"]))
    );
    let endpoints = get(&client, "/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": "fd00:99::1"}]));
    let range = get(&client, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await;
    assert_eq!(range["spec"]["cidrs"], json!(["fd00:10::/112"]));
    get(&client, "/apis/networking.k8s.io/v1/ipaddresses/fd00:10::1").await;
    let documents = get(&client, "/.well-known/openid-configuration").await;
    let keys = documents["jwks_uri"].as_str().unwrap_or_default();
    assert!(keys.starts_with("https://[fd00:99::1]:"), "{keys}");

    // spec, families, policy and addresses, or why it is refused
    let rows = [
        (json!({}), Ok("IPv6 SingleStack 6")),
        (json!({"type": "NodePort", "ipFamilyPolicy": "PreferDualStack"}), Ok("IPv6 PreferDualStack 6")),
        (json!({"clusterIP": "fd00:10::7"}), Ok("IPv6 SingleStack 6")),
        (json!({"clusterIP": "None", "selector": {"a": "b"}}), Ok("IPv6 SingleStack None")),
        (json!({"ipFamilies": ["IPv4"]}), Err("spec.ipFamilies[0]")),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), Err("not configured for dual-stack services")),
        (json!({"clusterIP": "10.0.0.7"}), Err("IPv4 is not configured on this cluster")),
    ];
    for (i, (spec, expected)) in rows.into_iter().enumerate() {
        let found = families(&client, &format!("s{i}"), &spec).await;
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{spec}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{spec}: {found}"),
            _ => panic!("{spec}: {found:?}"),
        }
    }
    through_a_node(&client).await;
    if let Some(kubectl) = Kubectl::find("a cluster of IPv6", server.kubeconfig()) {
        assert!(kubectl.ok("get services").contains("fd00:10::7"));
        assert!(kubectl.ok("cluster-info").contains(&address));
    }
}

/// A kubelet on `::1` has the logs of a pod.
async fn through_a_node(client: &Client) {
    let options =
        HttpsOptions { names: vec!["::1".to_owned()], address: LOOPBACK, ..HttpsOptions::default() };
    let kubelet = HttpsServer::start_as(options, |request: Request<Incoming>| async move {
        Response::new(Full::new(Bytes::from(request.uri().to_string())))
    })
    .await;
    create(client, "/api/v1/nodes", &json!({"metadata": {"name": "six"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "::1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}});
    assert_eq!(send(client, "PATCH", "/api/v1/nodes/six/status", &status).await.code, 200);
    eventually("the service account is there", || async {
        send(client, "GET", "/api/v1/namespaces/default/serviceaccounts/default", &Value::Null).await.code
            == 200
    })
    .await;
    let spec = json!({"nodeName": "six", "containers": [{"name": "c", "image": "x"}]});
    create(client, "/api/v1/namespaces/default/pods", &json!({"metadata": {"name": "p"}, "spec": spec}))
        .await;
    let log = send(client, "GET", "/api/v1/namespaces/default/pods/p/log", &Value::Null).await;
    assert_eq!((log.code, log.text.as_str()), (200, "/containerLogs/default/p/c"));
    // As upstream, proxies lead to no address of this machine.
    let proxied = send(client, "GET", "/api/v1/nodes/six/proxy/healthz", &Value::Null).await;
    assert_eq!((proxied.code, proxied.text_at("/message")), (400, "address not allowed"));
}

#[tokio::test]
async fn services_of_both_families() {
    let server = TestServer::start(&["--service-cluster-ip-range=10.1.0.0/24,fd00:10::/112"]).await;
    let client = server.client().await;
    // name, spec, families, policy and addresses
    let rows = [
        ("single", json!({}), "IPv4 SingleStack 4"),
        ("six", json!({"ipFamilies": ["IPv6"]}), "IPv6 SingleStack 6"),
        ("preferred", json!({"ipFamilyPolicy": "PreferDualStack"}), "IPv4,IPv6 PreferDualStack 4,6"),
        (
            "order",
            json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}),
            "IPv6,IPv4 RequireDualStack 6,4",
        ),
        (
            "given",
            json!({"clusterIP": "fd00:10::7", "clusterIPs": ["fd00:10::7", "10.1.0.7"], "ipFamilyPolicy": "PreferDualStack"}),
            "IPv6,IPv4 PreferDualStack 6,4",
        ),
        ("headless", json!({"clusterIP": "None"}), "IPv4,IPv6 RequireDualStack None"),
    ];
    for (name, spec, expected) in rows {
        assert_eq!(families(&client, name, &spec).await.as_deref(), Ok(expected), "{spec}");
    }
    let used = async || {
        let list = get(&client, "/apis/networking.k8s.io/v1/ipaddresses").await;
        let of = |name: &str| {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.iter().filter(|item| item["spec"]["parentRef"]["name"] == name).count()
        };
        (of("single"), of("preferred"))
    };
    assert_eq!(used().await, (1, 2));
    // A second address is allocated, and released.
    for (name, spec, expected) in [
        ("single", json!({"ipFamilyPolicy": "RequireDualStack"}), "IPv4,IPv6 RequireDualStack 4,6"),
        ("preferred", json!({"ipFamilyPolicy": "SingleStack"}), "IPv4 SingleStack 4"),
    ] {
        let answer = send(&client, "PATCH", &format!("{SERVICES}/{name}"), &json!({"spec": spec})).await;
        assert_eq!((answer.code, shown(&answer.body).as_str()), (200, expected), "{}", answer.text);
    }
    assert_eq!(used().await, (2, 1));
    let other = json!({"spec": {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "clusterIPs": null, "clusterIP": null}});
    let answer = send(&client, "PATCH", &format!("{SERVICES}/six"), &other).await;
    assert!(
        answer.code == 422 && answer.text.contains("expected an IPv4 value as indicated by"),
        "{}",
        answer.text
    );
}

/// The slice of the Service `kubernetes` follows the family of the advertised address.
#[tokio::test]
async fn the_endpoints_change_their_family_with_the_flags() {
    let root = tempfile::tempdir().expect("directory");
    let (four, six) = ("10.1.0.0/24,fd00:10::/112", "fd00:10::/112,10.1.0.0/24");
    for (ranges, address, family) in
        [(four, "192.0.2.7", "IPv4"), (six, "2001:db8::7", "IPv6"), (four, "192.0.2.7", "IPv4")]
    {
        let flags =
            [format!("--service-cluster-ip-range={ranges}"), format!("--advertise-address={address}")];
        let mut server = start_ready(&launch(), root.path(), &flags.each_ref().map(String::as_str)).await;
        let client = client_of(&server.kubeconfig()).await;
        let slice = get(&client, SLICE).await;
        assert_eq!(
            (&slice["addressType"], &slice["endpoints"][0]["addresses"]),
            (&json!(family), &json!([address]))
        );
        drop(client);
        server.terminate().await.expect("clean end");
    }
}

#[test]
fn ranges_and_addresses_that_do_not_go_together() {
    let rows: [(&[&str], &str); 4] = [
        (
            &["--service-cluster-ip-range=fd00:10::/112,fd00:11::/112"],
            "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family",
        ),
        (
            &["--advertise-address=2001:db8::7"],
            "service IP family \"10.0.0.0/24\" must match public address family \"2001:db8::7\"",
        ),
        (
            &["--bind-address=192.0.2.7", "--service-cluster-ip-range=fd00:10::/112,10.1.0.0/24"],
            "service IP family \"fd00:10::/112\" must match public address family \"192.0.2.7\"",
        ),
        (
            &["--service-cluster-ip-range=10.1.0.0/24,fd00::/112,fd01::/112"],
            "must not contain more than two entries",
        ),
    ];
    for (flags, expected) in rows {
        let root = tempfile::tempdir().expect("directory");
        let mut command = launch().command(["serve", "--data-dir"]);
        command.arg(root.path().join("data")).args(flags);
        let output = command.outcome();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{flags:?}: {text}");
        assert!(!root.path().join("data").exists(), "{flags:?}");
    }
}
