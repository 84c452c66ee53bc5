//! An API server of a test's own behind an APIService: it serves one group, records what it receives and does
//! what a test wants it to.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::access_reviews::front_proxy::FrontProxy;
use crate::https::{ClientName, HttpsOptions, HttpsServer};
use crate::requests::{create, send};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Name in the client's certificate.
    pub client: Option<String>,
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// As received.
    pub headers: HeaderMap,
}

impl Received {
    /// The values of a header.
    pub fn all(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }
}

/// What the server does, changed by the test while it runs.
#[derive(Default)]
pub struct Behavior {
    group: String,
    received: Mutex<Vec<Received>>,
    /// Answers 503 to everything.
    pub is_down: AtomicBool,
    /// Accepts requests and never answers.
    pub hangs: AtomicBool,
    /// Has an aggregated discovery document.
    pub is_aggregated: AtomicBool,
    /// Requests that wait for an answer or are being answered, without those for documents.
    pub open: AtomicUsize,
    /// Sends the next event of each watch, and lets `…/slow` read its body.
    pub proceed: Notify,
    /// Bodies of `…/slow`, as far as they have been read.
    pub bodies: Mutex<Vec<u8>>,
    /// Names of the objects in each namespace, of the resource `things`. Those called `owner…` can be read.
    pub things: Mutex<Vec<(String, String)>>,
}

/// The server. Dropping it ends it.
pub struct RemoteApi {
    /// What it does.
    pub behavior: Arc<Behavior>,
    /// The group that it serves.
    pub group: String,
    server: HttpsServer,
    address: IpAddr,
}

struct Open(Arc<Behavior>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RemoteApi {
    /// A server of a group at a loopback address, named as the Service of that name in the namespace
    /// `remote`. It asks for a certificate of the front proxy.
    pub async fn start(group: &str, service: &str, address: IpAddr, proxy: Option<&FrontProxy>) -> RemoteApi {
        let behavior = Arc::new(Behavior { group: group.to_owned(), ..Behavior::default() });
        let options = HttpsOptions {
            names: vec![format!("{service}.remote.svc")],
            address,
            client_authority: proxy
                .map(|proxy| std::fs::read_to_string(proxy.authority()).expect("authority")),
            ..HttpsOptions::default()
        };
        let shared = behavior.clone();
        let server = HttpsServer::start_as(options, move |request| answer(shared.clone(), request)).await;
        RemoteApi { behavior, group: group.to_owned(), server, address }
    }

    /// The requests for a path so far.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let received = self.behavior.received.lock();
        let is_path = |r: &&Received| r.target.split('?').next() == Some(path);
        received.iter().filter(is_path).cloned().collect()
    }

    /// Connections to it so far.
    pub fn connections(&self) -> usize {
        self.server.connections.load(Ordering::SeqCst)
    }

    /// The path of the version.
    pub fn path(&self) -> String {
        format!("/apis/{}/v1", self.group)
    }

    /// Creates the namespace `remote`, the Service with an EndpointSlice, and the APIService `v1.GROUP`.
    pub async fn register(&self, client: &Client, service: &str) {
        register_service(client, service, self.address, self.server.port).await;
        create(client, API_SERVICES, &self.api_service(service)).await;
    }

    /// An APIService for it, behind a Service of that name.
    pub fn api_service(&self, service: &str) -> Value {
        json!({
            "metadata": {"name": format!("v1.{}", self.group)},
            "spec": {
                "group": self.group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
                "caBundle": BASE64_STANDARD.encode(&self.server.certificate),
                "service": {"namespace": "remote", "name": service, "port": self.server.port},
            },
        })
    }
}

/// The path of APIServices.
pub const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Creates the namespace `remote` and a Service in it whose cluster IP is that address, with an endpoint that
/// is never asked.
pub async fn register_service(client: &Client, service: &str, address: IpAddr, port: u16) {
    let namespace = json!({"metadata": {"name": "remote"}});
    send(client, "POST", "/api/v1/namespaces", &namespace).await;
    let object = json!({
        "metadata": {"name": service},
        "spec": {"clusterIP": address.to_string(), "ports": [{"name": "https", "port": port}]},
    });
    create(client, "/api/v1/namespaces/remote/services", &object).await;
    let slice = json!({
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    });
    create(client, "/apis/discovery.k8s.io/v1/namespaces/remote/endpointslices", &slice).await;
}

fn whole(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", kind.parse().expect("media type"));
    response
}

fn document(value: &Value) -> Answer {
    whole(StatusCode::OK, "application/json", value.to_string())
}

async fn answer(behavior: Arc<Behavior>, request: Request<Incoming>) -> Answer {
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let received = Received {
        client: request.extensions().get::<ClientName>().and_then(|name| name.0.clone()),
        method: request.method().clone(),
        target,
        headers: request.headers().clone(),
    };
    behavior.received.lock().push(received);
    if behavior.hangs.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    if behavior.is_down.load(Ordering::SeqCst) {
        return whole(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "down");
    }
    let path = request.uri().path().to_owned();
    if let Some(answer) = documents(&behavior, &path) {
        return answer;
    }
    behavior.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(behavior.clone());
    objects(behavior, open, path, request).await
}

const GROUP_VERSION_KIND: &str = "Thing";

fn documents(behavior: &Behavior, path: &str) -> Option<Answer> {
    let group = behavior.group.as_str();
    let version = format!("/apis/{group}/v1");
    let verbs = json!(["create", "delete", "get", "list", "watch"]);
    let answer = match path {
        "/apis" if behavior.is_aggregated.load(Ordering::SeqCst) => {
            let kind = json!({"group": group, "version": "v1", "kind": GROUP_VERSION_KIND});
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [{
                "metadata": {"name": group}, "versions": [{"version": "v1", "resources": [{
                    "resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing",
                    "verbs": verbs, "shortNames": ["aggregated"],
                }]}],
            }]});
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            whole(StatusCode::OK, kind, list.to_string())
        }
        "/apis" => document(&json!({"kind": "APIGroupList", "groups": []})),
        path if path == version => document(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"),
            "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": GROUP_VERSION_KIND,
                "verbs": verbs}],
        })),
        "/openapi/v3" => document(&json!({"paths": {
            format!("apis/{group}/v1"): {"serverRelativeURL": format!("/openapi/v3/apis/{group}/v1?hash=AB")},
            "version": {"serverRelativeURL": "/openapi/v3/version?hash=CD"},
        }})),
        "/openapi/v2" => document(&json!({
            "swagger": "2.0",
            "paths": {format!("{version}/things"): {"get": {"schema": {"$ref": "#/definitions/Thing"}}}, "/version": {}},
            "definitions": {"Thing": {"type": "object"}, "Unused": {"type": "object"}},
        })),
        path if path == format!("/openapi/v3{version}") => {
            let mut answer = document(&json!({"openapi": "3.0.0", "paths": {}}));
            answer.headers_mut().insert("etag", "\"AB\"".parse().expect("tag"));
            answer
        }
        _ => return None,
    };
    Some(answer)
}

async fn objects(
    behavior: Arc<Behavior>,
    open: Open,
    path: String,
    mut request: Request<Incoming>,
) -> Answer {
    let parts: Vec<&str> = path.split('/').collect();
    let query = request.uri().query().unwrap_or_default().to_owned();
    match (request.method().clone(), parts.as_slice()) {
        // Sends what it received.
        (Method::POST, [.., "things"]) => {
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            whole(StatusCode::CREATED, "application/json", body)
        }
        (Method::GET, [.., namespace, "things"]) if !query.contains("watch=") => {
            let things = behavior.things.lock();
            let of = things.iter().filter(|(of, _)| of == namespace);
            let items: Vec<Value> = of.map(|(_, name)| json!({"metadata": {"name": name}})).collect();
            document(&json!({"kind": "ThingList", "apiVersion": "v1", "items": items}))
        }
        // One line for each time that the test lets it proceed.
        (Method::GET, [.., "things"]) => {
            let events = stream::unfold((behavior, open, 0), |(behavior, open, n)| async move {
                behavior.proceed.notified().await;
                let line = Frame::data(Bytes::from(format!("{{\"event\":{n}}}\n")));
                Some((Ok(line), (behavior, open, n + 1)))
            });
            Response::new(StreamBody::new(events).boxed_unsync())
        }
        (Method::GET, [.., namespace, "things", name]) if name.starts_with("owner") => {
            let thing = ((*namespace).to_owned(), (*name).to_owned());
            match behavior.things.lock().contains(&thing) {
                true => document(&json!({
                    "kind": GROUP_VERSION_KIND, "apiVersion": format!("{}/v1", behavior.group),
                    "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-of-{name}")},
                })),
                false => {
                    let details = json!({"name": name, "group": behavior.group, "kind": "things"});
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "NotFound", "code": 404, "details": details});
                    whole(StatusCode::NOT_FOUND, "application/json", status.to_string())
                }
            }
        }
        (Method::DELETE, [.., namespace, "things", name]) => {
            behavior.things.lock().retain(|thing| *thing != ((*namespace).to_owned(), (*name).to_owned()));
            document(&json!({"kind": "Status", "status": "Success"}))
        }
        // Reads its body piece by piece, and answers when it has ended.
        (_, [.., "slow"]) => {
            while let Some(Ok(frame)) = request.body_mut().frame().await {
                behavior.bodies.lock().extend(frame.into_data().unwrap_or_default());
            }
            document(&json!({"read": behavior.bodies.lock().len()}))
        }
        // Without a length.
        (_, [.., "chunked"]) => {
            let pieces = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}")))]);
            Response::new(StreamBody::new(pieces).boxed_unsync())
        }
        // Answers before it has read its body.
        (_, [.., "early"]) => {
            tokio::spawn(async move {
                let _open = open;
                while let Some(Ok(_)) = request.body_mut().frame().await {}
            });
            document(&json!({}))
        }
        (_, [.., "hang"]) => {
            let _open = open;
            std::future::pending().await
        }
        (_, [.., "redirect"]) => {
            let mut answer = whole(StatusCode::FOUND, "text/plain", "");
            answer.headers_mut().insert("location", "https://192.0.2.1/evil".parse().expect("location"));
            answer
        }
        (_, [.., "endless"]) => {
            let pieces = stream::unfold(open, |open| async move {
                tokio::task::yield_now().await;
                Some((Ok(Frame::data(Bytes::from_static(&[b'x'; 4096]))), open))
            });
            Response::new(StreamBody::new(pieces).boxed_unsync())
        }
        (_, [.., "exec"]) => upgraded(&mut request),
        _ => whole(StatusCode::NOT_FOUND, "text/plain", "404 page not found"),
    }
}

/// Switches to a protocol that echoes.
fn upgraded(request: &mut Request<Incoming>) -> Answer {
    let Some(protocol) = request.headers().get("upgrade").cloned() else {
        return whole(StatusCode::BAD_REQUEST, "text/plain", "no upgrade");
    };
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.expect("upgraded connection"));
        let mut buffer = [0u8; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..count]).await.expect("echo");
        }
    });
    let mut answer = whole(StatusCode::SWITCHING_PROTOCOLS, "text/plain", "");
    answer.headers_mut().insert("connection", "Upgrade".parse().expect("header"));
    answer.headers_mut().insert("upgrade", protocol);
    answer
}
