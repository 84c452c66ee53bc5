//! Reads what the server of a remote version publishes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue, ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use hyper::{Request, StatusCode};
use plinth_codec::{json, Value};

use plinth_api::{User, MASTERS_GROUP};
use plinth_apiserver::context::Server;
use plinth_apiserver::egress::client::Bounds;
use plinth_apiserver::egress::remote::{RemoteAnswer, RemoteError};
use plinth_registry::{
    parse_aggregated_discovery, parse_resource_list, remote_openapi_v2, remote_openapi_v3, RemoteDocuments,
    RemoteVersion,
};

/// Bounds of a discovery document.
const DISCOVERY: Bounds = Bounds { time: Duration::from_secs(5), answer: 4 << 20 };
/// Bounds of an OpenAPI document: a server of all built-in APIs has five megabytes.
const OPENAPI: Bounds = Bounds { time: Duration::from_secs(30), answer: 8 << 20 };
/// The forms of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";
/// As whom discovery is read, and as whom OpenAPI.
const DISCOVERY_USER: &str = "system:kube-aggregator";
const OPENAPI_USER: &str = "system:aggregator";

/// Parses documents one at a time, on the blocking pool: they may be megabytes long, and many times that once
/// they are parsed.
#[derive(Default)]
pub(super) struct Parser(Arc<tokio::sync::Mutex<()>>);

impl Parser {
    /// What `read` makes of a document of `remote`.
    async fn read<T: Send + 'static>(
        &self,
        document: Bytes,
        remote: &Arc<RemoteVersion>,
        read: impl FnOnce(&Value, &RemoteVersion) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (parsing, remote) = (self.0.clone().lock_owned().await, remote.clone());
        let parsed = tokio::task::spawn_blocking(move || {
            let _parsing = parsing;
            json::parse(&document).map(|document| read(&document, &remote)).map_err(|e| e.to_string())
        });
        parsed.await.map_err(|error| error.to_string())?
    }
}

/// The documents of a version; those of the last time, marked as stale, and why when they cannot be read.
pub(super) async fn read(
    server: &Server,
    parser: &Parser,
    remote: &Arc<RemoteVersion>,
) -> (RemoteDocuments, Option<String>) {
    let before = &remote.documents;
    let resources = match discover(server, parser, remote).await {
        Ok(resources) => resources,
        Err(why) => return (RemoteDocuments { is_current: false, ..before.clone() }, Some(why)),
    };
    let mut documents = RemoteDocuments { resources: resources.into(), is_current: true, ..before.clone() };
    read_openapi(server, parser, remote, &mut documents).await;
    (documents, None)
}

/// The resources of the version: from the aggregated document, or from the version's own where the server has
/// no aggregated one.
async fn discover(
    server: &Server,
    parser: &Parser,
    remote: &Arc<RemoteVersion>,
) -> Result<Vec<Value>, String> {
    let user = User::new(DISCOVERY_USER, &[MASTERS_GROUP]);
    let answer = get(server, remote, &user, "/apis", &[(ACCEPT, AGGREGATED)], DISCOVERY).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status == StatusCode::SERVICE_UNAVAILABLE {
        return Err("service returned non-success response code: 503".to_owned());
    }
    if answer.status == StatusCode::OK && is_aggregated(&answer) {
        let read = |document: &Value, remote: &RemoteVersion| {
            parse_aggregated_discovery(document, &remote.group, &remote.version).unwrap_or_default()
        };
        return parser.read(answer.body, remote, read).await;
    }
    let user = User::new(DISCOVERY_USER, &[]);
    let path = remote.path();
    let answer = get(server, remote, &user, &path, &[(ACCEPT, JSON)], DISCOVERY).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status != StatusCode::OK {
        return Err(format!("failed to download legacy discovery for {path}: {}", answer.status));
    }
    parser
        .read(answer.body, remote, |document: &Value, _: &RemoteVersion| parse_resource_list(document))
        .await
}

/// Whether an answer is an aggregated document: a server without them answers with the plain one.
fn is_aggregated(answer: &RemoteAnswer) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').any(|part| part.trim() == "as=APIGroupDiscoveryList")
}

/// OpenAPI documents; the last ones stay where there are no others.
async fn read_openapi(
    server: &Server,
    parser: &Parser,
    remote: &Arc<RemoteVersion>,
    documents: &mut RemoteDocuments,
) {
    let user = User::new(OPENAPI_USER, &[]);
    match get(server, remote, &user, "/openapi/v3", &[(ACCEPT, JSON)], DISCOVERY).await {
        Ok(answer) if answer.status == StatusCode::OK => {
            documents.openapi_v3 =
                parser.read(answer.body, remote, remote_openapi_v3).await.unwrap_or_default();
        }
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => documents.openapi_v3 = None,
        _ => {}
    }
    let mut headers = vec![(ACCEPT, JSON)];
    let tag = documents.openapi_v2_tag.clone();
    headers.extend(tag.as_deref().map(|tag| (IF_NONE_MATCH, tag)));
    match get(server, remote, &user, "/openapi/v2", &headers, OPENAPI).await {
        Ok(answer) if answer.status == StatusCode::OK => {
            let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            documents.openapi_v2_tag = tag.map(str::to_owned);
            let part = parser.read(answer.body, remote, remote_openapi_v2).await.unwrap_or_default();
            documents.openapi_v2 = part.map(Into::into);
        }
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
            (documents.openapi_v2, documents.openapi_v2_tag) = (None, None);
        }
        _ => {}
    }
}

async fn get(
    server: &Server,
    remote: &RemoteVersion,
    user: &User,
    path: &str,
    headers: &[(HeaderName, &str)],
    bounds: Bounds,
) -> Result<RemoteAnswer, RemoteError> {
    let mut request = Request::new(Full::<Bytes>::default());
    let invalid = |error: &dyn std::fmt::Display| RemoteError::Unreachable(error.to_string());
    *request.uri_mut() = path.parse().map_err(|error| invalid(&error))?;
    for (name, text) in headers {
        let value = HeaderValue::try_from(*text).map_err(|error| invalid(&error))?;
        request.headers_mut().insert(name.clone(), value);
    }
    server.remote_apis.call(&server.store, remote, user, request, bounds).await
}
