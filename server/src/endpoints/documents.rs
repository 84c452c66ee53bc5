//! OpenAPI documents: made when first asked for, kept compressed.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::{GzDecoder, GzEncoder};
use flate2::Compression;
use hyper::header::{HeaderValue, ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, VARY};
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use plinth_codec::negotiate;
use plinth_codec::openapi::{v2, v3, NoDescriptions, Published};
use plinth_codec::{resources, schema};

use super::{not_found_text, text};
use crate::discovery::etag;
use crate::http::body::Body;
use crate::status::{ApiError, Reason};

/// The documents made so far, by path. The lock is held to look up and to put, never while one is made.
#[derive(Default)]
pub struct Documents {
    made: Mutex<HashMap<String, Arc<Document>>>,
}

/// A document as it is kept.
struct Document {
    /// JSON, gzip at the best level: a tenth of the size, and what most clients ask for.
    gzip: Bytes,
    /// `ETag`, and without quotes the `hash` parameter of the index.
    etag: String,
}

impl Document {
    fn new(json: &[u8]) -> Result<Document, ApiError> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(json).and_then(|()| encoder.finish()).map_err(ApiError::internal)?;
        Ok(Document { gzip: Bytes::from(gzip), etag: etag::of(json) })
    }
}

/// What clients may ask `/openapi/v2` for; the media types with protobuf in them are upstream's.
const JSON: &str = "application/json";

impl Documents {
    /// Answers `/openapi/...`; `path` are the segments after `openapi`.
    ///
    /// # Errors
    /// 406 for a media type that is not JSON.
    pub async fn serve<B>(&self, path: &[&str], request: &Request<B>) -> Result<Response<Body>, ApiError> {
        let path = path.join("/");
        let Some(document) = self.get(&path).await? else { return Ok(not_found_text()) };
        let header = |name| request.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        if negotiate::choose(header(ACCEPT), &[JSON]).is_none() {
            let message = format!("only the following media types are accepted: {JSON}");
            return Err(ApiError::new(406, Reason::NotAcceptable, message));
        }
        let mut response = text(StatusCode::OK, JSON, Body::empty());
        if let Ok(tag) = HeaderValue::try_from(document.etag.as_str()) {
            response.headers_mut().insert(ETAG, tag);
        }
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
        if header(IF_NONE_MATCH).is_some_and(|known| etag::matches(known, &document.etag)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        if negotiate::gzip(header(ACCEPT_ENCODING)) {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            *response.body_mut() = Body::Full(document.gzip.clone());
        } else {
            let mut decoder = GzDecoder::new(Vec::new());
            let json =
                decoder.write_all(&document.gzip).and_then(|()| decoder.finish()).map_err(ApiError::internal)?;
            *response.body_mut() = Body::from(json);
        }
        Ok(response)
    }

    /// A document, made where blocking is allowed when it is not there.
    async fn get(&self, path: &str) -> Result<Option<Arc<Document>>, ApiError> {
        if let Some(document) = self.made.lock().get(path) {
            return Ok(Some(document.clone()));
        }
        if path == "v3" {
            return self.index().await.map(Some);
        }
        let wanted = path.to_owned();
        let made = tokio::task::spawn_blocking(move || make(&wanted).map(|json| Document::new(&json)).transpose());
        match made.await.map_err(ApiError::internal)?? {
            Some(document) => Ok(Some(self.keep(path, document))),
            None => Ok(None),
        }
    }

    /// `/openapi/v3` names every document with its hash, so it makes them all.
    async fn index(&self) -> Result<Arc<Document>, ApiError> {
        let mut hashes = Vec::new();
        for path in index_paths() {
            if let Some(document) = Box::pin(self.get(&format!("v3/{path}"))).await? {
                hashes.push((path, document.etag.trim_matches('"').to_owned()));
            }
        }
        let json = v3::index(hashes.iter().map(|(path, hash)| (path.as_str(), hash.as_str())));
        Ok(self.keep("v3", Document::new(&json)?))
    }

    fn keep(&self, path: &str, document: Document) -> Arc<Document> {
        let document = Arc::new(document);
        self.made.lock().entry(path.to_owned()).or_insert(document).clone()
    }
}

fn index_paths() -> Vec<String> {
    let mut versions = Vec::new();
    for group in &resources::builtin().groups {
        versions.extend(group.versions.iter().map(|(version, _)| (group.name.clone(), version.clone())));
    }
    v3::document_paths(&versions)
}

/// The JSON of a document; `None` for a path that has none.
fn make(path: &str) -> Option<Vec<u8>> {
    let builtin = schema::builtin();
    let rows = &resources::builtin().resources;
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["v2"] => {
            let published: Vec<Published> = rows.iter().map(Published::builtin).collect();
            Some(v2::document(builtin, &published, &NoDescriptions))
        }
        ["v3", "api", version] => make_version("", version),
        ["v3", "apis", group, version] => make_version(group, version),
        ["v3", "apis", group] if rows.iter().any(|r| r.group == *group) => {
            Some(v3::group(builtin, group, &NoDescriptions))
        }
        ["v3", root] => v3::root(builtin, root, &NoDescriptions),
        _ => None,
    }
}

fn make_version(group: &str, version: &str) -> Option<Vec<u8>> {
    let rows = resources::builtin().resources.iter().filter(|r| r.group == group && r.version == version);
    let published: Vec<Published> = rows.map(Published::builtin).collect();
    (!published.is_empty()).then(|| v3::version(schema::builtin(), group, version, &published, &NoDescriptions))
}
