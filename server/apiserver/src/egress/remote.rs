//! Requests to the API servers of remote APIs: proxied ones of clients, and the server's own for discovery
//! and the cleanup of namespaces.
//!
//! The connection shows the front proxy's certificate; the user of each request is in `X-Remote-` headers.
//! HTTP/1.1 over pooled connections, redirects are not followed, the time to connect is bounded.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/apiserver/handler_proxy.go`, client-go
//! `transport/round_trippers.go`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::{ArgAction, Args};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, HOST, USER_AGENT, VIA};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::{Mutex, RwLock};
use plinth_codec::base64_text;

use super::client::{Bounds, Origin, DEFAULT_AGENT};
use super::client_cache::{ClientCache, MAX_CLIENTS};
use super::connection::Connection;
use super::forward::RequestConnection;
use super::pool::{IdleConnections, Pool};
use super::resolver::{is_own, Address, ResolveError, ServiceResolver};
use super::slots::{SharedSlots, Slot};
use super::tls::{self, AuthoritiesError, ClientCertificate, ServerTrust};
use plinth_api::User;
use plinth_http::{RequestBody, TlsError};
use plinth_pki::{read_certificates, read_key};
use plinth_registry::{RemoteVersion, ServicePort};
use plinth_storage::Store;

/// Longest time to establish a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of the response to a probe, so that its connection can be used again.
const PROBE_BODY: usize = 256 << 10;
const PROBE_BODY_TIME: Duration = Duration::from_secs(1);
/// Requests of clients that one server is asked at a time, and long-running ones (watches, upgrades) among
/// others: what a server that hangs can hold.
const MAX_REQUESTS: usize = 256;
const MAX_LONG_RUNNING: usize = 1024;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Flags of the aggregation layer.
#[derive(Clone, Debug, Args)]
pub struct AggregatorOptions {
    /// Client certificate shown to the servers of remote APIs, PEM
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Call Services of remote APIs and webhooks at an endpoint instead of their cluster IP
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_aggregator_routing: bool,
    /// Answer 502 when the server of a remote API redirects; otherwise the redirect is passed to the client
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub aggregator_reject_forwarding_redirect: bool,
}

/// Why a remote API cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Its Service has no address.
    #[error("{0}")]
    Service(#[from] ResolveError),
    /// Its Service is this API server's own.
    #[error("the service is that of the API server itself")]
    Loop,
    /// Its `caBundle` is invalid.
    #[error("unable to load root certificates: {0}")]
    Authorities(#[from] AuthoritiesError),
    /// The connection or the request failed.
    #[error("{0}")]
    Unreachable(String),
}

/// The body of a request: that of a client's request, or one of the server's own.
pub type RemoteBody = Either<RequestBody, Full<Bytes>>;

/// A response, and the connection that it is read from.
pub struct RemoteResponse {
    /// Status and headers; the body is still being received.
    pub response: Response<Incoming>,
    /// To be put back once the body has been read.
    pub connection: RemoteConnection,
}

/// A connection that can be used again once its response was read to the end.
pub struct RemoteConnection {
    client: Arc<RemoteClient>,
    connection: Connection<RemoteBody>,
}

impl RemoteConnection {
    /// Makes it available for other requests.
    fn put_back(self) {
        self.client.idle.put_back(self.connection);
    }
}

impl RequestConnection for RemoteConnection {
    fn has_sent(&self) -> bool {
        self.connection.has_sent()
    }

    fn received(self: Box<Self>) {
        self.put_back();
    }
}

/// Status, headers and body of a response that was read as a whole.
pub struct RemoteAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// The whole body, within the limit of the call.
    pub body: Bytes,
}

/// What a server's TLS settings and connections depend on.
#[derive(PartialEq, Eq, Hash)]
struct ClientKey {
    address: Address,
    server_name: String,
    /// `caBundle` as written; none where any certificate is accepted.
    bundle: Option<String>,
}

struct RemoteClient {
    origin: Origin,
    idle: Pool<Connection<RemoteBody>>,
}

/// Clients of the servers of remote APIs. Each lock is held for a look-up or a replacement.
pub struct RemoteApis {
    resolver: ServiceResolver,
    files: Option<(PathBuf, PathBuf)>,
    identity: RwLock<Option<Arc<ClientCertificate>>>,
    /// Each has the identity of when it was made, and is dropped when that is replaced.
    clients: ClientCache<ClientKey, RemoteClient>,
    idle: Arc<IdleConnections<Connection<RemoteBody>>>,
    /// Of each server.
    slots: Mutex<HashMap<ServicePort, SharedSlots>>,
    /// This server in `Via` headers: a request that carries it has come back.
    via: HeaderValue,
    /// Whether redirects are answered with 502.
    pub rejects_redirects: bool,
}

impl RemoteApis {
    /// Loads the files that the flags name. No more than `idle` connections are kept while no request uses
    /// them.
    ///
    /// # Errors
    /// When a file cannot be read, or certificate and key do not match.
    pub fn new(
        options: &AggregatorOptions,
        resolver: ServiceResolver,
        idle: usize,
    ) -> Result<RemoteApis, TlsError> {
        let files = options.proxy_client_cert_file.clone().zip(options.proxy_client_key_file.clone());
        let via = format!("1.1 plinth-{}", uuid::Uuid::new_v4().simple());
        let apis = RemoteApis {
            resolver,
            files,
            identity: RwLock::default(),
            clients: ClientCache::default(),
            idle: IdleConnections::new(idle),
            slots: Mutex::default(),
            via: HeaderValue::try_from(via).unwrap_or(HeaderValue::from_static("1.1 plinth")),
            rejects_redirects: options.aggregator_reject_forwarding_redirect,
        };
        apis.reload()?;
        Ok(apis)
    }

    /// The files of certificate and key.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]).collect()
    }

    /// Whether this server has a certificate to show (`--proxy-client-cert-file`).
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.files.is_some()
    }

    /// Loads certificate and key; new connections use them.
    ///
    /// # Errors
    /// As [`RemoteApis::new`]; the previous ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Some((certificate, key)) = &self.files else { return Ok(()) };
        let (chain, key) = (read_certificates(certificate)?, read_key(key)?);
        // Finds a key that does not match.
        tls::config(ServerTrust::Anyone, Some((chain.clone(), key.clone_key())))?;
        *self.identity.write() = Some(Arc::new((chain, key)));
        self.clients.clear();
        Ok(())
    }

    /// Whether a request has passed through this server before.
    pub(crate) fn has_passed(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).iter().any(|via| {
            let parts = via.to_str().unwrap_or_default().split(',');
            parts.into_iter().any(|part| self.via.to_str().is_ok_and(|own| own == part.trim()))
        })
    }

    /// A slot for a request of a user; `None` when its server is asked too much already, by all or by this
    /// user.
    pub fn slot(&self, remote: &RemoteVersion, user: &User, is_long_running: bool) -> Option<Slot> {
        let mut all = self.slots.lock();
        if all.len() >= MAX_CLIENTS {
            all.retain(|_, slots| slots.is_in_use());
        }
        let new = || SharedSlots::new(MAX_REQUESTS, MAX_LONG_RUNNING);
        all.entry(remote.service.clone()).or_insert_with(new).take(user, is_long_running)
    }

    /// The address that requests for a remote API go to.
    ///
    /// # Errors
    /// [`RemoteError::Loop`] and [`RemoteError::Service`].
    pub async fn resolve(&self, store: &Store, remote: &RemoteVersion) -> Result<Address, RemoteError> {
        if is_own(&remote.service) {
            return Err(RemoteError::Loop);
        }
        Ok(self.resolver.resolve(store, &remote.service).await?)
    }

    /// Sends a request with a path for its URI. A request on an idle connection is sent a second time on a
    /// new one where that connection was closed before, or where it reads only and has no body.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn send(
        &self,
        address: Address,
        remote: &RemoteVersion,
        mut request: Request<RemoteBody>,
    ) -> Result<RemoteResponse, RemoteError> {
        let client = self.client(address, remote)?;
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::try_from(&client.origin.authority) {
            headers.insert(HOST, host);
        }
        headers.append(VIA, self.via.clone());
        let unreachable = |error: &dyn std::fmt::Display| RemoteError::Unreachable(error.to_string());
        if let Some(mut connection) = client.idle.take() {
            let mut spare = copy(&request);
            if matches!(tokio::time::timeout(CONNECT_TIMEOUT, connection.ready()).await, Ok(Ok(()))) {
                match connection.try_send(request).await {
                    Ok(response) => {
                        let connection = RemoteConnection { client, connection };
                        return Ok(RemoteResponse { response, connection });
                    }
                    Err((error, unsent)) => match unsent.or_else(|| spare.take()) {
                        Some(unsent) => request = unsent,
                        None => return Err(unreachable(&error)),
                    },
                }
            }
            client.idle.clear();
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, client.origin.connect::<RemoteBody>()).await;
        let timeout = |_| RemoteError::Unreachable(format!("dial tcp {}: i/o timeout", client.address()));
        let mut connection = connected.map_err(timeout)?.map_err(|error| unreachable(&error))?;
        let response = connection.send(request).await.map_err(|error| unreachable(&error))?;
        Ok(RemoteResponse { response, connection: RemoteConnection { client, connection } })
    }

    /// Sends a request of the server's own as `user` and reads the whole response.
    ///
    /// # Errors
    /// [`RemoteError`], also for a response that takes too long or is too long.
    pub async fn call(
        &self,
        store: &Store,
        remote: &RemoteVersion,
        user: &User,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<RemoteAnswer, RemoteError> {
        let exchange = async {
            let address = self.resolve(store, remote).await?;
            let RemoteResponse { response, connection } =
                self.send_as(user, address, remote, request).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, bounds.answer).collect().await.map_err(|_| {
                let limit = bounds.answer;
                RemoteError::Unreachable(format!("the response is longer than {limit} bytes or broke off"))
            })?;
            connection.put_back();
            Ok(RemoteAnswer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        tokio::time::timeout(bounds.time, exchange).await.map_err(|_| timed_out())?
    }

    /// Sends a GET as `user` and returns the status; the body makes no difference, however long it is.
    ///
    /// # Errors
    /// [`RemoteError`], also for a response that takes too long.
    pub async fn probe(
        &self,
        address: Address,
        remote: &RemoteVersion,
        user: &User,
        path: &str,
        limit: Duration,
    ) -> Result<StatusCode, RemoteError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() =
            path.parse().map_err(|_| RemoteError::Unreachable(format!("invalid path {path:?}")))?;
        let sent = tokio::time::timeout(limit, self.send_as(user, address, remote, request));
        let RemoteResponse { response, connection } = sent.await.map_err(|_| timed_out())??;
        let status = response.status();
        let body = Limited::new(response.into_body(), PROBE_BODY).collect();
        if let Ok(Ok(_)) = tokio::time::timeout(PROBE_BODY_TIME, body).await {
            connection.put_back();
        }
        Ok(status)
    }

    async fn send_as(
        &self,
        user: &User,
        address: Address,
        remote: &RemoteVersion,
        mut request: Request<Full<Bytes>>,
    ) -> Result<RemoteResponse, RemoteError> {
        set_user(request.headers_mut(), user)?;
        request.headers_mut().entry(USER_AGENT).or_insert(DEFAULT_AGENT);
        self.send(address, remote, request.map(Either::Right)).await
    }

    fn client(&self, address: Address, remote: &RemoteVersion) -> Result<Arc<RemoteClient>, RemoteError> {
        let bundle = (!remote.insecure_skip_tls_verify).then(|| remote.ca_bundle.clone());
        let key = ClientKey { address, server_name: remote.server_name(), bundle };
        self.clients.get_or_make(key, |key| {
            let trust = match &key.bundle {
                None => ServerTrust::Anyone,
                Some(bundle) => {
                    let pem = base64_text::decode(bundle).map_err(|_| AuthoritiesError::Pem)?;
                    ServerTrust::Authorities(tls::authorities_or_system(&pem)?)
                }
            };
            let own = self.identity.read().clone();
            let identity = own.as_deref().map(|(chain, key)| (chain.clone(), key.clone_key()));
            let config = tls::config(trust, identity).map_err(|_| AuthoritiesError::Certificate)?;
            let authority = key.address.to_string();
            let Address { host, port } = key.address.clone();
            let tls = Some((config, key.server_name.clone()));
            // At an address of the cluster.
            let origin = Origin { host, port, authority, tls, authorization: None, proxy: None };
            Ok(RemoteClient { origin, idle: self.idle.pool() })
        })
    }
}

impl RemoteClient {
    fn address(&self) -> Address {
        Address { host: self.origin.host.clone(), port: self.origin.port }
    }
}

fn timed_out() -> RemoteError {
    RemoteError::Unreachable("context deadline exceeded".to_owned())
}

/// The same request, where that can be sent twice.
fn copy(request: &Request<RemoteBody>) -> Option<Request<RemoteBody>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Either::Right(Full::default()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Whether a header names a user to a server that trusts this one, also to one that takes `_` for `-`.
pub(crate) fn names_user(header: &HeaderName) -> bool {
    let name = super::forward::dashed(header);
    [USER, UID, GROUP].iter().any(|own| own.as_str() == name) || name.starts_with(EXTRA_PREFIX)
}

/// Sets the headers that name the user, in place of any that are there.
///
/// # Errors
/// When a name cannot be written in a header.
pub(crate) fn set_user(headers: &mut HeaderMap, user: &User) -> Result<(), RemoteError> {
    super::forward::remove_headers(headers, names_user);
    let invalid = |name: &HeaderName| {
        RemoteError::Unreachable(format!("net/http: invalid header field value for {:?}", name.as_str()))
    };
    let mut add = |name: HeaderName, text: &str| -> Result<(), RemoteError> {
        let value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| invalid(&name))?;
        headers.append(name, value);
        Ok(())
    };
    add(USER, &user.name)?;
    if !user.uid.is_empty() {
        add(UID, &user.uid)?;
    }
    for group in &user.groups {
        add(GROUP, group)?;
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA_PREFIX}{}", escape_key(key)));
        let name = name.map_err(|error| RemoteError::Unreachable(error.to_string()))?;
        for value in values {
            add(name.clone(), value)?;
        }
    }
    Ok(())
}

/// An extra key as part of a header's name: other characters, and `%`, are percent-escaped.
fn escape_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'0'..=b'9'
            | b'a'..=b'z'
            | b'A'..=b'Z'
            | b'!'
            | b'#'
            | b'$'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_replaces_what_a_client_sent() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-uid", "0"),
            ("x-remote-extra-scopes", "all"),
            ("x-own", "kept"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let extra = [("example.org/a%b".to_owned(), vec!["x".to_owned(), "y".to_owned()])].into();
        let user = User { extra, ..User::new("jörg", &["a", "b"]) };
        set_user(&mut headers, &user).unwrap();
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        lines.sort();
        let extra = "x-remote-extra-example.org%2fa%25b";
        let expected = [
            "x-own: kept".to_owned(),
            format!("{extra}: x"),
            format!("{extra}: y"),
            "x-remote-group: a".to_owned(),
            "x-remote-group: b".to_owned(),
            "x-remote-user: jörg".to_owned(),
        ];
        assert_eq!(lines, expected);
        let error = set_user(&mut headers, &User::new("a\nb", &[])).unwrap_err();
        assert_eq!(error.to_string(), r#"net/http: invalid header field value for "x-remote-user""#);
    }

    #[test]
    fn a_request_that_comes_back_is_recognized() {
        let options = AggregatorOptions {
            proxy_client_cert_file: None,
            proxy_client_key_file: None,
            enable_aggregator_routing: false,
            aggregator_reject_forwarding_redirect: true,
        };
        let [one, other] = [0; 2].map(|_| RemoteApis::new(&options, ServiceResolver::default(), 0).unwrap());
        let mut headers = HeaderMap::new();
        assert!(!one.has_passed(&headers));
        headers.insert(VIA, HeaderValue::try_from(format!("1.1 a, {}", one.via.to_str().unwrap())).unwrap());
        assert!(one.has_passed(&headers) && !other.has_passed(&headers));
    }
}
