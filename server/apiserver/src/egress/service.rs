//! Posts JSON documents to the service of a kubeconfig.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Request, Uri};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use super::client::{Bounds, CallError, Client};
use super::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::reload::{fingerprint, Fingerprint};

/// Concurrent requests to one service.
const MAX_IN_FLIGHT: usize = 64;
/// Largest answer, in bytes.
const MAX_ANSWER: usize = 3 << 20;
/// Attempts of a call, and the pause before the second; each later pause is half as long again.
const ATTEMPTS: u32 = 5;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// How often its files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a call failed, with the URL.
#[derive(Debug, thiserror::Error)]
#[error("Post {url:?}: {source}")]
pub struct ServiceError {
    url: String,
    source: CallError,
}

impl ServiceError {
    /// Why the last attempt failed.
    pub(crate) fn cause(&self) -> &CallError {
        &self.source
    }
}

/// A service named on the command line. Cheap to share behind an `Arc`. Its kubeconfig and the files that
/// this names, tokens and certificates that expire, are looked at once a second at most, when the service is
/// called. Each lock is held for a look-up or a replacement.
pub struct Service {
    file: PathBuf,
    loaded: RwLock<Arc<Loaded>>,
    /// When the files were looked at.
    checked: Mutex<Instant>,
    /// Whether they are being looked at: a file system may hang.
    is_checking: Arc<AtomicBool>,
    bounds: Bounds,
    /// Pause before the second attempt.
    backoff: Duration,
    in_flight: Semaphore,
}

/// The content of a kubeconfig.
struct Loaded {
    client: Client,
    path: Uri,
    url: String,
    files: Vec<(PathBuf, Option<Fingerprint>)>,
}

impl Loaded {
    fn read(file: &Path) -> Result<Loaded, KubeconfigError> {
        // Looked at before they are read, so that no change is missed.
        let files = Kubeconfig::read(file)?.files;
        let files = files.into_iter().map(|file| (file.clone(), fingerprint(&file))).collect();
        let Kubeconfig { origin, path, url, .. } = Kubeconfig::read(file)?;
        Ok(Loaded { client: Client::new(origin), path, url, files })
    }

    fn has_changed(&self) -> bool {
        self.files.iter().any(|(file, before)| fingerprint(file) != *before)
    }
}

impl Service {
    /// The service and credentials of a kubeconfig. `time` limits one call.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn from_kubeconfig(path: &Path, time: Duration) -> Result<Service, KubeconfigError> {
        Ok(Service {
            file: path.to_owned(),
            loaded: RwLock::new(Arc::new(Loaded::read(path)?)),
            checked: Mutex::new(Instant::now()),
            is_checking: Arc::default(),
            bounds: Bounds { time, answer: MAX_ANSWER },
            backoff: INITIAL_BACKOFF,
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
        })
    }

    /// The content of its kubeconfig; while that cannot be read, the previous one.
    async fn loaded(&self) -> Arc<Loaded> {
        let before = self.loaded.read().clone();
        let is_due = {
            let mut checked = self.checked.lock();
            let is_due = checked.elapsed() >= CHECK_INTERVAL;
            if is_due {
                *checked = Instant::now();
            }
            is_due
        };
        if !is_due || self.is_checking.swap(true, Ordering::Relaxed) {
            return before;
        }
        let (file, known, is_checking) = (self.file.clone(), before.clone(), self.is_checking.clone());
        let read = tokio::task::spawn_blocking(move || {
            let read = known.has_changed().then(|| Loaded::read(&file));
            is_checking.store(false, Ordering::Relaxed);
            read
        });
        let Ok(read) = tokio::time::timeout(CHECK_INTERVAL, read).await else { return before };
        match read {
            Ok(Some(Ok(loaded))) => {
                let loaded = Arc::new(loaded);
                self.loaded.write().clone_from(&loaded);
                loaded
            }
            Ok(Some(Err(error))) => {
                tracing::warn!(%error, "kubeconfig has changed and cannot be read; its previous content stays in use");
                before
            }
            Ok(None) | Err(_) => before,
        }
    }

    /// Sets the pause before the second attempt.
    pub fn with_backoff(self, backoff: Duration) -> Service {
        Service { backoff, ..self }
    }

    /// Posts a JSON document and returns the answer. Waiting for other requests counts as part of the call's
    /// time.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn post(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        let loaded = self.loaded().await;
        self.call(&loaded, document).await.map_err(|source| error(&loaded, source))
    }

    /// The same with retries where they may help.
    ///
    /// # Errors
    /// That of the last attempt.
    pub async fn post_with_retries(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        self.retry(document, CallError::is_retryable, |_, _| {}).await.map(|(answer, _)| answer)
    }

    /// The same, with how long the last attempt took; `failed` gets each one that has failed, and how long it
    /// took.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn post_observed(
        &self,
        document: Bytes,
        failed: impl Fn(&CallError, Duration),
    ) -> Result<(Bytes, Duration), ServiceError> {
        self.retry(document, CallError::is_retryable, failed).await
    }

    /// The same with retries after every error.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn post_persistently(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        self.retry(document, |_| true, |_, _| {}).await.map(|(answer, _)| answer)
    }

    async fn retry(
        &self,
        document: Bytes,
        helps: fn(&CallError) -> bool,
        failed: impl Fn(&CallError, Duration),
    ) -> Result<(Bytes, Duration), ServiceError> {
        let mut backoff = self.backoff;
        let mut attempt = 1;
        loop {
            let loaded = self.loaded().await;
            let begun = Instant::now();
            let failure = match self.call(&loaded, document.clone()).await {
                Ok(answer) => return Ok((answer, begun.elapsed())),
                Err(failure) => failure,
            };
            failed(&failure, begun.elapsed());
            if attempt == ATTEMPTS || !helps(&failure) {
                return Err(error(&loaded, failure));
            }
            attempt += 1;
            tokio::time::sleep(backoff).await;
            backoff = backoff * 3 / 2;
        }
    }

    async fn call(&self, loaded: &Loaded, document: Bytes) -> Result<Bytes, CallError> {
        let mut request = Request::new(Full::new(document));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = loaded.path.clone();
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        request.headers_mut().insert(ACCEPT, JSON);
        let begun = tokio::time::Instant::now();
        let permit = tokio::time::timeout(self.bounds.time, self.in_flight.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(CallError::Timeout) };
        let time = self.bounds.time.saturating_sub(begun.elapsed());
        loaded.client.call(request, Bounds { time, ..self.bounds }).await
    }
}

fn error(loaded: &Loaded, source: CallError) -> ServiceError {
    ServiceError { url: loaded.url.clone(), source }
}
