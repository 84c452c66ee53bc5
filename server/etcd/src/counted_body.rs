//! Calls of gRPC as Prometheus' middleware for Go counts them (`grpc_server_started_total` and
//! `grpc_server_handled_total`), and the bytes of their responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use prometheus::{IntCounter, IntCounterVec};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::metrics::Metrics;

const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BIDIRECTIONAL: &str = "bidi_stream";

/// The services, without etcd's package.
const SERVICES: [&str; 9] = [
    "KV",
    "Watch",
    "Lease",
    "Maintenance",
    "Cluster",
    "Auth",
    "v3lockpb.Lock",
    "v3electionpb.Election",
    "grpc.health.v1.Health",
];

/// What the middleware calls the type of a method. None for one that does not exist: its name is the
/// client's, and no label value.
fn method_type(method: &str) -> Option<&'static str> {
    Some(match method {
        "Watch" | "LeaseKeepAlive" => BIDIRECTIONAL,
        "RangeStream" | "Snapshot" | "Observe" => SERVER_STREAM,
        "Range"
        | "Put"
        | "DeleteRange"
        | "Txn"
        | "Compact"
        | "LeaseGrant"
        | "LeaseRevoke"
        | "LeaseTimeToLive"
        | "LeaseLeases"
        | "Status"
        | "Alarm"
        | "Defragment"
        | "Hash"
        | "HashKV"
        | "MoveLeader"
        | "Downgrade"
        | "MemberList"
        | "MemberAdd"
        | "MemberRemove"
        | "MemberUpdate"
        | "MemberPromote"
        | "AuthStatus"
        | "AuthEnable"
        | "AuthDisable"
        | "Authenticate"
        | "UserAdd"
        | "UserGet"
        | "UserList"
        | "UserDelete"
        | "UserChangePassword"
        | "UserGrantRole"
        | "UserRevokeRole"
        | "RoleAdd"
        | "RoleGet"
        | "RoleList"
        | "RoleDelete"
        | "RoleGrantPermission"
        | "RoleRevokePermission"
        | "Lock"
        | "Unlock"
        | "Campaign"
        | "Proclaim"
        | "Leader"
        | "Resign"
        | "Check" => UNARY,
        _ => return None,
    })
}

/// A call that was started. It is counted as handled when it ends; one that is dropped before was canceled.
pub(crate) struct StartedCall {
    handled: Option<IntCounterVec>,
    service: String,
    method: String,
    kind: &'static str,
}

impl StartedCall {
    /// None for a method that does not exist.
    pub(crate) fn new(metrics: &Metrics, service: &str, method: &str) -> Option<StartedCall> {
        let short = service.strip_prefix("etcdserverpb.").unwrap_or(service);
        let kind = method_type(method).filter(|_| SERVICES.contains(&short))?;
        metrics.started.with_label_values(&[method, service, kind]).inc();
        Some(StartedCall {
            handled: Some(metrics.handled.clone()),
            service: service.to_owned(),
            method: method.to_owned(),
            kind,
        })
    }

    fn end(&mut self, code: Code) {
        if let Some(handled) = self.handled.take() {
            let labels = [code_name(code), &self.method, &self.service, self.kind];
            handled.with_label_values(&labels).inc();
        }
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// Go's name of a code.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// A response whose bytes are counted. Its call has ended with it, unless it is a stream.
pub(crate) fn counted(
    response: Response<Body>,
    metrics: &Metrics,
    mut call: Option<StartedCall>,
) -> Response<Body> {
    if let Some(call) = &mut call {
        match Status::from_header_map(response.headers()) {
            Some(status) => call.end(status.code()),
            None if call.kind == UNARY => call.end(Code::Ok),
            None => {}
        }
    }
    let sent = metrics.sent_bytes.clone();
    response.map(|body| Body::new(CountedBody { body, sent, call }))
}

struct CountedBody {
    body: Body,
    sent: IntCounter,
    call: Option<StartedCall>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            let ended = match frame {
                Some(Ok(frame)) => {
                    self.sent.inc_by(frame.data_ref().map_or(0, Bytes::len) as u64);
                    frame.trailers_ref().and_then(Status::from_header_map).map(|status| status.code())
                }
                Some(Err(status)) => Some(status.code()),
                None => None,
            };
            if let Some((call, code)) = self.call.as_mut().zip(ended) {
                call.end(code);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
