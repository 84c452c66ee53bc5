//! APIs that other API servers serve, behind APIServices.

mod availability;
mod discovery;
mod endpoint_routing;
mod hostile;
mod namespaces;
mod owners;
mod proxying;

use std::net::IpAddr;

use kube::Client;
use plinth_benches::api::client::{Call, Protocol, Reply, JSON};
use plinth_tests::access_reviews::front_proxy::FrontProxy;
use plinth_tests::eventually;
use plinth_tests::remote_api::{RemoteApi, API_SERVICES};
use plinth_tests::requests::send;
use plinth_tests::server::TestServer;
use serde_json::Value;
use tempfile::TempDir;

/// A server whose cluster IPs are loopback addresses, and the front proxy as which it calls remote APIs.
struct Cluster {
    server: TestServer,
    client: Client,
    proxy: FrontProxy,
    dir: TempDir,
}

/// The address of the N-th Service of a test.
fn address(n: u8) -> IpAddr {
    IpAddr::from([127, 64, 1, n])
}

impl Cluster {
    async fn start(arguments: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("directory");
        let proxy = FrontProxy::new(dir.path());
        let (certificate, key) = proxy.signed("front-proxy", &[]);
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("file");
            path.display().to_string()
        };
        let own = [
            "--service-cluster-ip-range=127.64.0.0/16".to_owned(),
            format!("--proxy-client-cert-file={}", file("proxy.crt", &certificate)),
            format!("--proxy-client-key-file={}", file("proxy.key", &key)),
            format!("--requestheader-client-ca-file={}", proxy.authority().display()),
            "--requestheader-username-headers=X-Remote-User,X-Other-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ];
        let all: Vec<&str> = own.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let server = TestServer::start(&all).await;
        let client = server.client().await;
        Cluster { server, client, proxy, dir }
    }

    /// A remote API that is available: its group, and the number of its address.
    async fn remote(&self, group: &str, n: u8) -> RemoteApi {
        let service = format!("service-{n}");
        let remote = RemoteApi::start(group, &service, address(n), Some(&self.proxy)).await;
        remote.register(&self.client, &service).await;
        self.reason(group, "Passed").await;
        remote
    }

    /// GETs a path once: the other client sends a request again that is answered with 503 or 504.
    async fn get(&self, path: &str, accept: &'static str) -> Reply {
        let mut connection = self.server.connect(Protocol::Http1).await;
        connection.call(&Call::get(path).accept(accept)).await.expect("answer")
    }

    /// Status and text of the answer to a GET.
    async fn answer(&self, path: &str) -> (u16, String) {
        let reply = self.get(path, JSON).await;
        (reply.status.as_u16(), reply.text())
    }

    /// The condition `Available` of `v1.GROUP`.
    async fn condition(&self, group: &str) -> Value {
        let answer = send(&self.client, "GET", &format!("{API_SERVICES}/v1.{group}"), &Value::Null).await;
        let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Available").unwrap_or_default()
    }

    /// Waits until the condition has a reason; returns it.
    async fn reason(&self, group: &str, reason: &str) -> Value {
        eventually(reason, || async { self.condition(group).await["reason"] == reason }).await;
        self.condition(group).await
    }
}
