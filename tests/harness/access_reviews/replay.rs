//! A recording's requests, put to a server one after the other.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{json, Value};

use super::client::{Answer, Client};
use super::recording::{Case, Exchange, Item, Recording, Requester};
use super::webhook::Webhook;
use crate::samples;

/// Paths of the recordings in the repository.
pub fn files() -> Vec<PathBuf> {
    let dir = crate::package_dir().join("access_reviews");
    let entries = std::fs::read_dir(&dir).expect("directory of the recordings");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    files
}

/// Flags that a recording's server gets beside those of every server, from its comments `# flag --...`.
pub fn server_flags(recording: &Recording) -> Vec<String> {
    let flag = |item: &Item| match item {
        Item::Comment(line) => line.strip_prefix("# flag ").map(str::to_owned),
        _ => None,
    };
    recording.items.iter().filter_map(flag).collect()
}

/// More reviews than any request leads to; each is denied in a run of its own.
const MOST_REVIEWS: usize = 24;

/// How often a request that prepares something is made again while the server does not know of it yet.
const TRIES: u32 = 30;
/// The shortest time between two of these.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a write that another one was faster than is made again.
const CONFLICTS: u32 = 5;

/// Where a recording's requests are made.
pub struct Replay {
    client: Client,
    webhook: Webhook,
    administrator: Requester,
    requester: Requester,
    /// Requests so far.
    runs: usize,
    /// How long the server may take until what was prepared is in force.
    pub settles_within: Duration,
}

impl Replay {
    /// Makes requests with a client that may name their user, to a server that asks that webhook.
    pub fn new(client: Client, webhook: Webhook) -> Replay {
        let administrator = Requester {
            name: "recorder".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..Requester::default()
        };
        let requester = administrator.clone();
        Replay { client, webhook, requester, administrator, runs: 0, settles_within: Duration::ZERO }
    }

    /// Makes all requests; the outcomes of each case in order.
    ///
    /// # Errors
    /// When a preparing request is refused or a connection breaks off.
    pub async fn run(&mut self, recording: &Recording) -> Result<Vec<Vec<String>>, String> {
        let mut outcomes = Vec::new();
        for item in &recording.items {
            match item {
                Item::Comment(_) => {}
                Item::Wait => tokio::time::sleep(self.settles_within).await,
                Item::As(requester) => self.requester = requester.clone(),
                Item::Setup(request) => self.prepare(request).await?,
                Item::Case(case) => outcomes.push(self.case(case).await?),
            }
        }
        Ok(outcomes)
    }

    async fn prepare(&mut self, request: &Exchange) -> Result<(), String> {
        let body = self.body(request).await?;
        let administrator = self.administrator.clone();
        let mut answer = self.send(&administrator, request, &body).await?;
        for _ in 0..TRIES {
            // A definition's API, or its cache, is not there at once.
            if !matches!(answer.code, 404 | 429) {
                break;
            }
            tokio::time::sleep((self.settles_within / TRIES).max(PAUSE)).await;
            answer = self.send(&administrator, request, &body).await?;
        }
        if answer.code >= 300 {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(format!("{} {}: {} {text}", request.method, request.target, answer.code));
        }
        Ok(())
    }

    async fn case(&mut self, case: &Case) -> Result<Vec<String>, String> {
        let mut outcomes = Vec::new();
        if !case.once {
            for deny in 1..=MOST_REVIEWS {
                let (outcome, reviews) = self.outcome(&case.request, deny).await?;
                if reviews < deny {
                    return Ok(compact(outcomes, outcome));
                }
                outcomes.push(outcome);
            }
        }
        let (outcome, _) = self.outcome(&case.request, 0).await?;
        Ok(compact(outcomes, outcome))
    }

    async fn outcome(&mut self, request: &Exchange, deny: usize) -> Result<(String, usize), String> {
        self.runs += 1;
        let mut requester = self.requester.clone();
        requester.name = requester.name.replace('#', &self.runs.to_string());
        let mut conflicts = 0;
        let answer = loop {
            let body = self.body(request).await?;
            self.webhook.begin(&requester, deny);
            let answer = self.send(&requester, request, &body).await?;
            // Between the read of the resourceVersion and the write a controller wrote the status.
            if answer.code != 409 || !request.body.contains("$RV") || conflicts == CONFLICTS {
                break answer;
            }
            conflicts += 1;
        };
        let reviews = self.webhook.reviews();
        let mut outcome = answer.summary(&request.method);
        for review in &reviews {
            outcome.push_str(" | ");
            outcome.push_str(review);
        }
        Ok((outcome, reviews.len()))
    }

    async fn send(&mut self, user: &Requester, request: &Exchange, body: &[u8]) -> Result<Answer, String> {
        let mut headers = user.headers();
        let has = |name: &str| request.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        if !body.is_empty() && !has("content-type") {
            let media_type = match request.method.as_str() {
                "PATCH" => "application/merge-patch+json",
                _ => "application/json",
            };
            headers.push(("Content-Type".to_owned(), media_type.to_owned()));
        }
        headers.extend(request.headers.iter().cloned());
        let endless = request.target.contains("watch") || request.target.contains("follow=");
        let answer = self.client.send(&request.method, &request.target, &headers, body, endless).await;
        answer.map_err(|error| format!("{} {}: {error}", request.method, request.target))
    }

    /// The bytes of a body that a recording describes.
    async fn body(&mut self, request: &Exchange) -> Result<Vec<u8>, String> {
        let mut body = match request.body.strip_prefix('@') {
            Some(sample) => from_sample(sample)?,
            None => request.body.clone(),
        };
        if body.contains("\"$RV\"") || body.contains("\"$UID\"") {
            let path = request.target.split('?').next().unwrap_or_default();
            let get = Exchange { method: "GET".to_owned(), target: path.to_owned(), ..Exchange::default() };
            let administrator = self.administrator.clone();
            let current = self.send(&administrator, &get, &[]).await?.json().unwrap_or_default();
            for (word, member) in [("\"$RV\"", "resourceVersion"), ("\"$UID\"", "uid")] {
                body = body
                    .replace(word, &json!(current["metadata"][member].as_str().unwrap_or("")).to_string());
            }
        }
        Ok(body.into_bytes())
    }
}

/// The line of the outcome with all reviews allowed. Lines of those with one denied go before it, where the
/// answer is anything else than a refusal right after that review.
fn compact(denied: Vec<String>, allowed: String) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, outcome) in denied.into_iter().enumerate() {
        let reviews = allowed.split(" | ").skip(1).take(index + 1);
        let refusal: Vec<&str> = std::iter::once("403 Forbidden").chain(reviews).collect();
        let refusal = refusal.join(" | ");
        // Answers to HEAD have no body.
        if outcome != refusal && outcome != refusal.replacen("403 Forbidden", "403", 1) {
            lines.push(format!("deny {}: {outcome}", index + 1));
        }
    }
    lines.push(allowed);
    lines
}

/// `APIVERSION KIND NAME NAMESPACE`, then a JSON merge patch of the sample.
fn from_sample(text: &str) -> Result<String, String> {
    let mut words = text.splitn(5, ' ');
    let mut word = || words.next().ok_or_else(|| format!("too few words: {text}"));
    let (api_version, kind, name, namespace) = (word()?, word()?, word()?, word()?);
    let sample = samples::of(api_version, kind, name, namespace);
    let mut object = serde_json::to_value(&sample).map_err(|error| error.to_string())?;
    if let Some(patch) = words.next() {
        merge(&mut object, serde_json::from_str(patch).map_err(|error| format!("{text}: {error}"))?);
    }
    Ok(object.to_string())
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(&key)),
            (value, _) => merge(&mut target[key.as_str()], value),
        }
    }
}
