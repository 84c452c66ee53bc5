//! Audit: who did what, when, and what came of it.
//!
//! A policy says what is recorded of which requests ([`policy`]); events are JSON (`event`) that a thread of its own writes
//! to a file (`log`) and a task of its own sends to a service (`webhook`), or both (`sinks`). A request carries a [`Recorder`], through which its steps say what they know. Without a
//! policy a recorder is a null pointer, and nothing is made, copied or asked.
//!
//! Every request has an audit ID, the client's own when it sends one.

mod body;
mod event;
mod log;
pub mod options;
pub mod policy;
mod sinks;
mod throttle;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderMap, HeaderName, HeaderValue, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use hyper::{Response, Uri};
use parking_lot::Mutex;
use plinth_codec::schema::{self, GVK};
use plinth_codec::{cbor, json, protobuf, tree, yaml, Value};

use body::RecordedBody;
pub use options::AuditOptions;
pub use policy::PolicyError;

use crate::flow_control;
use event::{Event, Form, ObjectRef, LARGEST_OBJECT, TRUNCATED};
use log::Log;
use options::LogFormat;
use plinth_api::api_error::ApiError;
use plinth_api::latency::{self, Latencies, Layer};
use plinth_api::request_info::Route;
use plinth_api::user::User;
use plinth_http::body::Body;
use policy::{Asked, Level, Policy, Stage};
use sinks::{Counters, Sinks};
use webhook::Webhook;

/// The header that carries a request's audit ID, both ways.
pub const HEADER: HeaderName = HeaderName::from_static("audit-id");
/// What the authorizer decided: `allow` or `forbid`.
pub const DECISION: &str = "authorization.k8s.io/decision";
/// Why.
pub const REASON: &str = "authorization.k8s.io/reason";

/// The ID of the token that a TokenRequest was answered with.
pub const ISSUED_CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";
/// Said of requests for a resource that is on its way out.
pub const DEPRECATED: &str = "k8s.io/deprecated";
/// The Pod Security Standard by which a pod was judged.
pub const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
/// Why Pod Security left a request alone.
pub const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
/// In what a pod violates the standard that is audited.
pub const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

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
    /// The flags.
    #[error(transparent)]
    Flag(#[from] options::BadAuditFlag),
    /// The log file.
    #[error("audit log {path}: {source}")]
    Log {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The kubeconfig of the service.
    #[error("audit webhook: {0}")]
    Webhook(#[from] crate::outward::KubeconfigError),
    /// The counters.
    #[error("audit metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Records requests, or nothing. Immutable.
#[derive(Default)]
pub struct Audit(Option<(Policy, Arc<Sinks>)>);

/// A request as it came, for its event.
pub struct Came<'a> {
    /// Whose credentials it has; none when they are not accepted.
    pub user: Option<&'a User>,
    /// What it is about.
    pub route: &'a Route,
    /// Its verb, in lower case; empty for a method that resources do not have.
    pub verb: &'a str,
    /// The name of the object, also where a selector names it.
    pub name: &'a str,
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
    /// Audit by these options; none without a policy, and none without a place for events.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn start(options: &AuditOptions, registry: &prometheus::Registry) -> Result<Audit, AuditError> {
        options.check()?;
        let policy = options.audit_policy_file.as_deref().map(Policy::read).transpose()?;
        let (path, kubeconfig) = (&options.audit_log_path, &options.audit_webhook_config_file);
        if path.is_none() && kubeconfig.is_none() {
            return Ok(Audit(None));
        }
        let Some(policy) = policy else {
            tracing::warn!("no audit policy file provided, no events will be recorded");
            return Ok(Audit(None));
        };
        let counters = Counters::new(registry)?;
        let log = match path {
            None => None,
            Some(path) => {
                let error = |source| AuditError::Log { path: path.display().to_string(), source };
                let log = Log::start(path, options, counters.clone()).map_err(error)?;
                let form = match options.audit_log_format {
                    LogFormat::Json => Form::Line,
                    LogFormat::Legacy => Form::Legacy,
                };
                Some((log, form, options.log_truncate()))
            }
        };
        let webhook = match kubeconfig {
            None => None,
            Some(kubeconfig) => {
                let (mode, pause) = (options.audit_webhook_mode, options.audit_webhook_initial_backoff);
                let webhook =
                    Webhook::start(kubeconfig, mode, pause, options.webhook_batching(), counters.clone())?;
                Some((webhook, options.webhook_truncate()))
            }
        };
        Ok(Audit(Some((policy, Arc::new(Sinks { log, webhook, counters })))))
    }

    /// Waits until all events so far are on disk and delivered, for a while at the most.
    pub async fn drain(&self) {
        if let Some((_, sinks)) = &self.0 {
            sinks.drain().await;
        }
    }

    /// Whether anything is recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The recorder of a request; one that does nothing where nothing is to be recorded.
    pub fn begin(&self, came: &Came<'_>) -> Recorder {
        let Some((policy, sinks)) = &self.0 else { return Recorder(None) };
        let path = came.uri.path();
        let asked = Asked { user: came.user, route: came.route, verb: came.verb };
        let depth = policy.depth(&asked);
        if depth.level == Level::None {
            return Recorder(None);
        }
        let agent = came.headers.get(USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()));
        let object = match came.route {
            Route::Resource(info) => Some(ObjectRef {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: came.name.to_owned(),
                group: info.group.clone(),
                version: info.version.clone(),
                subresource: info.subresource.clone(),
                ..ObjectRef::default()
            }),
            Route::NonResource(_) => None,
        };
        let event = Event {
            depth,
            audit_id: came.id.to_str().unwrap_or_default().to_owned(),
            request_uri: came.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
            verb: came.verb.to_owned(),
            user: came.user.cloned(),
            impersonated: None,
            constraint: String::new(),
            source_ips: source_ips(came.headers, came.remote),
            user_agent: cut_user_agent(&agent.unwrap_or_default()),
            object,
            response: None,
            request_object: None,
            response_object: None,
            received: came.received,
            annotations: BTreeMap::new(),
        };
        let runs_long = flow_control::runs_long(came.route);
        let (sinks, stranger) = (sinks.clone(), came.user.is_none());
        let (latencies, event) = (Arc::default(), Mutex::new(event));
        let said = AtomicU8::new(0);
        Recorder(Some(Arc::new(Recording { sinks, runs_long, stranger, latencies, said, event })))
    }
}

/// A request that is recorded. The lock is held to note something or to write the event, never across an await.
struct Recording {
    sinks: Arc<Sinks>,
    runs_long: bool,
    /// Whether its credentials are wrong. Then there is one event alone, of stage ResponseStarted, as upstream's.
    stranger: bool,
    latencies: Arc<Latencies>,
    /// What has been said of it: [`STARTED`], [`ENDED`]. Only for its own steps, which follow each other.
    said: AtomicU8,
    event: Mutex<Event>,
}

/// That its answer has begun.
const STARTED: u8 = 1;
/// What came of it.
const ENDED: u8 = 2;

impl Recording {
    async fn write(&self, stage: Stage) -> Result<(), sinks::Lost> {
        self.note(stage);
        // On the heap, since most requests are not recorded.
        Box::pin(self.sinks.write(&self.event, stage)).await
    }

    fn write_now(&self, stage: Stage) {
        self.note(stage);
        self.sinks.write_now(&self.event, stage);
    }

    /// A stage is written now, whatever becomes of the request meanwhile.
    fn note(&self, stage: Stage) {
        let said = match stage {
            Stage::RequestReceived => 0,
            Stage::ResponseStarted if self.stranger => STARTED | ENDED,
            Stage::ResponseStarted => STARTED,
            Stage::ResponseComplete | Stage::Panic => ENDED,
        };
        self.said.fetch_or(said, Ordering::Relaxed);
    }

    /// Says where the time went, where that was much.
    fn tell_latencies(&self) {
        let mut event = self.event.lock();
        let total = event.received.elapsed().unwrap_or_default();
        for (name, time) in self.latencies.annotations(total) {
            event.annotate(name.into(), time);
        }
    }

    /// The last word, from where nothing can be waited for.
    fn finish_now(&self) {
        self.tell_latencies();
        self.write_now(Stage::ResponseComplete);
    }
}

/// A request that is given up, because its client has left, ends as upstream's does (k8s.io/apiserver `pkg/endpoints/filters/audit.go`).
impl Drop for Recording {
    fn drop(&mut self) {
        let said = self.said.load(Ordering::Relaxed);
        if said & ENDED != 0 {
            return;
        }
        let gone = || (200, Some(tree!({ "status": "Success", "message": "Connection closed early" })));
        self.event.get_mut().response.get_or_insert_with(gone);
        if said & STARTED == 0 && (self.runs_long || self.stranger) {
            self.write_now(Stage::ResponseStarted);
        }
        if !self.stranger {
            self.finish_now();
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

    /// Notes something beside the request's own data. What is noted already stays: a webhook chooses its own keys.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        if let Some(recording) = &self.0 {
            recording.event.lock().annotate(key.into(), value.into());
        }
    }

    /// Notes something where the content of requests is recorded.
    pub fn annotate_content(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if let Some(recording) = &self.0 {
            let mut event = recording.event.lock();
            if event.depth.level >= Level::Request {
                event.annotate(key.into(), value());
            }
        }
    }

    /// Runs the request's steps so that what they say of the time that they take is noted.
    pub async fn noting<F: Future>(&self, steps: F) -> F::Output {
        match &self.0 {
            Some(recording) => latency::noting(recording.latencies.clone(), steps).await,
            None => steps.await,
        }
    }

    /// Notes how long a step took that was made before there was a recorder.
    pub fn took(&self, layer: Layer, time: Duration) {
        if let Some(recording) = &self.0 {
            recording.latencies.add(layer, time);
        }
    }

    /// Notes that the request is made as somebody else, and by which constrained form of permission, if by one.
    pub fn impersonated(&self, user: &User, constraint: &str) {
        if let Some(recording) = &self.0 {
            let mut event = recording.event.lock();
            event.impersonated = Some(user.clone());
            constraint.clone_into(&mut event.constraint);
        }
    }

    /// Notes the object that the request brought, once `complete` has filled in its defaults. Costs a copy and a
    /// serialization where its content is recorded.
    pub fn request_object(&self, object: &Value, complete: impl FnOnce(&mut Value)) {
        let Some(recording) = &self.0 else { return };
        let mut event = recording.event.lock();
        event.refer_to(object);
        if event.depth.level >= Level::Request {
            let mut object = object.clone();
            complete(&mut object);
            event.request_object = event.recorded(&object);
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
            // A patch is no object: nothing is left out of it.
            let mut text = Vec::with_capacity(patch.len());
            json::write_untyped(&tree, &mut text);
            recording.event.lock().request_object = Some(text);
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
        if recording.stranger {
            return Ok(());
        }
        let written = recording.write(Stage::RequestReceived).await;
        written.map_err(|_| ApiError::internal("failed to store audit event"))
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
        // What a strict sink loses from here on it has counted: the request has been served.
        if recording.runs_long || recording.stranger {
            let _ = recording.write(Stage::ResponseStarted).await;
        }
        if recording.stranger {
            return response;
        }
        if let Body::Full(_) = response.body() {
            recording.tell_latencies();
            let _ = recording.write(Stage::ResponseComplete).await;
            return response;
        }
        let kept = (self.records_answer() && !recording.runs_long).then(Vec::new);
        let inner = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = Body::Recorded(Box::pin(RecordedBody::new(inner, recording.clone(), kept)));
        response
    }

    /// The request made the server panic.
    pub async fn panicked(&self, what: &str) {
        let Some(recording) = &self.0 else { return };
        let error = ApiError::new(
            500,
            plinth_api::api_error::Reason::InternalError,
            format!("APIServer panic'd: {what}"),
        );
        recording.event.lock().response = Some((500, Some(error.to_status())));
        let _ = recording.write(Stage::Panic).await;
    }
}

/// The object of an answer, whatever its encoding; none for what is no object of the API, as a version or a document.
fn answered_object(bytes: &[u8], headers: &HeaderMap) -> Option<Value> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let object = match media {
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
    };
    object.filter(|object: &Value| object.get("kind").is_some())
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
