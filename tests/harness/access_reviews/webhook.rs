//! An authorization webhook that records each SubjectAccessReview, allows it, or denies the one that it
//! should.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use parking_lot::Mutex;
use serde_json::{json, Value};

use super::recording::Requester;
use crate::https::HttpsServer;

/// The webhook. Dropping it ends it.
pub struct Webhook {
    server: HttpsServer,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    requester: Requester,
    /// The review that is denied, counted from 1; 0 for none.
    deny: usize,
    reviews: Vec<String>,
}

impl Webhook {
    /// Starts the webhook on a free port of this machine.
    pub async fn start() -> Webhook {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let server = HttpsServer::start(move |request| answer(shared.clone(), request)).await;
        Webhook { server, state }
    }

    /// The kubeconfig that leads a server here.
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig("/authorize", "recorder")
    }

    /// Begins to record the reviews of a request. Those about `requester` itself are recorded without it.
    pub fn begin(&self, requester: &Requester, deny: usize) {
        *self.state.lock() = State { requester: requester.clone(), deny, reviews: Vec::new() };
    }

    /// The reviews recorded since.
    pub fn reviews(&self) -> Vec<String> {
        self.state.lock().reviews.clone()
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let allowed = {
        let mut state = state.lock();
        let text = describe(&review["spec"], &state.requester);
        state.reviews.push(text);
        state.reviews.len() != state.deny
    };
    let answer = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {},
        "status": { "allowed": allowed },
    });
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

/// A review's spec on one line: verb, then a path or group and version, resource, namespace, name, selectors,
/// and the user where it is not the requester.
fn describe(spec: &Value, requester: &Requester) -> String {
    let mut out;
    if let Some(path) = spec.get("nonResourceAttributes") {
        out = format!("{} {}", text(&path["verb"]), text(&path["path"]));
    } else {
        let resource = &spec["resourceAttributes"];
        out = text(&resource["verb"]);
        let version = resource["version"].as_str().unwrap_or("-");
        match resource["group"].as_str() {
            Some(group) => out.push_str(&format!(" {group}/{version} ")),
            None => out.push_str(&format!(" {version} ")),
        }
        out.push_str(&text(&resource["resource"]));
        if resource["subresource"].is_string() {
            out.push_str(&format!("/{}", text(&resource["subresource"])));
        }
        for (word, member) in [("in", "namespace"), ("named", "name")] {
            if resource[member].is_string() {
                out.push_str(&format!(" {word} {}", text(&resource[member])));
            }
        }
        for (word, member) in [("fields", "fieldSelector"), ("labels", "labelSelector")] {
            if let Some(selector) = resource.get(member) {
                out.push_str(&format!(" {word} {selector}"));
            }
        }
    }
    let user = user_of(spec);
    if user != expected(requester) {
        out.push_str(&format!(" as {}", json!(user)));
    }
    out
}

/// A word as it is, anything else as JSON.
fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text)
            if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && !"\"\\|".contains(c)) =>
        {
            text.to_owned()
        }
        _ => value.to_string(),
    }
}

/// The user of a review.
fn user_of(spec: &Value) -> BTreeMap<&'static str, Value> {
    let members = ["user", "uid", "groups", "extra"].into_iter();
    members.filter_map(|member| Some((member, spec.get(member)?.clone()))).collect()
}

/// The requester as a review names it.
fn expected(requester: &Requester) -> BTreeMap<&'static str, Value> {
    let mut user = BTreeMap::from([("user", json!(requester.name))]);
    if !requester.uid.is_empty() {
        user.insert("uid", json!(requester.uid));
    }
    let added = match requester.name.as_str() {
        "" | "system:anonymous" => None,
        _ => Some("system:authenticated"),
    };
    let groups: Vec<&str> = requester.groups.iter().map(String::as_str).chain(added).collect();
    if !groups.is_empty() {
        user.insert("groups", json!(groups));
    }
    let extra: BTreeMap<&str, [&str; 1]> =
        requester.extra.iter().map(|(key, value)| (key.as_str(), [value.as_str()])).collect();
    if !extra.is_empty() {
        user.insert("extra", json!(extra));
    }
    user
}
