//! Client of a KMS plugin: three unary gRPC calls over HTTP/2 on a Unix socket.
//!
//! Service and messages are those of k8s.io/kms `apis/v2/api.proto`. Three calls of two fields each do not
//! justify the build time of a gRPC framework.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderValue, CONTENT_TYPE, TE};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plinth_codec::error::quoted;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// Maximum size of a response, in bytes.
const LONGEST: usize = 1 << 20;
/// Length of the gRPC message prefix: compressed flag and length.
const PREFIX: usize = 5;
/// Most that a `grpc-timeout` has before its unit: eight digits.
const MAX_TIMEOUT: u128 = 99_999_999;

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KmsError {
    /// The socket cannot be connected to.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, std::io::Error),
    /// HTTP/2 error.
    #[error("rpc error: {0}")]
    Transport(String),
    /// The plugin returned an error.
    #[error("rpc error: code = {code} desc = {message}")]
    Status {
        /// `grpc-status`.
        code: String,
        /// `grpc-message`.
        message: String,
    },
    /// The response is malformed.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// The call timed out.
    #[error("context deadline exceeded")]
    TimeOut,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

/// `StatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    /// KMS API version of the plugin.
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or an error text.
    #[prost(string, tag = "2")]
    pub healthz: String,
    /// ID of the key that the plugin encrypts with.
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

/// `EncryptResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptResponse {
    /// The encrypted bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    /// ID of the key that they were encrypted with.
    #[prost(string, tag = "2")]
    pub key_id: String,
    /// Annotations that decryption needs.
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// A plugin. One connection, established on first use and after it broke; the lock is held while it is
/// established.
pub(super) struct Client {
    socket: PathBuf,
    timeout: Duration,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// The plugin behind that socket: a path, or `@` and an abstract name, as Go has them.
    pub(super) fn new(socket: &str, timeout: Duration) -> Client {
        let socket = match socket.strip_prefix('@') {
            Some(name) => PathBuf::from(format!("\0{name}")),
            None => PathBuf::from(socket),
        };
        Client { socket, timeout, connection: Mutex::new(None) }
    }

    /// Health, version and current key ID of the plugin.
    pub(super) async fn status(&self) -> Result<StatusResponse, KmsError> {
        self.call("Status", &StatusRequest {}).await
    }

    /// Encrypts bytes with the plugin.
    pub(super) async fn encrypt(&self, plaintext: &[u8]) -> Result<EncryptResponse, KmsError> {
        let request = EncryptRequest { plaintext: plaintext.to_vec(), uid: uid() };
        self.call("Encrypt", &request).await
    }

    /// Decrypts bytes that the plugin encrypted.
    pub(super) async fn decrypt(
        &self,
        ciphertext: &[u8],
        key_id: &str,
        annotations: BTreeMap<String, Vec<u8>>,
    ) -> Result<Vec<u8>, KmsError> {
        let request = DecryptRequest {
            ciphertext: ciphertext.to_vec(),
            uid: uid(),
            key_id: key_id.to_owned(),
            annotations,
        };
        self.call::<DecryptResponse>("Decrypt", &request).await.map(|answer| answer.plaintext)
    }

    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, KmsError> {
        match tokio::time::timeout(self.timeout, self.call_once(method, request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(KmsError::TimeOut),
        }
    }

    async fn call_once<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, KmsError> {
        let broken = |e: hyper::Error| KmsError::Transport(e.to_string());
        let deadline = Instant::now() + self.timeout;
        let mut connection = self.connect().await?;
        let mut message = BytesMut::with_capacity(PREFIX + request.encoded_len());
        message.put_u8(0);
        message.put_u32(u32::try_from(request.encoded_len()).unwrap_or(u32::MAX));
        request.encode(&mut message).map_err(|e| KmsError::Transport(e.to_string()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost/v2.KeyManagementService/{method}"))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
            .header(TE, HeaderValue::from_static("trailers"))
            .header("grpc-timeout", timeout_header(deadline.saturating_duration_since(Instant::now())))
            .body(Full::new(message.freeze()))
            .map_err(|e| KmsError::Transport(e.to_string()))?;
        let response = connection.send_request(request).await.map_err(broken)?;
        let (parts, body) = response.into_parts();
        let body =
            Limited::new(body, LONGEST).collect().await.map_err(|e| KmsError::Transport(e.to_string()))?;
        // An error without a message has its status in the headers, all else in the trailers.
        let has_status = check(&parts.headers)? | body.trailers().map_or(Ok(false), check)?;
        if !has_status {
            return Err(KmsError::Answer(format!("HTTP status {}, no grpc-status", parts.status)));
        }
        decode_message(&body.to_bytes())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, KmsError> {
        let mut connection = self.connection.lock().await;
        if let Some(alive) = connection.as_ref().filter(|c| !c.is_closed()) {
            return Ok(alive.clone());
        }
        let error = |e| KmsError::Connect(self.socket.display().to_string().replace('\0', "@"), e);
        let stream = UnixStream::connect(&self.socket).await.map_err(error)?;
        let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|e| KmsError::Transport(e.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection to KMS plugin closed");
            }
        });
        *connection = Some(sender.clone());
        Ok(sender)
    }
}

/// Each call has an ID, which the plugin logs.
fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The value of `grpc-timeout`, rounded up, in the smallest unit that has few enough digits for it.
fn timeout_header(left: Duration) -> String {
    let units = [("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", 1_000_000_000)];
    let mut amounts = units.iter().map(|(unit, nanos)| (unit, left.as_nanos().div_ceil(*nanos)));
    let (unit, amount) = amounts.find(|(_, amount)| *amount <= MAX_TIMEOUT).unwrap_or((&"S", MAX_TIMEOUT));
    format!("{amount}{unit}")
}

/// Decodes the one message of a response.
fn decode_message<A: Message + Default>(body: &[u8]) -> Result<A, KmsError> {
    let Some(([compressed, length @ ..], message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(KmsError::Answer(format!("it has {} bytes and no message", body.len())));
    };
    if *compressed != 0 {
        return Err(KmsError::Answer("it is compressed".into()));
    }
    let length = u32::from_be_bytes(*length);
    if usize::try_from(length).ok() != Some(message.len()) {
        let found = message.len();
        return Err(KmsError::Answer(format!("a message of {length} bytes is announced, {found} follow")));
    }
    A::decode(message).map_err(|e| KmsError::Answer(e.to_string()))
}

/// A text of a plugin as it may stand in a line of a log.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 256;
    let beginning: String = text.chars().take(MOST).collect();
    let quoted = quoted(&beginning);
    // Most are plain, and stay as they are.
    match quoted.len() == beginning.len() + 2 {
        true => beginning,
        false => quoted,
    }
}

/// Whether the headers have a status; an error if that is one.
fn check(headers: &HeaderMap) -> Result<bool, KmsError> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    match text("grpc-status") {
        None => Ok(false),
        Some(code) if code == "0" => Ok(true),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            let message = percent_encoding::percent_decode_str(&message).decode_utf8_lossy();
            Err(KmsError::Status { code, message: shown(&message) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_plugins_are_one_short_line() {
        assert_eq!(shown("unhealthy: no key"), "unhealthy: no key");
        assert_eq!(shown("a\n\u{1b}[2Jb"), r#""a\n\x1b[2Jb""#);
        assert_eq!(shown(&"x".repeat(5000)).len(), 256);
    }

    #[test]
    fn a_timeout_has_at_most_eight_digits() {
        for (left, expected) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(3), "3000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(timeout_header(left), expected, "{left:?}");
        }
    }

    #[test]
    fn a_response_has_one_message_of_the_length_that_it_announces() {
        let status = StatusResponse { version: "v2".into(), ..StatusResponse::default() };
        let encoded = status.encode_to_vec();
        let framed = |compressed: u8, length: usize| {
            let mut body = vec![compressed];
            body.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            body.extend_from_slice(&encoded);
            body
        };
        let whole = framed(0, encoded.len());
        assert_eq!(decode_message::<StatusResponse>(&whole).unwrap(), status);
        let twice = [whole.clone(), whole.clone()].concat();
        let shorter = &whole[..whole.len() - 1];
        let all = [
            (&[][..], "it has 0 bytes and no message"),
            (&whole[..4], "it has 4 bytes and no message"),
            (shorter, "a message of 4 bytes is announced, 3 follow"),
            (&twice, "a message of 4 bytes is announced, 13 follow"),
            (&framed(1, encoded.len()), "it is compressed"),
            (&framed(0, 0), "a message of 0 bytes is announced, 4 follow"),
        ];
        for (body, expected) in all {
            let error = decode_message::<StatusResponse>(body).unwrap_err();
            assert_eq!(error.to_string(), format!("the answer cannot be read: {expected}"));
        }
    }
}
