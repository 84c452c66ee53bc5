//! The HTTP client of `object_store`: a connection per request, over the client that everything else here
//! uses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderValue, HOST};
use hyper::Uri;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use plinth_apiserver::egress::client::{CallError, Origin};
use plinth_apiserver::egress::tls::{self, ServerTrust};
use rustls::ClientConfig;

use super::settings::SettingsError;
use super::PART;

/// Time limit of a request, from connecting to the last byte of its response: a part at 64 KiB/s.
pub(super) const TIMEOUT: Duration = Duration::from_secs(128);
/// Time limit of connecting, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest response: a part, or a page of a list.
const MAX_RESPONSE: usize = PART + (1 << 20);

/// Makes clients that trust the system's authorities, or those of a PEM text.
#[derive(Clone, Debug)]
pub(super) struct Connector(Arc<ClientConfig>);

impl Connector {
    pub(super) fn new(authorities: Option<&[u8]>) -> Result<Connector, SettingsError> {
        let roots = tls::authorities_or_system(authorities.unwrap_or_default());
        let roots = roots.map_err(|error| SettingsError::Authorities(error.to_string()))?;
        let config = tls::config(ServerTrust::Authorities(roots), None);
        Ok(Connector(config.map_err(|error| SettingsError::Authorities(error.to_string()))?))
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let origin = origin(request.uri(), &self.0);
        let (mut parts, body) = request.into_parts();
        if let Ok(host) = HeaderValue::try_from(&origin.authority) {
            parts.headers.insert(HOST, host);
        }
        if let Some(path) = parts.uri.path_and_query() {
            parts.uri = Uri::from(path.clone());
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, origin.connect()).await;
        let mut sender = connected.map_err(|_| CallError::Timeout)??;
        let response = sender.send_request(HttpRequest::from_parts(parts, body)).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = body.map_err(|_| CallError::Answer(MAX_RESPONSE))?.to_bytes();
        let body = Full::new(body).map_err(|never| match never {});
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// Where a request goes. Its URL has a host: it was checked with the settings.
fn origin(url: &Uri, tls: &Arc<ClientConfig>) -> Origin {
    let tls = url.scheme_str().is_some_and(|scheme| scheme == "https").then(|| tls.clone());
    Origin::of_url(url, tls).unwrap_or_else(|| Origin {
        host: String::new(),
        port: 0,
        authority: String::new(),
        tls: None,
        authorization: None,
    })
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Connector {
    // The form that `async_trait` gives it.
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let exchange = tokio::time::timeout(TIMEOUT, self.exchange(request)).await;
            exchange.unwrap_or(Err(CallError::Timeout)).map_err(|error| {
                let kind = match &error {
                    CallError::Connect(_) => HttpErrorKind::Connect,
                    CallError::Timeout => HttpErrorKind::Timeout,
                    // It may have arrived: only what may be sent twice is retried.
                    _ => HttpErrorKind::Interrupted,
                };
                HttpError::new(kind, error)
            })
        })
    }
}
