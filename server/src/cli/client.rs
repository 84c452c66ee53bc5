//! A small HTTPS client for the commands that talk to a running server: one GET with a kubeconfig's credentials.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use plinth_codec::{yaml, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::tls;

/// Why a running server could not be asked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ClientError {
    #[error("{path}: {what}")]
    Kubeconfig { path: PathBuf, what: String },
    #[error("cannot reach {server}: {what}")]
    Unreachable { server: String, what: String },
    #[error("the server answered {0}: {1}")]
    Refused(StatusCode, String),
    #[error("the answer broke off: {0}")]
    BrokenOff(String),
}

/// Server and credentials of a kubeconfig's current context.
pub struct KubeconfigClient {
    server: Uri,
    tls: Arc<ClientConfig>,
}

impl KubeconfigClient {
    /// Reads a kubeconfig with inline credentials, as `plinth serve` writes it.
    ///
    /// # Errors
    /// [`ClientError::Kubeconfig`].
    pub fn read(path: &Path) -> Result<KubeconfigClient, ClientError> {
        let bad = |what: String| ClientError::Kubeconfig { path: path.to_owned(), what };
        let text = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
        let (config, _) = yaml::to_value(&text).map_err(|e| bad(e.to_string()))?;
        let missing = |what: &str| bad(format!("no {what}"));
        let current = config.str_at(&["current-context"]).unwrap_or_default();
        let context = named(&config, "contexts", current).ok_or_else(|| missing("current context"))?;
        let part = |list: &str, key: &str| {
            named(&config, list, context.str_at(&["context", key]).unwrap_or_default())
        };
        let cluster = part("clusters", "cluster").ok_or_else(|| missing("cluster"))?;
        let user = part("users", "user").ok_or_else(|| missing("user"))?;
        let inline = |entry: &Value, kind: &str, key: &str| -> Result<Vec<u8>, ClientError> {
            let data = entry.str_at(&[kind, key]).ok_or_else(|| missing(key))?;
            STANDARD.decode(data).map_err(|e| bad(format!("{key}: {e}")))
        };
        let ca = inline(cluster, "cluster", "certificate-authority-data")?;
        let cert = inline(user, "user", "client-certificate-data")?;
        let key = inline(user, "user", "client-key-data")?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&ca) {
            let authority = authority.map_err(|e| bad(e.to_string()))?;
            roots.add(authority).map_err(|e| bad(e.to_string()))?;
        }
        let chain = CertificateDer::pem_slice_iter(&cert)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| bad(e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| bad(e.to_string()))?;
        let tls = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, key))
            .map_err(|e| bad(e.to_string()))?;
        let server = cluster.str_at(&["cluster", "server"]).unwrap_or_default();
        let server = server.parse().map_err(|_| bad(format!("{server:?} is no URL")))?;
        Ok(KubeconfigClient { server, tls: Arc::new(tls) })
    }

    /// GETs a path into `out`; gives the number of bytes. Runs a runtime of its own for as long as it takes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn download(&self, path: &str, out: &mut impl Write) -> Result<u64, ClientError> {
        let unreachable = |what: String| ClientError::Unreachable { server: self.server.to_string(), what };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| unreachable(e.to_string()))?;
        runtime.block_on(self.get(path, out))
    }

    async fn get(&self, path: &str, out: &mut impl Write) -> Result<u64, ClientError> {
        let unreachable = |what: String| ClientError::Unreachable { server: self.server.to_string(), what };
        let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.server.port_u16().unwrap_or(443);
        let name = ServerName::try_from(host.clone()).map_err(|e| unreachable(e.to_string()))?;
        let stream =
            TcpStream::connect((host.as_str(), port)).await.map_err(|e| unreachable(e.to_string()))?;
        let stream = TlsConnector::from(self.tls.clone())
            .connect(name, stream)
            .await
            .map_err(|e| unreachable(e.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| unreachable(e.to_string()))?;
        let driver = tokio::spawn(connection);
        let request = Request::get(path)
            .header(hyper::header::HOST, host)
            .body(Empty::<Bytes>::new())
            .map_err(|e| unreachable(e.to_string()))?;
        let mut response = sender.send_request(request).await.map_err(|e| unreachable(e.to_string()))?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            let text = response.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            return Err(ClientError::Refused(status, String::from_utf8_lossy(&text).into_owned()));
        }
        let mut bytes = 0u64;
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|e| ClientError::BrokenOff(e.to_string()))?;
            if let Some(data) = frame.data_ref() {
                out.write_all(data).map_err(|e| ClientError::BrokenOff(e.to_string()))?;
                bytes += data.len() as u64;
            }
        }
        driver.abort();
        Ok(bytes)
    }
}

fn named<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let entries = config.get(list).and_then(Value::as_array)?;
    entries.iter().find(|entry| entry.str_at(&["name"]) == Some(name))
}
