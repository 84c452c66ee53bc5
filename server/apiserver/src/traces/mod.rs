//! Traces of requests, sent to a collector by OTLP over gRPC (`--tracing-config-file`).
//!
//! As upstream's (k8s.io/apiserver `pkg/endpoints/filters/traces.go`): a span for each request that is
//! sampled, below it one for the verb, and below that its steps. Clients in the groups `system:masters` and
//! `system:monitoring` decide by their `traceparent` whether a request is sampled, and are the parents of its
//! span; the span of another client's request begins a trace of its own and links to the client's. Steps are
//! recorded by the way by which slow requests get their latencies ([`plinth_api::timed`]); a request that is
//! not sampled costs the decision.
//!
//! The span of a response that is streamed ends when its head is sent.

mod options;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::USER_AGENT;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use opentelemetry_sdk::Resource;
use plinth_api::{Latencies, Layer, RequestInfo, Route, Step, User, Verb};

pub use options::{TracesError, TracesOptions};

/// How long a stop waits for the collector.
const LAST_EXPORT: Duration = Duration::from_secs(3);
/// The groups whose clients decide.
const DECIDING_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];

/// Records traces, or does nothing.
#[derive(Default)]
pub struct Traces(Option<Recording>);

struct Recording {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A request that may be traced.
pub(crate) struct TracedRequest<'a> {
    /// What its path is about.
    pub route: &'a Route,
    pub method: &'a Method,
    /// Its path and query.
    pub uri: &'a Uri,
    /// Its version of HTTP.
    pub version: Version,
    pub headers: &'a HeaderMap,
    /// Its audit ID.
    pub audit_id: &'a str,
    /// Its user, if it has been authenticated.
    pub user: Option<&'a User>,
    /// When it came.
    pub received: Instant,
}

impl Traces {
    /// Starts what the flag names; nothing without it. `instance` is the server's name among its like.
    ///
    /// # Errors
    /// [`TracesError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(options: &TracesOptions, instance: &str) -> Result<Traces, TracesError> {
        let Some(settings) = options.read()? else { return Ok(Traces::default()) };
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(settings.endpoint).build()?;
        let own = match settings.per_million {
            0 => Sampler::AlwaysOff,
            // Exact: both are small.
            rate => Sampler::TraceIdRatioBased(rate as f64 / options::MILLION as f64),
        };
        let resource = Resource::builder_empty()
            .with_service_name("apiserver")
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(own)))
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("k8s.io/apiserver");
        Ok(Traces(Some(Recording { provider, tracer })))
    }

    /// Sends what has not been sent. Blocks until the collector has it, for some seconds at most.
    pub fn stop(&self) {
        if let Some(recording) = &self.0 {
            if let Err(error) = recording.provider.shutdown_with_timeout(LAST_EXPORT) {
                tracing::warn!(%error, "the last spans were not sent");
            }
        }
    }

    /// The trace of a request, whose steps report to `latencies`; `None` for one that is not sampled.
    pub(crate) fn begin(
        &self,
        request: &TracedRequest<'_>,
        latencies: impl FnOnce() -> Arc<Latencies>,
    ) -> Option<RequestTrace> {
        let recording = self.0.as_ref()?;
        let sent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(request.headers));
        let sent = sent.span().span_context().clone();
        let groups = request.user.map(|user| user.groups.as_slice()).unwrap_or_default();
        let decides = groups.iter().any(|group| DECIDING_GROUPS.contains(&group.as_str()));
        let name = span_name(request.route, request.method);
        let mut builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server);
        let parent = match decides && sent.is_valid() {
            true => Context::new().with_remote_span_context(sent),
            false => {
                builder.links = sent.is_valid().then(|| vec![Link::with_context(sent)]);
                Context::new()
            }
        };
        let now = Instant::now();
        builder.start_time = Some(SystemTime::now() - now.duration_since(request.received));
        let span = recording.tracer.build_with_context(builder, &parent);
        if !span.span_context().is_sampled() {
            return None;
        }
        Some(RequestTrace::new(recording.tracer.clone(), span, latencies(), request))
    }
}

/// The span of a request that is being answered.
pub(crate) struct RequestTrace {
    tracer: SdkTracer,
    span: Span,
    latencies: Arc<Latencies>,
    verb: Option<Verb>,
    /// When the steps after authentication began.
    begun: Instant,
    attributes: [KeyValue; 3],
}

impl RequestTrace {
    fn new(
        tracer: SdkTracer,
        mut span: Span,
        latencies: Arc<Latencies>,
        request: &TracedRequest<'_>,
    ) -> RequestTrace {
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
        span.set_attributes([
            text("http.request.method", request.method.as_str()),
            text("url.path", request.uri.path()),
            text("http.target", target),
            text("audit-id", request.audit_id),
        ]);
        if let Some(agent) = request.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
            span.set_attribute(text("user_agent.original", agent));
        }
        latencies.trace(traceparent(span.span_context()));
        let attributes = [
            text("audit-id", request.audit_id),
            text("method", request.method.as_str()),
            KeyValue::new("protocol", format!("{:?}", request.version)),
        ];
        let verb = match request.route {
            Route::Resource(info) => Some(info.verb),
            Route::NonResource(_) => None,
        };
        RequestTrace { tracer, span, latencies, verb, begun: Instant::now(), attributes }
    }

    /// What the steps of the request report to.
    pub(crate) fn latencies(&self) -> &Arc<Latencies> {
        &self.latencies
    }

    /// Ends the span, and makes those below it.
    pub(crate) fn end(mut self, status: StatusCode) {
        let now = (Instant::now(), SystemTime::now());
        let at = |instant: Instant| now.1 - now.0.saturating_duration_since(instant);
        let below = |span: &Span| Context::new().with_remote_span_context(span.span_context().clone());
        let parent = below(&self.span);
        let steps = match self.verb.and_then(verb_span) {
            None => parent,
            Some(name) => {
                let builder = SpanBuilder::from_name(name)
                    .with_start_time(at(self.begun))
                    .with_attributes(self.attributes.clone());
                let mut span = self.tracer.build_with_context(builder, &parent);
                let steps = below(&span);
                span.end_with_timestamp(now.1);
                steps
            }
        };
        for Step { layer, begun, took } in self.latencies.steps() {
            let builder = SpanBuilder::from_name(step_span(layer, self.verb)).with_start_time(at(begun));
            self.tracer.build_with_context(builder, &steps).end_with_timestamp(at(begun) + took);
        }
        self.span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            self.span.set_status(Status::error(""));
        }
        self.span.end_with_timestamp(now.1);
    }
}

/// The name of a request's span: its method and the form of its path.
fn span_name(route: &Route, method: &Method) -> String {
    let Route::Resource(info) = route else { return method.to_string() };
    let RequestInfo { group, version, namespace, resource, name, subresource, .. } = info;
    let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let namespace = if namespace.is_empty() { "" } else { "/namespaces/{:namespace}" };
    let name = if name.is_empty() { "" } else { "/{:name}" };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{method} {prefix}/{version}{namespace}/{resource}{name}{slash}{subresource}")
}

/// The name of the span below that.
fn verb_span(verb: Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Get => "Get",
        Verb::List => "List",
        Verb::Watch => "WatchServer.HandleHTTP",
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::Patch => "Patch",
        Verb::Delete | Verb::DeleteCollection => "Delete",
        _ => return None,
    })
}

/// The name of a step's span. Upstream names its storage by etcd.
fn step_span(layer: Layer, verb: Option<Verb>) -> &'static str {
    match (layer, verb) {
        (Layer::Authentication, _) => "Authentication",
        (Layer::Impersonation, _) => "Impersonation",
        (Layer::QueueWait, _) => "Wait for a seat",
        (Layer::Authorization, _) => "Authorization",
        (Layer::MutatingWebhooks, _) => "Call mutating webhook",
        (Layer::ValidatingWebhooks, _) => "Call validating webhook",
        (Layer::Storage, Some(Verb::Create)) => "Create etcd3",
        (Layer::Storage, Some(Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)) => {
            "GuaranteedUpdate etcd3"
        }
        (Layer::Storage, Some(Verb::List)) => "List(recursive=true) etcd3",
        (Layer::Storage, _) => "Get etcd3",
        (Layer::ResponseWrite, _) => "SerializeObject",
    }
}

/// The header by which a service that is called knows its parent (W3C Trace Context).
fn traceparent(context: &SpanContext) -> String {
    let (trace, span) = (context.trace_id(), context.span_id());
    format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8())
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
