//! Audit: who did what, when, and what came of it.
//!
//! A policy says what is recorded of which requests ([`policy`]); events are lines of JSON (`event`) that a thread
//! of its own writes (`log`). A request carries a [`Recorder`], through which its steps say what they know. Without a
//! policy a recorder is a null pointer, and nothing is made, copied or asked.
//!
//! Every request has an audit ID, the client's own when it sends one.

mod body;
mod event;
mod log;
pub mod options;
pub mod policy;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use hyper::{Response, Uri};
use parking_lot::Mutex;
use plinth_codec::schema::{self, GVK};
use plinth_codec::{cbor, json, protobuf, yaml, Value};

pub use body::RecordedBody;
pub use options::AuditOptions;
pub use policy::PolicyError;

use crate::authn::User;
use crate::flow_control;
use crate::http::body::Body;
use crate::request_info::Route;
use crate::status::ApiError;
use event::{Event, ObjectRef, LARGEST_OBJECT, TRUNCATED};
use log::Log;
use policy::{Asked, Level, Policy, Stage};

/// The header that carries a request's audit ID, both ways.
pub const HEADER: HeaderName = HeaderName::from_static("audit-id");
/// What the authorizer decided: `allow` or `forbid`.
pub const DECISION: &str = "authorization.k8s.io/decision";
/// Why.
pub const REASON: &str = "authorization.k8s.io/reason";

/// Where a user agent is cut, in bytes; upstream's.
const LONGEST_USER_AGENT: usize = 1024;

/// The ID of a request: what the client sent, else a new one.
pub fn id(headers: &HeaderMap) -> HeaderValue {
    /// Upstream cuts IDs in its logs here; one that is longer is not taken over.
    const LONGEST: usize = 64;
    match headers.get(HEADER) {
        Some(given) if (1..=LONGEST).contains(&given.len()) && given.to_str().is_ok() => given.clone(),
        _ => {
            let mut text = [0u8; uuid::fmt::Hyphenated::LENGTH];
            let text = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        }
    }
}

/// Why audit cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The log file.
    #[error("audit log {path}: {source}")]
    Log {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Records requests, or nothing. Immutable.
#[derive(Default)]
pub struct Audit(Option<(Policy, Log)>);

/// A request as it came, for its event.
pub struct Came<'a> {
    /// Whose credentials it has; none when they are not accepted.
    pub user: Option<&'a User>,
    /// What it is about.
    pub route: &'a Route,
    /// Its verb, in lower case.
    pub verb: &'a str,
    /// Path and query.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The other end of the connection.
    pub remote: IpAddr,
    /// Its ID.
    pub id: &'a HeaderValue,
    /// When it came.
    pub received: SystemTime,
}

impl Audit {
    /// Audit by these options; none without a policy and a log.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn start(options: &AuditOptions, registry: &prometheus::Registry) -> Result<Audit, AuditError> {
        let (policy, path) = match (&options.audit_policy_file, &options.audit_log_path) {
            (None, Some(_)) => {
                tracing::warn!("no audit policy file provided, no events will be recorded for the log");
                return Ok(Audit(None));
            }
            (Some(policy), Some(path)) => (Policy::read(policy)?, path),
            (policy, None) => {
                if let Some(policy) = policy {
                    Policy::read(policy)?;
                }
                return Ok(Audit(None));
            }
        };
        let log = Log::start(path, options, registry)
            .map_err(|source| AuditError::Log { path: path.display().to_string(), source })?;
        Ok(Audit(Some((policy, log))))
    }

    /// Waits until all events so far are on disk, for a while at the most.
    pub async fn drain(&self) {
        if let Some((_, log)) = &self.0 {
            log.drain().await;
        }
    }

    /// Whether anything is recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The recorder of a request; one that does nothing where nothing is to be recorded.
    pub fn begin(&self, came: &Came<'_>) -> Recorder {
        let Some((policy, log)) = &self.0 else { return Recorder(None) };
        let path = came.uri.path();
        let asked = Asked { user: came.user, route: came.route, verb: came.verb, path };
        let depth = policy.depth(&asked);
        if depth.level == Level::None {
            return Recorder(None);
        }
        let text =
            |name: HeaderName| came.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let object = match came.route {
            Route::Resource(info) => Some(ObjectRef {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: info.name.clone(),
                group: info.group.clone(),
                version: info.version.clone(),
                subresource: info.subresource.clone(),
                ..ObjectRef::default()
            }),
            Route::NonResource => None,
        };
        let event = Event {
            depth,
            audit_id: came.id.to_str().unwrap_or_default().to_owned(),
            request_uri: came.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
            verb: came.verb.to_owned(),
            user: came.user.cloned(),
            impersonated: None,
            source_ips: source_ips(came.headers, came.remote),
            user_agent: cut_user_agent(text(USER_AGENT)),
            object,
            response: None,
            request_object: None,
            response_object: None,
            received: came.received,
            annotations: BTreeMap::new(),
        };
        let runs_long = flow_control::runs_long(came.route);
        Recorder(Some(Arc::new(Recording { log: log.clone(), runs_long, event: Mutex::new(event) })))
    }
}

/// A request that is recorded. The lock is held to note something or to write the event, never across an await.
struct Recording {
    log: Log,
    runs_long: bool,
    event: Mutex<Event>,
}

impl Recording {
    /// The line of a stage, unless the policy leaves it out.
    fn line(&self, stage: Stage) -> Option<Vec<u8>> {
        let event = self.event.lock();
        (!event.depth.omit_stages.has(stage)).then(|| event.line(stage, SystemTime::now()))
    }

    /// The last word, from where nothing can be waited for.
    fn finish_now(&self) {
        if let Some(line) = self.line(Stage::ResponseComplete) {
            // The log has counted it when it was lost.
            let _ = self.log.write_now(line);
        }
    }
}

/// What a request's steps say of it to the audit log; does nothing where nothing is recorded. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Recording>>);

impl Recorder {
    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the answer's object is recorded, which then must not be compressed.
    fn records_answer(&self) -> bool {
        self.0.as_ref().is_some_and(|r| r.event.lock().depth.level >= Level::RequestResponse)
    }

    /// Notes something beside the request's own data.
    pub fn annotate(&self, key: &'static str, value: impl Into<String>) {
        if let Some(recording) = &self.0 {
            recording.event.lock().annotations.insert(key, value.into());
        }
    }

    /// Notes that the request is made as somebody else.
    pub fn impersonated(&self, user: &User) {
        if let Some(recording) = &self.0 {
            recording.event.lock().impersonated = Some(user.clone());
        }
    }

    /// Notes the object that the request brought. Costs a serialization where its content is recorded.
    pub fn request_object(&self, object: &Value) {
        let Some(recording) = &self.0 else { return };
        let mut event = recording.event.lock();
        event.refer_to(object);
        if event.depth.level >= Level::Request {
            event.request_object = event.recorded(object);
        }
    }

    /// Notes a patch: JSON as it is, YAML as JSON.
    pub fn request_patch(&self, patch: &[u8]) {
        let Some(recording) = &self.0 else { return };
        if recording.event.lock().depth.level < Level::Request {
            return;
        }
        let tree = json::parse(patch).ok().or_else(|| yaml::to_value(patch).ok().map(|(tree, _)| tree));
        if let Some(tree) = tree {
            let mut event = recording.event.lock();
            event.request_object = event.recorded(&tree);
        }
    }

    /// The first event, before the request goes on. What the answer's content is recorded of is answered without
    /// compression.
    ///
    /// # Errors
    /// 500 in strict mode, when the event was lost.
    pub async fn received(&self, headers: &mut HeaderMap) -> Result<(), ApiError> {
        let Some(recording) = &self.0 else { return Ok(()) };
        if self.records_answer() {
            headers.remove(ACCEPT_ENCODING);
        }
        let Some(line) = recording.line(Stage::RequestReceived) else { return Ok(()) };
        match recording.log.write(line).await {
            Err(_) if recording.log.is_strict() => Err(ApiError::internal("failed to store audit event")),
            _ => Ok(()),
        }
    }

    /// The answer: what became of the request is recorded when its body has been sent.
    pub async fn answered(self, mut response: Response<Body>, error: Option<&ApiError>) -> Response<Body> {
        let Some(recording) = &self.0 else { return response };
        let status = error.map(ApiError::to_status);
        {
            let mut event = recording.event.lock();
            let records = event.depth.level >= Level::RequestResponse;
            let mut answer = match (&status, response.body()) {
                (Some(status), _) => Some(status.clone()),
                (None, Body::Full(bytes)) if !bytes.is_empty() => answered_object(bytes, response.headers()),
                _ => None,
            };
            if records {
                event.response_object = answer.as_ref().and_then(|answer| event.recorded(answer));
            }
            let is_status = |answer: &Value| answer.str_at(&["kind"]) == Some("Status");
            let status = answer.take().filter(is_status);
            event.response = Some((response.status().as_u16(), status));
        }
        if recording.runs_long {
            if let Some(line) = recording.line(Stage::ResponseStarted) {
                let _ = recording.log.write(line).await;
            }
        }
        if let Body::Full(_) = response.body() {
            if let Some(line) = recording.line(Stage::ResponseComplete) {
                let _ = recording.log.write(line).await;
            }
            return response;
        }
        let kept = (self.records_answer() && !recording.runs_long).then(Vec::new);
        let inner = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = Body::Recorded(Box::new(RecordedBody::new(inner, recording.clone(), kept)));
        response
    }

    /// The request made the server panic.
    pub async fn panicked(&self, what: &str) {
        let Some(recording) = &self.0 else { return };
        let error =
            ApiError::new(500, crate::status::Reason::InternalError, format!("APIServer panic'd: {what}"));
        recording.event.lock().response = Some((500, Some(error.to_status())));
        if let Some(line) = recording.line(Stage::Panic) {
            let _ = recording.log.write(line).await;
        }
    }
}

/// The object of an answer, whatever its encoding; none for what is no object.
fn answered_object(bytes: &[u8], headers: &HeaderMap) -> Option<Value> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "application/json" => json::parse(bytes).ok(),
        "application/yaml" => yaml::to_value(bytes).ok().map(|(tree, _)| tree),
        "application/cbor" => cbor::decode(bytes).ok(),
        "application/vnd.kubernetes.protobuf" => {
            let envelope = protobuf::decode(bytes).ok()?;
            let (api_version, kind): (&str, &str) = (&envelope.api_version, &envelope.kind);
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let gvk = GVK::new(group, version, kind);
            let schema = schema::builtin();
            protobuf::decode_object(envelope.raw, Some(&gvk), schema, schema.kind(&gvk)?).ok()
        }
        _ => None,
    }
}

/// The client first, then the proxies that name it (k8s.io/apimachinery `util/net.SourceIPs`).
fn source_ips(headers: &HeaderMap, remote: IpAddr) -> Vec<IpAddr> {
    /// A client can send as many as it likes.
    const MOST: usize = 32;
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut ips: Vec<IpAddr> =
        text("x-forwarded-for").split(',').filter_map(|ip| ip.trim().parse().ok()).take(MOST).collect();
    let real: Option<IpAddr> = text("x-real-ip").trim().parse().ok();
    ips.extend(real.filter(|ip| ips.last() != Some(ip) && !ips.contains(ip)));
    if ips.last() != Some(&remote) {
        ips.push(remote);
    }
    ips
}

fn cut_user_agent(text: &str) -> String {
    match text.get(..LONGEST_USER_AGENT) {
        Some(start) if text.len() > LONGEST_USER_AGENT => format!("{start}...TRUNCATED"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
