//! HTTP requests to a service, with pooled connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::header::{HeaderMap, HeaderValue, AUTHORIZATION, HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use rustls::ClientConfig;
use tokio::net::TcpStream;

use super::client_connection::{ClientConnection, Connections};
use super::connection::{dial, handshake, negotiate, secure, with_cause, ConnectError, Connection, Stream};
use super::http2;
use super::pool::Pool;
use super::proxy::Proxy;

/// Bytes of an error response's text that are shown.
const MAX_ERROR_TEXT: usize = 512;
/// The User-Agent of requests that set none.
pub(crate) const DEFAULT_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("plinth/", env!("CARGO_PKG_VERSION")));

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection could be established.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("{}", with_cause(.0))]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("context deadline exceeded")]
    Timeout,
    /// The answer was cut off, or is longer than allowed.
    #[error("the answer is longer than {0} bytes or broke off")]
    Answer(usize),
    /// The answer has begun, and does not go on.
    #[error("the answer broke off: nothing was received for {} seconds", .0.as_secs())]
    Stalled(Duration),
    /// An error status and the beginning of its text.
    #[error("the server answered {0}: {1}")]
    Refused(StatusCode, String),
}

impl CallError {
    /// Whether a retry may succeed (k8s.io/apiserver `pkg/util/webhook`, `DefaultShouldRetry`).
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            CallError::Connect(_) | CallError::Http(_) | CallError::Answer(_) | CallError::Stalled(_) => true,
            CallError::Timeout => false,
            CallError::Refused(status, _) => status.as_u16() == 429 || status.is_server_error(),
        }
    }
}

/// Address, identity and credentials of a service.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name or address to connect to; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Value of the `Host` header.
    pub authority: String,
    /// TLS settings and the server name to verify; none for plain HTTP.
    pub tls: Option<(Arc<ClientConfig>, String)>,
    /// Value of the `Authorization` header.
    pub authorization: Option<HeaderValue>,
    /// The proxy that it is reached through.
    pub proxy: Option<Proxy>,
}

impl Origin {
    /// The origin of an absolute URL, without credentials, through the environment's proxy for it. TLS if
    /// there are settings for it; the URL's host is the server name to verify. `None` when the URL has no
    /// host.
    pub fn of_url(url: &Uri, tls: Option<Arc<ClientConfig>>) -> Option<Origin> {
        let host = url.host()?.trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        // Not the URL's authority: it may contain user and password.
        let authority = match url.port_u16() {
            Some(port) => format!("{}:{port}", url.host()?),
            None => url.host()?.to_owned(),
        };
        let tls = tls.map(|config| (config, host.clone()));
        let proxy = Proxy::of_environment(tls.is_some(), &host, port);
        Some(Origin { host, port, authority, tls, authorization: None, proxy })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect<B>(&self) -> Result<Connection<B>, ConnectError>
    where
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.dial().await?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some((config, name)) => secure(stream, config, name).await?,
            None => Box::new(stream),
        };
        handshake(stream).await
    }

    /// The same for a request at a time, or several if the service chooses that.
    async fn connect_negotiated(&self) -> Result<ClientConnection, ConnectError> {
        let stream = self.dial().await?;
        let Some((config, name)) = &self.tls else {
            return Ok(ClientConnection::Http1(handshake(Box::new(stream)).await?));
        };
        let stream = negotiate(stream, config, name).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(http2::ALPN);
        let stream: Box<dyn Stream> = Box::new(stream);
        Ok(match is_http2 {
            true => ClientConnection::Http2(http2::handshake(stream).await?),
            false => ClientConnection::Http1(handshake(stream).await?),
        })
    }

    /// A connection to the service or, where requests without TLS go through a proxy, to that.
    async fn dial(&self) -> Result<TcpStream, ConnectError> {
        let Some(proxy) = &self.proxy else { return dial(&self.host, self.port, |_| true).await };
        proxy.check()?;
        let mut stream = dial(&proxy.host, proxy.port, |_| true).await?;
        if self.tls.is_some() {
            proxy.tunnel(&mut stream, &self.host, self.port).await?;
        }
        Ok(stream)
    }

    /// Where a proxy is to pass a request on, which is one without TLS: names the service in its URI.
    pub fn set_proxied(&self, uri: &mut Uri, headers: &mut HeaderMap) {
        let Some(proxy) = self.proxy.as_ref().filter(|_| self.tls.is_none()) else { return };
        if let Ok(absolute) = format!("http://{}{uri}", self.authority).parse() {
            *uri = absolute;
        }
        if let Some(value) = &proxy.authorization {
            headers.insert(PROXY_AUTHORIZATION, value.clone());
        }
    }

    /// Sets the headers that all requests to this service have.
    pub fn set_headers(&self, request: &mut Request<Full<Bytes>>) {
        let mut uri = std::mem::take(request.uri_mut());
        self.set_proxied(&mut uri, request.headers_mut());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::try_from(&self.authority) {
            headers.insert(HOST, host);
        }
        headers.entry(USER_AGENT).or_insert(DEFAULT_AGENT);
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        if let Some(value) = plinth_api::traceparent().and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert("traceparent", value);
        }
    }
}

/// Limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time from connecting to the last byte of the answer.
    pub time: Duration,
    /// Longest answer, in bytes.
    pub answer: usize,
}

/// How often a request is sent at most: a service that closes each connection is left alone.
const ATTEMPTS: usize = 3;

/// A client of one service, over HTTP/2 where the service chooses it. Cheap to share behind an `Arc`.
pub struct Client {
    origin: Origin,
    connections: Connections,
}

impl Client {
    /// A client without connections.
    pub fn new(origin: Origin) -> Client {
        Client::with_pool(origin, Pool::default())
    }

    /// The same, with a pool of its own among those of others.
    pub(super) fn with_pool(mut origin: Origin, idle: Pool<ClientConnection>) -> Client {
        if let Some((config, _)) = &mut origin.tls {
            // As Go's client.
            let mut offering = ClientConfig::clone(config);
            offering.alpn_protocols = vec![http2::ALPN.to_vec(), b"http/1.1".to_vec()];
            *config = Arc::new(offering);
        }
        Client { origin, connections: Connections::with_pool(idle) }
    }

    /// Sends a request, with a path for its URI, and reads the body of a success. When a connection turns out
    /// to be closed, another one is used for a request that was not processed, or that is safe to send twice;
    /// a POST that may have arrived is not repeated.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(&self, request: Request<Full<Bytes>>, bounds: Bounds) -> Result<Bytes, CallError> {
        match tokio::time::timeout(bounds.time, self.exchange(request, bounds.answer)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::Timeout),
        }
    }

    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        max_length: usize,
    ) -> Result<Bytes, CallError> {
        self.origin.set_headers(&mut request);
        let mut attempt = 1;
        let (response, connection) = loop {
            // The last one is not that of a connection which may have been closed.
            let used = (attempt < ATTEMPTS).then(|| self.connections.take()).flatten();
            let mut connection = match used {
                Some(used) => used,
                None => self.connections.add(self.origin.connect_negotiated().await?),
            };
            let failed = match connection.send(request.clone()).await {
                Ok(response) => break (response, connection),
                Err(failed) => failed,
            };
            let is_repeatable = failed.is_unsent || (!connection.is_new && request.method().is_safe());
            if !connection.is_new {
                // The other idle connections have probably been closed too.
                self.connections.close_idle();
            }
            if !is_repeatable || attempt == ATTEMPTS {
                return Err(failed.error.into());
            }
            attempt += 1;
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), max_length).collect().await;
        if status.is_success() {
            let body = body.map_err(|_| CallError::Answer(max_length))?.to_bytes();
            connection.finish();
            return Ok(body);
        }
        let text = body.map(|body| {
            connection.finish();
            body.to_bytes()
        });
        let text = text.unwrap_or_default();
        let shown = String::from_utf8_lossy(&text[..text.len().min(MAX_ERROR_TEXT)]).into_owned();
        Err(CallError::Refused(status, shown))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Method, Response};
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(60), answer: 8 };

    fn get(path: &'static str) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = Uri::from_static(path);
        request
    }

    /// Requests without TLS name the server in their URI.
    #[tokio::test]
    async fn a_proxy_passes_on_requests_without_tls() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Uri::from_static("http://hook.example.invalid:81/");
        let address = listener.local_addr().unwrap();
        let proxy = Proxy::of_url(&format!("http://u:p@{address}")).unwrap();
        let origin = Origin { proxy: Some(proxy), ..Origin::of_url(&url, None).unwrap() };
        let client = Client::new(origin);
        let call = tokio::spawn(async move { client.call(get("/path?a=b"), BOUNDS).await });
        let (mut served, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(served.read_u8().await.unwrap());
        }
        let request = String::from_utf8(request).unwrap();
        let line = "GET http://hook.example.invalid:81/path?a=b HTTP/1.1\r\n";
        assert!(
            request.starts_with(line) && request.contains("proxy-authorization: Basic dTpw\r\n"),
            "{request}"
        );
        served.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }

    /// A service that answers with its request's path, and counts connections and requests. After `/bye` it
    /// closes the connection, at `/broken` without an answer.
    struct Service {
        client: Client,
        connections: AtomicUsize,
        requests: AtomicUsize,
    }

    async fn service() -> Arc<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let client = Client::new(Origin::of_url(&url, None).unwrap());
        let service =
            Arc::new(Service { client, connections: AtomicUsize::new(0), requests: AtomicUsize::new(0) });
        let counters = service.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counters.connections.fetch_add(1, Ordering::SeqCst);
                let counters = counters.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    counters.requests.fetch_add(1, Ordering::SeqCst);
                    async move {
                        let path = request.uri().path();
                        let mut response = Response::new(Full::new(Bytes::from(path.to_owned())));
                        match path {
                            "/bye" => {
                                response
                                    .headers_mut()
                                    .insert("connection", HeaderValue::from_static("close"));
                            }
                            "/no" => *response.status_mut() = StatusCode::NOT_FOUND,
                            "/broken" => return Err(io::Error::other("no answer")),
                            _ => {}
                        }
                        Ok(response)
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        service
    }

    #[tokio::test]
    async fn connections_are_kept_and_replaced() {
        let service = service().await;
        let mut counts = Vec::new();
        for path in ["/a", "/b", "/bye", "/c", "/d"] {
            assert_eq!(service.client.call(get(path), BOUNDS).await.unwrap(), path);
            counts.push(service.connections.load(Ordering::SeqCst));
        }
        assert_eq!(counts, [1, 1, 1, 2, 2]);
    }

    #[tokio::test]
    async fn only_requests_without_side_effects_are_sent_again() {
        for (method, sent) in [(Method::POST, 1), (Method::GET, 2)] {
            let service = service().await;
            service.client.call(get("/a"), BOUNDS).await.unwrap();
            let mut request = get("/broken");
            *request.method_mut() = method.clone();
            let error = service.client.call(request, BOUNDS).await.unwrap_err();
            assert!(matches!(error, CallError::Http(_)), "{method}: {error}");
            assert_eq!(service.requests.load(Ordering::SeqCst), 1 + sent, "{method}");
        }
    }

    #[tokio::test]
    async fn answers_are_bounded_and_refusals_say_why() {
        let client = &service().await.client;
        let long = client.call(get("/far-too-long"), BOUNDS).await;
        assert!(matches!(long, Err(CallError::Answer(8))), "{long:?}");
        let refused = client.call(get("/no"), BOUNDS).await.unwrap_err();
        assert_eq!(refused.to_string(), "the server answered 404 Not Found: /no");
        let nobody: Uri = "http://127.0.0.1:1/".parse().unwrap();
        let error =
            Client::new(Origin::of_url(&nobody, None).unwrap()).call(get("/"), BOUNDS).await.unwrap_err();
        assert_eq!(error.to_string(), "dial tcp 127.0.0.1:1: connect: connection refused");
        assert!(error.is_retryable() && !refused.is_retryable());
    }
}
