//! A small HTTPS client for the services that the server asks: one JSON document there, one back.
//!
//! Everything is bounded: the time of a call, the requests in flight, the size of an answer. Connections are kept and used
//! again; one that has gone bad is replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderValue, ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plinth_codec::{yaml, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::tls;

/// Requests in flight to one service.
const CONCURRENCY: usize = 64;
/// Largest answer, in bytes.
const ANSWER: usize = 3 << 20;
/// How often a service is asked, and the first pause between; each later one is half as long again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a kubeconfig gives no client.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct KubeconfigError {
    path: PathBuf,
    what: String,
}

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection to be had, or it broke.
    #[error("cannot reach {server}: {what}")]
    Unreachable {
        /// Where to.
        server: String,
        /// What the connection says.
        what: String,
    },
    /// It took too long.
    #[error("{server} did not answer in {limit:?}")]
    Timeout {
        /// Where to.
        server: String,
        /// How long was waited.
        limit: Duration,
    },
    /// A code that is no success.
    #[error("the server answered {0}: {1}")]
    Refused(StatusCode, String),
}

impl CallError {
    /// Whether it may go better in a moment (k8s.io/apiserver `pkg/util/webhook`, `DefaultShouldRetry`).
    fn is_worth_another_try(&self) -> bool {
        match self {
            CallError::Unreachable { .. } => true,
            CallError::Timeout { .. } => false,
            CallError::Refused(status, _) => status.as_u16() == 429 || status.is_server_error(),
        }
    }
}

/// One service. Cheap to share behind an `Arc`; the lock of the idle connections is held to take and to put back.
pub struct Client {
    server: Uri,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    places: Semaphore,
}

impl Client {
    /// The service and credentials of a kubeconfig's current context, as for kubectl: certificates and keys inline or in
    /// files, a token or a password.
    ///
    /// # Errors
    /// When the file cannot be read or lacks something; one line for people.
    pub fn from_kubeconfig(path: &Path, timeout: Duration) -> Result<Client, KubeconfigError> {
        read_kubeconfig(path, timeout).map_err(|what| KubeconfigError { path: path.to_owned(), what })
    }

    /// Sends a JSON document and gives back the answer.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn post(&self, document: Bytes) -> Result<Bytes, CallError> {
        match tokio::time::timeout(self.timeout, self.send(document)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::Timeout { server: self.server.to_string(), limit: self.timeout }),
        }
    }

    /// The same, tried again a few times when that may help.
    ///
    /// # Errors
    /// That of the last attempt.
    pub async fn post_patiently(&self, document: Bytes) -> Result<Bytes, CallError> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.post(document.clone()).await {
                Err(fault) if fault.is_worth_another_try() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
        self.post(document).await
    }

    async fn send(&self, document: Bytes) -> Result<Bytes, CallError> {
        let unreachable = |what: String| CallError::Unreachable { server: self.server.to_string(), what };
        let _place = self.places.acquire().await.map_err(|e| unreachable(e.to_string()))?;
        loop {
            let kept = self.idle.lock().pop();
            let was_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await.map_err(unreachable)?,
            };
            let mut request = Request::post(self.server.path_and_query().map_or("/", |path| path.as_str()))
                .header(CONTENT_TYPE, JSON)
                .header(ACCEPT, JSON)
                .header(USER_AGENT, concat!("plinth/", env!("CARGO_PKG_VERSION")))
                .header(HOST, self.server.authority().map_or("", |authority| authority.as_str()))
                .body(Full::new(document.clone()))
                .map_err(|e| unreachable(e.to_string()))?;
            if let Some(value) = &self.authorization {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
            }
            let sent = match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(fault) => Err(fault),
            };
            let response = match sent {
                Ok(response) => response,
                // A kept connection may have been closed by the other side meanwhile: that is no fault.
                Err(_) if was_kept => continue,
                Err(fault) => return Err(unreachable(fault.to_string())),
            };
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER).collect().await;
            let body = body.map_err(|fault| unreachable(fault.to_string()))?.to_bytes();
            self.idle.lock().push(sender);
            return match status {
                good if good.is_success() => Ok(body),
                other => {
                    const SHOWN: usize = 512;
                    let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
                    Err(CallError::Refused(other, shown))
                }
            };
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.server.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|e| e.to_string())?;
        let no_delay = stream.set_nodelay(true);
        no_delay.map_err(|e| e.to_string())?;
        match &self.tls {
            None => handshake(stream).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                handshake(connector.connect(name.clone(), stream).await.map_err(|e| e.to_string())?).await
            }
        }
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // Ends by itself when the sender is dropped; its fault reaches the request in flight.
    tokio::spawn(connection);
    Ok(sender)
}

fn read_kubeconfig(path: &Path, timeout: Duration) -> Result<Client, String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    let (config, _) = yaml::to_value(&text).map_err(|e| e.to_string())?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let context = named(&config, "contexts", config.str_at(&["current-context"]).unwrap_or_default())
        .and_then(|entry| entry.get("context"))
        .ok_or("no current context")?;
    let part = |list: &str, key: &str| {
        let name = context.str_at(&[key]).unwrap_or_default();
        named(&config, list, name).and_then(|entry| entry.get(key))
    };
    let cluster = part("clusters", "cluster").ok_or("no cluster")?;
    let nobody = Value::object();
    let user = part("users", "user").unwrap_or(&nobody);
    let server = cluster.str_at(&["server"]).unwrap_or_default();
    let server: Uri = server.parse().map_err(|_| format!("{server:?} is no URL"))?;
    let secure = match server.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(format!("{server} is neither http nor https")),
    };
    let tls = match secure {
        true => Some(client_tls(cluster, user, dir, &server)?),
        false => None,
    };
    let authorization = authorization(user, dir)?;
    let (idle, places) = (Mutex::default(), Semaphore::new(CONCURRENCY));
    Ok(Client { server, tls, authorization, timeout, idle, places })
}

fn client_tls(
    cluster: &Value,
    user: &Value,
    dir: &Path,
    server: &Uri,
) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    // An authority is always named: whom to trust with every decision is not left to the machine's list.
    let ca = pem(cluster, dir, "certificate-authority")?.ok_or("no certificate-authority")?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&ca) {
        roots.add(authority.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    let builder = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots);
    let config = match (pem(user, dir, "client-certificate")?, pem(user, dir, "client-key")?) {
        (Some(chain), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| e.to_string())?;
            builder
                .with_client_auth_cert(chain.map_err(|e| e.to_string())?, key)
                .map_err(|e| e.to_string())?
        }
        _ => builder.with_no_client_auth(),
    };
    let host = cluster.str_at(&["tls-server-name"]).filter(|name| !name.is_empty());
    let host = host.unwrap_or(server.host().unwrap_or_default().trim_matches(['[', ']'])).to_owned();
    let name = ServerName::try_from(host).map_err(|e| e.to_string())?;
    Ok((Arc::new(config), name))
}

fn authorization(user: &Value, dir: &Path) -> Result<Option<HeaderValue>, String> {
    let text = |key: &str| user.str_at(&[key]).filter(|text| !text.is_empty());
    let value = match (text("token"), text("tokenFile"), text("username")) {
        (Some(token), ..) => format!("Bearer {token}"),
        (None, Some(file), _) => {
            let token = std::fs::read_to_string(dir.join(file)).map_err(|e| format!("{file}: {e}"))?;
            format!("Bearer {}", token.trim())
        }
        (None, None, Some(name)) => {
            format!("Basic {}", STANDARD.encode(format!("{name}:{}", text("password").unwrap_or_default())))
        }
        (None, None, None) => return Ok(None),
    };
    let mut value = HeaderValue::try_from(value).map_err(|e| e.to_string())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// PEM of `KEY-data` (base64) or of the file that `KEY` names.
fn pem(entry: &Value, dir: &Path, key: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = entry.str_at(&[&format!("{key}-data")]) {
        let bytes = STANDARD.decode(data).map_err(|e| format!("{key}-data: {e}"))?;
        return Ok(Some(bytes));
    }
    let Some(file) = entry.str_at(&[key]) else { return Ok(None) };
    let bytes = std::fs::read(dir.join(file)).map_err(|e| format!("{key}: {file}: {e}"))?;
    Ok(Some(bytes))
}

fn named<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let entries = config.get(list).and_then(Value::as_array)?;
    entries.iter().find(|entry| entry.str_at(&["name"]) == Some(name))
}
