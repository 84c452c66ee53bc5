//! One question to a webhook over HTTPS.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use plinth_codec::{json, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server::Server;
use crate::storage::object;

/// The longest answer, in bytes: a patch of the largest object, and some.
const ANSWER: usize = 8 << 20;
/// Sets of authorities whose TLS settings are kept.
const SETTINGS_KEPT: usize = 64;

/// TLS settings by the authorities of a webhook (`caBundle` as it is written). The lock is held to look up and to put.
#[derive(Default)]
pub struct Settings(Mutex<HashMap<String, Arc<ClientConfig>>>);

impl Settings {
    fn of(&self, bundle: &str) -> Result<Arc<ClientConfig>, String> {
        if let Some(known) = self.0.lock().get(bundle) {
            return Ok(known.clone());
        }
        let made = Arc::new(settings(bundle)?);
        let mut kept = self.0.lock();
        if kept.len() >= SETTINGS_KEPT {
            kept.clear();
        }
        kept.insert(bundle.to_owned(), made.clone());
        Ok(made)
    }
}

fn settings(bundle: &str) -> Result<ClientConfig, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate
            .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block")?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// Name or address to connect to.
    host: String,
    port: u16,
    /// The name that the certificate must have.
    name: String,
    path: String,
}

/// Asks a webhook; the answer is whatever JSON it sends.
///
/// # Errors
/// One line for people that says what went wrong.
pub(super) async fn ask(
    server: &Server,
    config: &Value,
    review: &Value,
    timeout: Duration,
) -> Result<Value, String> {
    let target = target(server, config).await?;
    let settings = server.admission.webhook_settings.of(config.str_at(&["caBundle"]).unwrap_or_default())?;
    let separator = if target.path.contains('?') { '&' } else { '?' };
    let path = format!("{}{separator}timeout={}s", target.path, timeout.as_secs());
    let url = format!("https://{}:{}{path}", target.name, target.port);
    let failed = |why: String| format!("failed to call webhook: Post {url:?}: {why}");
    match tokio::time::timeout(timeout, post(&target, settings, path, review)).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(failed("context deadline exceeded".to_owned())),
    }
}

async fn target(server: &Server, config: &Value) -> Result<Target, String> {
    if let Some(url) = config.str_at(&["url"]) {
        return target_of_url(url).ok_or_else(|| format!("invalid URL {url:?}"));
    }
    let text = |key: &str| config.str_at(&["service", key]).unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let missing = || format!("service {name:?} not found");
    let registry = server.registry();
    let services = registry.get("", "v1", "services").ok_or_else(missing)?;
    let form = services.storage.as_ref().ok_or_else(missing)?;
    let record = server.store.get(form, namespace, name).await.map_err(|e| e.message)?;
    let service = object::to_tree(services, &record.ok_or_else(missing)?).map_err(|e| e.message)?;
    let host = match service.str_at(&["spec", "type"]) {
        Some("ExternalName") => service.str_at(&["spec", "externalName"]),
        _ => service.str_at(&["spec", "clusterIP"]).filter(|ip| !matches!(*ip, "" | "None")),
    };
    let server_name = format!("{name}.{namespace}.svc");
    let port = config.at(&["service", "port"]).and_then(Value::as_int).unwrap_or(443);
    Ok(Target {
        host: host.unwrap_or(&server_name).to_owned(),
        port: u16::try_from(port).map_err(|e| e.to_string())?,
        name: server_name,
        path: match text("path") {
            "" => "/".to_owned(),
            path => path.to_owned(),
        },
    })
}

fn target_of_url(url: &str) -> Option<Target> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?.trim_matches(['[', ']']).to_owned();
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Some(Target { port: uri.port_u16().unwrap_or(443), name: host.clone(), host, path })
}

async fn post(
    target: &Target,
    settings: Arc<ClientConfig>,
    path: String,
    review: &Value,
) -> Result<Value, String> {
    let text = |fault: &dyn std::fmt::Display| fault.to_string();
    let (host, port) = (target.host.as_str(), target.port);
    let tcp = TcpStream::connect((host, port)).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("dial tcp {host}:{port}: connect: connection refused")
        }
        _ => format!("dial tcp {host}:{port}: {e}"),
    })?;
    let name = ServerName::try_from(target.name.clone()).map_err(|e| text(&e))?;
    let tls = TlsConnector::from(settings).connect(name, tcp).await.map_err(|e| format!("tls: {e}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(|e| text(&e))?;
    // One exchange, one connection: it ends with the task's handle.
    let driving = tokio::spawn(connection);
    let mut body = Vec::with_capacity(4096);
    json::write_untyped(review, &mut body);
    let mut request = Request::post(path).body(Full::new(Bytes::from(body))).map_err(|e| text(&e))?;
    let headers = request.headers_mut();
    let authority = format!("{}:{}", target.name, target.port);
    headers.insert(HOST, HeaderValue::try_from(authority).map_err(|e| text(&e))?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    let response = sender.send_request(request).await.map_err(|e| text(&e))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER).collect().await;
    driving.abort();
    if !status.is_success() {
        return Err(format!("the server answered {status}"));
    }
    let body = body.map_err(|_| "the answer is too long or broke off".to_owned())?.to_bytes();
    json::parse(&body).map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_https() {
        let target = |url| target_of_url(url).map(|t| (t.host, t.port, t.path));
        assert_eq!(target("https://a.b:8443/x?y=z"), Some(("a.b".into(), 8443, "/x?y=z".into())));
        assert_eq!(target("https://a.b"), Some(("a.b".into(), 443, "/".into())));
        assert_eq!(target("http://a.b/"), None);
    }
}
