//! Audit logging.
//!
//! A policy configures what is recorded of which requests ([`policy`]); events are JSON (`event`), written to
//! a file by a separate thread (`log`), sent to a webhook by a task (`webhook`), or both (`sinks`). A request
//! carries a [`Recorder`], to which its steps add data. Without a policy a recorder is a null pointer and
//! costs nothing.
//!
//! Every request has an audit ID, the client's own if it sends one.

mod body;
mod counters;
mod event;
mod log;
pub mod options;
mod own_requests;
pub mod policy;
mod recording;
mod rotated_files;
mod rotating_file;
mod sinks;
mod throttle;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, ACCEPT_ENCODING, USER_AGENT};
use hyper::{Response, Uri};
use parking_lot::Mutex;
use plinth_codec::{json, Value};

use body::BodyRecorder;
pub use options::AuditOptions;
pub use policy::PolicyError;

use crate::flow_control;
pub(crate) use counters::Counters;
use event::{Event, EventFormat, ObjectRef};
use log::Log;
use options::LogFormat;
use plinth_api::{ApiError, Latencies, Route, User};
use plinth_http::Body;
use policy::{AuditLevel, AuditStage, Policy, PolicyAttributes};
use recording::Recording;
use sinks::Sinks;
use webhook::AuditWebhook;

/// The header with a request's audit ID, in requests and responses.
pub const HEADER: HeaderName = HeaderName::from_static("audit-id");
/// Annotation with the authorization decision: `allow` or `forbid`.
pub const DECISION: &str = "authorization.k8s.io/decision";
/// Annotation with its reason.
pub const REASON: &str = "authorization.k8s.io/reason";

/// Annotation of requests for a deprecated resource.
pub(crate) const DEPRECATED: &str = "k8s.io/deprecated";
/// Annotation with the release that no longer serves it.
pub(crate) const REMOVED_RELEASE: &str = "k8s.io/removed-release";

/// Length at which a user agent is truncated, in bytes; upstream's.
const MAX_USER_AGENT: usize = 1024;

/// The audit ID of a request: the client's, or a new one.
pub fn id(headers: &HeaderMap) -> HeaderValue {
    /// Upstream truncates longer IDs in its logs; here they are replaced.
    const MAX_LENGTH: usize = 64;
    match headers.get(HEADER) {
        Some(given) if (1..=MAX_LENGTH).contains(&given.len()) && given.to_str().is_ok() => given.clone(),
        _ => {
            let mut text = [0u8; uuid::fmt::Hyphenated::LENGTH];
            let text = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        }
    }
}

/// Why audit logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy is invalid.
    #[error("--audit-policy-file={path}: {source}")]
    Policy {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        source: PolicyError,
    },
    /// A flag is invalid.
    #[error(transparent)]
    Flag(#[from] options::AuditFlagError),
    /// The log file cannot be opened.
    #[error("audit log {path}: {source}")]
    Log {
        /// Path of the file.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The webhook's kubeconfig is invalid.
    #[error("audit webhook: {0}")]
    Webhook(#[from] crate::egress::KubeconfigError),
    /// A metric cannot be registered.
    #[error("audit metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Audit logging, if enabled. Immutable.
#[derive(Default)]
pub struct Audit(Option<(Policy, Arc<Sinks>)>);

/// The data of a request when it is received.
pub struct ReceivedRequest<'a> {
    /// The authenticated user; none when authentication failed.
    pub user: Option<&'a User>,
    /// What its path was parsed to.
    pub route: &'a Route,
    /// Its verb in lower case; empty for a method that resources do not have.
    pub verb: &'a str,
    /// The name of the object, also if a selector specifies it.
    pub name: &'a str,
    /// Path and query.
    pub uri: &'a Uri,
    /// Headers of the request.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub remote: IpAddr,
    /// Its audit ID.
    pub id: &'a HeaderValue,
    /// When it was received.
    pub received: SystemTime,
}

impl Audit {
    /// Starts audit logging; disabled without a policy or without a sink.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn start(options: &AuditOptions, registry: &prometheus::Registry) -> Result<Audit, AuditError> {
        options.check()?;
        let read = |path: &Path| {
            Policy::read(path)
                .map_err(|source| AuditError::Policy { path: path.display().to_string(), source })
        };
        let policy = options.audit_policy_file.as_deref().map(read).transpose()?;
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
                    LogFormat::Json => EventFormat::Line,
                    LogFormat::Legacy => EventFormat::Legacy,
                };
                Some((log, form, options.log_truncate()))
            }
        };
        let webhook = match kubeconfig {
            None => None,
            Some(kubeconfig) => {
                let (mode, backoff) = (options.audit_webhook_mode, options.audit_webhook_initial_backoff);
                let webhook = AuditWebhook::start(
                    kubeconfig,
                    mode,
                    backoff,
                    options.webhook_batching(),
                    counters.clone(),
                )?;
                Some((webhook, options.webhook_truncate()))
            }
        };
        Ok(Audit(Some((policy, Arc::new(Sinks { log, webhook, counters })))))
    }

    /// Waits until all events are written and delivered, with a timeout.
    pub async fn drain(&self) {
        if let Some((_, sinks)) = &self.0 {
            sinks.drain().await;
        }
    }

    /// Whether audit logging is enabled.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The recorder of a request; disabled if the policy does not record it.
    pub fn begin(&self, request: &ReceivedRequest<'_>) -> Recorder {
        let Some((policy, sinks)) = &self.0 else { return Recorder(None) };
        let path = request.uri.path();
        let attributes = PolicyAttributes { user: request.user, route: request.route, verb: request.verb };
        let config = policy.config(&attributes);
        if config.level == AuditLevel::None {
            return Recorder(None);
        }
        let agent = request.headers.get(USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()));
        let object = match request.route {
            Route::Resource(info) => Some(ObjectRef {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: request.name.to_owned(),
                group: info.group.clone(),
                version: info.version.clone(),
                subresource: info.subresource.clone(),
                ..ObjectRef::default()
            }),
            Route::NonResource(_) => None,
        };
        let event = Event {
            config,
            audit_id: request.id.to_str().unwrap_or_default().to_owned(),
            request_uri: request.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
            verb: request.verb.to_owned(),
            user: request.user.cloned(),
            impersonated: None,
            constraint: String::new(),
            source_ips: source_ips(request.headers, request.remote),
            user_agent: cut_user_agent(&agent.unwrap_or_default()),
            object,
            response: None,
            request_object: None,
            response_object: None,
            received: request.received,
            annotations: BTreeMap::new(),
        };
        let long_running = flow_control::is_long_running(request.route);
        let (sinks, unauthenticated) = (sinks.clone(), request.user.is_none());
        let (latencies, event) = (Arc::default(), Mutex::new(event));
        let written = AtomicU8::new(0);
        Recorder(Some(Arc::new(Recording {
            sinks,
            long_running,
            unauthenticated,
            latencies,
            written,
            event,
        })))
    }
}

/// Records a request for the audit log; does nothing if the request is not recorded. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Recording>>);

impl Recorder {
    /// Whether the request is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the response object is recorded; the response must then not be compressed.
    fn records_answer(&self) -> bool {
        self.0.as_ref().is_some_and(|r| r.event.lock().config.level >= AuditLevel::RequestResponse)
    }

    /// Adds an annotation. An existing one is kept: webhooks choose their own keys.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        if let Some(recording) = &self.0 {
            recording.event.lock().annotate(key.into(), value.into());
        }
    }

    /// Adds an annotation if the content of requests is recorded.
    pub fn annotate_content(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if let Some(recording) = &self.0 {
            let mut event = recording.event.lock();
            if event.config.level >= AuditLevel::Request {
                event.annotate(key.into(), value());
            }
        }
    }

    /// What the steps of a recorded request report to.
    pub(crate) fn latencies(&self) -> Option<&Arc<Latencies>> {
        self.0.as_ref().map(|recording| &recording.latencies)
    }

    /// Records the impersonated user and the constrained permission, if any.
    pub fn impersonated(&self, user: &User, constraint: &str) {
        if let Some(recording) = &self.0 {
            let mut event = recording.event.lock();
            event.impersonated = Some(user.clone());
            constraint.clone_into(&mut event.constraint);
        }
    }

    /// Records the request object, with defaults applied by `complete`. Costs a copy and a serialization if
    /// its content is recorded.
    pub(crate) fn request_object(&self, object: &Value, complete: impl FnOnce(&mut Value)) {
        let Some(recording) = &self.0 else { return };
        let mut event = recording.event.lock();
        event.fill_object_ref(object);
        if event.config.level >= AuditLevel::Request {
            let mut object = object.clone();
            complete(&mut object);
            event.request_object = event.encode_object(&object);
        }
    }

    /// Records a patch, as JSON.
    pub(crate) fn request_patch(&self, patch: &Value) {
        let Some(recording) = &self.0 else { return };
        let mut event = recording.event.lock();
        if event.config.level >= AuditLevel::Request {
            // A patch is not an object: managed fields are not removed from it.
            let mut text = Vec::new();
            json::write_untyped(patch, &mut text);
            event.request_object = Some(text);
        }
    }

    /// Writes the first event, before the request is processed. If the response object is recorded, the
    /// response is not compressed.
    ///
    /// # Errors
    /// 500 in strict mode, when the event was lost.
    pub async fn received(&self, headers: &mut HeaderMap) -> Result<(), ApiError> {
        let Some(recording) = &self.0 else { return Ok(()) };
        if self.records_answer() {
            headers.remove(ACCEPT_ENCODING);
        }
        if recording.unauthenticated {
            return Ok(());
        }
        let written = recording.write(AuditStage::RequestReceived).await;
        written.map_err(|_| ApiError::internal("failed to store audit event"))
    }

    /// Records the response; the last event is written when its body has been sent.
    pub async fn answered(self, mut response: Response<Body>, error: Option<&ApiError>) -> Response<Body> {
        let Some(recording) = &self.0 else { return response };
        recording.record_response(&response, error);
        // A strict sink counts events that it loses from here on: the request has been served.
        if recording.long_running || recording.unauthenticated {
            let _ = recording.write(AuditStage::ResponseStarted).await;
        }
        if recording.unauthenticated {
            return response;
        }
        if let Body::Full(_) = response.body() {
            recording.annotate_latencies();
            let _ = recording.write(AuditStage::ResponseComplete).await;
            return response;
        }
        let captured = (self.records_answer() && !recording.long_running).then(Vec::new);
        let inner = std::mem::replace(response.body_mut(), Body::empty());
        *response.body_mut() = inner.observed(BodyRecorder::new(recording.clone(), captured));
        response
    }

    /// Records a panic.
    pub async fn panicked(&self, what: &str) {
        let Some(recording) = &self.0 else { return };
        let error =
            ApiError::new(500, plinth_api::Reason::InternalError, format!("APIServer panic'd: {what}"));
        recording.event.lock().response = Some((500, Some(error.to_status())));
        let _ = recording.write(AuditStage::Panic).await;
    }
}

/// The client's address, then those of proxies (k8s.io/apimachinery `util/net.SourceIPs`).
fn source_ips(headers: &HeaderMap, remote: IpAddr) -> Vec<IpAddr> {
    /// Limits the addresses in a header, which the client controls.
    const MAX_PROXIES: usize = 32;
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut ips: Vec<IpAddr> = text("x-forwarded-for")
        .split(',')
        .filter_map(|ip| ip.trim().parse().ok())
        .take(MAX_PROXIES)
        .collect();
    let real: Option<IpAddr> = text("x-real-ip").trim().parse().ok();
    ips.extend(real.filter(|ip| ips.last() != Some(ip) && !ips.contains(ip)));
    if ips.last() != Some(&remote) {
        ips.push(remote);
    }
    ips
}

fn cut_user_agent(text: &str) -> String {
    match text.get(..MAX_USER_AGENT) {
        Some(start) if text.len() > MAX_USER_AGENT => format!("{start}...TRUNCATED"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
