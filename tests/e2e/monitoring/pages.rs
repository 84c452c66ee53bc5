//! Pages for people who operate the server, and their forms for programs.

use http::StatusCode;
use plinth_benches::api::client::{Call, Connection, Protocol};
use plinth_tests::eventually;
use plinth_tests::server::TestServer;
use serde_json::Value;

use super::Scrape;

async fn reply(
    connection: &mut Connection,
    path: &str,
    accept: &'static str,
) -> (StatusCode, String, String) {
    let reply = connection.call(&Call::get(path).accept(accept)).await.expect("an answer");
    let content_type = reply.headers.get("content-type").and_then(|value| value.to_str().ok());
    (reply.status, content_type.unwrap_or_default().to_owned(), reply.text())
}

#[tokio::test]
async fn statusz_and_flagz_are_text_or_an_object_of_the_requested_version() {
    let flags = ["--event-ttl=2h", "--watch-cache=F", "--enable-admission-plugins=NodeRestriction"];
    let server = TestServer::start(&flags).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let plain = "text/plain; charset=utf-8";
    for accept in ["text/plain", "*/*", "application/json, */*;q=0.5"] {
        let (status, content_type, page) = reply(&mut admin, "/statusz", accept).await;
        assert_eq!((status.as_u16(), content_type.as_str()), (200, plain), "{accept}");
        assert!(page.starts_with("\napiserver statusz\nWarning: "), "{page}");
        for line in ["Started: ", "Up: 0 hr 0", "Binary version: 1.36.", "Emulation version: 1.36"] {
            assert!(page.contains(&format!("\n{line}")), "{line} in {page}");
        }
        // As `Mon Nov 30 08:00:33 UTC 2026`.
        let started = page.split("\nStarted: ").nth(1).and_then(|rest| rest.lines().next()).expect("a line");
        let words: Vec<&str> = started.split_ascii_whitespace().collect();
        assert!(matches!(words[..], [_, _, _, time, "UTC", _] if time.len() == 8), "{started}");
        assert!(page.contains("Paths: /flagz /healthz /livez /metrics /readyz /statusz /version"), "{page}");
    }
    let (_, _, flags) = reply(&mut admin, "/flagz", "text/plain").await;
    for line in [
        "event-ttl=2h0m0s",
        "request-timeout=1m0s",
        "watch-cache=false",
        "enable-admission-plugins=[NodeRestriction]",
        "disable-admission-plugins=[]",
        "anonymous-auth=true",
        "authorization-mode=[Node,RBAC]",
        "bind-address=127.0.0.1",
        "enable-garbage-collector=true",
        "endpoint-reconciler-type=lease",
        "profiling=false",
    ] {
        assert!(flags.contains(&format!("\n{line}\n")), "{line} in {flags}");
    }

    let json = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
    let (status, content_type, page) = reply(&mut admin, "/statusz", json).await;
    let typed = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
    assert_eq!((status.as_u16(), content_type.as_str()), (200, typed), "{page}");
    assert!(page.ends_with("}\n"), "{page}");
    let indented = reply(&mut admin, "/statusz?pretty=1", json).await.2;
    assert!(indented.contains("\n  \"metadata\": {\n    \"name\": \"apiserver\"\n  }"), "{indented}");
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!((&page["kind"], &page["apiVersion"]), (&"Statusz".into(), &"config.k8s.io/v1beta1".into()));
    assert_eq!(page["metadata"]["name"], "apiserver");
    assert!(page["uptimeSeconds"].is_i64() && page["startTime"].is_string(), "{page}");
    assert!(page["paths"].as_array().is_some_and(|paths| paths.contains(&"/metrics".into())), "{page}");

    let old = "application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz";
    let answer = admin.call(&Call::get("/flagz").accept(old)).await.expect("an answer");
    assert_eq!(answer.headers["content-type"], "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
    let warning = answer.headers["warning"].to_str().expect("text");
    assert!(warning.contains("This version of the flagz endpoint is deprecated."), "{warning}");
    let page = answer.text();
    assert!(
        page.contains("apiVersion: config.k8s.io/v1alpha1") && page.contains("event-ttl: 2h0m0s"),
        "{page}"
    );

    for accept in ["application/json", "text/html", "application/json;v=v2;g=config.k8s.io;as=Flagz"] {
        let (status, _, refusal) = reply(&mut admin, "/flagz", accept).await;
        assert_eq!(status, StatusCode::NOT_ACCEPTABLE, "{accept}");
        let accepted =
            "only the following media types are accepted: application/json, application/yaml, text/plain";
        assert!(refusal.contains(accepted), "{refusal}");
    }
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    for path in ["/statusz", "/flagz", "/metrics/slis", "/debug/api_priority_and_fairness/dump_queues"] {
        let refused = anonymous.call(&Call::get(path)).await.expect("an answer");
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn the_index_has_two_paths() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let index = reply(&mut admin, "/", "*/*").await;
    assert_eq!(index, reply(&mut admin, "/index.html", "*/*").await);
    for path in [
        "/.well-known/openid-configuration",
        "/flagz",
        "/metrics",
        "/metrics/slis",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/statusz",
        "/version",
    ] {
        assert!(index.2.contains(&format!("\"{path}\"")), "{path} in {}", index.2);
    }
    // Served by other components of Kubernetes, or by profilers that this server does not have.
    for path in ["/configz", "/debug/pprof/", "/debug/flags/v", "/logs"] {
        assert_eq!(reply(&mut admin, path, "*/*").await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn the_oldest_compatible_version_is_that_of_the_flag() {
    for (flags, oldest) in [(&[][..], "35"), (&["--min-compatibility-version=kube=1.34"][..], "34")] {
        let server = TestServer::start(flags).await;
        let mut admin = server.connect(Protocol::Http2).await;
        let version: Value =
            serde_json::from_str(&reply(&mut admin, "/version", "*/*").await.2).expect("JSON");
        assert_eq!(version["minCompatibilityMinor"], oldest);
        let scrape = Scrape::of(&mut admin, "/metrics").await;
        let label = format!("min_compat=\"1.{oldest}\"");
        let labels = ["binary=\"1.36.", "component=\"kube\"", "emulation=\"1.36\"", &label];
        assert_eq!(scrape.value("version_info", &labels), 1.0, "{flags:?}");
    }
}

#[tokio::test]
async fn priority_and_fairness_is_dumped_in_upstreams_columns() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let mut dump = async |what: &str| {
        let path = format!("/debug/api_priority_and_fairness/{what}");
        let (status, content_type, table) = reply(&mut admin, &path, "*/*").await;
        assert_eq!((status.as_u16(), content_type.as_str()), (200, "text/plain; charset=utf-8"), "{what}");
        let rows = table.lines().map(|line| line.split(",\t").map(str::to_owned).collect::<Vec<_>>());
        rows.collect::<Vec<_>>()
    };
    let levels = dump("dump_priority_levels").await;
    assert_eq!(levels[0].len(), 10);
    assert_eq!(levels[0][..3], ["PriorityLevelName", "ActiveQueues", "IsIdle"]);
    let names: Vec<&str> = levels[1..].iter().map(|row| row[0].as_str()).collect();
    assert!(names.is_sorted() && names.contains(&"exempt") && names.contains(&"workload-low"), "{names:?}");
    let exempt = levels.iter().find(|row| row[0] == "exempt").expect("a level");
    assert!(exempt[6].parse::<u64>().is_ok_and(|dispatched| dispatched > 0), "{exempt:?}");
    assert_eq!(exempt[5], "1", "this request is served: {exempt:?}");
    let queues = dump("dump_queues").await;
    assert_eq!(queues[0].len(), 9);
    let low = queues.iter().filter(|row| row[0] == "workload-low").count();
    assert_eq!(low, 128, "queues of the level's configuration");
    assert!(queues[1][5].ends_with("ss"), "{:?}", queues[1]);
    assert_eq!(dump("dump_requests").await[0].len(), 10);
    assert_eq!(dump("dump_requests?includeRequestDetails=1").await[0].len(), 18);
    let unknown = "/debug/api_priority_and_fairness/dump_nothing";
    assert_eq!(reply(&mut admin, unknown, "*/*").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn health_checks_are_counted() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    let of = |scrape: &Scrape| {
        let passed = ["name=\"etcd\"", "type=\"readyz\"", "status=\"success\""];
        scrape.value("kubernetes_healthchecks_total", &passed)
    };
    let before = of(&Scrape::of(&mut admin, "/metrics/slis").await);
    reply(&mut admin, "/readyz", "*/*").await;
    reply(&mut admin, "/readyz/etcd", "*/*").await;
    let scrape = Scrape::of(&mut admin, "/metrics/slis").await;
    assert_eq!(of(&scrape), before + 2.0);
    assert_eq!(scrape.value("kubernetes_healthcheck", &["name=\"etcd\"", "type=\"readyz\""]), 1.0);
}

#[tokio::test]
async fn a_delayed_shutdown_is_not_ready_and_serves_on() {
    let mut server = TestServer::start(&["--shutdown-delay-duration=5s"]).await;
    let mut admin = server.connect(Protocol::Http2).await;
    send_sigterm(server.pid());
    eventually("the server is not ready", || async {
        let mut prober = server.connect(Protocol::Http1).await;
        let (status, _, checks) = reply(&mut prober, "/readyz?verbose", "*/*").await;
        status == 500 && checks.contains("[-]shutdown failed")
    })
    .await;
    let (status, ..) = reply(&mut admin, "/api/v1/namespaces/default", "*/*").await;
    assert_eq!(status, StatusCode::OK, "requests are served meanwhile");
    assert_eq!(reply(&mut admin, "/livez", "*/*").await.0, StatusCode::OK);
    // Another signal changes nothing; the end is awaited.
    server.terminate().await;
}

fn send_sigterm(pid: u32) {
    let kill = std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status();
    assert!(kill.expect("kill").success());
}
