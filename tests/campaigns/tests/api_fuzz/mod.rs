//! Random requests, derived from the server's own OpenAPI documents: whatever a client with every right
//! sends, it gets an answer below 500 (or one that is documented), nothing panics, and no connection is lost.
//!
//! `PLINTH_API_REQUESTS` sets how many requests are sent (2,000 when it is not set), `PLINTH_API_SEED` which.
//! `scripts/campaign api 300000` runs the long form.

mod document;
mod generate;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use plinth_campaigns::server::{setting, TestServer};
use serde_json::{json, Value};

use document::Document;
use generate::{Generator, NAMESPACES};

const WORKERS: u64 = 4;
/// After how many requests of a worker what stands in the way of others is cleared away.
const CLEAR_EVERY: u64 = 250;
/// After this a request counts as unanswered.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// The answers of 500 and above that are right, as (status, part of the message).
const DOCUMENTED: [(u16, &str); 18] = [
    // Upstream's words for a resourceVersion that is no number.
    (500, "strconv.ParseUint: parsing"),
    (500, "resourceVersion should not be set on objects to be created"),
    // Upstream's answers to a strategic merge patch that does not fit the types, and to a binding without a
    // target.
    (500, "unable to find api field"),
    (500, "cannot convert"),
    (500, "list element types are not identical"),
    (500, "target.name: Required value"),
    (500, "target.kind: Unsupported value"),
    // Upstream's answers to an eviction with contradictory options, and to a path that ends in `/watch/`.
    (500, "Non-matching dry-run options"),
    (500, "failed to create RequestInfo"),
    // Webhooks, kubelets, pods and services of these objects are not there.
    (500, "failed calling webhook"),
    (500, "dial tcp"),
    (500, "no preferred addresses found"),
    (503, "no endpoints available"),
    (503, "error trying to reach service"),
    (503, "service unavailable"),
    // Revisions of the future are waited for.
    (504, "Too large resource version"),
    (504, "Timeout"),
    (501, ""),
];

/// `Ok` for an answer that a server may give, `Err` with what is wrong with it.
fn judge(call: &Call, status: u16, body: &[u8]) -> Result<(), String> {
    if status < 500 {
        return Ok(());
    }
    // The target of a proxy is absent, and the answer to a HEAD has no body that could explain it.
    if call.method == Method::HEAD && call.path.contains("/proxy") && matches!(status, 500 | 503) {
        return match body {
            b"" => Ok(()),
            body => Err(format!("{status}: a body of {} bytes", body.len())),
        };
    }
    let text = String::from_utf8_lossy(body);
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(answer) => format!("{} {}", answer["reason"], answer["message"].as_str().unwrap_or_default()),
        Err(_) => text.clone().into_owned(),
    };
    match DOCUMENTED.iter().any(|(code, part)| *code == status && message.contains(part)) {
        true => Ok(()),
        false => Err(format!("{status}: {}", text.chars().take(600).collect::<String>())),
    }
}

fn describe(call: &Call) -> String {
    let body: String = String::from_utf8_lossy(&call.body).chars().take(3000).collect();
    format!(
        "{} {}\n  accept {:?}, content-type {:?}\n  {body}",
        call.method, call.path, call.accept, call.content_type
    )
}

/// What a run found.
#[derive(Default)]
struct Findings {
    by_status: BTreeMap<u16, u64>,
    wrong: Vec<String>,
}

/// The answer to a request.
struct Answer {
    status: u16,
    body: bytes::Bytes,
    /// Whether the server closes the connection after this answer, or the answer is not HTTP.
    closes: bool,
}

/// Sends one request and reads its answer; `None` for a request that HTTP cannot express.
async fn send(connection: &mut Connection, call: &Call) -> Option<Result<Answer, String>> {
    if call.path.parse::<http::Uri>().is_err() {
        return None;
    }
    let answer = async {
        let (parts, body) = connection.open(call).await.map_err(|e| format!("no answer: {e}"))?.into_parts();
        let status = parts.status.as_u16();
        if status == 101 {
            return Ok(Answer { status, body: bytes::Bytes::new(), closes: true });
        }
        let closes = parts.headers.get(http::header::CONNECTION).is_some_and(|value| value == "close");
        let body = body.collect().await.map_err(|e| format!("{status}, and the answer broke off: {e}"))?;
        Ok(Answer { status, body: body.to_bytes(), closes })
    };
    Some(
        tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| Err("no answer in time".into())),
    )
}

/// Deletes policies, webhooks and quotas that random requests made: one that refuses everything would make
/// all requests after it the same. Makes the namespaces again that were deleted.
async fn clear(connection: &mut Connection) {
    let registration = "/apis/admissionregistration.k8s.io/v1";
    let collections = [
        format!("{registration}/validatingadmissionpolicybindings"),
        format!("{registration}/validatingwebhookconfigurations"),
        format!("{registration}/mutatingwebhookconfigurations"),
        format!("{registration}/mutatingadmissionpolicybindings"),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
    ];
    let mut calls: Vec<Call> = collections.iter().map(|c| Call::new(Method::DELETE, c)).collect();
    for namespace in NAMESPACES {
        let below = format!("/api/v1/namespaces/{namespace}");
        calls.push(Call::new(Method::DELETE, format!("{below}/resourcequotas")));
        calls.push(Call::new(Method::DELETE, format!("{below}/limitranges")));
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        calls.push(Call::new(Method::POST, "/api/v1/namespaces").body(JSON, object.to_string()));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        calls.push(
            Call::new(Method::POST, format!("{below}/serviceaccounts")).body(JSON, account.to_string()),
        );
    }
    for call in calls {
        // A failure shows in the requests that follow.
        drop(connection.call(&call).await);
    }
}

async fn connect(server: &TestServer, protocol: Protocol) -> Connection {
    server.server.endpoint().expect("endpoint").connect(protocol).await.expect("a connection")
}

async fn work(
    server: &TestServer,
    document: &Document,
    worker: u64,
    seed: u64,
    next: &AtomicU64,
    end: u64,
) -> Findings {
    let protocol = if worker.is_multiple_of(2) { Protocol::Http2 } else { Protocol::Http1 };
    let mut generator = Generator::new(document, seed.wrapping_mul(1000).wrapping_add(worker));
    let mut connection = connect(server, protocol).await;
    let mut findings = Findings::default();
    let mut before = String::new();
    for n in 0u64.. {
        if next.fetch_add(1, Ordering::Relaxed) >= end {
            break;
        }
        if n.is_multiple_of(CLEAR_EVERY) {
            clear(&mut connection).await;
        }
        let call = generator.call();
        let Some(outcome) = send(&mut connection, &call).await else { continue };
        let wrong = match outcome {
            Ok(Answer { status, body, closes }) => {
                *findings.by_status.entry(status).or_default() += 1;
                generator.learn(&call, &body);
                if closes {
                    connection = connect(server, protocol).await;
                }
                before = format!("{} {} was answered {status}", call.method, call.path);
                judge(&call, status, &body).err()
            }
            Err(what) => {
                connection = connect(server, protocol).await;
                Some(format!("{what} (before it {before})"))
            }
        };
        if let Some(what) = wrong {
            findings.wrong.push(format!("{what}\n  {}", describe(&call)));
        }
    }
    findings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_random_request_is_answered_by_a_5xx_a_panic_or_silence() {
    let (requests, seed) = (setting("PLINTH_API_REQUESTS", 2000), setting("PLINTH_API_SEED", 1));
    let mut server = TestServer::start(&[]).await;
    let document = Document::read(&mut connect(&server, Protocol::Http2).await).await;
    assert!(document.operations.len() > 800, "only {} operations", document.operations.len());
    let next = AtomicU64::new(0);
    let workers = (0..WORKERS).map(|worker| work(&server, &document, worker, seed, &next, requests));
    let mut total = Findings::default();
    for findings in futures::future::join_all(workers).await {
        for (status, count) in findings.by_status {
            *total.by_status.entry(status).or_default() += count;
        }
        total.wrong.extend(findings.wrong);
    }
    println!(
        "api fuzzing: {requests} requests to {} operations (seed {seed}); answers by status: {:?}; wrong: {}",
        document.operations.len(),
        total.by_status,
        total.wrong.len()
    );
    let panics = TestServer::panics(&server.server.log());
    assert!(panics.is_empty(), "{panics:#?}\n{}", total.wrong.join("\n"));
    assert!(total.wrong.is_empty(), "{} of {requests}:\n{}", total.wrong.len(), total.wrong.join("\n"));
    // If every request failed authentication or decoding, the code behind it would not be tested.
    let succeeded: u64 = total.by_status.range(200..300).map(|(_, count)| count).sum();
    assert!(succeeded * 5 > requests, "only {succeeded} of {requests} requests succeeded");
    server.server.terminate().await.expect("clean end");
}

#[test]
fn an_undocumented_5xx_is_found() {
    let get = Call::get("/api");
    assert!(judge(&get, 200, b"").is_ok() && judge(&get, 422, b"{}").is_ok());
    assert!(
        judge(&get, 500, b"This request caused apiserver to panic. Look in the logs for details.\n").is_err()
    );
    assert!(
        judge(&get, 500, br#"{"reason":"InternalError","message":"Internal error occurred: x"}"#).is_err()
    );
    assert!(judge(
        &get,
        503,
        br#"{"reason":"ServiceUnavailable","message":"no endpoints available for service"}"#
    )
    .is_ok());
    assert!(judge(&get, 502, b"").is_err());
    let head = Call::new(Method::HEAD, "/api/v1/nodes/n/proxy");
    assert!(judge(&head, 503, b"").is_ok() && judge(&head, 503, b"{}").is_err());
    assert!(judge(&Call::new(Method::HEAD, "/api"), 500, b"").is_err());
}
