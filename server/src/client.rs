//! Requests to a running server, with the credentials of a kubeconfig.

use std::io::Write;
use std::path::Path;

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, Uri};

use plinth_apiserver::egress::connection::ConnectError;
use plinth_apiserver::egress::kubeconfig::{Kubeconfig, KubeconfigError};

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
    #[error("the server responded with {0}: {1}")]
    Refused(StatusCode, String),
    #[error("the response was interrupted: {0}")]
    BrokenOff(hyper::Error),
    #[error("cannot write the response: {0}")]
    Write(std::io::Error),
}

/// GETs a path of a kubeconfig's server into `out`, in chunks; returns the number of bytes. Runs its own
/// runtime.
///
/// # Errors
/// See [`ClientError`].
pub fn download(kubeconfig: &Path, path: &'static str, out: &mut impl Write) -> Result<u64, ClientError> {
    request(kubeconfig, (Method::GET, Uri::from_static(path)), out)
}

/// Sends DELETE to a path of a kubeconfig's server. Runs its own runtime.
///
/// # Errors
/// See [`ClientError`].
pub fn delete(kubeconfig: &Path, path: Uri) -> Result<(), ClientError> {
    request(kubeconfig, (Method::DELETE, path), &mut std::io::sink()).map(|_| ())
}

fn request(kubeconfig: &Path, target: (Method, Uri), out: &mut impl Write) -> Result<u64, ClientError> {
    let kubeconfig = Kubeconfig::read(kubeconfig)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ClientError::Runtime)?.block_on(send(&kubeconfig, target, out))
}

async fn send(
    kubeconfig: &Kubeconfig,
    (method, path): (Method, Uri),
    out: &mut impl Write,
) -> Result<u64, ClientError> {
    let unreachable =
        |source: ConnectError| ClientError::Unreachable { server: kubeconfig.url.clone(), source };
    let mut sender = kubeconfig.origin.connect().await.map_err(unreachable)?;
    let mut request = Request::new(Full::default());
    (*request.method_mut(), *request.uri_mut()) = (method, path);
    kubeconfig.origin.set_headers(&mut request);
    let mut response = sender.send_request(request).await.map_err(|e| unreachable(e.into()))?;
    if response.status() != StatusCode::OK {
        let status = response.status();
        let text = response.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        return Err(ClientError::Refused(status, message(&text)));
    }
    let mut bytes = 0u64;
    while let Some(frame) = response.frame().await {
        let frame = frame.map_err(ClientError::BrokenOff)?;
        if let Some(data) = frame.data_ref() {
            out.write_all(data).map_err(ClientError::Write)?;
            bytes += data.len() as u64;
        }
    }
    Ok(bytes)
}

/// The error message of a response: that of a Status, or else its text on one line.
fn message(body: &[u8]) -> String {
    let status = plinth_codec::yaml::to_value(body).ok();
    let message = status.as_ref().and_then(|(status, _)| status.str_at(&["message"])).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" "))
}
