//! One GET over HTTPS, for an issuer's configuration and keys. Everything is bounded: time, size, redirects (none).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::tls;

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer, in bytes.
const LARGEST: usize = 1 << 20;
/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Authorities of a PEM text; the system's when it is empty.
///
/// # Errors
/// When there is none that can be used.
pub(super) fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let text = match pem.is_empty() {
        false => pem.as_bytes().to_vec(),
        true => {
            let file = SYSTEM.iter().find(|path| Path::new(path).exists());
            file.and_then(|path| std::fs::read(path).ok()).unwrap_or_default()
        }
    };
    for authority in CertificateDer::pem_slice_iter(&text) {
        let authority = authority.map_err(|fault| fault.to_string())?;
        if let Err(fault) = roots.add(authority) {
            // Of the system's many authorities some are of forms that nobody should use any more.
            if !pem.is_empty() {
                return Err(fault.to_string());
            }
        }
    }
    match roots.is_empty() {
        true => Err("data does not contain any valid certificates".into()),
        false => Ok(roots),
    }
}

/// TLS settings that trust these authorities.
///
/// # Errors
/// As [`roots`].
pub(super) fn client(pem: &str) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|fault| fault.to_string())?
        .with_root_certificates(roots(pem)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The body behind a URL.
///
/// # Errors
/// What went wrong, for the log.
pub(super) async fn get(tls: &Arc<ClientConfig>, url: &str) -> Result<Bytes, String> {
    match tokio::time::timeout(TIMEOUT, get_unbounded(tls, url)).await {
        Ok(outcome) => outcome.map_err(|fault| format!("Get {url:?}: {fault}")),
        Err(_) => Err(format!("Get {url:?}: no answer in {TIMEOUT:?}")),
    }
}

async fn get_unbounded(tls: &Arc<ClientConfig>, url: &str) -> Result<Bytes, String> {
    let url: Uri = url.parse().map_err(|_| "no URL".to_owned())?;
    if url.scheme_str() != Some("https") {
        return Err("not https".into());
    }
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_u16().unwrap_or(443);
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|fault| fault.to_string())?;
    let name = ServerName::try_from(host).map_err(|fault| fault.to_string())?;
    let stream =
        TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(|fault| fault.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|fault| fault.to_string())?;
    // Ends with the sender.
    tokio::spawn(connection);
    let request = Request::get(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, url.authority().map_or("", |authority| authority.as_str()))
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("plinth/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|fault| fault.to_string())?;
    let response = sender.send_request(request).await.map_err(|fault| fault.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(response.status().to_string());
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    body.map(|body| body.to_bytes()).map_err(|fault| fault.to_string())
}
