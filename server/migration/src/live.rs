//! [`Live`]: a running etcd, read at one revision and followed from there.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use plinth_engine::{KeyRange, Progress};
use plinth_etcd_wire::auth::{AuthenticateRequest, AuthenticateResponse};
use plinth_etcd_wire::call::{self, authorize, describe, path, unary};
use plinth_etcd_wire::kv::{Event, RangeRequest, RangeResponse};
use plinth_etcd_wire::lease::{LeaseTimeToLiveRequest, LeaseTimeToLiveResponse};
use plinth_etcd_wire::watch::{watch_request, WatchCreateRequest, WatchRequest, WatchResponse};
use plinth_etcd_wire::Empty;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};

use crate::source::{SourceEntry, SourceError};
use crate::spool::{Spool, SpoolWriter};

/// Longest time to connect, and of a call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds over all members before a call fails, and the pause between two.
const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// Keys of a page at first; halved while a page is larger than a message may be.
const PAGE: i64 = 500;

/// A failed etcd.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The options cannot be used.
    #[error("these connections to etcd cannot be made: {0}")]
    Options(String),
    /// No member has answered.
    #[error("etcd does not answer: {0}")]
    Unavailable(String),
    /// etcd has refused a call.
    #[error("etcd has refused the request: {0}")]
    Refused(String),
    /// The revision that is read was compacted.
    #[error(
        "etcd has compacted revision {0} while it was read. Start again; a longer --etcd-compaction-interval of the kube-apiserver leaves \
         more time"
    )]
    Compacted(u64),
    /// The spool cannot be written.
    #[error(transparent)]
    Spool(#[from] SourceError),
}

/// How to reach etcd.
#[derive(Clone, Debug, Default)]
pub struct LiveOptions {
    /// Addresses of its members: `https://HOST:PORT`, `http://…` or `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The authority of the members' certificates, PEM.
    pub certificate_authority: Option<Vec<u8>>,
    /// Certificate and key of the client, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Name and password.
    pub user: Option<(String, String)>,
}

/// Connections to the members.
pub struct Live {
    runtime: Handle,
    members: Vec<(String, Channel)>,
    current: usize,
    user: Option<(String, String)>,
    token: Option<AsciiMetadataValue>,
    /// Times to live of leases that were asked for.
    leases: HashMap<i64, Option<Duration>>,
}

/// A watch of all keys below a prefix.
pub struct LiveWatch {
    stream: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
}

/// What a watch has delivered.
#[derive(Debug, PartialEq)]
pub struct Changes {
    /// The changes, in order.
    pub events: Vec<Event>,
    /// Everything up to this revision was delivered.
    pub reached: u64,
}

impl Live {
    /// Prepares the connections. None is made before the first call.
    ///
    /// # Errors
    /// [`LiveError::Options`].
    pub fn new(options: &LiveOptions, runtime: Handle) -> Result<Live, LiveError> {
        let _entered = runtime.enter();
        let members =
            options.endpoints.iter().map(|endpoint| Ok((endpoint.clone(), channel(endpoint, options)?)));
        let members = members.collect::<Result<Vec<_>, LiveError>>()?;
        if members.is_empty() {
            return Err(LiveError::Options("no endpoint is given".to_owned()));
        }
        let user = options.user.clone();
        let runtime = runtime.clone();
        Ok(Live { runtime, members, current: 0, user, token: None, leases: HashMap::new() })
    }

    /// The newest revision of etcd, of which a majority of its members knows.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn revision(&mut self) -> Result<u64, LiveError> {
        let request = RangeRequest { key: "\0".into(), limit: 1, keys_only: true, ..RangeRequest::default() };
        Ok(revision(&self.call::<_, RangeResponse>(path::RANGE, request)?))
    }

    /// Reads all keys below a prefix at the newest revision into a file, which must be open to read and
    /// write.
    ///
    /// # Errors
    /// When etcd cannot be read to the end at that revision, or the file cannot be written.
    pub fn spool(
        &mut self,
        prefix: &str,
        file: File,
        path: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Spool, LiveError> {
        let mut out = SpoolWriter::new(file, path);
        let end = prefix_end(prefix);
        let (mut from, mut at, mut done, mut limit) = (Bytes::from(prefix.to_owned()), 0, 0, PAGE);
        loop {
            let request = RangeRequest {
                key: from.clone(),
                range_end: end.clone(),
                limit,
                revision: i64::try_from(at).unwrap_or(0),
                ..RangeRequest::default()
            };
            let page: RangeResponse = match self.call(path::RANGE, request) {
                Err(LiveError::Refused(reason)) if is_too_large(&reason) && limit > 1 => {
                    limit /= 2;
                    continue;
                }
                Err(LiveError::Compacted(_)) => return Err(LiveError::Compacted(at)),
                page => page?,
            };
            if at == 0 {
                at = revision(&page);
            }
            for kv in &page.kvs {
                let ttl = self.time_to_live(kv.lease)?;
                out.push(&SourceEntry { key: kv.key.to_vec(), value: kv.value.to_vec(), ttl })?;
            }
            let Some(last) = page.kvs.last().filter(|_| page.more) else { break };
            from = [&last.key[..], &[0]].concat().into();
            done += page.kvs.len() as u64;
            let left = u64::try_from(page.count).unwrap_or(0);
            progress(Progress { done, total: done.max(done - page.kvs.len() as u64 + left) });
        }
        Ok(out.finish(at)?)
    }

    /// Watches all keys below a prefix after a revision.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub fn watch(&mut self, prefix: &str, after: u64) -> Result<LiveWatch, LiveError> {
        let create = WatchCreateRequest {
            key: Bytes::from(prefix.to_owned()),
            range_end: prefix_end(prefix),
            start_revision: i64::try_from(after.saturating_add(1)).unwrap_or(i64::MAX),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest { request: Some(watch_request::Request::Create(create)) };
        let (requests, sent) = mpsc::channel(4);
        // The channel is new and has room.
        let _ = requests.try_send(request);
        let (name, channel) = self.member();
        let token = self.token()?;
        let opened = self.runtime.block_on(in_time(call::watch(channel, ReceiverStream::new(sent), token)));
        let stream = opened.map_err(|status| failed(&name, &status))?;
        Ok(LiveWatch { stream, requests })
    }

    /// The next changes of a watch; none when there were none for `wait`.
    ///
    /// # Errors
    /// When the watch has ended.
    pub fn next(&mut self, watch: &mut LiveWatch, wait: Duration) -> Result<Option<Changes>, LiveError> {
        let ended = |reason: &str| LiveError::Unavailable(format!("the watch has ended: {reason}"));
        let received = self.runtime.block_on(async { timeout(wait, watch.stream.message()).await });
        let message = match received {
            Err(_elapsed) => return Ok(None),
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Err(ended("etcd has closed it")),
            Ok(Err(status)) => return Err(ended(&describe(&status))),
        };
        if message.compact_revision > 0 {
            return Err(LiveError::Compacted(u64::try_from(message.compact_revision).unwrap_or(0)));
        }
        if message.canceled {
            return Err(ended(&message.cancel_reason));
        }
        // The header of a response with events may be ahead of them. Those of one revision are in one
        // response.
        let reached = match message.events.last().and_then(|event| event.kv.as_ref()) {
            Some(last) => last.mod_revision,
            None if message.created => 0,
            None => message.header.map_or(0, |header| header.revision),
        };
        Ok(Some(Changes { events: message.events, reached: u64::try_from(reached).unwrap_or(0) }))
    }

    /// Asks for the revision up to which a watch has delivered everything.
    pub fn ask_progress(&self, watch: &LiveWatch) {
        let request = WatchRequest { request: Some(watch_request::Request::Progress(Empty {})) };
        // If it has no room, an earlier question is not sent yet.
        let _ = watch.requests.try_send(request);
    }

    /// What is left of a lease; none for no lease.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub fn time_to_live(&mut self, lease: i64) -> Result<Option<Duration>, LiveError> {
        if lease == 0 {
            return Ok(None);
        }
        if let Some(known) = self.leases.get(&lease) {
            return Ok(*known);
        }
        let request = LeaseTimeToLiveRequest { id: lease, keys: false };
        let response: LeaseTimeToLiveResponse = self.call(path::TIME_TO_LIVE, request)?;
        // One that does not exist any more is about to take its keys along.
        let left = Some(Duration::from_secs(u64::try_from(response.ttl).unwrap_or(0).max(1)));
        self.leases.insert(lease, left);
        Ok(left)
    }

    fn member(&self) -> (String, Channel) {
        let index = self.current % self.members.len();
        self.members[index].clone()
    }

    fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, LiveError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut last = None;
        for attempt in 0..ROUNDS * self.members.len() {
            if attempt > 0 && attempt % self.members.len() == 0 {
                self.runtime.block_on(async { tokio::time::sleep(PAUSE).await });
            }
            let (name, channel) = self.member();
            let outcome = self.token().and_then(|token| {
                let mut request = Request::new(request.clone());
                authorize(&mut request, token);
                self.runtime.block_on(in_time(unary(channel, path, request))).map_err(|status| {
                    if status.code() == Code::Unauthenticated {
                        self.token = None;
                    }
                    failed(&name, &status)
                })
            });
            match outcome {
                Err(error @ LiveError::Unavailable(_)) => {
                    last = Some(error);
                    self.current = self.current.wrapping_add(1);
                }
                outcome => return outcome,
            }
        }
        Err(last.unwrap_or_else(|| LiveError::Unavailable("there is no member".to_owned())))
    }

    /// The token of the user, asked for where there is none yet.
    fn token(&mut self) -> Result<Option<AsciiMetadataValue>, LiveError> {
        let (Some((name, password)), None) = (&self.user, &self.token) else { return Ok(self.token.clone()) };
        let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
        let (member, channel) = self.member();
        let answer: Result<AuthenticateResponse, _> =
            self.runtime.block_on(in_time(unary(channel, path::AUTHENTICATE, Request::new(request))));
        let answer = answer.map_err(|status| failed(&member, &status))?;
        let token = AsciiMetadataValue::try_from(answer.token)
            .map_err(|_| LiveError::Refused("etcd gave a token that is not text".to_owned()))?;
        self.token = Some(token);
        Ok(self.token.clone())
    }
}

fn channel(endpoint: &str, options: &LiveOptions) -> Result<Channel, LiveError> {
    let refused = |error: &dyn std::fmt::Display| LiveError::Options(format!("{endpoint}: {error}"));
    let is_plain = options.certificate_authority.is_none() && options.identity.is_none();
    let url = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("{}://{endpoint}", if is_plain { "http" } else { "https" }),
    };
    let mut target = Endpoint::from_shared(url.clone())
        .map_err(|error| refused(&error))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20);
    if url.starts_with("https://") {
        let mut tls = ClientTlsConfig::new();
        match &options.certificate_authority {
            Some(pem) => tls = tls.ca_certificate(Certificate::from_pem(pem)),
            None => return Err(refused(&"TLS needs --cacert")),
        }
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        target = target.tls_config(tls).map_err(|error| refused(&error))?;
    }
    Ok(target.connect_lazy())
}

async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| Err(Status::unavailable("no answer in time")))
}

/// etcd's own texts tell apart what one code stands for.
fn failed(member: &str, status: &Status) -> LiveError {
    let text = format!("{member}: {}", describe(status));
    match status.code() {
        Code::OutOfRange if status.message().ends_with("required revision has been compacted") => {
            LiveError::Compacted(0)
        }
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal => {
            LiveError::Unavailable(text)
        }
        Code::Unauthenticated => LiveError::Unavailable(text),
        _ => LiveError::Refused(text),
    }
}

fn is_too_large(reason: &str) -> bool {
    reason.contains("message length too large")
        || reason.contains("message larger than max")
        || reason.contains("decoded message length")
}

fn revision(response: &RangeResponse) -> u64 {
    response.header.map_or(0, |header| u64::try_from(header.revision).unwrap_or(0))
}

/// The end of the range of keys that begin with `prefix`, as etcd writes it.
fn prefix_end(prefix: &str) -> Bytes {
    KeyRange::prefix(prefix.to_owned()).end().cloned().unwrap_or_else(|| Bytes::from_static(&[0]))
}
