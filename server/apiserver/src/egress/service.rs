//! Posts JSON documents to the service of a kubeconfig.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Request, Uri};
use tokio::sync::Semaphore;

use super::client::{Bounds, CallError, Client};
use super::kubeconfig::{Kubeconfig, KubeconfigError};

/// Concurrent requests to one service.
const MAX_IN_FLIGHT: usize = 64;
/// Largest answer, in bytes.
const MAX_ANSWER: usize = 3 << 20;
/// Attempts of a call, and the pause before the second; each later pause is half as long again.
const ATTEMPTS: u32 = 5;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a call failed, with the URL.
#[derive(Debug, thiserror::Error)]
#[error("Post {url:?}: {source}")]
pub struct ServiceError {
    url: String,
    source: CallError,
}

/// A service named on the command line. Cheap to share behind an `Arc`.
pub struct Service {
    client: Client,
    path: Uri,
    url: String,
    bounds: Bounds,
    /// Pause before the second attempt.
    backoff: Duration,
    in_flight: Semaphore,
}

impl Service {
    /// The service and credentials of a kubeconfig. `time` limits one call.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn from_kubeconfig(path: &Path, time: Duration) -> Result<Service, KubeconfigError> {
        let Kubeconfig { origin, path, url } = Kubeconfig::read(path)?;
        let bounds = Bounds { time, answer: MAX_ANSWER };
        let in_flight = Semaphore::new(MAX_IN_FLIGHT);
        Ok(Service { client: Client::new(origin), path, url, bounds, backoff: INITIAL_BACKOFF, in_flight })
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
        self.call(document).await.map_err(|source| self.error(source))
    }

    /// The same with retries where they may help.
    ///
    /// # Errors
    /// That of the last attempt.
    pub async fn post_with_retries(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        self.retry(document, CallError::is_retryable).await
    }

    /// The same with retries after every error.
    ///
    /// # Errors
    /// That of the last attempt.
    pub(crate) async fn post_persistently(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        self.retry(document, |_| true).await
    }

    async fn retry(&self, document: Bytes, helps: fn(&CallError) -> bool) -> Result<Bytes, ServiceError> {
        let mut backoff = self.backoff;
        for _ in 1..ATTEMPTS {
            match self.call(document.clone()).await {
                Err(error) if helps(&error) => {}
                outcome => return outcome.map_err(|source| self.error(source)),
            }
            tokio::time::sleep(backoff).await;
            backoff = backoff * 3 / 2;
        }
        self.post(document).await
    }

    async fn call(&self, document: Bytes) -> Result<Bytes, CallError> {
        let mut request = Request::new(Full::new(document));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.path.clone();
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        request.headers_mut().insert(ACCEPT, JSON);
        let begun = tokio::time::Instant::now();
        let permit = tokio::time::timeout(self.bounds.time, self.in_flight.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(CallError::Timeout) };
        let time = self.bounds.time.saturating_sub(begun.elapsed());
        self.client.call(request, Bounds { time, ..self.bounds }).await
    }

    fn error(&self, source: CallError) -> ServiceError {
        ServiceError { url: self.url.clone(), source }
    }
}
