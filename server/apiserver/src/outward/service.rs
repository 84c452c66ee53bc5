//! The service of a kubeconfig: one JSON document there, one back.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Request, Uri};
use tokio::sync::Semaphore;

use super::client::{Bounds, CallError, Client};
use super::kubeconfig::{Kubeconfig, KubeconfigError};

/// Requests in flight to one service.
const CONCURRENCY: usize = 64;
/// Largest answer, in bytes.
const ANSWER: usize = 3 << 20;
/// How often a service is asked, and the first pause between; each later one is half as long again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a service gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("Post {url:?}: {source}")]
pub struct ServiceError {
    url: String,
    source: CallError,
}

/// A service that the command line names. Cheap to share behind an `Arc`.
pub struct Service {
    client: Client,
    path: Uri,
    url: String,
    bounds: Bounds,
    /// Before the second attempt.
    pause: Duration,
    places: Semaphore,
}

impl Service {
    /// The service and credentials of a kubeconfig. `time` is what one call may take.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn from_kubeconfig(path: &Path, time: Duration) -> Result<Service, KubeconfigError> {
        let Kubeconfig { origin, path, url } = Kubeconfig::read(path)?;
        let bounds = Bounds { time, answer: ANSWER };
        let places = Semaphore::new(CONCURRENCY);
        Ok(Service { client: Client::new(origin), path, url, bounds, pause: PAUSE, places })
    }

    /// The same, with another pause before the second attempt.
    pub fn pausing(self, pause: Duration) -> Service {
        Service { pause, ..self }
    }

    /// Sends a JSON document and gives back the answer. Waiting for others counts as part of the call's time.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn post(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        self.call(document).await.map_err(|source| self.error(source))
    }

    /// The same, tried again a few times when that may help.
    ///
    /// # Errors
    /// That of the last attempt.
    pub async fn post_patiently(&self, document: Bytes) -> Result<Bytes, ServiceError> {
        let mut pause = self.pause;
        for _ in 1..ATTEMPTS {
            match self.call(document.clone()).await {
                Err(error) if error.is_worth_another_try() => {}
                outcome => return outcome.map_err(|source| self.error(source)),
            }
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
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
        let place = tokio::time::timeout(self.bounds.time, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else { return Err(CallError::Timeout) };
        let time = self.bounds.time.saturating_sub(begun.elapsed());
        self.client.call(request, Bounds { time, ..self.bounds }).await
    }

    fn error(&self, source: CallError) -> ServiceError {
        ServiceError { url: self.url.clone(), source }
    }
}
