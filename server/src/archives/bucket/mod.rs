//! Archives in a bucket of an S3-compatible store, by the `object_store` crate over this program's own HTTP
//! client.
//!
//! | module | subject |
//! |---|---|
//! | `http` | requests, their time and the length of their responses |
//! | `list` | pages of a list of keys |
//! | `settings` | credentials, region and endpoint, from where AWS' own tools have them |
//! | `upload` | an object from a writer, in parts |
//!
//! Requests that fail for a moment are sent again, a few times and within half a minute. Memory is a few
//! parts, whatever the length of an archive and whatever the store sends. Where a server stops, what it waits
//! for is abandoned.

mod http;
mod list;
mod settings;
mod upload;

use std::fmt;
use std::future::{pending, Future};
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{Path, DELIMITER};
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig};
use plinth_apiserver::egress::client::CallError;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use self::http::PART;
use self::list::{ListPage, ListRequest};
pub(super) use self::settings::SettingsError;

/// What URLs of buckets begin with.
pub(super) const SCHEME: &str = "s3://";
/// What the names of all archives that are listed begin with: a bucket's other keys are not looked at.
const NAME_PREFIX: &str = "plinth-";
/// Time limit of listing a bucket.
const LIST_TIMEOUT: Duration = Duration::from_secs(600);
/// Most keys that are listed.
const MAX_KEYS: usize = 100_000;
/// Most pages of a list: a page may have few keys, or none.
const MAX_PAGES: usize = 10_000;
/// Longest key of an object.
const MAX_KEY: usize = 1024;
/// Most characters of a store's answer that an error has.
const MAX_REASON: usize = 512;
/// Longest name of a bucket.
const MAX_BUCKET_NAME: usize = 255;

/// Not the URL of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum BucketUrlError {
    #[error("neither a path nor a URL of the form s3://BUCKET/PREFIX")]
    Scheme,
    #[error(
        "the name of the bucket is missing or has other characters than letters, digits, '-', '.' and '_'"
    )]
    Bucket,
    #[error("what follows the bucket has an empty segment, \".\" or \"..\", or characters that keys of objects should not have, \
             or is too long")]
    Key,
}

/// `s3://BUCKET/KEY`: an object, or what the keys of several begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUrl {
    bucket: String,
    /// Empty for the whole bucket.
    key: Path,
}

impl BucketUrl {
    /// The object of a name below this.
    pub(super) fn join(&self, name: &str) -> BucketUrl {
        BucketUrl { bucket: self.bucket.clone(), key: self.key.clone().join(name) }
    }
}

impl FromStr for BucketUrl {
    type Err = BucketUrlError;

    fn from_str(url: &str) -> Result<BucketUrl, BucketUrlError> {
        let rest = url.strip_prefix(SCHEME).ok_or(BucketUrlError::Scheme)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !(1..=MAX_BUCKET_NAME).contains(&bucket.len()) || !bucket.chars().all(is_valid) {
            return Err(BucketUrlError::Bucket);
        }
        // An archive's name follows.
        if key.len() > MAX_KEY / 2 {
            return Err(BucketUrlError::Key);
        }
        let key = Path::parse(key).map_err(|_| BucketUrlError::Key)?;
        Ok(BucketUrl { bucket: bucket.to_owned(), key })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.key.as_ref().is_empty() { "" } else { "/" };
        write!(f, "{SCHEME}{}{separator}{}", self.bucket, self.key)
    }
}

/// A request to an S3-compatible store failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum BucketError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("{url}: {reason}{advice}")]
    Request { url: String, reason: String, advice: &'static str },
    #[error("{0} changed while it was read")]
    Changed(String),
    #[error("listing {0} takes too long; give a prefix in the bucket that other objects do not have")]
    ListTimeout(String),
    #[error(
        "listing {0} returns more than {MAX_KEYS} keys that begin with {NAME_PREFIX}, or more than {MAX_PAGES} pages; \
         delete archives, or give another prefix in the bucket"
    )]
    LongList(String),
    #[error("{0} was abandoned, since the server stops")]
    Stopped(String),
    #[error("{url} would be larger than {parts} parts of {PART} bytes, the largest object that is written")]
    TooLarge { url: String, parts: usize },
    #[error("the upload of {0} ended unexpectedly")]
    Interrupted(String),
}

/// The client of a bucket, and the URL of the store if it is not AWS'.
pub(super) fn client(url: &BucketUrl) -> Result<(AmazonS3, Option<String>), BucketError> {
    let settings = settings::of_environment(|name| std::env::var_os(name))?;
    let retry = RetryConfig { max_retries: 3, retry_timeout: http::RETRY_TIMEOUT, ..RetryConfig::default() };
    let connector = http::Connector::new(settings.authorities.as_deref())?;
    let builder = settings.builder().with_bucket_name(&url.bucket);
    let store = builder.with_retry(retry).with_http_connector(connector).build();
    let store = store.map_err(|error| SettingsError::Invalid(innermost(&error)))?;
    Ok((store, settings.endpoint))
}

/// A bucket. Requests run in a runtime of its own, driven by the calling thread.
pub(super) struct Bucket {
    url: BucketUrl,
    endpoint: Option<String>,
    store: AmazonS3,
    runtime: Runtime,
    /// Turns true when the server stops that has the bucket opened.
    stopping: Option<watch::Receiver<bool>>,
}

impl Bucket {
    /// Reads settings and credentials, and sends nothing.
    pub(super) fn open(
        url: &BucketUrl,
        stopping: Option<watch::Receiver<bool>>,
    ) -> Result<Bucket, BucketError> {
        let (store, endpoint) = client(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BucketError::Runtime)?;
        Ok(Bucket { url: url.clone(), endpoint, store, runtime, stopping })
    }

    /// Waits for a request about `url`, unless the server stops.
    fn wait<T>(&self, url: &BucketUrl, request: impl Future<Output = T>) -> Result<T, BucketError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stopped() => Err(BucketError::Stopped(url.to_string())),
                done = request => Ok(done),
            }
        })
    }

    /// Resolves when the server stops.
    async fn stopped(&self) {
        match self.stopping.clone() {
            // A sender that is gone has stopped, too.
            Some(mut stopping) => drop(stopping.wait_for(|stops| *stops).await),
            None => pending().await,
        }
    }

    /// The names of the objects directly below the URL that are `is_name`, in no order. Others are passed
    /// over, whatever their keys are.
    pub(super) fn names(&self, is_name: fn(&str) -> bool) -> Result<Vec<String>, BucketError> {
        let list = async { tokio::time::timeout(LIST_TIMEOUT, self.list(is_name)).await };
        let listed = self.wait(&self.url, list)?;
        listed.map_err(|_| BucketError::ListTimeout(self.url.to_string()))?
    }

    async fn list(&self, is_name: fn(&str) -> bool) -> Result<Vec<String>, BucketError> {
        let folder = match self.url.key.as_ref() {
            "" => String::new(),
            key => format!("{key}{DELIMITER}"),
        };
        let prefix = format!("{folder}{NAME_PREFIX}");
        let (mut names, mut odd, mut first_odd, mut keys, mut token) = (Vec::new(), 0, None, 0, None);
        for _ in 0..MAX_PAGES {
            let page = self.page(&prefix, token).await.map_err(|error| self.failed(&self.url, &error))?;
            keys += page.keys.len();
            if keys > MAX_KEYS {
                break;
            }
            for key in page.keys {
                let Some(name) = key.strip_prefix(&folder) else { continue };
                if is_name(name) {
                    names.push(name.to_owned());
                } else if is_odd(name, is_name) {
                    odd += 1;
                    first_odd.get_or_insert_with(|| printable(&key));
                }
            }
            if page.next.is_none() {
                if let Some(key) = first_odd {
                    tracing::warn!(location = %self.url, count = odd, key,
                        "objects with unusual keys are ignored; give archives a prefix of their own");
                }
                return Ok(names);
            }
            token = page.next;
        }
        Err(BucketError::LongList(self.url.to_string()))
    }

    /// A page of the keys that begin with `prefix`. Those with further segments count as one for each next
    /// segment, where the store does so.
    async fn page(&self, prefix: &str, token: Option<String>) -> Result<ListPage, StoreError> {
        let mut options = PaginatedListOptions {
            delimiter: Some(DELIMITER.into()),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        options.extensions.insert(ListRequest);
        let mut page = self.store.list_paginated(Some(prefix), options).await?.result;
        Ok(page.extensions.remove().unwrap_or_default())
    }

    /// A reader of an object.
    pub(super) fn read(self: &Arc<Self>, url: &BucketUrl) -> Result<ObjectReader, BucketError> {
        let head = self.wait(url, self.store.head(&url.key))?;
        let head = head.map_err(|error| self.failed(url, &error))?;
        let (bucket, url) = (self.clone(), url.clone());
        Ok(ObjectReader { bucket, url, e_tag: head.e_tag, size: head.size, at: 0, part: Bytes::new() })
    }

    pub(super) fn remove(&self, url: &BucketUrl) -> Result<(), BucketError> {
        let removed = self.wait(url, self.store.delete(&url.key))?;
        removed.map_err(|error| self.failed(url, &error))
    }

    /// What failed, why, and what to do.
    fn failed(&self, url: &BucketUrl, error: &StoreError) -> BucketError {
        let text = error.to_string();
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(content, _)| content)
        };
        let code = element("Code");
        let reason = match (code, error) {
            (Some(code), _) => format!("{code}: {}", element("Message").unwrap_or_default()),
            // Responses to HEAD have no body.
            (None, StoreError::NotFound { .. }) => "not found".to_owned(),
            (None, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }) => {
                "access denied".to_owned()
            }
            (None, error) => innermost(error),
        };
        let reason = printable(&reason);
        let server = self.endpoint.as_deref().unwrap_or("Amazon S3");
        let advice = advice(code, error);
        BucketError::Request { url: format!("{url} at {server}"), reason, advice }
    }
}

/// Whether the name of something else than an archive deserves a line in the log: one that is no path, and a
/// folder with the name of an archive.
fn is_odd(name: &str, is_name: fn(&str) -> bool) -> bool {
    let folder = name.strip_suffix(DELIMITER);
    folder.is_some_and(is_name) || name.starts_with(DELIMITER) || Path::parse(name).is_err()
}

/// What to do about a failed request.
fn advice(code: Option<&str>, error: &StoreError) -> &'static str {
    match (code, error) {
        (Some("NoSuchBucket"), _) => "; create the bucket, which is not done here",
        (Some("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken"), _)
        | (_, StoreError::Unauthenticated { .. }) => {
            "; check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile that AWS_PROFILE names"
        }
        (Some("RequestTimeTooSkewed"), _) => "; set the clock of this machine",
        (Some("PermanentRedirect" | "AuthorizationHeaderMalformed"), _) => "; check the region: AWS_REGION",
        (_, StoreError::PermissionDenied { .. }) => {
            "; check the credentials, and that they may list the bucket and read, write and delete objects there"
        }
        (_, StoreError::NotFound { .. }) => "; check the name, and AWS_ENDPOINT_URL if it is another store than Amazon S3",
        (None, StoreError::Generic { .. }) => {
            "; check AWS_ENDPOINT_URL and the network, and that credentials are set (AWS_ACCESS_KEY_ID, or a profile)"
        }
        _ => "",
    }
}

/// The text of our client's error, or of that at the end of the chain: those before it repeat it, with
/// details of retries.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source().filter(|_| !error.is::<CallError>()) {
        error = source;
    }
    error.to_string()
}

/// The text of a store's error, cut and without characters that a terminal or a log would take for its own.
fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_REASON).map(escaped).collect()
}

/// Reads an object part by part.
pub(super) struct ObjectReader {
    bucket: Arc<Bucket>,
    url: BucketUrl,
    /// Of the object that is read: another one that takes its place is an error.
    e_tag: Option<String>,
    size: u64,
    /// Where the next part begins.
    at: u64,
    part: Bytes,
}

impl ObjectReader {
    fn next_part(&mut self) -> Result<Bytes, BucketError> {
        let end = self.size.min(self.at + PART as u64);
        let range = Some(GetRange::Bounded(self.at..end));
        let options = GetOptions { range, if_match: self.e_tag.clone(), ..GetOptions::default() };
        let get = async { self.bucket.store.get_opts(&self.url.key, options).await?.bytes().await };
        let part = match self.bucket.wait(&self.url, get)? {
            Err(StoreError::Precondition { .. }) => return Err(BucketError::Changed(self.url.to_string())),
            part => part.map_err(|error| self.bucket.failed(&self.url, &error))?,
        };
        if part.len() as u64 != end - self.at {
            return Err(BucketError::Changed(self.url.to_string()));
        }
        self.at = end;
        Ok(part)
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() && self.at < self.size {
            self.part = self.next_part().map_err(io::Error::other)?;
        }
        let length = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_paths_are_odd() {
        let is_name = |name: &str| name == "archive";
        for name in ["/archive", "a//b", "../a", "a\n", "a/..", "archive/", "//"] {
            assert!(is_odd(name, is_name), "{name:?}");
        }
        for name in ["", "notes", "folder/", "folder/archive", "100%", "a b", "\u{fffd}"] {
            assert!(!is_odd(name, is_name), "{name:?}");
        }
    }

    #[test]
    fn what_a_store_says_is_cut_and_has_no_control_characters() {
        let text = printable(&format!("a\n\u{1b}[31m{}", "b".repeat(1 << 20)));
        assert!(text.starts_with("a  [31mb"), "{text}");
        assert_eq!(text.chars().count(), MAX_REASON);
    }
}
