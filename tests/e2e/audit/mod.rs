//! Audit: events as kube-apiserver v1.36 records them for the same requests, in the log and at a webhook.

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use plinth_benches::api::client::{Call, Connection};
use plinth_tests::server::TestServer;
use serde_json::Value;

mod annotations;
mod backends;
mod events;
mod log_files;
mod own_requests;
mod policy;

/// Everything but the server's own requests and health probes.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
    - {level: None, users: ['system:apiserver']}\n\
    - {level: None, nonResourceURLs: ['/livez*', '/readyz*']}\n\
    - {level: RequestResponse, omitManagedFields: true}\n";

struct Audited {
    server: TestServer,
    dir: tempfile::TempDir,
}

impl Audited {
    async fn start(flags: &[&str]) -> Audited {
        Audited::start_with(POLICY, flags).await
    }

    async fn start_with(rules: &str, flags: &[&str]) -> Audited {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("policy.yaml"), rules).expect("policy");
        let policy = format!("--audit-policy-file={}", dir.path().join("policy.yaml").display());
        let log = format!("--audit-log-path={}", dir.path().join("audit.log").display());
        let server = TestServer::start(&[&[policy.as_str(), log.as_str()][..], flags].concat()).await;
        Audited { server, dir }
    }

    /// The events in the log, in their order, once the server has stopped.
    async fn events(&mut self) -> Vec<Value> {
        self.server.terminate().await;
        let text = std::fs::read_to_string(self.dir.path().join("audit.log")).expect("log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Sends a request with an audit ID of its own and further headers.
async fn send(connection: &mut Connection, id: &str, call: &Call, headers: &[(&str, &str)]) -> StatusCode {
    let mut request =
        http::Request::builder().method(call.method.clone()).uri(&call.path).header("audit-id", id);
    if let Some(content_type) = call.content_type {
        request = request.header("content-type", content_type);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(call.body.clone())).expect("request");
    let response = connection.send(request, &call.path).await.expect("answer");
    let status = response.status();
    response.into_body().collect().await.expect("body");
    status
}

fn patch(path: &str, body: Value) -> Call {
    Call::new(Method::PATCH, path).body("application/merge-patch+json", body.to_string())
}
