//! Members of etcd of a test, each of which has what it was given: what is put at one reaches no other.

#![allow(clippy::disallowed_methods)] // tasks of a test

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::{Mutex, MutexGuard};
use plinth_etcd_wire::call::path;
use plinth_etcd_wire::kv::{
    compare, request_op, response_op, CompactionRequest, Compare, KeyValue, RangeRequest, RangeResponse,
    RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use plinth_etcd_wire::maintenance::StatusResponse;
use plinth_etcd_wire::watch::WatchResponse;
use plinth_etcd_wire::{HeaderResponse, ResponseHeader};
use plinth_journal::record::ClusterId;
use plinth_journal::Founding;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::client::writes;
use crate::options::EtcdOptions;
use crate::shared::Shared;

/// The revisions that created the keys: those of the first journal of an etcd.
pub(crate) const MARKER_CREATED: i64 = 2;
pub(crate) const LOG_CREATED: i64 = 3;
const CLUSTER: ClusterId = ClusterId([7; 16]);

/// A member on loopback, which ends with it.
pub(crate) struct ScriptedMember {
    address: String,
    store: Arc<Mutex<ScriptedStore>>,
    _runtime: Runtime,
}

/// What a member has.
pub(crate) struct ScriptedStore {
    pub etcd_cluster: u64,
    pub revision: i64,
    pub keys: BTreeMap<Bytes, KeyValue>,
    /// Bytes of the largest value that it takes, and how many were larger.
    pub largest: usize,
    pub refused: usize,
    /// It has no space for what is put.
    pub is_full: bool,
    /// It answers no transaction.
    pub is_frozen: bool,
    /// How many it has not answered.
    pub frozen: usize,
    /// The revision that it was compacted at.
    pub compacted: i64,
}

impl ScriptedMember {
    /// A member with this journal, which has so many records.
    pub(crate) fn start(records: i64) -> ScriptedMember {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut store = ScriptedStore {
            etcd_cluster: 1,
            revision: 1,
            keys: BTreeMap::new(),
            largest: usize::MAX,
            refused: 0,
            is_full: false,
            is_frozen: false,
            frozen: 0,
            compacted: 0,
        };
        store.put("plinth/journal", format!("plinth journal, format 1, cluster {CLUSTER}").into());
        (0..records).for_each(|_| store.put("plinth/log", "a record".into()));
        let store = Arc::new(Mutex::new(store));
        runtime.spawn(serve(listener, Arc::clone(&store)));
        ScriptedMember { address, store, _runtime: runtime }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, ScriptedStore> {
        self.store.lock()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Shared {
    /// The journal at members, once it was found there; the first one is asked first.
    pub(crate) fn of_test(members: &[ScriptedMember]) -> Shared {
        let shared = Shared::unknown_of_test(members);
        shared.known().unwrap();
        shared.client.prefer(0);
        shared
    }

    /// The same before the first call.
    pub(crate) fn unknown_of_test(members: &[ScriptedMember]) -> Shared {
        let addresses: Vec<&str> = members.iter().map(ScriptedMember::address).collect();
        let options = EtcdOptions::parse(&format!("etcd://{}/plinth", addresses.join(","))).unwrap();
        Shared::new(&options, CLUSTER, Founding::Forbidden).unwrap()
    }
}

impl ScriptedStore {
    pub(crate) fn put(&mut self, key: &'static str, value: Bytes) {
        self.put_bytes(Bytes::from_static(key.as_bytes()), value);
    }

    fn put_bytes(&mut self, key: Bytes, value: Bytes) {
        self.revision += 1;
        let created = KeyValue { create_revision: self.revision, ..KeyValue::default() };
        let kv = self.keys.entry(key.clone()).or_insert(created);
        (kv.key, kv.value, kv.mod_revision) = (key, value, self.revision);
        kv.version += 1;
    }

    fn header(&self) -> Option<ResponseHeader> {
        let (cluster_id, revision) = (self.etcd_cluster, self.revision);
        Some(ResponseHeader { cluster_id, revision, raft_term: 1, ..ResponseHeader::default() })
    }

    fn answer(&mut self, path: &str, body: Bytes) -> Result<Vec<u8>, Status> {
        match path {
            path::STATUS => {
                let version = "3.7.0".to_owned();
                Ok(StatusResponse { version, leader: 1, raft_term: 1, ..StatusResponse::default() }
                    .encode_to_vec())
            }
            path::RANGE => Ok(self.range(&RangeRequest::decode(body).unwrap())?.encode_to_vec()),
            path::TXN => Ok(self.txn(&TxnRequest::decode(body).unwrap())?.encode_to_vec()),
            path::COMPACT => {
                self.compacted = CompactionRequest::decode(body).unwrap().revision;
                Ok(HeaderResponse { header: self.header() }.encode_to_vec())
            }
            path => Err(Status::unimplemented(path)),
        }
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        let is_larger = |operation: &RequestOp| match &operation.request {
            Some(request_op::Request::Put(put)) => put.value.len() > self.largest,
            _ => false,
        };
        if request.success.iter().any(is_larger) {
            self.refused += 1;
            return Err(Status::invalid_argument("etcdserver: request is too large"));
        }
        if self.is_full && writes(request) {
            return Err(Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
        }
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let operations = if succeeded { &request.success } else { &request.failure };
        let responses = operations.iter().map(|operation| self.perform(operation));
        let responses = responses.collect::<Result<Vec<_>, Status>>()?;
        Ok(TxnResponse { header: self.header(), succeeded, responses })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let kv = self.keys.get(&compare.key);
        match &compare.operand {
            Some(compare::Operand::CreateRevision(created)) => {
                kv.map_or(0, |kv| kv.create_revision) == *created
            }
            Some(compare::Operand::Value(value)) => kv.is_some_and(|kv| kv.value == *value),
            operand => panic!("{operand:?}"),
        }
    }

    fn perform(&mut self, operation: &RequestOp) -> Result<ResponseOp, Status> {
        let response = match operation.request.as_ref().unwrap() {
            request_op::Request::Range(request) => response_op::Response::Range(self.range(request)?),
            request_op::Request::Put(request) => {
                self.put_bytes(request.key.clone(), request.value.clone());
                response_op::Response::Put(Default::default())
            }
            request => panic!("{request:?}"),
        };
        Ok(ResponseOp { response: Some(response) })
    }

    /// One key, or all. At a revision, the records are as if nothing else was ever put.
    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        if request.revision > self.revision {
            let message = "etcdserver: mvcc: required revision is a future revision";
            return Err(Status::out_of_range(message));
        }
        let is_requested = |key: &Bytes| !request.range_end.is_empty() || *key == request.key;
        let mut kvs: Vec<KeyValue> = self.keys.values().filter(|kv| is_requested(&kv.key)).cloned().collect();
        if let (Some(kv), 1..) = (kvs.first_mut(), request.revision) {
            kv.version -= kv.mod_revision - request.revision;
            kv.mod_revision = request.revision;
        }
        Ok(RangeResponse { header: self.header(), count: kvs.len() as i64, kvs, more: false })
    }
}

async fn serve(listener: TcpListener, store: Arc<Mutex<ScriptedStore>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let store = Arc::clone(&store);
        let service = service_fn(move |request| answer(Arc::clone(&store), request));
        let server = http2::Builder::new(TokioExecutor::new());
        tokio::spawn(async move { drop(server.serve_connection(TokioIo::new(stream), service).await) });
    }
}

type Response = hyper::Response<BoxBody<Bytes, Infallible>>;

async fn answer(
    store: Arc<Mutex<ScriptedStore>>,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let path = request.uri().path().to_owned();
    if path == path::WATCH {
        // Nothing comes.
        let created = WatchResponse { created: true, ..WatchResponse::default() }.encode_to_vec();
        let frames = tokio_stream::iter([Ok(Frame::data(framed(&created)))]).chain(tokio_stream::pending());
        return Ok(Response::new(StreamBody::new(frames).boxed()));
    }
    let is_frozen = |mut store: MutexGuard<'_, ScriptedStore>| {
        store.frozen += usize::from(store.is_frozen);
        store.is_frozen
    };
    if path == path::TXN && is_frozen(store.lock()) {
        std::future::pending::<()>().await;
    }
    let body = request.into_body().collect().await.unwrap().to_bytes().slice(5..);
    let (message, status) = match store.lock().answer(&path, body) {
        Ok(message) => (framed(&message), Status::new(Code::Ok, "")),
        Err(status) => (Bytes::new(), status),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", (status.code() as i32).into());
    trailers.insert("grpc-message", status.message().parse().unwrap());
    Ok(Response::new(Full::new(message).with_trailers(async { Some(Ok(trailers)) }).boxed()))
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}
