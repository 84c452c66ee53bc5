//! [`Client`]: calls of etcd with deadlines, on one member after the other.

use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_etcd_wire::auth::{AuthenticateRequest, AuthenticateResponse};
use plinth_etcd_wire::call::{self, authorize, describe, path, unary};
use plinth_etcd_wire::kv::{
    request_op, CompactionRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use plinth_etcd_wire::maintenance::StatusResponse;
use plinth_etcd_wire::watch::{watch_request, WatchCreateRequest, WatchRequest, WatchResponse};
use plinth_etcd_wire::{Empty, HeaderResponse};
use plinth_journal::{Error, Tls};
use prost::Message;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

use crate::call_error::{classify, is_token_old, message, CallError};
use crate::connector::{Connector, Traffic};
use crate::options::{EtcdOptions, User};

/// Longest time to connect to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time of a call: doubled after each that takes longer, up to the second one, so that a slow etcd is
/// not asked again and again for what it is doing. A member that stands still costs the first one.
const CALL_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// Longest time of a call while bytes pass: its answer is behind what the member sends meanwhile, or its
/// record is on its way. A record of megabytes needs minutes at 256 kbit/s.
const LONGEST_CALL: Duration = Duration::from_secs(300);
/// A member to which, or from which, as much has passed within a quarter of a call's time does not stand
/// still.
pub(crate) const PROGRESS: u64 = 8 << 10;
/// Bytes that etcd may send ahead: some of the largest records. As many again are left for calls.
const WINDOW_BYTES: u32 = 16 << 20;

/// Where the first of members that are asked at once has not answered for so long, all others are.
const HEDGE: Duration = Duration::from_millis(100);

/// While a request that writes is not answered, the member is asked so often whom it follows.
const LEADER_INTERVAL: Duration = Duration::from_millis(200);

/// Calls etcd. The thread that calls drives its call, the runtime's only thread the connections.
pub(crate) struct Client {
    runtime: Handle,
    _thread: ConnectionThread,
    pub(crate) members: Vec<Member>,
    /// Number of the member that is asked where a call names none.
    current: AtomicUsize,
    /// Calls that took too long, one after the other.
    slow: AtomicU32,
    user: Option<User>,
    /// What etcd gave for user and password.
    token: Mutex<Option<AsciiMetadataValue>>,
    /// The newest term of a leader that a member has named.
    pub(crate) term: AtomicU64,
    /// The id of the etcd cluster that the journal was found in, zero before that. Members of another one are
    /// not used: their revisions are others.
    pub(crate) etcd_cluster: AtomicU64,
    /// When a member of that one has answered last.
    pub(crate) heard: Mutex<Option<Instant>>,
    /// Why the last member that could not be used could not.
    unusable: Mutex<Option<String>>,
    /// Nobody waits for an answer any more.
    closed: watch::Sender<bool>,
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

pub(crate) struct Member {
    pub address: String,
    channel: Channel,
    traffic: Arc<Traffic>,
    /// The etcd cluster that it has answered for last, and when that was another one than the journal's.
    pub etcd_cluster: AtomicU64,
    pub other: Mutex<Option<Instant>>,
    /// It could not be used when it was asked last.
    is_unusable: AtomicBool,
    /// When it has not answered.
    pub silent: Mutex<Option<Instant>>,
    /// Bytes of the smallest record that was too large for it, since it has taken one as large.
    pub too_large: AtomicUsize,
}

/// A watch of one key.
pub(crate) struct Watch {
    stream: Streaming<WatchResponse>,
    /// Number of the member that serves it, for [`Client::leave`].
    pub member: usize,
    /// Ends the requests, when it is dropped. As long as these go on the stream is not reset, and the member
    /// sends all records to nobody, beside those of the next watch.
    _requests: mpsc::Sender<WatchRequest>,
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
        // Each once: what most members answer is counted.
        let mut named: Vec<&String> = Vec::new();
        for address in &options.members {
            if !named.contains(&address) {
                named.push(address);
            }
        }
        let members = named.into_iter().map(|address| Member::new(address, tls.clone()));
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
            heard: Mutex::new(None),
            unusable: Mutex::new(None),
            closed: watch::Sender::new(false),
        })
    }

    /// Ends all calls, and makes later ones fail.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Waits on this thread; none when the client is closed.
    fn wait<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async {
            let mut closed = self.closed.subscribe();
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => None,
                output = awaited => Some(output),
            }
        })
    }

    /// The same for a call.
    pub(crate) fn run<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let closed = || CallError::Unknown("the journal is closed, as this replica ends".to_owned());
        self.wait(call).unwrap_or_else(|| Err(closed()))
    }

    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// The members by number, that which is asked now first.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = usize> {
        let (first, members) = (self.current(), self.members.len());
        (0..members).map(move |next| (first + next) % members)
    }

    /// Makes a call of members at once, the first one a little before the others, until `take` has taken
    /// enough of their outcomes: some may stand still.
    pub(crate) fn ask<T, F: Future<Output = T>>(
        &self,
        members: &[usize],
        call: impl Fn(usize) -> F,
        take: impl FnMut(usize, T) -> bool,
    ) {
        let take = RefCell::new(take);
        let ask = |(at, member): (usize, &usize)| {
            let (member, call, take) = (*member, &call, &take);
            async move {
                if at > 0 {
                    tokio::time::sleep(HEDGE).await;
                }
                let outcome = call(member).await;
                (take.borrow_mut())(member, outcome).then_some(())
            }
        };
        self.wait(first_of(members.iter().enumerate().map(ask)));
    }

    /// Reads at all members but one at once, until an answer is enough. Those that do not serve are not left.
    pub(crate) fn ask_others(
        &self,
        member: usize,
        request: &TxnRequest,
        is_enough: impl Fn(TxnResponse) -> bool,
    ) {
        let ask = |other: usize| {
            let is_enough = &is_enough;
            async move {
                let answer = self.exchange(&self.members[other].channel, path::TXN, request).await;
                answer.is_ok_and(is_enough).then_some(())
            }
        };
        let first = first_of(self.in_turn().filter(|other| *other != member).map(ask));
        self.wait(async { timeout(CALL_TIMEOUTS[0], first).await });
    }

    /// The member that is asked where a call names none.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Asks another member from now on, unless that has happened since `member` was asked.
    pub(crate) fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks this member from now on.
    pub(crate) fn prefer(&self, member: usize) {
        self.current.store(member, Ordering::Relaxed);
    }

    pub(crate) fn address(&self, member: usize) -> &str {
        &self.members[member].address
    }

    /// Why a member could not be used, if there was one.
    pub(crate) fn unusable(&self) -> Option<String> {
        self.unusable.lock().clone()
    }

    pub(crate) fn range_at(&self, member: usize, request: &RangeRequest) -> Result<RangeResponse, CallError> {
        self.run(self.range(member, request))
    }

    pub(crate) async fn range(
        &self,
        member: usize,
        request: &RangeRequest,
    ) -> Result<RangeResponse, CallError> {
        let response: RangeResponse = self.call(member, path::RANGE, request).await?;
        self.note(member, response.header.as_ref())?;
        Ok(response)
    }

    /// A transaction. If it writes, its outcome is unknown as soon as the member follows another leader than
    /// when it was made: the one before may have taken it with it.
    pub(crate) fn txn_at(&self, member: usize, request: &TxnRequest) -> Result<TxnResponse, CallError> {
        self.run(self.txn(member, request))
    }

    pub(crate) async fn txn(&self, member: usize, request: &TxnRequest) -> Result<TxnResponse, CallError> {
        let channel = &self.members[member].channel;
        let made_in = self.term.load(Ordering::Relaxed);
        let call = async {
            let call = self.exchange(channel, path::TXN, request);
            tokio::select! {
                answer = call => answer.map(Some),
                () = self.other_leader(channel, made_in) => Ok(None),
            }
        };
        let response = self.bounded(member, call).await?;
        let response: TxnResponse = response.ok_or_else(|| {
            let address = self.address(member);
            CallError::Unknown(format!("{address} follows another leader than when the request was made"))
        })?;
        match self.note(member, response.header.as_ref()) {
            Ok(()) => Ok(response),
            // What it writes was made there.
            Err(error) if response.succeeded && writes(request) => Err(CallError::Unknown(error.to_string())),
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

    pub(crate) fn compact_at(&self, member: usize, request: &CompactionRequest) -> Result<(), CallError> {
        let response: HeaderResponse = self.run(self.call(member, path::COMPACT, request))?;
        self.note(member, response.header.as_ref())
    }

    pub(crate) async fn status(&self, member: usize) -> Result<StatusResponse, CallError> {
        self.call(member, path::STATUS, &Empty {}).await
    }

    /// Watches a key. The member ends the watch when it has no leader.
    pub(crate) fn watch(&self, member: usize, request: WatchCreateRequest) -> Result<Watch, CallError> {
        let channel = self.members[member].channel.clone();
        let request = WatchRequest { request: Some(watch_request::Request::Create(request)) };
        let (requests, received) = mpsc::channel(1);
        // There is room for one.
        let _ = requests.try_send(request);
        let opened = self.bounded(member, async {
            let token = self.token(&channel).await?;
            call::watch(channel, ReceiverStream::new(received), token).await
        });
        Ok(Watch { stream: self.run(opened)?, member, _requests: requests })
    }

    /// The next message of a watch; none when there was none for `wait`.
    pub(crate) fn next(&self, watch: &mut Watch, wait: Duration) -> Result<Option<WatchResponse>, CallError> {
        let received = async { Ok(timeout(wait, watch.stream.message()).await) };
        match self.run(received)? {
            Err(_elapsed) => Ok(None),
            Ok(Ok(Some(message))) => {
                self.note(watch.member, message.header.as_ref())?;
                Ok(Some(message))
            }
            Ok(Ok(None)) => Err(self.failed(watch.member, &Status::unavailable("the watch has ended"))),
            Ok(Err(status)) => Err(self.failed(watch.member, &status)),
        }
    }

    async fn call<Q, A>(&self, member: usize, path: &'static str, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.bounded(member, self.exchange(&self.members[member].channel, path, request)).await
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
        self.members[member].traffic.received.load(Ordering::Relaxed)
    }

    /// Bytes that a member has sent or taken.
    fn passed(&self, member: usize) -> u64 {
        let sent = self.members[member].traffic.sent.load(Ordering::Relaxed);
        self.received(member).wrapping_add(sent)
    }

    /// Waits for a call until the member was silent for a time; none then. A record may be on its way before
    /// the answer, or to the member, for as long as the path needs for it: a call during which bytes have
    /// passed is waited for as long once more, since what was sent may be with the operating system still.
    async fn patiently<T>(
        &self,
        member: usize,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Option<Result<T, Status>> {
        let mut call = pin!(call);
        let (began, mut heard, mut passed) = (Instant::now(), Instant::now(), self.passed(member));
        loop {
            if let Ok(answer) = timeout(limit / 4, call.as_mut()).await {
                return Some(answer);
            }
            let now = self.passed(member);
            if now.wrapping_sub(passed) >= PROGRESS && began.elapsed() < LONGEST_CALL {
                heard = Instant::now();
            } else if heard.elapsed() >= limit.max(heard.duration_since(began)) {
                return None;
            }
            passed = now;
        }
    }

    /// Waits for a call no longer than a member is trusted with. Of calls that are made at once those that
    /// take too long are one.
    async fn bounded<T>(
        &self,
        member: usize,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let slow = self.slow.load(Ordering::Relaxed);
        let limit = (CALL_TIMEOUTS[0] * (1 << slow.min(8))).min(CALL_TIMEOUTS[1]);
        let outcome = self.patiently(member, limit, call).await;
        *self.members[member].silent.lock() = outcome.is_none().then(Instant::now);
        match outcome {
            Some(Ok(answer)) => {
                self.slow.store(0, Ordering::Relaxed);
                self.members[member].is_unusable.store(false, Ordering::Relaxed);
                Ok(answer)
            }
            Some(Err(status)) => Err(self.failed(member, &status)),
            None => {
                self.slow.store(slow.saturating_add(1), Ordering::Relaxed);
                let address = &self.members[member].address;
                self.leave(member);
                Err(CallError::Unknown(format!("{address} has not answered for {limit:?}")))
            }
        }
    }

    /// What a status means. A member that does not serve is left.
    fn failed(&self, member: usize, status: &Status) -> CallError {
        let answered = &self.members[member];
        answered.is_unusable.store(false, Ordering::Relaxed);
        let error = classify(status, &answered.address);
        match &error {
            CallError::NotMade(_) | CallError::Unknown(_) | CallError::TooLarge => self.leave(member),
            // The alarm is that of all members, and reads are served as ever.
            CallError::NoSpace(_) => {}
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
        let traffic = Arc::default();
        let channel = endpoint.connect_with_connector_lazy(Connector::new(Arc::clone(&traffic)));
        Ok(Member {
            address: address.to_owned(),
            channel,
            traffic,
            etcd_cluster: AtomicU64::new(0),
            other: Mutex::new(None),
            is_unusable: AtomicBool::default(),
            silent: Mutex::new(None),
            too_large: AtomicUsize::new(usize::MAX),
        })
    }
}

/// The first answer that will do of calls that are made at once, none where all have ended without one.
async fn first_of<T, F: Future<Output = Option<T>>>(calls: impl Iterator<Item = F>) -> Option<T> {
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    poll_fn(|context| {
        let mut found = None;
        calls.retain_mut(|call| match call.as_mut().poll(context) {
            Poll::Ready(answer) => {
                found = found.take().or(answer);
                false
            }
            Poll::Pending => true,
        });
        match found.is_some() || calls.is_empty() {
            true => Poll::Ready(found),
            false => Poll::Pending,
        }
    })
    .await
}

pub(crate) fn writes(request: &TxnRequest) -> bool {
    let is_put = |op: &RequestOp| matches!(op.request, Some(request_op::Request::Put(_)));
    request.success.iter().any(is_put)
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.certificate_authority));
    match &tls.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

#[cfg(test)]
impl Client {
    /// Calls that took too long, one after the other.
    pub(crate) fn slow_calls(&self) -> u32 {
        self.slow.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_reached_nobody_was_not_made() {
        let mut options = EtcdOptions::parse("etcd://127.0.0.1:1/p").unwrap();
        options.members.push("127.0.0.1:2".to_owned());
        let client = Client::new(&options).unwrap();
        for expected in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"] {
            match client.range_at(client.current(), &RangeRequest::default()) {
                Err(CallError::NotMade(message)) => assert!(message.contains(expected), "{message}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
