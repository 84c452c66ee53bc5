//! A small S3-compatible store: one bucket in memory, for requests that are signed by its one key.
//!
//! It speaks what backups and checkpoints need: HEAD, GET with ranges, PUT, DELETE, uploads in parts, and
//! lists in pages of `PAGE`. It can also misbehave, as stores do that are broken ([`Misbehavior`]). Signatures are checked as the protocol "AWS Signature Version 4" has it. A
//! real store takes its place where one is named, see [`ObjectStore::start`].

// An answer ends a request early, as an error does.
#![allow(clippy::result_large_err)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{HeaderMap, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, RANGE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::{digest, hmac};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Keys on a page of a list.
const PAGE: usize = 2;
const KEY_ID: &str = "TESTKEY";
const SECRET: &str = "test/secret+key";
const BUCKET: &str = "bucket";
/// Names a bucket of a real store, `s3://BUCKET`; the variables `AWS_…` have its credentials.
const REAL_URL: &str = "PLINTH_S3_URL";
/// The directory in which that store keeps the objects of the bucket as files.
const REAL_DIRECTORY: &str = "PLINTH_S3_DIRECTORY";

type Answer = Response<Either<Full<Bytes>, Endless>>;

/// A body that does not end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1 << 10])))))
    }
}

/// A bucket for one test. Dropping it ends the store of a test.
pub struct ObjectStore {
    /// URL of what this test may write below.
    pub url: String,
    /// Variables with credentials and endpoint.
    pub environment: Vec<(String, String)>,
    kind: Kind,
}

enum Kind {
    Stub { state: Arc<State>, _stop: oneshot::Sender<()> },
    Real { directory: PathBuf },
}

/// What the stub has, and does.
#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Bytes>>,
    uploads: Mutex<BTreeMap<String, BTreeMap<usize, Bytes>>>,
    /// Uploads that were begun.
    begun: AtomicUsize,
    /// Requests that are answered with 503 from now on.
    unavailable: AtomicUsize,
    /// Number of the first part that is refused.
    refused_part: AtomicUsize,
    misbehavior: Mutex<Option<Misbehavior>>,
    /// Requests that are not answered.
    hanging: AtomicUsize,
}

/// What a stub does instead of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehavior {
    /// It answers no request.
    Hang,
    /// It answers no request that writes.
    HangOnWrites,
    /// It answers no request with a part of an upload.
    HangOnParts,
    /// Each page of a list names a next one.
    EndlessList,
    /// Pages name a next one with a token that fits into no URL.
    LongToken,
    /// Uploads get an identifier that fits into no URL.
    LongUploadId,
    /// The text of an error does not end.
    EndlessError,
    /// Parts of objects are longer than was asked for.
    LongParts,
    /// Parts of objects do not go on after their first half.
    HalfParts,
    /// Objects are replaced before their first part is read.
    Replace,
    /// Objects are deleted before their first part is read.
    Delete,
}

impl ObjectStore {
    /// Starts a store, or uses a real one that `PLINTH_S3_URL` and `PLINTH_S3_DIRECTORY` name. `prefix` must
    /// differ from that of other tests.
    pub fn start(prefix: &str) -> ObjectStore {
        let (real, directory) = (std::env::var(REAL_URL), std::env::var_os(REAL_DIRECTORY));
        if let (Ok(url), Some(directory)) = (real, directory) {
            let environment = std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect();
            let prefix = format!("{prefix}-{}", std::process::id());
            let directory = PathBuf::from(directory).join(&prefix);
            return ObjectStore {
                url: format!("{url}/{prefix}"),
                environment,
                kind: Kind::Real { directory },
            };
        }
        let state = Arc::new(State { refused_part: AtomicUsize::new(usize::MAX), ..State::default() });
        let served = state.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        // A thread of its own: tests block while commands run.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        let variables = [
            ("AWS_ACCESS_KEY_ID", KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "eu-test-1"),
            ("AWS_ENDPOINT_URL", &format!("http://{address}")),
        ];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        ObjectStore {
            url: format!("s3://{BUCKET}/{prefix}"),
            environment,
            kind: Kind::Stub { state, _stop: stop },
        }
    }

    /// The stub, where the store is no real one.
    fn stub(&self) -> Option<&State> {
        match &self.kind {
            Kind::Stub { state, .. } => Some(state),
            Kind::Real { .. } => None,
        }
    }

    /// Names of the objects below the URL, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.kind {
            Kind::Stub { state, .. } => {
                let prefix = format!("{}/", self.url.trim_start_matches(&format!("s3://{BUCKET}/")));
                let objects = state.objects.lock();
                objects.keys().filter_map(|key| Some(key.strip_prefix(&prefix)?.to_owned())).collect()
            }
            Kind::Real { directory } => {
                let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
        };
        names.sort();
        names
    }

    /// Puts an object that is no archive below the URL.
    pub fn put_foreign(&self, name: &str) {
        match &self.kind {
            Kind::Stub { state, .. } => {
                let key = format!("{}/{name}", self.url.trim_start_matches(&format!("s3://{BUCKET}/")));
                state.objects.lock().insert(key, Bytes::from_static(b"mine"));
            }
            Kind::Real { directory } => {
                std::fs::create_dir_all(directory).expect("directory");
                std::fs::write(directory.join(name), "mine").expect("object");
            }
        }
    }

    /// Has the stub answer the next requests with 503; returns whether there is a stub.
    pub fn be_unavailable(&self, requests: usize) -> bool {
        self.stub().map(|state| state.unavailable.store(requests, Ordering::Relaxed)).is_some()
    }

    /// Has the stub refuse parts from this number on; returns whether there is a stub.
    pub fn refuse_parts_from(&self, number: usize) -> bool {
        self.stub().map(|state| state.refused_part.store(number, Ordering::Relaxed)).is_some()
    }

    /// Has the stub misbehave from now on, or no longer; returns whether there is a stub.
    pub fn misbehave(&self, misbehavior: Option<Misbehavior>) -> bool {
        self.stub().map(|state| *state.misbehavior.lock() = misbehavior).is_some()
    }

    /// Requests that the stub does not answer.
    pub fn hanging(&self) -> usize {
        self.stub().map_or(0, |state| state.hanging.load(Ordering::Relaxed))
    }

    /// Changes an object below the URL.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        match &self.kind {
            Kind::Stub { state, .. } => {
                let key = format!("{}/{name}", self.url.trim_start_matches(&format!("s3://{BUCKET}/")));
                let mut objects = state.objects.lock();
                let object = objects.get_mut(&key).expect("an object");
                let mut content = object.to_vec();
                change(&mut content);
                *object = content.into();
            }
            Kind::Real { directory } => {
                let mut content = std::fs::read(directory.join(name)).expect("an object");
                change(&mut content);
                std::fs::write(directory.join(name), content).expect("an object");
            }
        }
    }

    /// Uploads in parts that the stub has begun, and those that are neither complete nor aborted.
    pub fn uploads(&self) -> Option<(usize, usize)> {
        self.stub().map(|state| (state.begun.load(Ordering::Relaxed), state.uploads.lock().len()))
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<State>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let state = state.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let hangs = match *state.misbehavior.lock() {
                    Some(Misbehavior::Hang) => true,
                    Some(Misbehavior::HangOnWrites) => {
                        parts.method != Method::GET && parts.method != Method::HEAD
                    }
                    Some(Misbehavior::HangOnParts) => query(&parts).contains_key("partNumber"),
                    _ => false,
                };
                if hangs {
                    state.hanging.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                Ok::<_, hyper::Error>(state.answer(&parts, body).unwrap_or_else(|refusal| refusal))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
    }
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    answer
}

fn refusal(status: StatusCode, code: &str) -> Answer {
    answer(
        status,
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>of the stub</Message></Error>"),
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Pairs of a query, as they were sent.
fn query(parts: &http::request::Parts) -> BTreeMap<String, String> {
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (k.into(), v.into())).collect()
}

/// Without the escapes of a query.
fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Checks the signature of a request.
fn check_signature(parts: &http::request::Parts, body: &Bytes) -> Result<(), Answer> {
    let denied = |code| refusal(StatusCode::FORBIDDEN, code);
    let authorization = header(&parts.headers, "authorization");
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or_else(|| denied("AccessDenied"))?;
    let field =
        |name: &str| fields.split(", ").find_map(|field| field.strip_prefix(name)).unwrap_or_default();
    let (credential, signed, signature) =
        (field("Credential="), field("SignedHeaders="), field("Signature="));
    let (key_id, scope) = credential.split_once('/').unwrap_or_default();
    if key_id != KEY_ID {
        return Err(denied("InvalidAccessKeyId"));
    }
    let mut names = signed.split(';');
    if !["host", "x-amz-date", "x-amz-content-sha256"]
        .iter()
        .all(|name| signed.split(';').any(|n| n == *name))
    {
        return Err(denied("AccessDenied"));
    }
    let sent_hash = header(&parts.headers, "x-amz-content-sha256");
    if sent_hash != sha256(body) {
        return Err(refusal(StatusCode::BAD_REQUEST, "XAmzContentSHA256Mismatch"));
    }
    let headers: String =
        names.by_ref().map(|name| format!("{name}:{}\n", header(&parts.headers, name).trim())).collect();
    let canonical_query: Vec<_> = query(parts).iter().map(|(k, v)| format!("{k}={v}")).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{signed}\n{sent_hash}",
        parts.method,
        parts.uri.path(),
        canonical_query.join("&")
    );
    let date = header(&parts.headers, "x-amz-date");
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let sign = |key: &[u8], text: &str| {
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
        signature.as_ref().to_vec()
    };
    let key = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| sign(&key, part));
    match hex(&sign(&key, &to_sign)) == signature {
        true => Ok(()),
        false => Err(denied("SignatureDoesNotMatch")),
    }
}

impl State {
    /// The answer to a request, or a refusal.
    fn answer(&self, parts: &http::request::Parts, body: Bytes) -> Result<Answer, Answer> {
        let less = |count: usize| count.checked_sub(1);
        if self.unavailable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
        }
        check_signature(parts, &body)?;
        let misbehavior = *self.misbehavior.lock();
        if misbehavior == Some(Misbehavior::EndlessError) {
            let mut endless = Response::new(Either::Right(Endless));
            *endless.status_mut() = StatusCode::FORBIDDEN;
            return Err(endless);
        }
        let path = unescape(parts.uri.path());
        let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        if bucket != BUCKET {
            return Err(refusal(StatusCode::NOT_FOUND, "NoSuchBucket"));
        }
        let query = query(parts);
        let upload = query.get("uploadId").map(|id| unescape(id));
        match (&parts.method, key, upload) {
            (&Method::GET, "", _) => Ok(self.list(&query)),
            (&Method::GET | &Method::HEAD, key, _) => {
                let is_read = parts.method == Method::GET;
                match misbehavior {
                    Some(Misbehavior::Replace) if is_read => {
                        self.objects.lock().insert(key.to_owned(), Bytes::from(vec![b'x'; 1 << 10]));
                    }
                    Some(Misbehavior::Delete) if is_read => drop(self.objects.lock().remove(key)),
                    _ => {}
                }
                self.get(parts, key)
            }
            (&Method::PUT, key, None) => {
                self.objects.lock().insert(key.to_owned(), body.clone());
                Ok(with_tag(answer(StatusCode::OK, ""), &body))
            }
            (&Method::DELETE, key, None) => {
                self.objects.lock().remove(key);
                Ok(answer(StatusCode::NO_CONTENT, ""))
            }
            (&Method::POST, _, None) if query.contains_key("uploads") => {
                let mut id = format!("upload-{}", self.begun.fetch_add(1, Ordering::Relaxed));
                if misbehavior == Some(Misbehavior::LongUploadId) {
                    id = "u".repeat(1 << 18);
                }
                self.uploads.lock().insert(id.clone(), BTreeMap::new());
                let text = format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
                Ok(answer(StatusCode::OK, text))
            }
            (method, key, Some(id)) => self.upload(method, key, (&id, &query), body),
            _ => Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed")),
        }
    }

    /// An object, or a range of it.
    fn get(&self, parts: &http::request::Parts, key: &str) -> Result<Answer, Answer> {
        let object = self.objects.lock().get(key).cloned();
        let object = object.ok_or_else(|| refusal(StatusCode::NOT_FOUND, "NoSuchKey"))?;
        let expected = header(&parts.headers, IF_MATCH.as_str());
        if !expected.is_empty() && expected != tag(&object) {
            return Err(refusal(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"));
        }
        let length = object.len();
        let range = header(&parts.headers, RANGE.as_str()).strip_prefix("bytes=").and_then(|range| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
        });
        let mut found = match range {
            Some((first, last)) if first <= last && first < length => {
                let last = last.min(length - 1);
                let mut part = object.slice(first..=last);
                if *self.misbehavior.lock() == Some(Misbehavior::LongParts) {
                    part = [&part[..], b"more"].concat().into();
                }
                let length_of_part = part.len();
                let is_half = *self.misbehavior.lock() == Some(Misbehavior::HalfParts);
                if is_half {
                    part.truncate(length_of_part / 2);
                }
                let mut found = answer(StatusCode::PARTIAL_CONTENT, part);
                if is_half {
                    // The client waits for the rest.
                    found.headers_mut().insert(CONTENT_LENGTH, length_of_part.into());
                }
                let shown = format!("bytes {first}-{last}/{length}").parse().expect("a value");
                found.headers_mut().insert(CONTENT_RANGE, shown);
                found
            }
            _ if parts.method == Method::HEAD => {
                let mut found = answer(StatusCode::OK, "");
                found.headers_mut().insert(CONTENT_LENGTH, length.into());
                found
            }
            _ => answer(StatusCode::OK, object.clone()),
        };
        let modified = "Wed, 01 Jan 2025 00:00:00 GMT".parse().expect("a value");
        found.headers_mut().insert("last-modified", modified);
        Ok(with_tag(found, &object))
    }

    /// A page of the keys with a prefix.
    fn list(&self, query: &BTreeMap<String, String>) -> Answer {
        let value = |name: &str| query.get(name).map(|value| unescape(value)).unwrap_or_default();
        let (prefix, after) = (value("prefix"), value("continuation-token"));
        let token = match *self.misbehavior.lock() {
            Some(Misbehavior::EndlessList) => Some("next".to_owned()),
            Some(Misbehavior::LongToken) => Some("t".repeat(1 << 18)),
            _ => None,
        };
        if let Some(token) = token {
            let contents = format!("<Contents><Key>{prefix}x</Key></Contents>").repeat(1000);
            let next = format!("<NextContinuationToken>{token}</NextContinuationToken>");
            return answer(StatusCode::OK, format!("<ListBucketResult>{contents}{next}</ListBucketResult>"));
        }
        let objects = self.objects.lock();
        let mut keys = objects.keys().filter(|key| key.starts_with(&prefix) && **key > after);
        let page: Vec<&String> = keys.by_ref().take(PAGE).collect();
        let contents: String = page
            .iter()
            .map(|key| {
                let (size, key) = (objects[*key].len(), escape_xml(key));
                // Twice, as by a store that repeats an object on the next page.
                format!("<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>")
                    .repeat(2)
            })
            .collect();
        let next = match (keys.next(), page.last()) {
            (Some(_), Some(last)) => {
                format!("<NextContinuationToken>{}</NextContinuationToken>", escape_xml(last))
            }
            _ => String::new(),
        };
        answer(StatusCode::OK, format!("<ListBucketResult>{contents}{next}</ListBucketResult>"))
    }

    /// A part of an upload, its end, or its abort.
    fn upload(
        &self,
        method: &Method,
        key: &str,
        (id, query): (&str, &BTreeMap<String, String>),
        body: Bytes,
    ) -> Result<Answer, Answer> {
        let mut uploads = self.uploads.lock();
        let parts = uploads.get_mut(id).ok_or_else(|| refusal(StatusCode::NOT_FOUND, "NoSuchUpload"))?;
        let number = query.get("partNumber").and_then(|number| number.parse::<usize>().ok());
        match (method, number) {
            (&Method::PUT, Some(number)) if number >= self.refused_part.load(Ordering::Relaxed) => {
                Err(refusal(StatusCode::FORBIDDEN, "QuotaExceeded"))
            }
            (&Method::PUT, Some(number)) => {
                parts.insert(number, body.clone());
                Ok(with_tag(answer(StatusCode::OK, ""), &body))
            }
            (&Method::POST, None) => {
                // Every part that was sent, in its order, each with its tag.
                let text = String::from_utf8_lossy(&body).replace("&quot;", "\"");
                let complete = parts.iter().all(|(number, part)| {
                    text.contains(&format!("<PartNumber>{number}</PartNumber>")) && text.contains(&tag(part))
                });
                if !complete || parts.keys().copied().ne(1..=parts.len()) {
                    return Err(refusal(StatusCode::BAD_REQUEST, "InvalidPart"));
                }
                let object = Bytes::from(parts.values().flatten().copied().collect::<Vec<u8>>());
                uploads.remove(id);
                let text = format!(
                    "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                    tag(&object)
                );
                self.objects.lock().insert(key.to_owned(), object);
                Ok(answer(StatusCode::OK, text))
            }
            (&Method::DELETE, None) => {
                uploads.remove(id);
                Ok(answer(StatusCode::NO_CONTENT, ""))
            }
            _ => Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed")),
        }
    }
}

fn tag(object: &[u8]) -> String {
    format!("\"{}\"", &sha256(object)[..32])
}

fn with_tag(mut answer: Answer, object: &[u8]) -> Answer {
    answer.headers_mut().insert(ETAG, tag(object).parse().expect("a value"));
    answer
}
