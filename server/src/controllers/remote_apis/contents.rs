//! Deletes the objects of remote APIs in a namespace that is being deleted, as the namespace controller's
//! service account, which their servers authorize.
//!
//! Upstream: kubernetes `pkg/controller/namespace/deletion/namespaced_resources_deleter.go`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use percent_encoding::{utf8_percent_encode, NON_ALPHANUMERIC};
use plinth_codec::{json, Value};

use crate::controllers::accounts;
use plinth_api::{finalizers, metadata_text};
use plinth_apiserver::context::Server;
use plinth_apiserver::egress::client::Bounds;
use plinth_apiserver::egress::remote::RemoteAnswer;
use plinth_registry::{compare_versions, RemoteResource, RemoteVersion};

/// Bounds of a request.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), answer: 8 << 20 };
/// Objects of a kind that are read in one pass; further passes follow.
const PAGE: usize = 500;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);
const BACKGROUND: &[u8] = br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;

/// What is left of a namespace's objects of remote APIs.
#[derive(Debug, Default)]
pub(in crate::controllers) struct RemoteContents {
    /// Objects that remain, by the resource's name and group.
    pub(in crate::controllers) resources: BTreeMap<String, u64>,
    /// How many of them each finalizer holds.
    pub(in crate::controllers) finalizers: BTreeMap<String, u64>,
    /// Why objects could not be deleted.
    pub(in crate::controllers) errors: Vec<String>,
    /// The versions whose resources are not known.
    pub(in crate::controllers) undiscovered: Vec<String>,
}

/// Deletes what remote APIs have in a namespace; each resource in its group's preferred version.
pub(in crate::controllers) async fn delete_all(server: &Server, namespace: &str) -> RemoteContents {
    let registry = server.registry();
    let mut versions: Vec<_> = registry.remote_versions().values().collect();
    versions.sort_by(|a, b| {
        let rank = |remote: &RemoteVersion| (remote.group.clone(), Reverse(remote.priority));
        rank(a).cmp(&rank(b)).then_with(|| compare_versions(&b.version, &a.version))
    });
    let (mut contents, mut seen) = (RemoteContents::default(), BTreeSet::new());
    for remote in versions {
        if !remote.is_available || !remote.documents.is_current {
            contents.undiscovered.push(format!("{}/{}", remote.group, remote.version));
            continue;
        }
        let resources = remote.resources().filter(|r| r.is_namespaced && r.has_verb("delete"));
        for resource in resources.filter(|r| seen.insert((remote.group.as_str(), r.name))) {
            let work = Deletion { server, remote, resource, namespace };
            if let Err(error) = work.run(&mut contents).await {
                contents.errors.push(format!("{}.{}: {error}", resource.name, remote.group));
                // The others would most probably fail as slowly.
                break;
            }
        }
    }
    contents
}

struct Deletion<'a> {
    server: &'a Server,
    remote: &'a RemoteVersion,
    resource: RemoteResource<'a>,
    namespace: &'a str,
}

impl Deletion<'_> {
    async fn run(&self, contents: &mut RemoteContents) -> Result<(), String> {
        let collection =
            format!("{}/namespaces/{}/{}", self.remote.path(), self.namespace, self.resource.name);
        let deleted = match self.resource.has_verb("deletecollection") {
            true => self.delete(&collection).await?,
            false => false,
        };
        if !self.resource.has_verb("list") {
            return Ok(());
        }
        let mut remaining = self.list(&collection).await?;
        if !deleted && !remaining.is_empty() {
            for object in &remaining {
                let name = utf8_percent_encode(metadata_text(object, "name"), NON_ALPHANUMERIC);
                self.delete(&format!("{collection}/{name}")).await?;
            }
            remaining = self.list(&collection).await?;
        }
        if !remaining.is_empty() {
            let name = format!("{}.{}", self.resource.name, self.remote.group);
            contents.resources.insert(name, remaining.len() as u64);
        }
        for finalizer in remaining.iter().flat_map(finalizers) {
            *contents.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// Deletes an object or a collection; false where the server has no such method.
    async fn delete(&self, path: &str) -> Result<bool, String> {
        let answer = self.call(Method::DELETE, path).await?;
        match answer.status {
            StatusCode::METHOD_NOT_ALLOWED => Ok(false),
            // Deleted meanwhile, or nothing of this kind can be here.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(true),
            status if status.is_success() => Ok(true),
            status => Err(refused(status, &answer)),
        }
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let answer = self.call(Method::GET, &format!("{path}?limit={PAGE}")).await?;
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => return Ok(Vec::new()),
            status if !status.is_success() => return Err(refused(status, &answer)),
            _ => {}
        }
        let mut list = json::parse(&answer.body).map_err(|error| error.to_string())?;
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
        Ok(items.unwrap_or_default())
    }

    async fn call(&self, method: Method, path: &str) -> Result<RemoteAnswer, String> {
        let user = accounts::NAMESPACES.user();
        let body = if method == Method::DELETE { Bytes::from_static(BACKGROUND) } else { Bytes::new() };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
        request.headers_mut().insert(ACCEPT, METADATA);
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        let apis = &self.server.remote_apis;
        let answer = apis.call(&self.server.store, self.remote, &user, request, BOUNDS).await;
        answer.map_err(|error| error.to_string())
    }
}

/// The message of a Status, or the code of another answer.
fn refused(status: StatusCode, answer: &RemoteAnswer) -> String {
    let body = json::parse(&answer.body).ok();
    let message = body.as_ref().and_then(|body| body.str_at(&["message"])).map(str::to_owned);
    message.unwrap_or_else(|| format!("the server answered {status}"))
}
