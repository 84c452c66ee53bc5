//! Discovery documents: generated from the registry on first use, cached encoded until it changes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue, ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use plinth_codec::negotiate::{self, Accepted, Encoding, Offer, Shape, Transform};
use plinth_codec::schema;

use super::{not_found_text, text};
use crate::representation;
use plinth_api::{ApiError, Reason};
use plinth_http::Body;
use plinth_registry::{
    aggregated_core, aggregated_groups, api_group_document, api_group_list_document,
    api_resource_list_document, api_versions_document, etag_matches, etag_of, Catalog, DiscoveryDocument,
    Registry,
};

/// The documents of one generation of the registry. The lock is held to look up and to insert; a document is
/// generated outside of it. Bounded by the number of paths times the number of encodings.
///
/// The aggregated document of all groups holds what the servers of remote APIs publish, which may be much. It
/// is generated on the blocking pool, by one request at a time; others that want it wait for that one.
#[derive(Default)]
pub struct DiscoveryDocuments {
    cache: Arc<Mutex<EncodedDocuments>>,
    generating: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct EncodedDocuments {
    generation: u64,
    documents: HashMap<DocumentKey, Arc<Encoded>>,
}

/// Path, encoding, transformation, indentation.
type DocumentKey = (String, Encoding, Transform, bool);

struct Encoded {
    body: Bytes,
    etag: String,
}

impl DiscoveryDocuments {
    /// Answers discovery requests; `segments` begin with `api` or `apis`.
    ///
    /// # Errors
    /// 404 for a version that a served group does not have, 406.
    pub async fn serve<B>(
        &self,
        registry: &Arc<Registry>,
        segments: &[&str],
        request: &Request<B>,
    ) -> Result<Response<Body>, ApiError> {
        let shape = if segments.len() == 1 { Shape::Discovery } else { Shape::Plain };
        if !exists(registry, segments) {
            return missing(registry, segments);
        }
        let mut accepted = accept(request.headers(), shape)?;
        accepted.pretty = representation::wants_pretty(&accepted, request.uri().query(), request.headers());
        let is_aggregated = accepted.transform == Transform::AggregatedDiscovery;
        let document = match segments {
            // Contains the request's own address, and is small: not cached.
            ["api"] if !is_aggregated => {
                let document = api_versions_document(&catalog(registry), &server_address(request));
                Some(Arc::new(Encoded::new(&document, &accepted)?))
            }
            _ => self.get(registry, segments, &accepted).await?,
        };
        let Some(document) = document else { return missing(registry, segments) };
        let mut response =
            text(StatusCode::OK, accepted.content_type(shape), Body::Full(document.body.clone()));
        if is_aggregated {
            tag(&mut response, request, &document.etag);
        }
        Ok(response)
    }

    async fn get(
        &self,
        registry: &Arc<Registry>,
        segments: &[&str],
        accepted: &Accepted,
    ) -> Result<Option<Arc<Encoded>>, ApiError> {
        let key = (segments.join("/"), accepted.encoding, accepted.transform, accepted.pretty);
        if let Some(document) = cached(&self.cache, registry, &key) {
            return Ok(Some(document));
        }
        if accepted.transform != Transform::AggregatedDiscovery || segments != ["apis"] {
            return generate(&self.cache, registry, segments, accepted, key);
        }
        let generating = self.generating.clone().lock_owned().await;
        if let Some(document) = cached(&self.cache, registry, &key) {
            return Ok(Some(document));
        }
        let (cache, registry, accepted) = (self.cache.clone(), registry.clone(), *accepted);
        // It goes on without its client: the next one needs it as well.
        let generated = tokio::task::spawn_blocking(move || {
            let _generating = generating;
            generate(&cache, &registry, &["apis"], &accepted, key)
        });
        generated.await.map_err(ApiError::internal)?
    }
}

fn cached(cache: &Mutex<EncodedDocuments>, registry: &Registry, key: &DocumentKey) -> Option<Arc<Encoded>> {
    let mut cache = cache.lock();
    if cache.generation < registry.generation {
        *cache = EncodedDocuments { generation: registry.generation, documents: HashMap::new() };
    }
    cache.documents.get(key).filter(|_| cache.generation == registry.generation).cloned()
}

fn generate(
    cache: &Mutex<EncodedDocuments>,
    registry: &Registry,
    segments: &[&str],
    accepted: &Accepted,
    key: DocumentKey,
) -> Result<Option<Arc<Encoded>>, ApiError> {
    let Some(document) = make(&catalog(registry), segments, accepted.transform) else { return Ok(None) };
    let encoded = Arc::new(Encoded::new(&document, accepted)?);
    let mut cache = cache.lock();
    if cache.generation == registry.generation {
        cache.documents.insert(key, encoded.clone());
    }
    Ok(Some(encoded))
}

fn make(catalog: &Catalog, segments: &[&str], transform: Transform) -> Option<DiscoveryDocument> {
    match (segments, transform) {
        (["api"], _) => Some(aggregated_core(catalog)),
        (["apis"], Transform::AggregatedDiscovery) => Some(aggregated_groups(catalog)),
        (["apis"], _) => Some(api_group_list_document(catalog)),
        (["apis", group], _) => api_group_document(catalog, group),
        (["api", version], _) => api_resource_list_document(catalog, "", version),
        (["apis", group, version], _) => api_resource_list_document(catalog, group, version),
        _ => None,
    }
}

/// Whether there is such a document, in any form.
pub fn exists(registry: &Registry, segments: &[&str]) -> bool {
    match segments {
        ["api"] | ["apis"] => true,
        ["apis", group] => registry.serves_group(group) && !group.is_empty(),
        ["api", version] => registry.version_generation("", version).is_some(),
        ["apis", group, version] => registry.version_generation(group, version).is_some(),
        _ => false,
    }
}

/// An unknown version of a built-in group gets a Status, every other path a plain 404.
fn missing(registry: &Registry, segments: &[&str]) -> Result<Response<Body>, ApiError> {
    match segments {
        ["api", ..] => Err(ApiError::no_such_resource()),
        [_, group, ..] if registry.has_builtin_group(group) => Err(ApiError::no_such_resource()),
        _ => Ok(not_found_text()),
    }
}

/// What is served in the order of discovery, by this server and by others.
pub fn catalog(registry: &Registry) -> Catalog<'_> {
    let custom = registry.resources.iter().filter(|r| r.is_custom()).map(|r| &r.row);
    let remote = registry.remote_versions().values().map(|remote| &**remote);
    Catalog::with_remote(registry.table(), custom, remote)
}

/// What this server itself serves.
pub fn local_catalog(registry: &Registry) -> Catalog<'_> {
    let custom = registry.resources.iter().filter(|r| r.is_custom()).map(|r| &r.row);
    Catalog::new(registry.table(), custom)
}

impl Encoded {
    fn new(document: &DiscoveryDocument, accepted: &Accepted) -> Result<Encoded, ApiError> {
        let write = |accepted: &Accepted| {
            let mut body = Vec::with_capacity(4096);
            representation::write_document(document, schema::builtin(), accepted, &mut body).map(|()| body)
        };
        let body = write(accepted)?;
        // Indentation does not change the tag.
        let etag = match accepted.pretty {
            true => etag_of(&write(&Accepted { pretty: false, ..*accepted })?),
            false => etag_of(&body),
        };
        Ok(Encoded { etag, body: Bytes::from(body) })
    }
}

fn tag<B>(response: &mut Response<Body>, request: &Request<B>, etag: &str) {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(value) = HeaderValue::try_from(etag) {
        headers.insert(ETAG, value);
    }
    let etags = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if etags.is_some_and(|etags| etag_matches(etags, etag)) {
        headers.remove(CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
}

/// Whether `/api` or `/apis` is answered with the aggregated document.
pub(crate) fn is_aggregated(headers: &HeaderMap) -> bool {
    accept(headers, Shape::Discovery)
        .is_ok_and(|accepted| accepted.transform == Transform::AggregatedDiscovery)
}

fn accept(headers: &HeaderMap, shape: Shape) -> Result<Accepted, ApiError> {
    let header = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    negotiate::accept(header, &Offer::builtin(shape))
        .map_err(|e| ApiError::new(406, Reason::NotAcceptable, e.to_string()))
}

fn server_address<B>(request: &Request<B>) -> String {
    let host = request.headers().get(hyper::header::HOST).and_then(|h| h.to_str().ok());
    host.or(request.uri().authority().map(|a| a.as_str())).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregated() -> Request<()> {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        Request::builder().uri("/apis").header(ACCEPT, accept).body(()).unwrap()
    }

    /// Where the bytes of a body are.
    fn place(response: Response<Body>) -> *const u8 {
        assert_eq!(response.status(), StatusCode::OK);
        match response.into_body() {
            Body::Full(bytes) => bytes.as_ptr(),
            _ => panic!("a document"),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn requests_that_come_meanwhile_share_one_document() {
        let (documents, registry) = (DiscoveryDocuments::default(), Arc::new(Registry::builtin()));
        let request = aggregated();
        let serve = || documents.serve(&registry, &["apis"], &request);
        let (first, second, third) = tokio::join!(serve(), serve(), serve());
        let places = [first, second, third].map(|response| place(response.unwrap()));
        assert!(places.iter().all(|other| *other == places[0]));
    }

    #[test]
    fn a_document_is_finished_without_its_client() {
        let (documents, registry) = (DiscoveryDocuments::default(), Arc::new(Registry::builtin()));
        let request = aggregated();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.max_blocking_threads(1).build().unwrap().block_on(async {
            // The only thread that may generate is busy until the client has gone.
            let (gone, waits) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            tokio::select! {
                biased;
                _ = documents.serve(&registry, &["apis"], &request) => panic!("another task generates it"),
                () = std::future::ready(()) => {}
            }
            gone.send(()).unwrap();
            busy.await.unwrap().unwrap();
            // Taken by the next one, after the one that generates.
            let _generated = documents.generating.lock().await;
            assert_eq!(documents.cache.lock().documents.len(), 1);
        });
    }
}
