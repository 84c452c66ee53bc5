//! `/healthz`, `/livez`, `/readyz`: upstream's checks by name, in upstream's order.

use plinth_benches::api::client::{Call, Connection, Protocol};
use plinth_tests::server::shared;
use serde_json::Value;

/// Checks that probes, dashboards and kubeadm name, in their order.
const NAMED: [&str; 18] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/bootstrap-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "autoregister-completion",
    "poststarthook/apiservice-openapiv3-controller",
];
const READINESS_ONLY: [&str; 3] = ["etcd-readiness", "informer-sync", "shutdown"];

async fn text(connection: &mut Connection, path: &str) -> (u16, String) {
    let reply = connection.call(&Call::get(path)).await.expect(path);
    let content_type = reply.headers.get("content-type").and_then(|value| value.to_str().ok());
    assert_eq!(content_type, Some("text/plain; charset=utf-8"), "{path}");
    (reply.status.as_u16(), reply.text())
}

#[tokio::test]
async fn verbose_lists_every_check_in_upstreams_order() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    for probe in ["healthz", "livez", "readyz"] {
        let (status, listed) = text(&mut connection, &format!("/{probe}?verbose")).await;
        assert_eq!(status, 200, "{listed}");
        let lines: Vec<&str> = listed.lines().collect();
        assert!(listed.ends_with(&format!("\n{probe} check passed\n")), "{listed}");
        let places: Vec<Option<usize>> =
            NAMED.iter().map(|name| lines.iter().position(|line| *line == format!("[+]{name} ok"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {listed}");
        for name in READINESS_ONLY {
            let is_listed = lines.contains(&format!("[+]{name} ok").as_str());
            assert_eq!(is_listed, probe == "readyz", "{name} in {listed}");
        }
        // Each is a path of its own.
        for line in &lines[..lines.len() - 1] {
            let name = line.strip_prefix("[+]").and_then(|line| line.strip_suffix(" ok")).expect(line);
            let single = text(&mut connection, &format!("/{probe}/{name}")).await;
            assert_eq!(single, (200, "ok".to_owned()), "/{probe}/{name}");
        }
    }
    for path in [
        "/livez/none",
        "/livez/shutdown",
        "/livez/etcd-readiness",
        "/readyz/poststarthook",
        // Without a certificate of the proxy.
        "/livez/poststarthook/aggregator-reload-proxy-client-cert",
    ] {
        let reply = connection.call(&Call::get(path)).await.expect(path);
        assert_eq!(reply.status.as_u16(), 404, "{path}");
    }
}

#[tokio::test]
async fn excluded_checks_are_listed_as_such_and_unknown_ones_are_named() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    let (status, listed) =
        text(&mut connection, "/livez?verbose&exclude=etcd&exclude=ping&exclude=etcd").await;
    assert_eq!(status, 200, "{listed}");
    assert!(listed.starts_with("[+]ping excluded: ok\n[+]log ok\n[+]etcd excluded: ok\n"), "{listed}");
    assert!(!listed.contains("warn:"), "{listed}");

    let query = "verbose=false&exclude=none&exclude=etcd&exclude=a%22b&exclude=none";
    let (status, listed) = text(&mut connection, &format!("/livez?{query}")).await;
    let warning = "\nwarn: some health checks cannot be excluded: no matches for \"a\\\"b\",\"none\"\n\
                   livez check passed\n";
    assert_eq!(status, 200, "{listed}");
    assert!(listed.contains("[+]etcd excluded: ok\n") && listed.ends_with(warning), "{listed}");

    // Only who asks for the list sees the warning.
    assert_eq!(text(&mut connection, "/livez?exclude=none").await, (200, "ok".to_owned()));
    // A single check has no options.
    assert_eq!(text(&mut connection, "/livez/ping?exclude=ping&verbose").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn the_index_lists_every_check() {
    let mut connection = shared().await.connect(Protocol::Http2).await;
    let reply = connection.must(&Call::get("/")).await.expect("the index");
    let index: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let paths: Vec<&str> =
        index["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    assert!(paths.is_sorted(), "{paths:?}");
    for path in ["/healthz", "/healthz/etcd", "/livez/poststarthook/rbac/bootstrap-roles", "/readyz/shutdown"]
    {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    assert!(!paths.contains(&"/livez/shutdown"), "{paths:?}");
}
