//! Calls of gRPC as Prometheus' middleware for Go counts them (`grpc_server_*`), and how long requests take
//! (`etcd_server_request_duration_seconds`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use tonic::Code;

use crate::families::{counters, doubling, histograms};

const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BIDIRECTIONAL: &str = "bidi_stream";

/// Bytes of gRPC before a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Versions of clients that are counted each; those that appear later are counted as unknown, since it is
/// the client that names one.
const CLIENT_VERSIONS: usize = 32;
const LONGEST_VERSION: usize = 32;
const UNKNOWN_VERSION: &str = "unknown";

/// Upper bounds of the middleware's histogram, in seconds.
const HANDLING_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The methods of a service that have the same type.
type Methods = (&'static str, &'static str, &'static [&'static str]);

/// The services, with what the middleware calls the type of a method. A name of a client's that is not
/// among them is no label value.
const METHODS: &[Methods] = &[
    ("etcdserverpb.KV", UNARY, &["Range", "Put", "DeleteRange", "Txn", "Compact"]),
    ("etcdserverpb.KV", SERVER_STREAM, &["RangeStream"]),
    ("etcdserverpb.Watch", BIDIRECTIONAL, &["Watch"]),
    ("etcdserverpb.Lease", UNARY, &["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseLeases"]),
    ("etcdserverpb.Lease", BIDIRECTIONAL, &["LeaseKeepAlive"]),
    (
        "etcdserverpb.Maintenance",
        UNARY,
        &["Status", "Alarm", "Defragment", "Hash", "HashKV", "MoveLeader", "Downgrade"],
    ),
    ("etcdserverpb.Maintenance", SERVER_STREAM, &["Snapshot"]),
    (
        "etcdserverpb.Cluster",
        UNARY,
        &["MemberList", "MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote"],
    ),
    (
        "etcdserverpb.Auth",
        UNARY,
        &[
            "AuthStatus",
            "AuthEnable",
            "AuthDisable",
            "Authenticate",
            "UserAdd",
            "UserGet",
            "UserList",
            "UserDelete",
            "UserChangePassword",
            "UserGrantRole",
            "UserRevokeRole",
            "RoleAdd",
            "RoleGet",
            "RoleList",
            "RoleDelete",
            "RoleGrantPermission",
            "RoleRevokePermission",
        ],
    ),
    ("v3lockpb.Lock", UNARY, &["Lock", "Unlock"]),
    ("v3electionpb.Election", UNARY, &["Campaign", "Proclaim", "Leader", "Resign"]),
    ("v3electionpb.Election", SERVER_STREAM, &["Observe"]),
    ("grpc.health.v1.Health", UNARY, &["Check"]),
];

/// What etcd calls the request of a method (`getRequestType` of its `v3_server.go`). None for one whose
/// duration it does not measure; transactions have two names and are measured by [`crate::kv::txn`].
fn request_type(service: &str, method: &'static str) -> Option<String> {
    match (service, method) {
        ("etcdserverpb.KV", "Range" | "Put" | "DeleteRange")
        | ("etcdserverpb.Lease", "LeaseGrant" | "LeaseRevoke")
        | ("etcdserverpb.Maintenance", "Alarm") => Some(method.to_owned()),
        ("etcdserverpb.KV", "Compact") => Some("Compaction".to_owned()),
        ("etcdserverpb.Auth", "Authenticate" | "AuthEnable" | "AuthDisable" | "AuthStatus") => {
            Some(method.to_owned())
        }
        ("etcdserverpb.Auth", _) => Some(format!("Auth{method}")),
        _ => None,
    }
}

/// The metrics of a method.
struct MethodMetrics {
    service: &'static str,
    method: &'static str,
    kind: &'static str,
    started: IntCounter,
    succeeded: IntCounter,
    received: IntCounter,
    sent: IntCounter,
    /// Those of successful requests, and of others.
    durations: Option<[Histogram; 2]>,
    handling: Option<Histogram>,
}

/// The metrics of all calls.
pub(crate) struct Calls {
    /// By the path without its first slash.
    methods: HashMap<String, Arc<MethodMetrics>>,
    handled: IntCounterVec,
    client_requests: IntCounterVec,
    client_versions: Mutex<Vec<String>>,
}

impl Calls {
    /// Registers the metrics; with `is_extensive` also the middleware's histogram. `durations` are those of
    /// requests by success and type.
    pub(crate) fn new(registry: &Registry, durations: &HistogramVec, is_extensive: bool) -> Calls {
        const LABELS: &[&str] = &["grpc_method", "grpc_service", "grpc_type"];
        let of_method = |name, help| counters(registry, name, help, LABELS);
        let started = of_method("grpc_server_started_total", "Total number of RPCs started on the server.");
        let received = of_method(
            "grpc_server_msg_received_total",
            "Total number of RPC stream messages received on the server.",
        );
        let sent = of_method(
            "grpc_server_msg_sent_total",
            "Total number of gRPC stream messages sent by the server.",
        );
        let handled = counters(
            registry,
            "grpc_server_handled_total",
            "Total number of RPCs completed on the server, regardless of success or failure.",
            &["grpc_code", "grpc_method", "grpc_service", "grpc_type"],
        );
        let handling = is_extensive.then(|| {
            histograms(
                registry,
                "grpc_server_handling_seconds",
                "Histogram of response latency (seconds) of gRPC that had been application-level handled by \
                 the server.",
                LABELS,
                HANDLING_BOUNDS.to_vec(),
            )
        });
        let mut methods = HashMap::new();
        for (service, kind, names) in METHODS {
            for method in *names {
                let labels = [*method, *service, *kind];
                let durations = request_type(service, method).map(|request| {
                    [true, false].map(|ok| durations.with_label_values(&[&ok.to_string(), &request]))
                });
                let metrics = MethodMetrics {
                    service,
                    method,
                    kind,
                    started: started.with_label_values(&labels),
                    succeeded: handled.with_label_values(&["OK", method, service, kind]),
                    received: received.with_label_values(&labels),
                    sent: sent.with_label_values(&labels),
                    durations,
                    handling: handling.as_ref().map(|handling| handling.with_label_values(&labels)),
                };
                methods.insert(format!("{service}/{method}"), Arc::new(metrics));
            }
        }
        let client_requests = counters(
            registry,
            "etcd_server_client_requests_total",
            "The total number of client requests per client version.",
            &["client_api_version", "type"],
        );
        Calls { methods, handled, client_requests, client_versions: Mutex::default() }
    }

    /// Counts a call of a client that names this version. None for a method that does not exist.
    pub(crate) fn start(&self, path: &str, client_version: Option<&str>) -> Option<StartedCall> {
        let method = self.methods.get(path.strip_prefix('/')?)?;
        method.started.inc();
        let kind = if method.kind == UNARY { UNARY } else { "stream" };
        let version = client_version.filter(|version| self.is_counted(version)).unwrap_or(UNKNOWN_VERSION);
        self.client_requests.with_label_values(&[version, kind]).inc();
        let handled = Some(self.handled.clone());
        Some(StartedCall { handled, method: Arc::clone(method), start: Instant::now() })
    }

    fn is_counted(&self, version: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        if version.len() > LONGEST_VERSION || !version.bytes().all(is_plain) {
            return false;
        }
        let mut versions = self.client_versions.lock();
        if versions.iter().any(|known| known == version) {
            return true;
        }
        let has_room = versions.len() < CLIENT_VERSIONS;
        if has_room {
            versions.push(version.to_owned());
        }
        has_room
    }
}

/// Registers `etcd_server_request_duration_seconds`, by success and type.
pub(crate) fn request_durations(registry: &Registry) -> HistogramVec {
    histograms(
        registry,
        "etcd_server_request_duration_seconds",
        "Response latency distribution in seconds for each type.",
        &["success", "type"],
        doubling(0.001, 14),
    )
}

/// A call that was started. It is counted as handled when it ends; one that is dropped before was canceled.
pub(crate) struct StartedCall {
    /// None when it has ended.
    handled: Option<IntCounterVec>,
    method: Arc<MethodMetrics>,
    start: Instant,
}

impl StartedCall {
    pub(crate) fn end(&mut self, code: Code) {
        let Some(handled) = self.handled.take() else { return };
        let MethodMetrics { service, method, kind, .. } = *self.method;
        match code {
            Code::Ok => self.method.succeeded.inc(),
            _ => handled.with_label_values(&[code_name(code), method, service, kind]).inc(),
        }
        let seconds = self.start.elapsed().as_secs_f64();
        if let Some([succeeded, failed]) = &self.method.durations {
            let durations = if code == Code::Ok { succeeded } else { failed };
            durations.observe(seconds);
        }
        if let Some(handling) = &self.method.handling {
            handling.observe(seconds);
        }
    }

    /// Whether it has one request and one response.
    pub(crate) fn is_unary(&self) -> bool {
        self.method.kind == UNARY
    }

    /// A counter of the messages of its client.
    pub(crate) fn received(&self) -> MessageCounter {
        MessageCounter::new(self.method.received.clone())
    }

    /// A counter of the messages to its client.
    pub(crate) fn sent(&self) -> MessageCounter {
        MessageCounter::new(self.method.sent.clone())
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// Counts the messages in the bytes of one direction of a call.
#[derive(Debug)]
pub(crate) struct MessageCounter {
    messages: IntCounter,
    /// Bytes of the prefix of a message that were seen, and its length as far as that.
    prefix: usize,
    length: u32,
    /// Bytes of the message that are still to come.
    remaining: usize,
}

impl MessageCounter {
    pub(crate) fn new(messages: IntCounter) -> MessageCounter {
        MessageCounter { messages, prefix: 0, length: 0, remaining: 0 }
    }

    /// Counts the messages that end in these bytes.
    pub(crate) fn count(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.remaining > 0 {
                let taken = self.remaining.min(bytes.len());
                self.remaining -= taken;
                bytes = bytes.get(taken..).unwrap_or_default();
            } else {
                // The first byte is a flag.
                self.length = if self.prefix == 0 { 0 } else { self.length << 8 | u32::from(*first) };
                self.prefix += 1;
                bytes = rest;
                if self.prefix < PREFIX_BYTES {
                    continue;
                }
                self.prefix = 0;
                self.remaining = usize::try_from(self.length).unwrap_or(usize::MAX);
            }
            if self.remaining == 0 {
                self.messages.inc();
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_their_bytes_are_cut() {
        let message = |length: usize| {
            [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![7; length]].concat()
        };
        let bytes = [message(3), message(0), message(300), vec![0, 0, 0, 0, 9, 1]].concat();
        for size in [1, 2, 5, 8, 100, bytes.len()] {
            let messages = IntCounter::new("messages", "of a call").unwrap();
            let mut counter = MessageCounter::new(messages.clone());
            bytes.chunks(size).for_each(|chunk| counter.count(chunk));
            assert_eq!(messages.get(), 3, "{size}");
        }
    }

    #[test]
    fn versions_of_clients_are_a_bounded_number_of_series() {
        let registry = Registry::new();
        let calls = Calls::new(&registry, &request_durations(&registry), false);
        let long = "1".repeat(LONGEST_VERSION + 1);
        for version in [Some("3.7"), Some("3.7"), None, Some("{\"}"), Some(&long)] {
            drop(calls.start("/etcdserverpb.KV/Range", version));
        }
        for number in 0..2 * CLIENT_VERSIONS {
            drop(calls.start("/etcdserverpb.Watch/Watch", Some(&format!("4.{number}"))));
        }
        let requests = |version, kind| calls.client_requests.with_label_values(&[version, kind]).get();
        assert_eq!(requests("3.7", UNARY), 2);
        assert_eq!(requests(UNKNOWN_VERSION, UNARY), 3);
        assert_eq!(requests(UNKNOWN_VERSION, "stream"), CLIENT_VERSIONS as u64 + 1);
        assert!(calls.start("/etcdserverpb.KV/Frobnicate", None).is_none());
    }
}
