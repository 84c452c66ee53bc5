//! A plugin on a socket: seeds are cached, rotated with the plugin's key, and given back after a restart.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

use super::super::wire::SealedValue;
use super::*;

#[derive(Clone, PartialEq, Message)]
struct Bytes1 {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

/// A plugin whose cipher is XOR with the number of its key.
struct Plugin {
    key: AtomicUsize,
    decrypted: AtomicUsize,
    encrypted: AtomicUsize,
    healthy: std::sync::atomic::AtomicBool,
    broken: Mutex<Option<Broken>>,
    /// `grpc-timeout` of the last request.
    timeout: Mutex<String>,
}

/// What is wrong with the responses of a plugin.
enum Broken {
    /// They end without trailers.
    NoStatus,
    /// They have their message twice.
    Doubled,
}

impl Plugin {
    fn serve(socket: &std::path::Path) -> Arc<Plugin> {
        let plugin = Arc::new(Plugin {
            key: AtomicUsize::new(1),
            decrypted: AtomicUsize::new(0),
            encrypted: AtomicUsize::new(0),
            healthy: true.into(),
            broken: Mutex::default(),
            timeout: Mutex::default(),
        });
        let listener = UnixListener::bind(socket).unwrap();
        let own = plugin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let plugin = own.clone();
                let service = service_fn(move |request| {
                    let plugin = plugin.clone();
                    async move { Ok::<_, Infallible>(plugin.answer(request).await) }
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(async move {
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        plugin
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Frames> {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        assert_eq!(request.uri().path(), format!("/v2.KeyManagementService/{method}"));
        assert_eq!(request.headers()["content-type"], "application/grpc");
        *self.timeout.lock() = request.headers()["grpc-timeout"].to_str().unwrap().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let request = Bytes1::decode(&body[5..]).unwrap_or_default();
        let key = self.key.load(Ordering::SeqCst);
        let id = |key: usize| format!("key-{key}");
        let xor = |bytes: &[u8], key: usize| bytes.iter().map(|b| b ^ key as u8).collect::<Vec<u8>>();
        let annotations = [("a.example.com".to_owned(), b"x".to_vec())].into();
        let message = match method.as_str() {
            "Status" => {
                let healthz = if self.healthy.load(Ordering::SeqCst) { "ok" } else { "unhealthy" };
                StatusResponse { version: "v2".into(), healthz: healthz.into(), key_id: id(key) }
                    .encode_to_vec()
            }
            "Encrypt" => {
                self.encrypted.fetch_add(1, Ordering::SeqCst);
                EncryptResponse { ciphertext: xor(&request.bytes, key), key_id: id(key), annotations }
                    .encode_to_vec()
            }
            "Decrypt" => {
                self.decrypted.fetch_add(1, Ordering::SeqCst);
                assert_eq!(request.annotations, annotations);
                let key: usize = request.key_id.strip_prefix("key-").unwrap().parse().unwrap();
                Bytes1 { bytes: xor(&request.bytes, key), ..Bytes1::default() }.encode_to_vec()
            }
            other => panic!("{other}"),
        };
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(&message);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let mut frames = vec![Frame::trailers(trailers), Frame::data(framed.freeze())];
        match *self.broken.lock() {
            None => {}
            Some(Broken::NoStatus) => drop(frames.remove(0)),
            Some(Broken::Doubled) => {
                let data = frames[1].data_ref().unwrap().clone();
                frames.push(Frame::data(data));
            }
        }
        Response::new(Frames(frames))
    }
}

/// Frames of an answer, the last first.
struct Frames(Vec<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

fn open(kms: &Kms, body: &[u8]) -> Result<Vec<u8>, TransformError> {
    kms.open(b"place", &SealedValue::read(body).unwrap())
}

fn seal(kms: &Kms, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    kms.seal(b"place", plain, &mut out).unwrap();
    out
}

async fn start(socket: &std::path::Path) -> Kms {
    Kms::start("plugin".into(), socket.to_str().unwrap(), Duration::from_secs(5), RemoteWaits::default())
        .await
}

// Opening a value may wait for the plugin, which needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_is_decrypted_once_and_replaced_with_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let plugin = Plugin::serve(&socket);
    let kms = start(&socket).await;
    let bodies: Vec<Vec<u8>> = (0u8..50).map(|n| seal(&kms, &[n; 100])).collect();
    for (n, body) in bodies.iter().enumerate() {
        assert_eq!(open(&kms, body).unwrap(), vec![n as u8; 100]);
        assert!(!body.windows(100).any(|w| w == [n as u8; 100]), "the value is readable");
    }
    assert_eq!((plugin.encrypted.load(Ordering::SeqCst), plugin.decrypted.load(Ordering::SeqCst)), (1, 0));
    // The plugin's key changes: old values are read with the old seed and are stale.
    plugin.key.store(2, Ordering::SeqCst);
    kms.shared.check().await.unwrap();
    let newer = seal(&kms, b"newer");
    let current = |body: &[u8]| kms.is_current(&SealedValue::read(body).unwrap());
    assert!(current(&newer) && !current(&bodies[0]));
    assert_eq!(open(&kms, &bodies[0]).unwrap(), [0; 100]);
    assert_eq!((plugin.encrypted.load(Ordering::SeqCst), plugin.decrypted.load(Ordering::SeqCst)), (2, 0));
    // After a restart both seeds are decrypted, once each.
    let again = start(&socket).await;
    for body in bodies.iter().chain([&newer]) {
        open(&again, body).unwrap();
    }
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 2);
    // A value belongs to its place, and cannot be changed.
    assert!(again.open(b"elsewhere", &SealedValue::read(&newer).unwrap()).is_err());
    let mut bad = newer.clone();
    *bad.last_mut().unwrap() ^= 1;
    assert!(open(&again, &bad).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_kube_apiserver_are_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let plugin = Plugin::serve(&socket);
    let kms = start(&socket).await;
    let object = kms.seal_as_upstream(b"/registry/secrets/a", b"plain").unwrap();
    assert_eq!((object.encrypted_dek_source_type, object.encrypted_data.len()), (1, 32 + 12 + 5 + 16));
    assert_eq!(kms.open_as_upstream(b"/registry/secrets/a", &object).unwrap(), b"plain");
    assert!(kms.open_as_upstream(b"/registry/secrets/b", &object).is_err());
    // Before the seeds, each value had a key that the plugin encrypted.
    let key = [7; 32];
    let mut encrypted_data = Vec::new();
    let cipher = Cipher::new(Kind::AesGcm, &key).unwrap();
    cipher.seal_as_upstream(b"/registry/secrets/a", b"older", &mut encrypted_data).unwrap();
    let older = EncryptedObject {
        encrypted_data,
        key_id: "key-1".to_owned(),
        encrypted_dek_source: key.map(|byte| byte ^ 1).to_vec(),
        annotations: object.annotations.clone(),
        encrypted_dek_source_type: EncryptedObject::KEY,
    };
    assert_eq!(kms.open_as_upstream(b"/registry/secrets/a", &older).unwrap(), b"older");
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 1);
    let unknown = EncryptedObject { encrypted_dek_source_type: 2, ..older };
    assert!(kms.open_as_upstream(b"/registry/secrets/a", &unknown).is_err());
    let short = EncryptedObject { encrypted_data: vec![0; 31], ..object };
    assert!(kms.open_as_upstream(b"/registry/secrets/a", &short).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_plugin_stops_writes_and_not_reads_with_cached_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let early = start(&socket).await;
    let mut out = Vec::new();
    assert!(early.seal(b"place", b"x", &mut out).unwrap_err().to_string().contains("no key yet"));
    assert!(!early.is_healthy());
    let plugin = Plugin::serve(&socket);
    assert_eq!(early.shared.check_health().await, HEALTHY_PERIOD);
    assert!(early.is_healthy());
    let body = seal(&early, b"x");
    plugin.healthy.store(false, Ordering::SeqCst);
    assert_eq!(early.shared.check_health().await, UNHEALTHY_PERIOD);
    assert!(!early.is_healthy());
    assert!(early.shared.check().await.unwrap_err().to_string().contains("unhealthy"));
    seal(&early, b"the seed holds for a while");
    assert_eq!(open(&early, &body).unwrap(), b"x");
    // Its time is up.
    let current = early.shared.current.read().clone().unwrap();
    let expired = Current {
        seed: current.seed,
        response: current.response.clone(),
        until: Instant::now() - Duration::from_secs(1),
    };
    *early.shared.current.write() = Some(Arc::new(expired));
    assert!(early.seal(b"place", b"x", &mut out).unwrap_err().to_string().contains("expired"));
    assert_eq!(open(&early, &body).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_that_break_the_protocol_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let plugin = Plugin::serve(&socket);
    let kms = start(&socket).await;
    assert!(kms.is_healthy());
    for (broken, expected) in [
        (Broken::NoStatus, "HTTP status 200 OK, no grpc-status"),
        (Broken::Doubled, "a message of 15 bytes is announced, 35 follow"),
    ] {
        *plugin.broken.lock() = Some(broken);
        let error = kms.shared.check().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    *plugin.broken.lock() = None;
    kms.shared.check().await.unwrap();
    // Of the five seconds some are left.
    let timeout = plugin.timeout.lock().clone();
    let micros: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
    assert!(micros > 0 && micros <= 5_000_000, "{timeout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_may_have_an_abstract_socket() {
    let name = format!("plinth-kms-test-{}", std::process::id());
    let _plugin = Plugin::serve(std::path::Path::new(&format!("\0{name}")));
    let kms = start(std::path::Path::new(&format!("@{name}"))).await;
    assert!(kms.is_healthy());
    let body = seal(&kms, b"x");
    assert_eq!(open(&kms, &body).unwrap(), b"x");
}
