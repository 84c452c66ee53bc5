//! Requests to a running server: with the credentials of a kubeconfig, or with others.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode, Uri};

use plinth_apiserver::egress::client::Origin;
use plinth_apiserver::egress::connection::ConnectError;
use plinth_apiserver::egress::kubeconfig::{Kubeconfig, KubeconfigError};

/// Time limit of connecting, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a server in a response.
const SILENCE: Duration = Duration::from_secs(120);
/// Bytes of an error response that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A failed request to a running server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ClientError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error("cannot reach {server}: {source}")]
    Unreachable { server: String, source: ConnectError },
    #[error("{0} does not answer")]
    Silent(String),
    #[error("the server responded with {0}: {1}")]
    Refused(StatusCode, String),
    #[error("the response was interrupted: {0}")]
    BrokenOff(hyper::Error),
    #[error("cannot write the response: {0}")]
    Write(std::io::Error),
    #[error("standard output: {0}")]
    Output(std::io::Error),
    #[error("the response to {path} is longer than {most} bytes")]
    TooLong { path: String, most: u64 },
    #[error(
        "{0} is a server of the Kubernetes API, or none, but not plinth: it has no metrics of the engine"
    )]
    OtherServer(String),
}

/// A server, and with whose credentials it is asked.
pub struct ServerClient {
    origin: Origin,
    url: String,
}

impl ServerClient {
    /// The server of a kubeconfig's current context.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn of_kubeconfig(path: &Path) -> Result<ServerClient, ClientError> {
        let Kubeconfig { origin, url, .. } = Kubeconfig::read(path)?;
        Ok(ServerClient { origin, url })
    }

    /// A server at `url`, which errors name.
    pub fn new(origin: Origin, url: String) -> ServerClient {
        ServerClient { origin, url }
    }

    /// URL of the server, as in the kubeconfig.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its address and credentials.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// GETs a path into `out`, in chunks; returns the number of bytes. Runs its own runtime.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get(&self, path: &str, out: &mut impl Write) -> Result<u64, ClientError> {
        self.call(Method::GET, path, "", out)
    }

    /// GETs a path into memory, up to `most` bytes: the server may be any.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_whole(&self, path: &str, most: u64) -> Result<Vec<u8>, ClientError> {
        let mut out = Bounded { text: Vec::new(), most };
        match self.get(path, &mut out) {
            Err(ClientError::Write(_)) => Err(ClientError::TooLong { path: path.to_owned(), most }),
            other => other.map(|_| out.text),
        }
    }

    /// Sends a request with a JSON body, or with none where it is empty, and writes the response to `out` in
    /// chunks; returns its number of bytes. Runs its own runtime.
    ///
    /// # Errors
    /// See [`ClientError`]; an error status is [`ClientError::Refused`].
    pub fn call(
        &self,
        method: Method,
        path: &str,
        body: &str,
        out: &mut impl Write,
    ) -> Result<u64, ClientError> {
        let invalid = |_| ClientError::Refused(StatusCode::NOT_FOUND, format!("{path:?} is no path"));
        let mut request = Request::new(Full::from(body.to_owned()));
        (*request.method_mut(), *request.uri_mut()) = (method, Uri::try_from(path).map_err(invalid)?);
        if !body.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.origin.set_headers(&mut request);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(ClientError::Runtime)?.block_on(self.send(request, out))
    }

    async fn send(
        &self,
        request: Request<Full<bytes::Bytes>>,
        out: &mut impl Write,
    ) -> Result<u64, ClientError> {
        let unreachable =
            |source: ConnectError| ClientError::Unreachable { server: self.url.clone(), source };
        let silent = |_| ClientError::Silent(self.url.clone());
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.origin.connect()).await;
        let mut connection = connected.map_err(silent)?.map_err(unreachable)?;
        let answered = tokio::time::timeout(SILENCE, connection.send(request)).await;
        let mut response = answered.map_err(silent)?.map_err(|e| unreachable(e.into()))?;
        let status = response.status();
        if !status.is_success() {
            let body = http_body_util::Limited::new(response, MAX_ERROR_BYTES);
            let text = tokio::time::timeout(SILENCE, body.collect()).await.map_err(silent)?;
            let text = text.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(ClientError::Refused(status, message(&text)));
        }
        let mut bytes = 0u64;
        while let Some(frame) = tokio::time::timeout(SILENCE, response.frame()).await.map_err(silent)? {
            let frame = frame.map_err(ClientError::BrokenOff)?;
            if let Some(data) = frame.data_ref() {
                out.write_all(data).map_err(ClientError::Write)?;
                bytes += data.len() as u64;
            }
        }
        Ok(bytes)
    }
}

/// Bytes in memory, up to a limit.
struct Bounded {
    text: Vec<u8>,
    most: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.text.len() + bytes.len()) as u64 > self.most {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The error message of a response: that of a Status, or else its text on one line. Without control
/// characters but for line breaks, with which a server could write anything to a terminal.
fn message(body: &[u8]) -> String {
    let status = plinth_codec::yaml::to_value(body).ok();
    let message = status.as_ref().and_then(|(status, _)| status.str_at(&["message"])).map(str::to_owned);
    let message = message
        .unwrap_or_else(|| String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" "));
    message.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}
