//! OpenAPI documents: generated on first use, cached compressed.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::{GzDecoder, GzEncoder};
use flate2::Compression;
use hyper::header::{
    HeaderName, HeaderValue, ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_NONE_MATCH,
    LOCATION, VARY,
};
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use plinth_codec::negotiate;
use plinth_codec::openapi::{
    descriptions, gnostic, merge, v2, v3, CustomSchema, Descriptions, PublishedResource,
};
use plinth_codec::{schema, Value};

use super::{not_found_text, text};
use plinth_api::{query_parameter, ApiError, Reason};
use plinth_http::Body;
use plinth_registry::{etag_matches, etag_of, Registry, ResourceType};

/// Cache-Control of a document requested by its hash: a year, which means forever.
pub(crate) const KEEP: &str = "public, immutable, max-age=31536000";

/// The generated documents, by path and form. The lock is held to look up and to insert, not during
/// generation.
///
/// Each is valid for a generation: the registry's, or for a group version the one in which that
/// last changed. So a new definition regenerates the documents of its own group versions and the two that
/// cover everything.
#[derive(Default)]
pub struct OpenApiDocuments {
    generated: Mutex<HashMap<(String, DocumentEncoding), Generated>>,
}

/// A document and the generation of its source.
type Generated = (u64, Arc<CachedDocument>);

/// The encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DocumentEncoding {
    Json,
    Protobuf,
}

/// The media types of a document: what clients may ask for, and form and type of the answer. Protobuf
/// has two names; the one with `@` is not a valid media type but is what kubectl sends.
type Offers = [(&'static str, DocumentEncoding, &'static str); 3];

const V2: Offers = [
    ("application/json", DocumentEncoding::Json, "application/json"),
    (
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        DocumentEncoding::Protobuf,
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ),
    (
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        DocumentEncoding::Protobuf,
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ),
];
const V3: Offers = [
    ("application/json", DocumentEncoding::Json, "application/json"),
    (
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        DocumentEncoding::Protobuf,
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    ),
    (
        "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
        DocumentEncoding::Protobuf,
        "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    ),
];

/// A cached document.
struct CachedDocument {
    /// Gzip at the best level: a seventh of the size, and what most clients accept.
    gzip: Bytes,
    /// `ETag`, of the JSON in either form; without quotes it is the `hash` parameter of the index.
    etag: String,
}

impl CachedDocument {
    fn new(bytes: &[u8], etag: String) -> Result<CachedDocument, ApiError> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(ApiError::internal)?;
        Ok(CachedDocument { gzip: Bytes::from(gzip), etag })
    }

    fn plain(&self) -> Result<Vec<u8>, ApiError> {
        let mut decoder = GzDecoder::new(Vec::new());
        decoder.write_all(&self.gzip).and_then(|()| decoder.finish()).map_err(ApiError::internal)
    }

    fn hash(&self) -> &str {
        self.etag.trim_matches('"')
    }
}

impl OpenApiDocuments {
    /// Answers `/openapi/...`; `path` holds the segments after `openapi`.
    ///
    /// # Errors
    /// 406 for a media type that is neither JSON nor the version's protobuf.
    pub async fn serve<B>(
        &self,
        registry: &Arc<Registry>,
        path: &[&str],
        request: &Request<B>,
    ) -> Result<Response<Body>, ApiError> {
        let path = path.join("/");
        let header = |name: HeaderName| request.headers().get(name).and_then(|v| v.to_str().ok());
        let offers = match path.as_str() {
            "v2" => &V2[..],
            // The index is always JSON.
            "v3" => &V3[..1],
            _ => &V3[..],
        };
        let names: Vec<&str> = offers.iter().map(|(name, ..)| *name).collect();
        let chosen = match path.as_str() {
            "v3" => Some(0),
            _ => negotiate::choose(header(ACCEPT), &names),
        };
        let Some((_, form, media_type)) = chosen.and_then(|i| offers.get(i)) else {
            let message = format!("only the following media types are accepted: {}", names.join(", "));
            return Err(ApiError::new(406, Reason::NotAcceptable, message));
        };
        let Some(document) = self.get(registry, &path, *form).await? else { return Ok(not_found_text()) };

        let mut response = text(StatusCode::OK, media_type, Body::empty());
        let headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::try_from(document.etag.as_str()) {
            headers.insert(ETAG, tag);
        }
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
        if let Some(hash) = hash_parameter(request.uri().query()) {
            if hash != document.hash() {
                // The client has an outdated index: redirect to the current document.
                let current = format!("/openapi/{path}?hash={}", document.hash());
                headers.insert(LOCATION, HeaderValue::try_from(current).map_err(ApiError::internal)?);
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                return Ok(response);
            }
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(KEEP));
        }
        if header(IF_NONE_MATCH).is_some_and(|known| etag_matches(known, &document.etag)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        *response.body_mut() = match negotiate::gzip(header(ACCEPT_ENCODING)) {
            true => {
                response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                Body::Full(document.gzip.clone())
            }
            false => Body::from(document.plain()?),
        };
        Ok(response)
    }

    /// Returns a document; generates it on the blocking pool if it is not cached.
    async fn get(
        &self,
        registry: &Arc<Registry>,
        path: &str,
        form: DocumentEncoding,
    ) -> Result<Option<Arc<CachedDocument>>, ApiError> {
        let key = (path.to_owned(), form);
        let Some(generation) = generation(registry, path) else {
            self.generated.lock().remove(&key);
            return Ok(None);
        };
        if let Some((_, document)) =
            self.generated.lock().get(&key).filter(|(generated, _)| *generated == generation)
        {
            return Ok(Some(document.clone()));
        }
        let generated = match (path, form) {
            ("v3", _) => Some(self.index(registry).await?),
            (_, DocumentEncoding::Json) => {
                let (path, registry) = (path.to_owned(), registry.clone());
                blocking(move || {
                    let json = make(&registry, &path, &*descriptions::bundled());
                    json.map(|json| CachedDocument::new(&json, etag_of(&json))).transpose()
                })
                .await?
            }
            (_, DocumentEncoding::Protobuf) => {
                let Some(json) = Box::pin(self.get(registry, path, DocumentEncoding::Json)).await? else {
                    return Ok(None);
                };
                let convert = if path == "v2" { gnostic::v2 } else { gnostic::v3 };
                let protobuf = blocking(move || {
                    let bytes = convert(&json.plain()?).map_err(ApiError::internal)?;
                    CachedDocument::new(&bytes, json.etag.clone())
                });
                Some(protobuf.await?)
            }
        };
        Ok(generated.map(|document| {
            let document = Arc::new(document);
            self.insert(registry, key, (generation, document.clone()));
            document
        }))
    }

    /// Keeps a document, and drops those of another generation: nobody asks for a version of definitions that
    /// were deleted.
    fn insert(&self, registry: &Registry, key: (String, DocumentEncoding), new: Generated) {
        let mut documents = self.generated.lock();
        documents.retain(|(path, _), (generated, _)| generation(registry, path) == Some(*generated));
        documents.insert(key, new);
    }

    /// Generates `/openapi/v3`, which lists every document with its hash and therefore needs them all.
    async fn index(&self, registry: &Arc<Registry>) -> Result<CachedDocument, ApiError> {
        // Held while documents are generated, so that the texts are decompressed once.
        let texts = blocking(|| Ok(descriptions::bundled())).await?;
        let mut documents = Vec::new();
        for path in index_paths(registry) {
            if let Some(document) =
                Box::pin(self.get(registry, &format!("v3/{path}"), DocumentEncoding::Json)).await?
            {
                documents.push((path, document));
            }
        }
        drop(texts);
        let local = documents.iter().map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash());
            (path.clone(), url)
        });
        let remote = registry.remote_versions().values().filter_map(|remote| {
            Some((remote.path().trim_start_matches('/').to_owned(), remote.documents.openapi_v3.clone()?))
        });
        let json = v3::index(local.chain(remote));
        CachedDocument::new(&json, etag_of(&json))
    }
}

/// Runs milliseconds of computation off the runtime threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?
}

/// The `hash` parameter of a query, if it is not empty.
fn hash_parameter(query: Option<&str>) -> Option<Cow<'_, str>> {
    query_parameter(query?, "hash").filter(|hash| !hash.is_empty())
}

fn index_paths(registry: &Registry) -> Vec<String> {
    let mut versions = Vec::new();
    for group in &registry.table().groups {
        versions.extend(group.versions.iter().map(|(version, _)| (group.name.clone(), version.clone())));
    }
    let mut paths = v3::document_paths(&versions);
    // Definitions have documents per version, none per group.
    let custom = registry.resources.iter().filter(|r| r.is_custom());
    let custom: BTreeSet<String> =
        custom.map(|r| format!("apis/{}/{}", r.row.group, r.row.version)).collect();
    paths.extend(custom);
    // The documents of other API servers are theirs.
    paths.retain(|path| {
        let mut segments = path.split('/').skip(1);
        let (group, version) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        registry.remote(group, version).is_none()
    });
    paths
}

/// The generation of a document's source; `None` for a document that does not exist.
fn generation(registry: &Registry, path: &str) -> Option<u64> {
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["v2" | "v3"] => Some(registry.generation),
        ["v3", "apis", group, version] => registry.version_generation(group, version),
        ["v3", "apis", group] => registry.has_builtin_group(group).then_some(0),
        _ => Some(0),
    }
}

/// Resources with their schemas. Schemas of custom resources stay decompressed while this lives.
struct SchemaSources<'r> {
    resources: Vec<(&'r ResourceType, Option<Value>)>,
}

impl<'r> SchemaSources<'r> {
    fn new(resources: impl Iterator<Item = &'r Arc<ResourceType>>) -> SchemaSources<'r> {
        let schema = |r: &ResourceType| r.custom.as_ref().and_then(|c| c.version().schema.source());
        SchemaSources { resources: resources.map(|r| (&**r, schema(r))).collect() }
    }

    fn schemas(&self) -> Vec<PublishedResource<'_>> {
        let mut schemas = Vec::with_capacity(self.resources.len());
        for (resource, schema) in &self.resources {
            schemas.push(match &resource.custom {
                None => PublishedResource {
                    deletion_returns_object: resource.strategy.documents_deleted_object(),
                    ..PublishedResource::builtin(&resource.row)
                },
                Some(custom) => {
                    let custom_schema = CustomSchema {
                        schema: schema.as_ref(),
                        preserve_unknown_fields: custom.definition.preserves_unknown,
                        selectable_fields: &custom.version().selectable,
                    };
                    PublishedResource::custom(&resource.row, custom_schema)
                }
            });
        }
        schemas
    }
}

/// The JSON of a document; `None` if the path has none.
fn make(registry: &Registry, path: &str, texts: &dyn Descriptions) -> Option<Vec<u8>> {
    let builtin = schema::builtin();
    let rows = &registry.resources;
    let version = |group: &str, version: &str| {
        let rows = rows.iter().filter(|r| r.row.group == group && r.row.version == version);
        let sources = SchemaSources::new(rows);
        let schemas = sources.schemas();
        (!schemas.is_empty()).then(|| v3::version(builtin, group, version, &schemas, texts))
    };
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["v2"] => {
            let is_local = |r: &&Arc<ResourceType>| registry.remote(&r.row.group, &r.row.version).is_none();
            let sources = SchemaSources::new(rows.iter().filter(is_local));
            let local = v2::document(builtin, &sources.schemas(), texts);
            let remote = registry.remote_versions().values();
            let parts: Vec<_> = remote.filter_map(|remote| remote.documents.openapi_v2.clone()).collect();
            Some(merge::v2(local, &parts))
        }
        ["v3", "api", name] => version("", name),
        ["v3", "apis", group, name] => version(group, name),
        ["v3", "apis", group] if registry.has_builtin_group(group) => Some(v3::group(builtin, group, texts)),
        ["v3", root] => v3::root(builtin, root, texts),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(
        documents: &OpenApiDocuments,
        uri: &str,
        headers: &[(HeaderName, &str)],
    ) -> (u16, Response<Body>) {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let path = uri.split('?').next().unwrap().trim_start_matches("/openapi/").to_owned();
        let segments: Vec<&str> = path.split('/').collect();
        let registry = Arc::new(Registry::builtin());
        match documents.serve(&registry, &segments, &request.body(()).unwrap()).await {
            Ok(response) => (response.status().as_u16(), response),
            Err(_) => (406, Response::new(Body::empty())),
        }
    }

    fn content(response: Response<Body>) -> Bytes {
        match response.into_body() {
            Body::Full(bytes) => bytes,
            _ => panic!("documents are known as a whole"),
        }
    }

    #[test]
    fn documents_of_what_is_gone_are_dropped() {
        let documents = OpenApiDocuments::default();
        let registry = Registry::builtin();
        let kept = |path: &str| {
            let key = (path.to_owned(), DocumentEncoding::Json);
            let generation = generation(&registry, path).unwrap_or(7);
            let document = CachedDocument::new(b"{}", "\"hash\"".to_owned()).unwrap();
            documents.insert(&registry, key, (generation, Arc::new(document)));
            let mut paths: Vec<String> =
                documents.generated.lock().keys().map(|(path, _)| path.clone()).collect();
            paths.sort();
            paths.join(" ")
        };
        assert_eq!(kept("v3/apis/apps/v1"), "v3/apis/apps/v1");
        assert_eq!(kept("v3/apis/gone.example.com/v1"), "v3/apis/apps/v1 v3/apis/gone.example.com/v1");
        assert_eq!(kept("v2"), "v2 v3/apis/apps/v1");
    }

    #[tokio::test]
    async fn the_index_leads_to_every_document_and_hashes_are_checked() {
        let documents = OpenApiDocuments::default();
        let (status, response) = get(&documents, "/openapi/v3", &[]).await;
        assert_eq!(status, 200);
        let index: serde_json::Value = serde_json::from_slice(&content(response)).unwrap();
        let paths = index["paths"].as_object().unwrap();
        assert!(
            paths.contains_key("apis/apps/v1")
                && paths.contains_key("apis/apps")
                && paths.contains_key("version")
        );
        for entry in paths.values() {
            let url = entry["serverRelativeURL"].as_str().unwrap();
            let (status, response) = get(&documents, url, &[]).await;
            assert_eq!(status, 200, "{url}");
            assert_eq!(response.headers()[CACHE_CONTROL], KEEP);
        }
        let (status, response) = get(&documents, "/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
        assert_eq!(status, 301);
        assert_eq!(
            response.headers()[LOCATION],
            paths["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap()
        );
        assert_eq!(get(&documents, "/openapi/v3/apis/nothing/v1", &[]).await.0, 404);
    }

    #[tokio::test]
    async fn forms_encodings_and_tags() {
        let documents = OpenApiDocuments::default();
        let url = "/openapi/v3/apis/policy/v1";
        let (_, plain) = get(&documents, url, &[]).await;
        let tag = plain.headers()[ETAG].to_str().unwrap().to_owned();
        let plain = content(plain);
        assert!(serde_json::from_slice::<serde_json::Value>(&plain).is_ok());

        let (_, packed) = get(&documents, url, &[(ACCEPT_ENCODING, "gzip")]).await;
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        assert!(content(packed).len() * 3 < plain.len());
        assert_eq!(get(&documents, url, &[(IF_NONE_MATCH, &tag)]).await.0, 304);

        let kubectl = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let (status, protobuf) = get(&documents, "/openapi/v2", &[(ACCEPT, kubectl)]).await;
        assert_eq!(status, 200);
        assert_eq!(
            protobuf.headers()["content-type"],
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        );
        assert!(content(protobuf).starts_with(b"\x0a\x032.0"), "field 1 is the edition");
        assert_eq!(get(&documents, "/openapi/v2", &[(ACCEPT, "application/yaml")]).await.0, 406);
    }
}
