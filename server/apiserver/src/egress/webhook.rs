//! Calls webhooks described by an API object: `clientConfig` of admission and conversion webhooks.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use plinth_codec::url::join_host_port;
use plinth_codec::{base64_text, json, Value};
use plinth_http::ConnectionLimits;

use super::client::{Bounds, CallError, Client, Origin};
use super::client_cache::ClientCache;
use super::client_connection::ClientConnection;
use super::pool::IdleConnections;
use super::proxy::Proxy;
use super::resolver::{Address, ResolveError, ServiceResolver};
use super::slots::{Slot, Slots};
use super::tls::{self, AuthoritiesError, ServerTrust};
use super::webhook_credentials::{WebhookCredentials, WebhookUser};
use plinth_registry::ServicePort;
use plinth_storage::Store;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY_JSON: HeaderValue = HeaderValue::from_static("application/json, */*");
/// Upstream's User-Agent towards webhooks.
const UPSTREAM_AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");

/// Longest wait for other calls: with a call of the usual length it ends before a request's usual deadline.
const SLOT_WAIT: Duration = Duration::from_secs(20);

/// Why a webhook call failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum WebhookError {
    /// The configured URL is invalid or not HTTPS.
    #[error("invalid URL {0:?}")]
    Url(String),
    /// The configured `caBundle` is invalid.
    #[error("unable to load root certificates: {0}")]
    Authorities(#[from] AuthoritiesError),
    /// The Service has no address.
    #[error("Post {url:?}: {source}")]
    Service {
        /// URL of the call.
        url: String,
        source: ResolveError,
    },
    /// The connection or the request failed.
    #[error("Post {url:?}: {source}")]
    Call {
        /// URL of the call.
        url: String,
        source: CallError,
    },
    /// It was not called: for too long, others have all the slots that it may have.
    #[error("too many calls of webhooks are under way")]
    Busy,
    /// An error status. Its text is not shown to the client: the webhook may belong to another party.
    #[error("Post {url:?}: the server answered {status}")]
    Refused {
        /// URL of the call.
        url: String,
        status: StatusCode,
    },
    /// The answer is not JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Answer(plinth_codec::DecodeError),
}

/// The address of a webhook.
#[derive(Debug, PartialEq, Eq)]
struct WebhookTarget {
    /// Namespace and name of the Service whose address is resolved.
    service: Option<ServicePort>,
    /// The server name to verify, and the host to connect to without a Service.
    name: String,
    port: u16,
    /// Path and query.
    path: String,
}

impl WebhookTarget {
    fn read(config: &Value) -> Result<WebhookTarget, WebhookError> {
        if let Some(url) = config.str_at(&["url"]) {
            return WebhookTarget::of_url(url).ok_or_else(|| WebhookError::Url(url.to_owned()));
        }
        let text = |key: &str| config.str_at(&["service", key]).unwrap_or_default().to_owned();
        let (namespace, name, path) = (text("namespace"), text("name"), text("path"));
        let port = config.at(&["service", "port"]).and_then(Value::as_int).unwrap_or(443);
        let server_name = format!("{name}.{namespace}.svc");
        let port = u16::try_from(port).map_err(|_| WebhookError::Url(format!("{server_name}:{port}")))?;
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let service = Some(ServicePort { namespace, name, port });
        Ok(WebhookTarget { service, name: server_name, port, path })
    }

    fn of_url(url: &str) -> Option<WebhookTarget> {
        let uri: Uri = url.parse().ok()?;
        let name =
            uri.host().filter(|_| uri.scheme_str() == Some("https"))?.trim_matches(['[', ']']).to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(WebhookTarget { service: None, name, port: uri.port_u16().unwrap_or(443), path })
    }

    fn authority(&self) -> String {
        join_host_port(&self.name, self.port)
    }

    /// Where to connect to.
    async fn address(&self, store: &Store, resolver: &ServiceResolver) -> Result<Address, ResolveError> {
        match &self.service {
            Some(service) => resolver.resolve(store, service).await,
            None => Ok(Address { host: self.name.clone(), port: self.port }),
        }
    }
}

/// What a client's TLS settings and connections depend on.
#[derive(PartialEq, Eq, Hash)]
struct ClientKey {
    address: Address,
    name: String,
    /// `caBundle` as written.
    bundle: String,
    /// Whose credentials are sent.
    user: Option<WebhookUser>,
}

/// Clients of the recently called webhooks.
pub struct Webhooks {
    resolver: ServiceResolver,
    clients: ClientCache<ClientKey, Client>,
    idle: Arc<IdleConnections<ClientConnection>>,
    calls: Arc<Slots>,
}

/// A call that has its slot.
pub struct WebhookCall {
    client: Arc<Client>,
    /// Of the URL.
    path: Uri,
    url: String,
    bounds: Bounds,
    has_waited: bool,
    _slot: Slot,
}

impl Webhooks {
    /// Webhooks whose Services are resolved by `resolver`. Calls at a time, which share what there is so that
    /// those that hang leave some to others, and idle connections are bounded by `limits`.
    pub fn new(resolver: ServiceResolver, limits: &ConnectionLimits) -> Webhooks {
        Webhooks {
            resolver,
            clients: ClientCache::default(),
            idle: IdleConnections::new(limits.idle),
            calls: Slots::mostly_for_one(limits.webhooks),
        }
    }

    /// Prepares a call of the webhook of a `clientConfig`, with the credentials that there are for its host,
    /// and waits until it may be made. That is no part of the call's time: the webhook has not failed.
    ///
    /// # Errors
    /// [`WebhookError`], but for those of an answer.
    pub async fn begin(
        &self,
        store: &Store,
        config: &Value,
        credentials: Option<&WebhookCredentials>,
        bounds: Bounds,
    ) -> Result<WebhookCall, WebhookError> {
        let target = WebhookTarget::read(config)?;
        let separator = if target.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{separator}timeout={}s", target.path, bounds.time.as_secs());
        let url = format!("https://{}{path}", target.authority());
        let path = path.parse().map_err(|_| WebhookError::Url(url.clone()))?;
        let address = match target.address(store, &self.resolver).await {
            Ok(address) => address,
            Err(source) => return Err(WebhookError::Service { url, source }),
        };
        let holder = format!("{address} {}", target.name);
        let (slot, has_waited) = match self.calls.take(&holder, true) {
            Some(slot) => (slot, false),
            None => {
                tracing::debug!(server = holder, "call of a webhook waits for others");
                let slot = tokio::time::timeout(SLOT_WAIT, self.calls.wait(&holder)).await;
                (slot.map_err(|_| WebhookError::Busy)?, true)
            }
        };
        let user = credentials.and_then(|credentials| credentials.find(&target.authority()));
        let bundle = config.str_at(&["caBundle"]).unwrap_or_default().to_owned();
        let client = self.client(&target, ClientKey { address, name: target.name.clone(), bundle, user })?;
        Ok(WebhookCall { client, path, url, bounds, has_waited, _slot: slot })
    }

    fn client(&self, target: &WebhookTarget, key: ClientKey) -> Result<Arc<Client>, AuthoritiesError> {
        self.clients.get_or_make(key, |key| {
            let pem = base64_text::decode(&key.bundle).map_err(|_| AuthoritiesError::Pem)?;
            let credentials = key.user.as_ref().map(|user| &user.0);
            let identity = credentials.and_then(|credentials| credentials.identity());
            // Authorities and certificates have been validated, so the settings cannot fail.
            let config = tls::config(ServerTrust::Authorities(tls::authorities_or_system(&pem)?), identity)
                .map_err(|_| AuthoritiesError::Certificate)?;
            // A Service is at an address of the cluster.
            let Address { host, port } = &key.address;
            let proxied = target.service.is_none().then(|| Proxy::of_environment(true, host, *port));
            let origin = Origin {
                proxy: proxied.flatten(),
                host: key.address.host.clone(),
                port: key.address.port,
                authority: target.authority(),
                tls: Some((config, key.name.clone())),
                authorization: credentials.and_then(|credentials| credentials.authorization.clone()),
            };
            Ok(Client::with_pool(origin, self.idle.pool()))
        })
    }
}

impl WebhookCall {
    /// Whether it had to wait for others: the webhook may be configured otherwise by now.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Makes the call; the answer may be any JSON.
    ///
    /// # Errors
    /// [`WebhookError`].
    pub async fn send(self, review: &Value) -> Result<Value, WebhookError> {
        let mut body = Vec::with_capacity(4096);
        json::write_untyped(review, &mut body);
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, ANY_JSON);
        headers.insert(USER_AGENT, UPSTREAM_AGENT);
        let url = self.url;
        let answer = self.client.call(request, self.bounds).await.map_err(|source| match source {
            CallError::Refused(status, _) => WebhookError::Refused { url, status },
            source => WebhookError::Call { url, source },
        })?;
        json::parse(&answer).map_err(WebhookError::Answer)
    }
}

/// Whether a `caBundle` is blank or valid.
pub fn is_ca_bundle(bundle: &str) -> bool {
    base64_text::decode(bundle).is_ok_and(|pem| tls::authorities_or_system(&pem).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_https() {
        let target = |url| WebhookTarget::of_url(url).map(|target| (target.authority(), target.path));
        assert_eq!(target("https://a.b:8443/x?y=z"), Some(("a.b:8443".into(), "/x?y=z".into())));
        assert_eq!(target("https://a.b"), Some(("a.b:443".into(), "/".into())));
        assert_eq!(target("https://[::1]/"), Some(("[::1]:443".into(), "/".into())));
        assert_eq!(target("http://a.b/"), None);
    }
}
