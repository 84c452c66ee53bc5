//! The HTTP client of `object_store`: a connection per request, over the client that everything else here
//! uses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, HOST};
use hyper::http::response::Parts;
use hyper::{Method, Uri};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use plinth_apiserver::egress::client::{CallError, Origin};
use plinth_apiserver::egress::tls::{self, ServerTrust};
use rustls::ClientConfig;

use super::list::{ListPage, ListRequest, EMPTY};
use super::settings::SettingsError;

/// Bytes of each part that is sent or read, but for the last.
pub(super) const PART: usize = 8 << 20;
/// Time limit of a request, from connecting to the last byte of its response: a part at 64 KiB/s.
const TIMEOUT: Duration = Duration::from_secs(128);
/// Time limit of connecting, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence in the middle of a response.
const SILENCE: Duration = Duration::from_secs(15);
/// How long after its beginning a request is sent again: once where a response was silent.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(2 * SILENCE.as_secs());
/// Longest response to what reads: a part, or a page of a list.
const MAX_RESPONSE: usize = PART + (1 << 20);
/// Longest response to what writes. The identifier of an upload is in one; it becomes part of URLs, with
/// three characters for each.
const MAX_REPLY: usize = 16 << 10;
/// Time limit of an error's text.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

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

    async fn exchange(&self, request: HttpRequest) -> Result<(Parts, Bytes), CallError> {
        let most = if request.method() == Method::GET { MAX_RESPONSE } else { MAX_REPLY };
        let origin = origin(request.uri(), &self.0);
        let (mut parts, body) = request.into_parts();
        if let Ok(host) = HeaderValue::try_from(&origin.authority) {
            parts.headers.insert(HOST, host);
        }
        if let Some(path) = parts.uri.path_and_query() {
            parts.uri = Uri::from(path.clone());
        }
        origin.set_proxied(&mut parts.uri, &mut parts.headers);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, origin.connect()).await;
        let mut connection = connected.map_err(|_| CallError::Timeout)??;
        // One that sends a body is answered at its end.
        let silence = if body.is_empty() { SILENCE } else { TIMEOUT };
        let response =
            tokio::time::timeout(silence, connection.send(HttpRequest::from_parts(parts, body))).await;
        let response = response.map_err(|_| CallError::Stalled(silence))??;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            return Ok((parts, beginning(body).await));
        }
        Ok((parts, whole(body, most).await?))
    }
}

/// A response of `most` bytes at most.
async fn whole(body: Incoming, most: usize) -> Result<Bytes, CallError> {
    let (mut body, mut bytes) = (Limited::new(body, most), BytesMut::new());
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        match frame.map_err(|_| CallError::Stalled(SILENCE))? {
            None => return Ok(bytes.freeze()),
            Some(frame) => {
                let frame = frame.map_err(|_| CallError::Answer(most))?;
                bytes.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
            }
        }
    }
}

/// The beginning of an error's text. The status shows that it is one, whether or not the text ends.
async fn beginning(mut body: Incoming) -> Bytes {
    let mut text = BytesMut::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
            let room = MAX_REPLY - text.len();
            text.extend_from_slice(data.get(..room).unwrap_or(data));
            if text.len() == MAX_REPLY {
                return;
            }
        }
    };
    // What has come until then counts.
    let _ = tokio::time::timeout(ERROR_TIMEOUT, read).await;
    String::from_utf8_lossy(&text).into_owned().into()
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
        proxy: None,
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
            let is_list = request.extensions().get::<ListRequest>().is_some();
            let exchange = tokio::time::timeout(TIMEOUT, self.exchange(request)).await;
            let (mut parts, mut body) = exchange.unwrap_or(Err(CallError::Timeout)).map_err(|error| {
                let kind = match &error {
                    CallError::Connect(_) => HttpErrorKind::Connect,
                    CallError::Timeout => HttpErrorKind::Timeout,
                    // It may have arrived: only what may be sent twice is retried.
                    _ => HttpErrorKind::Interrupted,
                };
                HttpError::new(kind, error)
            })?;
            if is_list && parts.status.is_success() {
                let page = ListPage::parse(&body);
                parts.extensions.insert(page.map_err(|error| HttpError::new(HttpErrorKind::Decode, error))?);
                body = Bytes::from_static(EMPTY);
            }
            let body = Full::new(body).map_err(|never| match never {});
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
        })
    }
}
