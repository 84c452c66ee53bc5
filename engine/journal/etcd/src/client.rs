//! [`Client`]: calls of etcd with deadlines, on one member after the other.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_etcd_wire::auth::{AuthenticateRequest, AuthenticateResponse};
use plinth_etcd_wire::call::{self, authorize, describe, path, unary};
use plinth_etcd_wire::kv::{CompactionRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use plinth_etcd_wire::maintenance::StatusResponse;
use plinth_etcd_wire::watch::{watch_request, WatchCreateRequest, WatchRequest, WatchResponse};
use plinth_etcd_wire::{Empty, HeaderResponse, ResponseHeader};
use plinth_journal::{Error, Tls};
use prost::Message;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};

use crate::connector::Connector;
use crate::options::{EtcdOptions, User};

/// Longest time to connect to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time of a call: doubled after each that takes longer, up to the second one, so that a slow etcd is
/// not asked again and again for what it is doing. A member that stands still costs the first one.
const CALL_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// Longest time of a call whose answer is behind what the member sends meanwhile.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// A member that has sent as much within a quarter of a call's time does not stand still.
pub(crate) const PROGRESS: u64 = 8 << 10;
/// Bytes that etcd may send ahead: some of the largest records. As many again are left for calls.
const WINDOW_BYTES: u32 = 16 << 20;

/// While a request that writes is not answered, the member is asked so often whom it follows.
const LEADER_INTERVAL: Duration = Duration::from_millis(200);

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The request did not reach etcd, or etcd has refused it before it did anything: it has changed nothing.
    NotMade(String),
    /// This member cannot be used as long as it, or the options, are what they are. Nothing was made there.
    Unusable(String),
    /// Nothing is known of its outcome.
    Unknown(String),
    /// The user may not do this, or is not the one that it says. Nothing was made.
    Denied(String),
    /// etcd will not do this as long as it, or the options, are what they are.
    Refused(String),
    /// The request is too large for etcd.
    TooLarge,
    /// The revision that was asked for is compacted.
    Compacted,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NotMade(text)
            | CallError::Unusable(text)
            | CallError::Unknown(text)
            | CallError::Denied(text)
            | CallError::Refused(text) => f.write_str(text),
            CallError::TooLarge => f.write_str("the request is too large"),
            CallError::Compacted => f.write_str("the revision is compacted"),
        }
    }
}

impl CallError {
    /// As the error of a call that reads.
    pub(crate) fn of_reading(self) -> Error {
        match self {
            CallError::NotMade(message) | CallError::Unusable(message) | CallError::Unknown(message) => {
                Error::Unavailable { message }
            }
            CallError::Denied(message) => Error::Denied { message },
            CallError::Refused(message) => Error::Refused { message },
            CallError::TooLarge => unexpected("a reading request is too large"),
            CallError::Compacted => unexpected("the revision was compacted meanwhile"),
        }
    }
}

fn unexpected(message: &str) -> Error {
    Error::Unavailable { message: message.to_owned() }
}

/// Calls etcd. The thread that calls drives its call, the runtime's only thread the connections.
pub(crate) struct Client {
    runtime: Handle,
    _thread: ConnectionThread,
    members: Vec<Member>,
    /// Index of the member that is asked, below the number of members after a division.
    current: AtomicUsize,
    /// Calls that took too long, one after the other.
    slow: AtomicU32,
    user: Option<User>,
    /// What etcd gave for user and password.
    token: Mutex<Option<AsciiMetadataValue>>,
    /// The newest term of a leader that a member has named.
    term: AtomicU64,
    /// The id of the etcd cluster that was answered with first, zero before that. Members of another one are
    /// not used: their revisions are others.
    etcd_cluster: AtomicU64,
    /// Why the last member that could not be used could not.
    unusable: Mutex<Option<String>>,
}

/// The runtime. It may be dropped wherever the client is, on an async thread too.
struct ConnectionThread(Option<Runtime>);

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct Member {
    address: String,
    channel: Channel,
    /// Bytes that it has sent.
    received: Arc<AtomicU64>,
    /// It has answered last as a member of another etcd cluster than the first answer came from.
    is_other: AtomicBool,
    /// It could not be used when it was asked last.
    is_unusable: AtomicBool,
}

/// A watch of one key.
pub(crate) struct Watch {
    stream: Streaming<WatchResponse>,
    /// Number of the member that serves it, for [`Client::leave`].
    pub member: usize,
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// [`Error::Refused`] where the options cannot be used, [`Error::Unavailable`] where the operating system
    /// gives no thread.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Client, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("journal-etcd")
            .enable_all()
            .build()
            .map_err(|error| Error::Unavailable { message: error.to_string() })?;
        let tls = options.tls.as_ref().map(tls_config);
        let entered = runtime.enter();
        let members = options.members.iter().map(|address| Member::new(address, tls.clone()));
        let members = members.collect::<Result<Vec<Member>, _>>().map_err(|error| Error::Refused {
            message: format!("these connections cannot be made: {}", describe(&error)),
        })?;
        drop(entered);
        Ok(Client {
            runtime: runtime.handle().clone(),
            _thread: ConnectionThread(Some(runtime)),
            members,
            current: AtomicUsize::new(0),
            slow: AtomicU32::new(0),
            user: options.user.clone(),
            token: Mutex::new(None),
            term: AtomicU64::new(0),
            etcd_cluster: AtomicU64::new(0),
            unusable: Mutex::new(None),
        })
    }

    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Asks another member from now on, unless that has happened since `member` was chosen.
    pub(crate) fn leave(&self, member: usize) {
        let next = member.wrapping_add(1);
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks another member from now on, even if this one was left before and has come round again. Returns
    /// its address.
    pub(crate) fn distrust(&self, member: usize) -> String {
        let (asked, members) = (self.current.load(Ordering::Relaxed), self.members.len());
        if asked % members == member % members {
            self.leave(asked);
        }
        self.numbered(member).address.clone()
    }

    /// Why a member could not be used, if there was one.
    pub(crate) fn unusable(&self) -> Option<String> {
        self.unusable.lock().clone()
    }

    pub(crate) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, CallError> {
        let (member, channel) = self.member();
        let response: RangeResponse = self.bounded(member, self.exchange(&channel, path::RANGE, request))?;
        self.note(member, response.header.as_ref())?;
        Ok(response)
    }

    /// A transaction that writes. Its outcome is unknown as soon as the member follows another leader than
    /// when it was made: the one before may have taken it with it.
    pub(crate) fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, CallError> {
        let (member, channel) = self.member();
        let made_in = self.term.load(Ordering::Relaxed);
        let response = self.bounded(member, async {
            let call = self.exchange(&channel, path::TXN, request);
            tokio::select! {
                answer = call => answer.map(Some),
                () = self.other_leader(&channel, made_in) => Ok(None),
            }
        })?;
        let response: TxnResponse = response.ok_or_else(|| {
            let address = &self.numbered(member).address;
            CallError::Unknown(format!("{address} follows another leader than when the request was made"))
        })?;
        match self.note(member, response.header.as_ref()) {
            Ok(()) => Ok(response),
            // Whatever it was, it was made there.
            Err(error) if response.succeeded => Err(CallError::Unknown(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Waits until the member follows the leader of a later term.
    async fn other_leader(&self, channel: &Channel, mut term: u64) {
        loop {
            tokio::time::sleep(LEADER_INTERVAL).await;
            // One that does not answer is left when the call has taken too long.
            let Ok(status) = self.exchange::<_, StatusResponse>(channel, path::STATUS, &Empty {}).await
            else {
                continue;
            };
            if term == 0 {
                term = status.raft_term;
            }
            if status.raft_term > term && status.leader != 0 {
                self.term.fetch_max(status.raft_term, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Notes what the header of an answer says, and refuses one of another etcd cluster: only that member as
    /// long as others may be of the right one.
    fn note(&self, member: usize, header: Option<&ResponseHeader>) -> Result<(), CallError> {
        let Some(header) = header else { return Ok(()) };
        let found = header.cluster_id;
        let first = self
            .etcd_cluster
            .compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|first| first, |_| found);
        let answered = self.numbered(member);
        answered.is_other.store(found != first, Ordering::Relaxed);
        if found == first {
            self.term.fetch_max(header.raft_term, Ordering::Relaxed);
            return Ok(());
        }
        let text = format!(
            "{} is of the etcd cluster {found:x}, and answers came from {first:x} before",
            answered.address
        );
        self.leave(member);
        match self.members.iter().all(|member| member.is_other.load(Ordering::Relaxed)) {
            true => Err(CallError::Refused(format!("{text}: etcd was replaced"))),
            false => Err(CallError::Unusable(text)),
        }
    }

    pub(crate) fn compact(&self, request: &CompactionRequest) -> Result<HeaderResponse, CallError> {
        self.call(path::COMPACT, request)
    }

    pub(crate) fn status(&self) -> Result<StatusResponse, CallError> {
        self.call(path::STATUS, &Empty {})
    }

    /// Watches a key. The member ends the watch when it has no leader.
    pub(crate) fn watch(&self, request: WatchCreateRequest) -> Result<Watch, CallError> {
        let (member, channel) = self.member();
        let request = WatchRequest { request: Some(watch_request::Request::Create(request)) };
        let opened = self.bounded(member, async {
            let token = self.token(&channel).await?;
            let requests = tokio_stream::once(request).chain(tokio_stream::pending());
            call::watch(channel, requests, token).await
        });
        Ok(Watch { stream: opened?, member })
    }

    /// The next message of a watch; none when there was none for `wait`.
    pub(crate) fn next(&self, watch: &mut Watch, wait: Duration) -> Result<Option<WatchResponse>, CallError> {
        let received = self.runtime.block_on(async { timeout(wait, watch.stream.message()).await });
        match received {
            Err(_elapsed) => Ok(None),
            Ok(Ok(Some(message))) => {
                self.note(watch.member, message.header.as_ref())?;
                Ok(Some(message))
            }
            Ok(Ok(None)) => Err(self.failed(watch.member, &Status::unavailable("the watch has ended"))),
            Ok(Err(status)) => Err(self.failed(watch.member, &status)),
        }
    }

    fn member(&self) -> (usize, Channel) {
        let number = self.current.load(Ordering::Relaxed);
        (number, self.numbered(number).channel.clone())
    }

    /// The member of a number, which is counted up whenever a member is left.
    fn numbered(&self, number: usize) -> &Member {
        &self.members[number % self.members.len()]
    }

    fn call<Q, A>(&self, path: &'static str, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (member, channel) = self.member();
        self.bounded(member, self.exchange(&channel, path, request))
    }

    /// A request and its response, with a new token where etcd does not take the one before: it has done
    /// nothing then.
    async fn exchange<Q, A>(&self, channel: &Channel, path: &'static str, request: &Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut is_second = false;
        loop {
            let token = self.token(channel).await?;
            let has_token = token.is_some();
            let mut request = Request::new(request.clone());
            authorize(&mut request, token);
            match unary(channel.clone(), path, request).await {
                Err(status) if has_token && !is_second && is_token_old(&status) => {
                    *self.token.lock() = None;
                    is_second = true;
                }
                outcome => return outcome,
            }
        }
    }

    /// Bytes that a member has sent.
    pub(crate) fn received(&self, member: usize) -> u64 {
        self.numbered(member).received.load(Ordering::Relaxed)
    }

    /// Waits for a call until the member was silent for a time; none then. A record may be on its way before
    /// the answer for as long as the path needs for it.
    async fn patiently<T>(
        &self,
        member: usize,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Option<Result<T, Status>> {
        let mut call = pin!(call);
        let (began, mut heard, mut received) = (Instant::now(), Instant::now(), self.received(member));
        loop {
            if let Ok(answer) = timeout(limit / 4, call.as_mut()).await {
                return Some(answer);
            }
            let now = self.received(member);
            if now.wrapping_sub(received) >= PROGRESS && began.elapsed() < LONGEST_CALL {
                heard = Instant::now();
            } else if heard.elapsed() >= limit {
                return None;
            }
            received = now;
        }
    }

    /// Waits for a call no longer than a member is trusted with.
    fn bounded<T>(
        &self,
        member: usize,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let slow = self.slow.load(Ordering::Relaxed);
        let limit = (CALL_TIMEOUTS[0] * (1 << slow.min(8))).min(CALL_TIMEOUTS[1]);
        match self.runtime.block_on(self.patiently(member, limit, call)) {
            Some(Ok(answer)) => {
                self.slow.store(0, Ordering::Relaxed);
                self.numbered(member).is_unusable.store(false, Ordering::Relaxed);
                Ok(answer)
            }
            Some(Err(status)) => Err(self.failed(member, &status)),
            None => {
                self.slow.store(slow.saturating_add(1), Ordering::Relaxed);
                let address = &self.numbered(member).address;
                self.leave(member);
                Err(CallError::Unknown(format!("{address} has not answered for {limit:?}")))
            }
        }
    }

    /// What a status means. A member that does not serve is left.
    fn failed(&self, member: usize, status: &Status) -> CallError {
        let answered = self.numbered(member);
        answered.is_unusable.store(false, Ordering::Relaxed);
        let error = classify(status, &answered.address);
        match &error {
            CallError::NotMade(_) | CallError::Unknown(_) => self.leave(member),
            CallError::Unusable(message) => {
                *self.unusable.lock() = Some(message.clone());
                self.leave(member);
                answered.is_unusable.store(true, Ordering::Relaxed);
                if self.members.iter().all(|member| member.is_unusable.load(Ordering::Relaxed)) {
                    return CallError::Denied(message.clone());
                }
            }
            _ => {}
        }
        error
    }

    /// The token of the user, asked for where there is none yet.
    async fn token(&self, channel: &Channel) -> Result<Option<AsciiMetadataValue>, Status> {
        let Some(user) = &self.user else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        let answer: AuthenticateResponse =
            match unary(channel.clone(), path::AUTHENTICATE, Request::new(request)).await {
                // Users are not asked for: etcd's own clients go on without, too.
                Err(status) if status.message().ends_with(message::AUTH_NOT_ENABLED) => return Ok(None),
                answer => answer?,
            };
        let token = AsciiMetadataValue::try_from(answer.token)
            .map_err(|_| Status::internal("etcd gave a token that is not text"))?;
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }
}

impl Member {
    fn new(address: &str, tls: Option<ClientTlsConfig>) -> Result<Member, tonic::transport::Error> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(2 * WINDOW_BYTES);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls)?;
        }
        let received = Arc::default();
        let channel = endpoint.connect_with_connector_lazy(Connector::new(Arc::clone(&received)));
        Ok(Member {
            address: address.to_owned(),
            channel,
            received,
            is_other: AtomicBool::default(),
            is_unusable: AtomicBool::default(),
        })
    }
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.certificate_authority));
    match &tls.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

/// Messages that tell apart what one code of gRPC stands for: etcd's `api/v3rpc/rpctypes/error.go`, and
/// gRPC's own for the last one. Each is a whole message, or all of one behind its prefix.
mod message {
    pub(super) const AUTH_NOT_ENABLED: &str = "authentication is not enabled";
    pub(super) const AUTH_FAILED: &str = "authentication failed, invalid user ID or password";
    pub(super) const OLD_AUTH_REVISION: &str = "revision of auth store is old";
    pub(super) const INVALID_TOKEN: &str = "etcdserver: invalid auth token";
    pub(super) const REQUEST_TOO_LARGE: &str = "request is too large";
    pub(super) const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
    pub(super) const PERMISSION_DENIED: &str = "etcdserver: permission denied";
    pub(super) const COMPACTED: &str = "required revision has been compacted";
    pub(super) const FUTURE_REVISION: &str = "required revision is a future revision";
    pub(super) const LEARNER: &str = "rpc not supported for learner";
    pub(super) const MESSAGE_TOO_LARGE: &str = "received message larger than max";
}

/// Whether a new token is needed: the old one has expired, or users have changed. Only etcd's own answers
/// count: after one of something between, nothing is known of the request.
fn is_token_old(status: &Status) -> bool {
    [message::INVALID_TOKEN, message::OLD_AUTH_REVISION].iter().any(|old| status.message().ends_with(old))
}

/// What a status says of the request. That it changed nothing is believed of messages that etcd answers with
/// before it hands a request to its log, or applies it; any other answer may come from behind that, or from
/// something between. So "database space exceeded" leaves the outcome open: a member answers with it before
/// the request is in the log, and after it was applied (etcd's `quotaApplierV3`).
fn classify(status: &Status, address: &str) -> CallError {
    let text = format!("{address}: {}", describe(status));
    if let Some(connect) = source::<ConnectError>(status) {
        return match source::<rustls::Error>(connect) {
            Some(_) => CallError::Unusable(format!("TLS with {text}")),
            None => CallError::NotMade(text),
        };
    }
    let is = |message| status.message().ends_with(message);
    match status.code() {
        Code::InvalidArgument if is(message::REQUEST_TOO_LARGE) => CallError::TooLarge,
        Code::ResourceExhausted if status.message().contains(message::MESSAGE_TOO_LARGE) => {
            CallError::TooLarge
        }
        Code::OutOfRange if is(message::COMPACTED) => CallError::Compacted,
        Code::ResourceExhausted if is(message::TOO_MANY_REQUESTS) => CallError::NotMade(text),
        Code::Unauthenticated if is(message::INVALID_TOKEN) => CallError::NotMade(text),
        Code::InvalidArgument if is(message::OLD_AUTH_REVISION) => CallError::NotMade(text),
        Code::InvalidArgument if is(message::AUTH_FAILED) => CallError::Denied(text),
        Code::PermissionDenied if is(message::PERMISSION_DENIED) => CallError::Denied(text),
        // A member that has not all of what the others have, or another program at its address.
        Code::Unimplemented => CallError::Unusable(text),
        Code::FailedPrecondition if is(message::LEARNER) => CallError::Unusable(text),
        Code::InvalidArgument | Code::FailedPrecondition => CallError::Refused(text),
        Code::OutOfRange if is(message::FUTURE_REVISION) => CallError::Refused(text),
        _ => CallError::Unknown(text),
    }
}

/// The first error of a type among the causes of an error.
fn source<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // An error of the operating system's kind hides the one that it was made of.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> &'static str {
        match classify(&Status::new(code, message), "member") {
            CallError::NotMade(_) => "not made",
            CallError::Unusable(_) => "unusable",
            CallError::Unknown(_) => "unknown",
            CallError::Denied(_) => "denied",
            CallError::Refused(_) => "refused",
            CallError::TooLarge => "too large",
            CallError::Compacted => "compacted",
        }
    }

    #[test]
    fn statuses_say_whether_a_request_was_made() {
        for (code, message, expected) in [
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", "too large"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "compacted"),
            // It may be applied all the same.
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "unknown"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "not made"),
            (Code::ResourceExhausted, "of something between", "unknown"),
            (Code::PermissionDenied, "etcdserver: permission denied", "denied"),
            (Code::PermissionDenied, "of something between", "unknown"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "denied",
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "not made"),
            (Code::Unauthenticated, "of something between", "unknown"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "not made"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "refused"),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", "unusable"),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", "unusable"),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9, the limit is: 8",
                "unknown",
            ),
            (Code::DataLoss, "etcdserver: corrupt cluster", "unknown"),
            (Code::Unavailable, "etcdserver: request timed out", "unknown"),
            (Code::Unavailable, "etcdserver: no leader", "unknown"),
            (Code::Unknown, "raft proposal dropped", "unknown"),
            (Code::Cancelled, "", "unknown"),
        ] {
            assert_eq!(kind(code, message), expected, "{message}");
        }
    }

    #[test]
    fn a_request_that_reached_nobody_was_not_made() {
        let mut options = EtcdOptions::parse("etcd://127.0.0.1:1/p").unwrap();
        options.members.push("127.0.0.1:2".to_owned());
        let client = Client::new(&options).unwrap();
        for expected in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"] {
            match client.range(&RangeRequest::default()) {
                Err(CallError::NotMade(message)) => assert!(message.contains(expected), "{message}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
