//! `docs/metrics.md` says which of upstream's families are served: a scrape says the same.

use std::collections::BTreeSet;

use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_tests::server::TestServer;
use serde_json::json;

use super::{documented, Scrape};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Requests of every kind that a cluster makes within its first seconds.
async fn ordinary_traffic(connection: &mut Connection) {
    let map = json!({"metadata": {"name": "a"}}).to_string();
    connection.must(&Call::new(Method::POST, MAPS).body(JSON, map)).await.expect("created");
    connection.must(&Call::get(format!("{MAPS}/a"))).await.expect("read");
    connection.must(&Call::get(MAPS)).await.expect("listed");
    connection.must(&Call::get("/livez?verbose")).await.expect("alive");
    // Deprecated by upstream.
    connection.must(&Call::get("/api/v1/namespaces/default/endpoints")).await.expect("listed");
    let streamed = format!(
        "{MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    connection.must(&Call::get(streamed)).await.expect("streamed");
    connection.must(&Call::new(Method::DELETE, format!("{MAPS}/a"))).await.expect("deleted");
}

#[tokio::test]
async fn the_documented_families_are_served_with_upstreams_types_and_labels() {
    let server = TestServer::start(&[]).await;
    let mut connection = server.connect(Protocol::Http2).await;
    ordinary_traffic(&mut connection).await;
    // A connection without a certificate is authorized by RBAC.
    let mut anonymous = server.connect_anonymously(Protocol::Http1).await;
    anonymous.must(&Call::get("/livez")).await.expect("alive");
    let mut found = Scrape::of(&mut connection, "/metrics").await.0;
    let health = Scrape::of(&mut connection, "/metrics/slis").await.0;
    assert!(health.keys().all(|name| !found.contains_key(name)), "one page for each family");
    found.extend(health);

    let (upstreams, own) = documented();
    assert!(upstreams.len() > 200, "upstream's list is complete: {}", upstreams.len());
    let mut problems = Vec::new();
    for row in upstreams.iter().chain(&own) {
        match found.get(&row.name) {
            Some(_) if row.served.starts_with("no") => problems.push(format!("{} is served", row.name)),
            Some(family) if family.kind != row.kind || family.labels != row.labels => {
                problems.push(format!("{}: {} {:?}", row.name, family.kind, family.labels));
            }
            None if row.served == "yes" => {
                problems.push(format!("{} is absent", row.name));
            }
            _ => {}
        }
    }
    let named: BTreeSet<&str> = upstreams.iter().chain(&own).map(|row| row.name.as_str()).collect();
    let undocumented = found.keys().filter(|name| !named.contains(name.as_str()));
    problems.extend(undocumented.map(|name| format!("{name} is not documented")));
    assert!(problems.is_empty(), "{problems:#?}");
}
