//! Traces: what a collector receives of which requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::server::TestServer;
use plinth_tests::{eventually, requests::create};
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;

use super::Scrape;

const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const CLIENT: (&str, &str) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");

fn traceparent(flags: &str) -> HeaderValue {
    HeaderValue::try_from(format!("00-{}-{}-{flags}", CLIENT.0, CLIENT.1)).expect("a value")
}

/// A collector that keeps what it is sent.
struct Collector {
    port: u16,
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (spans, services) = (Arc::default(), Arc::default());
        let collector = Collector { port, spans: Arc::clone(&spans), services: Arc::clone(&services) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (spans, services) = (Arc::clone(&spans), Arc::clone(&services));
                tokio::spawn(async move {
                    let answer =
                        service_fn(move |request| export(request, Arc::clone(&spans), Arc::clone(&services)));
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // Ends when the server does.
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        collector
    }

    /// The spans of a trace, when there are so many.
    async fn trace(&self, id: &str, count: usize) -> Vec<Span> {
        let of_trace = || -> Vec<Span> {
            self.spans.lock().iter().filter(|span| hex(&span.trace_id) == id).cloned().collect()
        };
        eventually("the spans arrive", || async { of_trace().len() >= count }).await;
        of_trace()
    }
}

async fn export(
    request: Request<Incoming>,
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(request.uri().path(), PATH);
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(body[0], 0, "not compressed");
    let request = ExportTraceServiceRequest::decode(&body[5..]).expect("spans");
    for of_resource in request.resource_spans {
        for attribute in of_resource.resource.expect("a resource").attributes {
            if let Some(Value::StringValue(value)) = attribute.value.and_then(|value| value.value) {
                services.lock().push(format!("{}={value}", attribute.key));
            }
        }
        spans.lock().extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

async fn server(collector: u16, fields: &str) -> (TestServer, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
    std::fs::write(file.path(), format!("{head}endpoint: 127.0.0.1:{collector}\n{fields}")).expect("a file");
    let flag = format!("--tracing-config-file={}", file.path().display());
    (TestServer::start(&[&flag]).await, file)
}

#[tokio::test]
async fn a_client_decides_what_is_traced_and_its_steps_are_below_its_span() {
    let collector = Collector::start().await;
    let (mut server, _file) = server(collector.port, "").await;
    let mut admin = server.connect(Protocol::Http2).await;
    let path = "/api/v1/namespaces/default/configmaps";
    // Without a parent nothing is sampled.
    create(&server.client().await, path, &json!({"metadata": {"name": "untraced"}})).await;
    let body = json!({"metadata": {"name": "traced"}}).to_string();
    let call = Call::new(Method::POST, format!("{path}?fieldManager=m"))
        .body("application/json", body)
        .header("traceparent", traceparent("01"));
    let reply = admin.must(&call).await.expect("a creation");
    let audit_id = reply.headers["audit-id"].to_str().expect("text").to_owned();

    let spans = collector.trace(CLIENT.0, 4).await;
    let find = |name: &str| {
        let found = spans.iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
    };
    let root = find("POST /api/v1/namespaces/{:namespace}/configmaps");
    assert_eq!(hex(&root.parent_span_id), CLIENT.1);
    let expected = [
        ("http.request.method", "POST"),
        ("url.path", path),
        ("http.target", "/api/v1/namespaces/default/configmaps?fieldManager=m"),
        ("http.response.status_code", "201"),
        ("audit-id", &audit_id),
    ];
    for (key, value) in expected {
        assert_eq!(attribute(root, key).as_deref(), Some(value), "{key}");
    }
    let verb = find("Create");
    assert_eq!(verb.parent_span_id, root.span_id);
    for step in ["Create etcd3", "Authorization"] {
        let step = find(step);
        assert_eq!(step.parent_span_id, verb.span_id);
        let within = root.start_time_unix_nano <= step.start_time_unix_nano
            && step.start_time_unix_nano <= step.end_time_unix_nano
            && step.end_time_unix_nano <= root.end_time_unix_nano;
        assert!(within, "{root:#?} {step:#?}");
    }
    // A client says no.
    let call = Call::get(format!("{path}/traced")).header("traceparent", traceparent("00"));
    admin.must(&call).await.expect("the object");
    // A client that may not decide, though it is answered.
    let mut anonymous = server.connect_anonymously(Protocol::Http2).await;
    let call = Call::get("/version").header("traceparent", traceparent("01"));
    anonymous.must(&call).await.expect("the version");
    server.terminate().await;
    assert_eq!(collector.spans.lock().len(), spans.len(), "{:#?}", collector.spans.lock());
    assert!(collector.services.lock().contains(&"service.name=apiserver".to_owned()));
}

#[tokio::test]
async fn requests_are_sampled_and_the_last_spans_are_sent_when_the_server_stops() {
    let collector = Collector::start().await;
    let (mut server, _file) = server(collector.port, "samplingRatePerMillion: 1000000\n").await;
    let mut anonymous = server.connect_anonymously(Protocol::Http2).await;
    let call = Call::get("/version").header("traceparent", traceparent("01"));
    anonymous.must(&call).await.expect("the version");
    let mut admin = server.connect(Protocol::Http2).await;
    let reply = admin.call(&Call::get("/api/v1/namespaces/default/pods/none/log")).await.expect("an answer");
    assert_eq!(reply.status, 404);
    server.terminate().await;
    let spans = collector.spans.lock().clone();
    // The client's trace is linked, and not entered.
    let linked = spans
        .iter()
        .find(|span| span.name == "GET" && attribute(span, "url.path").as_deref() == Some("/version"));
    let linked = linked.expect("a span");
    assert_eq!((hex(&linked.links[0].trace_id).as_str(), linked.parent_span_id.len()), (CLIENT.0, 0));
    assert_ne!(hex(&linked.trace_id), CLIENT.0);
    let log = "GET /api/v1/namespaces/{:namespace}/pods/{:name}/log";
    assert!(spans.iter().any(|span| span.name == log), "{spans:#?}");
}

#[tokio::test]
async fn no_request_waits_for_a_collector_that_is_away() {
    let away = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = away.local_addr().expect("an address").port();
    drop(away);
    let (mut server, _file) = server(port, "samplingRatePerMillion: 1000000\n").await;
    let client = server.client().await;
    for n in 0..300 {
        create(
            &client,
            "/api/v1/namespaces/default/configmaps",
            &json!({"metadata": {"name": format!("c{n}")}}),
        )
        .await;
    }
    // What is lost is counted.
    let mut admin = server.connect(Protocol::Http2).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let scrape = Scrape::of(&mut admin, "/metrics").await;
        let lost = scrape.value("plinth_trace_lost_spans_total", &[]);
        if scrape.value("plinth_trace_export_failures_total", &[]) > 0.0 && lost >= 300.0 {
            break;
        }
        assert!(Instant::now() < deadline, "{lost} spans were lost");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.terminate().await;
}
