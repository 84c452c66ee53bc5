//! SubjectAccessReviews of the server, compared with those of kube-apiserver for the same requests.
//!
//! The recordings are `tests/access_reviews/*.txt`; `record-access-reviews` makes them again.

use plinth_tests::access_reviews::client::Client;
use plinth_tests::access_reviews::front_proxy::FrontProxy;
use plinth_tests::access_reviews::recording::{Case, Recording};
use plinth_tests::access_reviews::replay::{files, server_flags, Replay};
use plinth_tests::access_reviews::webhook::Webhook;
use plinth_tests::server::TestServer;

/// Differences that are printed in full; the others are counted.
const SHOWN: usize = 50;
/// The fewest requests that all recordings make together.
const REQUESTS: usize = 8000;

/// Every built-in resource and subresource, with every method.
#[tokio::test]
async fn of_resources() {
    assert_reviews_match_upstream("resources").await;
}

/// Escapes, empty segments, dots, prefixes, tails, methods, selectors, paths that are no resource.
#[tokio::test]
async fn of_paths() {
    assert_reviews_match_upstream("paths").await;
}

/// Creation by PUT and apply, roles, certificates, owners, device claims, tokens.
#[tokio::test]
async fn of_writes() {
    assert_reviews_match_upstream("writes").await;
}

/// Parameters of admission policies, and authorizers in CEL.
#[tokio::test]
async fn of_policies() {
    assert_reviews_match_upstream("policies").await;
}

/// Impersonation, and reviews of access.
#[tokio::test]
async fn of_identities() {
    assert_reviews_match_upstream("identities").await;
}

/// Each recording has its test above, each difference its reason, and together they make thousands of
/// requests.
#[test]
fn recordings_are_complete() {
    let mut names = Vec::new();
    let mut requests = 0;
    for file in files() {
        let name = file.file_stem().expect("name").to_string_lossy().into_owned();
        for case in read(&name).cases() {
            let request = format!("{name}: {} {}", case.request.method, case.request.target);
            assert!(!case.upstream.is_empty(), "{request} is not recorded");
            assert_eq!(
                case.plinth.is_empty(),
                case.reason.is_empty(),
                "{request}: a difference has a reason"
            );
            assert_ne!(case.plinth, case.upstream, "{request}: no difference");
            requests += case.requests();
        }
        names.push(name);
    }
    assert_eq!(names, ["identities", "paths", "policies", "resources", "writes"]);
    assert!(requests >= REQUESTS, "only {requests} requests");
}

fn read(name: &str) -> Recording {
    let is_it = |file: &std::path::PathBuf| file.file_stem().is_some_and(|stem| stem == name);
    let file = files().into_iter().find(is_it).expect("recording");
    let text = std::fs::read_to_string(file).expect("recording");
    Recording::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every request leads to the reviews and the answer that kube-apiserver's did, or to the difference that is
/// written down beside it.
async fn assert_reviews_match_upstream(name: &str) {
    let recording = read(name);
    let dir = tempfile::tempdir().expect("directory");
    let proxy = FrontProxy::new(dir.path());
    let webhook = Webhook::start().await;
    let mut flags = proxy.flags(&webhook.kubeconfig());
    // Nothing changes by itself, as beside a kube-apiserver without a controller manager.
    flags.push("--controllers=".to_owned());
    flags.extend(server_flags(&recording));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = TestServer::start(&flags).await;
    let endpoint = server.endpoint().with_identity(proxy.identity());
    let outcomes = Replay::new(Client::new(endpoint), webhook).run(&recording).await;
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{name}: {error}"));
    let cases: Vec<&Case> = recording.cases().collect();
    assert_eq!(cases.len(), outcomes.len());
    let pairs = cases.iter().zip(&outcomes).filter(|(case, outcome)| outcome.as_slice() != case.expected());
    let differences: Vec<String> = pairs.map(|(case, outcome)| difference(case, outcome)).collect();
    differences.iter().take(SHOWN).for_each(|difference| eprintln!("{difference}\n"));
    assert!(differences.is_empty(), "{} of {} cases differ", differences.len(), cases.len());
}

/// A case with the expected and the actual outcome.
fn difference(case: &Case, outcome: &[String]) -> String {
    let lines = |word: &str, lines: &[String]| -> String {
        lines.iter().map(|line| format!("\n{word} {line}")).collect()
    };
    let (expected, found) = (lines("=", case.expected()), lines("~", outcome));
    format!("> {} {}\nb {}{expected}{found}", case.request.method, case.request.target, case.request.body)
}
