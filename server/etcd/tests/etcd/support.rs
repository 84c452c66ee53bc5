//! A server on a port of its own, and a client of its gRPC services.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use bytes::Bytes;
use clap::Parser;
use http::uri::PathAndQuery;
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use plinth_etcd::wire::watch::{watch_request, WatchCreateRequest, WatchRequest, WatchResponse};
use plinth_etcd::{EtcdOptions, Server};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    options: EtcdOptions,
}

fn options(flags: &[&str]) -> EtcdOptions {
    let mut fixed = vec!["plinth"];
    if !flags.contains(&"--data-dir") {
        fixed.extend(["--data-dir", "unused"]);
    }
    if !flags.contains(&"--listen-client-urls") {
        fixed.extend(["--listen-client-urls", "http://127.0.0.1:0"]);
    }
    Program::try_parse_from(fixed.into_iter().chain(flags.iter().copied()))
        .map_err(|error| error.to_string())
        .unwrap()
        .options
}

/// A server in a temporary directory, or one that the test owns.
pub(crate) struct TestServer {
    pub address: SocketAddr,
    /// The addresses of `--listen-metrics-urls`.
    pub metrics: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Result<(), plinth_engine::Error>>>,
}

impl TestServer {
    /// Starts a server on the store in `dir`.
    pub(crate) async fn start(dir: &Path, flags: &[&str]) -> TestServer {
        let server = Server::start(&options(flags), dir).await.unwrap();
        let metrics = server.metrics_addresses();
        // None with sockets in the file system alone.
        let address = server.addresses().first().copied().unwrap_or(([0, 0, 0, 0], 0).into());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async {
            // A dropped sender stops it, too.
            let _ = stopped.await;
        }));
        TestServer { address, metrics, stop: Some(stop), serving: Some(serving) }
    }

    /// The error of a server that does not start with these flags.
    pub(crate) async fn refused(dir: &Path, flags: &[&str]) -> String {
        let started = Server::start(&options(flags), dir).await;
        started.err().expect("it does not start").to_string()
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client::of(endpoint.connect().await.unwrap())
    }

    /// A client with an address of its own.
    pub(crate) async fn client_from(&self, address: IpAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client::of(endpoint.local_address(Some(address)).connect().await.unwrap())
    }

    /// A client that takes no bytes of responses.
    pub(crate) async fn client_without_window(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client::of(endpoint.initial_stream_window_size(0).connect().await.unwrap())
    }

    /// A client over TLS, with a certificate of its own or none.
    pub(crate) async fn tls_client(
        &self,
        authority: &str,
        identity: Option<Identity>,
    ) -> Result<Client, tonic::transport::Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        let mut tls = tls.domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        Ok(Client::of(endpoint.tls_config(tls)?.connect().await?))
    }

    /// Stops it and closes the store.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.take().unwrap().await.unwrap().unwrap();
    }
}

/// A server in a new temporary directory.
pub(crate) async fn server(flags: &[&str]) -> (tempfile::TempDir, TestServer, Client) {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path(), flags).await;
    let client = server.client().await;
    (dir, server, client)
}

/// The version of the API that clients name, as Go's does.
pub(crate) const CLIENT_VERSION: &str = "3.6.9";

/// Calls of etcd's services over one connection.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    token: Option<String>,
}

impl Client {
    fn of(channel: Channel) -> Client {
        Client { channel, token: None }
    }

    /// The same connection for requests with a token.
    pub(crate) fn with_token(&self, token: &str) -> Client {
        Client { channel: self.channel.clone(), token: Some(token.to_owned()) }
    }

    /// The token of its requests.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("client-api-version", CLIENT_VERSION.parse().unwrap());
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.parse().unwrap());
        }
        request
    }

    /// A client of a server at `url`, if there is one.
    pub(crate) async fn connect(url: &str) -> Option<Client> {
        Endpoint::from_shared(url.to_owned()).unwrap().connect().await.ok().map(Client::of)
    }

    /// Whether it answers reads.
    pub(crate) async fn is_ready(&self) -> bool {
        let request = RangeRequest { key: bytes("a"), ..RangeRequest::default() };
        self.range(request).await.is_ok()
    }

    /// Calls a method such as `KV/Range`.
    pub(crate) async fn call<Req, Resp>(&self, method: &str, request: Req) -> Result<Resp, Status>
    where
        Req: Message + Send + Sync + 'static,
        Resp: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(1 << 30);
        grpc.ready().await.unwrap();
        let path = path(method);
        let codec = ProstCodec::<Req, Resp>::default();
        Ok(grpc.unary(self.request(request), path, codec).await?.into_inner())
    }

    /// Opens a stream such as `Watch/Watch`; requests are sent through the channel.
    pub(crate) async fn stream<Req, Resp>(&self, method: &str) -> (mpsc::Sender<Req>, Streaming<Resp>)
    where
        Req: Message + Send + Sync + 'static,
        Resp: Message + Default + Send + Sync + 'static,
    {
        let (requests, sent) = mpsc::channel(1 << 14);
        (requests, self.open(method, sent).await)
    }

    /// Opens a stream; etcd answers the opening with the first request.
    async fn open<Req, Resp>(&self, method: &str, sent: mpsc::Receiver<Req>) -> Streaming<Resp>
    where
        Req: Message + Send + Sync + 'static,
        Resp: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(1 << 30);
        grpc.ready().await.unwrap();
        let path = path(method);
        let codec = ProstCodec::<Req, Resp>::default();
        let request = self.request(ReceiverStream::new(sent));
        grpc.streaming(request, path, codec).await.unwrap().into_inner()
    }

    /// Calls a method whose answer is a stream.
    pub(crate) async fn parts<Req, Resp>(&self, method: &str, request: Req) -> Result<Streaming<Resp>, Status>
    where
        Req: Message + Send + Sync + 'static,
        Resp: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = path(method);
        let codec = ProstCodec::<Req, Resp>::default();
        Ok(grpc.server_streaming(self.request(request), path, codec).await?.into_inner())
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> PutResponse {
        self.call("KV/Put", put(key, value)).await.unwrap()
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("KV/Range", request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("KV/Txn", request).await
    }

    /// The newest state of a key.
    pub(crate) async fn get(&self, key: &str) -> Option<KeyValue> {
        let request = RangeRequest { key: bytes(key), ..RangeRequest::default() };
        self.range(request).await.unwrap().kvs.pop()
    }

    /// Every key.
    pub(crate) async fn all(&self) -> RangeResponse {
        let all = RangeRequest { key: bytes("\0"), range_end: bytes("\0"), ..RangeRequest::default() };
        self.range(all).await.unwrap()
    }

    /// A watch stream.
    pub(crate) async fn watch(&self) -> WatchClient {
        let (requests, sent) = mpsc::channel(1 << 14);
        let client = self.clone();
        let opening = tokio::spawn(async move { client.open("Watch/Watch", sent).await });
        WatchClient { requests, opening: Some(opening), responses: None }
    }
}

/// A watch stream of a client.
pub(crate) struct WatchClient {
    pub requests: mpsc::Sender<WatchRequest>,
    opening: Option<JoinHandle<Streaming<WatchResponse>>>,
    responses: Option<Streaming<WatchResponse>>,
}

impl WatchClient {
    pub(crate) async fn send(&self, request: watch_request::Request) {
        self.requests.send(WatchRequest { request: Some(request) }).await.unwrap();
    }

    /// Creates a watch and returns the answer.
    pub(crate) async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send(watch_request::Request::Create(request)).await;
        self.next().await
    }

    pub(crate) async fn next(&mut self) -> WatchResponse {
        if let Some(opening) = self.opening.take() {
            self.responses = Some(opening.await.unwrap());
        }
        self.responses.as_mut().unwrap().next().await.expect("a response").unwrap()
    }
}

/// The path of a method such as `KV/Range`, or of one of another package with its name.
fn path(method: &str) -> PathAndQuery {
    let path = match method.contains('.') {
        true => format!("/{method}"),
        false => format!("/etcdserverpb.{method}"),
    };
    PathAndQuery::try_from(path).unwrap()
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn put(key: &str, value: &str) -> PutRequest {
    PutRequest { key: bytes(key), value: bytes(value), ..PutRequest::default() }
}

pub(crate) fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}
