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

mod counted;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::USER_AGENT;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use opentelemetry_sdk::Resource;
use plinth_api::{Latencies, Layer, RequestInfo, Route, Step, User, Verb};

use crate::metrics::TraceMetrics;
use counted::CountedExporter;
pub use options::{TracesError, TracesOptions};

/// How long a stop waits for the collector.
const LAST_EXPORT: Duration = Duration::from_secs(3);
/// Longest text of a request that a span has. Clients choose it, 2560 spans may wait for the collector, and
/// one message has 512 of them, of which a collector takes 4 MiB.
const MAX_TEXT: usize = 1024;
/// Longest `tracestate` of a client that is passed on: what W3C Trace Context asks for at least.
const MAX_STATE: usize = 512;
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
    /// When its head had arrived.
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
    pub fn start(
        options: &TracesOptions,
        instance: &str,
        metrics: &TraceMetrics,
    ) -> Result<Traces, TracesError> {
        let Some(settings) = options.read()? else { return Ok(Traces::default()) };
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(settings.endpoint).build()?;
        let exporter = CountedExporter { exporter, metrics: metrics.clone() };
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
        let sent = with_bounded_state(sent.span().span_context());
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
        let text = |key: &'static str, value: &str| KeyValue::new(key, beginning(value).to_owned());
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
    let Route::Resource(info) = route else { return beginning(method.as_str()).to_owned() };
    let RequestInfo { group, version, namespace, resource, name, subresource, .. } = info;
    let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let namespace = if namespace.is_empty() { "" } else { "/namespaces/{:namespace}" };
    let name = if name.is_empty() { "" } else { "/{:name}" };
    let slash = if subresource.is_empty() { "" } else { "/" };
    let full = format!("{method} {prefix}/{version}{namespace}/{resource}{name}{slash}{subresource}");
    beginning(&full).to_owned()
}

/// The first [`MAX_TEXT`] bytes of a text, or some less where they would cut a character.
fn beginning(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    (0..=MAX_TEXT).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The same without a `tracestate` that is too long.
fn with_bounded_state(context: &SpanContext) -> SpanContext {
    if context.trace_state().header().len() <= MAX_STATE {
        return context.clone();
    }
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags());
    SpanContext::new(trace, span, flags, context.is_remote(), TraceState::NONE)
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

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};
    use parking_lot::Mutex;
    use plinth_api::parse_route;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Exported(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Exported {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().extend(batch);
            Ok(())
        }
    }

    #[test]
    fn spans_have_the_beginning_of_what_clients_send() {
        let kept = Exported::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        let tracer = provider.tracer("t");
        let traces = Traces(Some(Recording { provider, tracer }));
        let long = "x".repeat(60_000);
        let uri: Uri = format!("/apis/{long}/v1/{long:.1000}?a=b").parse().unwrap();
        let mut headers = HeaderMap::new();
        let state = (0..32).map(|n| format!("k{n}={long:.200}")).collect::<Vec<_>>().join(",");
        for (name, value) in [
            ("user-agent", "a".repeat(1 << 19)),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
            ("tracestate", state),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let method = Method::from_bytes("M".repeat(5000).as_bytes()).unwrap();
        for method in [Method::GET, method] {
            let route = parse_route(&method, uri.path(), uri.query()).unwrap();
            let (version, received) = (Version::HTTP_11, Instant::now());
            let (audit_id, user, headers) = ("id", None, &headers);
            let (route, method, uri) = (&route, &method, &uri);
            let request = TracedRequest { route, method, uri, version, headers, audit_id, user, received };
            traces.begin(&request, Arc::default).unwrap().end(StatusCode::OK);
        }
        let spans = kept.0.lock();
        assert!(spans.len() >= 3);
        for span in spans.iter() {
            let texts = span.attributes.iter().map(|attribute| attribute.value.as_str().len());
            assert!(texts.chain([span.name.len()]).all(|length| length <= MAX_TEXT), "{span:?}");
            let mut links = span.links.iter().map(|link| link.span_context.trace_state().header());
            assert!(links.all(|state| state.is_empty()));
        }
        assert!(spans.iter().any(|span| span.links.iter().count() == 1));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(beginning("ab"), "ab");
        let text = format!("a{}", "é".repeat(MAX_TEXT));
        assert_eq!(beginning(&text).len(), MAX_TEXT - 1);
    }
}
