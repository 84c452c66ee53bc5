//! Calls of gRPC: from the path of a request to the function that answers it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use prost::Message;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::answers::Answer;
use crate::auth::Credentials;
use crate::calls::StartedCall;
use crate::counted_body::counted;
use crate::maintenance::{self, Identity};
use crate::member::Member;
use crate::permitted::Permitted;
use crate::timed_body::{TimedBody, REQUEST_TIME};
use crate::watch::{self, OVERHEAD};
use crate::wire::kv::{DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, TxnRequest};
use crate::wire::maintenance::{alarm_action, AlarmRequest, HealthCheckResponse, MemberRequest};
use crate::wire::Empty;
use crate::{errors, snapshot};

/// Bytes that a request has more in etcd's log than on the wire: an id and the kind of request.
const LOG_OVERHEAD: usize = 18;

/// The header with which Go's client names the version of the API that it was made for.
const CLIENT_VERSION: &str = "client-api-version";

/// What calls need.
pub(crate) struct Services {
    pub member: Arc<Member>,
    pub identity: Identity,
    pub progress_interval: Duration,
    pub stop: CancellationToken,
}

type Pending<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, Status>> + Send>>;

/// A call with one request and one response.
struct Unary<F>(F);

impl<F, Request, Resp, Answered> UnaryService<Request> for Unary<F>
where
    F: FnOnce(Request) -> Answered + Clone,
    Answered: Future<Output = Result<Resp, Status>> + Send + 'static,
    Resp: 'static,
{
    type Response = Resp;
    type Future = Pending<Resp>;

    fn call(&mut self, request: tonic::Request<Request>) -> Pending<Resp> {
        let answer = (self.0.clone())(request.into_inner());
        Box::pin(async move { answer.await.map(tonic::Response::new) })
    }
}

/// A call whose response may be large.
struct Large<F>(F);

impl<F, Request, Resp, Answered> UnaryService<Request> for Large<F>
where
    F: FnOnce(Request) -> Answered + Clone,
    Answered: Future<Output = Result<Answer<Resp>, Status>> + Send + 'static,
    Resp: 'static,
{
    type Response = Resp;
    type Future = Pending<Resp>;

    fn call(&mut self, request: tonic::Request<Request>) -> Pending<Resp> {
        let answer = (self.0.clone())(request.into_inner());
        Box::pin(async move { answer.await.map(Answer::into_response) })
    }
}

/// A call whose response is a stream; so may be its request.
struct Streamed<F>(F);

impl<F, Request, Resp, Responses, Answered> ServerStreamingService<Request> for Streamed<F>
where
    F: FnOnce(Request) -> Answered + Clone,
    Answered: Future<Output = Result<Responses, Status>> + Send + 'static,
    Responses: Stream<Item = Result<Resp, Status>> + Send + 'static,
{
    type Response = Resp;
    type ResponseStream = Responses;
    type Future = Pending<Responses>;

    fn call(&mut self, request: tonic::Request<Request>) -> Self::Future {
        let answer = (self.0.clone())(request.into_inner());
        Box::pin(async move { answer.await.map(tonic::Response::new) })
    }
}

impl<F, Request, Resp, Responses> StreamingService<Request> for Streamed<F>
where
    F: FnOnce(Streaming<Request>) -> Responses + Clone,
    Responses: Stream<Item = Result<Resp, Status>> + Send + 'static,
{
    type Response = Resp;
    type ResponseStream = Responses;
    type Future = std::future::Ready<Result<tonic::Response<Responses>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Request>>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new((self.0.clone())(request.into_inner()))))
    }
}

/// The path of a call, split.
fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.rsplit_once('/')
}

/// Answers a call.
pub(crate) async fn answer(services: &Services, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let Some((service, method)) = split(&path) else { return unknown(&path) };
    let short = service.strip_prefix("etcdserverpb.").unwrap_or(service);
    let credentials = credentials(&request);
    let metrics = &services.member.metrics;
    let version = request.headers().get(CLIENT_VERSION).and_then(|version| version.to_str().ok());
    let started = metrics.calls.start(&path, version);
    // Streams of requests last as long as their clients want.
    let time = (!matches!(method, "Watch" | "LeaseKeepAlive")).then_some(REQUEST_TIME);
    let (received, messages) = (metrics.received_bytes.clone(), started.as_ref().map(StartedCall::received));
    let request = request.map(|body| Body::new(TimedBody::new(body, time, received, messages)));
    let call = Call { services, request, credentials };
    let response = match short {
        "KV" => call.kv(method).await,
        "Watch" | "Lease" => call.watch_or_lease(method).await,
        "Maintenance" => call.maintenance(method).await,
        "Cluster" => call.cluster(method).await,
        "Auth" => call.auth(method).await,
        "v3lockpb.Lock" | "v3electionpb.Election" => call.concurrency(method).await,
        "grpc.health.v1.Health" if method == "Check" => {
            call.unary(|_: Empty| async { Ok(HealthCheckResponse { status: 1 }) }).await
        }
        _ => return unknown(&path),
    };
    counted(readable_size_error(response), metrics, started)
}

fn unknown(path: &str) -> Response<Body> {
    match split(path) {
        Some((service, method)) => {
            Status::unimplemented(format!("unknown method {method} for service {service}")).into_http()
        }
        None => Status::unimplemented(format!("malformed method name: {path:?}")).into_http(),
    }
}

/// gRPC for Go has another code and text for a request that is larger than a message may be.
fn readable_size_error(response: Response<Body>) -> Response<Body> {
    const PREFIX: &str = "Error, decoded message length too large: found ";
    let status = Status::from_header_map(response.headers());
    let Some(status) = status.filter(|status| status.code() == Code::OutOfRange) else { return response };
    let Some(rest) = status.message().strip_prefix(PREFIX) else { return response };
    let numbers = rest.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let numbers: Vec<&str> = numbers.collect();
    let [found, limit] = numbers.as_slice() else { return response };
    let text = format!("grpc: received message larger than max ({found} vs. {limit})");
    Status::resource_exhausted(text).into_http()
}

/// What a request has brought along. The certificate of its connection counts unless the JSON gateway was
/// asked: what it passes on is not its own.
fn credentials(request: &Request<Body>) -> Credentials {
    let headers = request.headers();
    let token = headers.get("token").or_else(|| headers.get(AUTHORIZATION));
    let token = token.map(|token| String::from_utf8_lossy(token.as_bytes()));
    let token = token.map(|token| token.strip_prefix("Bearer ").unwrap_or(&token).into());
    let common_name = request.extensions().get::<CommonName>().map(|name| Arc::clone(&name.0));
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    Credentials { token, common_name, peer }
}

/// The common name of the client certificate of a connection, in the extensions of its requests.
#[derive(Clone)]
pub(crate) struct CommonName(pub Arc<str>);

/// The address of the client of a connection, likewise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub IpAddr);

/// A call that is being answered.
struct Call<'a> {
    services: &'a Services,
    request: Request<Body>,
    credentials: Credentials,
}

impl Call<'_> {
    fn member(&self) -> Arc<Member> {
        Arc::clone(&self.services.member)
    }

    fn codec<Resp, Req>(&self) -> Grpc<ProstCodec<Resp, Req>>
    where
        Resp: Message + Send + 'static,
        Req: Message + Default + Send + 'static,
    {
        let limit = self.services.member.limits.request_bytes.saturating_add(OVERHEAD);
        Grpc::new(ProstCodec::default()).max_decoding_message_size(limit)
    }

    async fn unary<Req, Resp, F, Answered>(self, answer: F) -> Response<Body>
    where
        Req: Message + Default + Send + 'static,
        Resp: Message + Send + 'static,
        F: FnOnce(Req) -> Answered + Clone,
        Answered: Future<Output = Result<Resp, Status>> + Send + 'static,
    {
        self.codec().unary(Unary(answer), self.request).await
    }

    /// Range, whose response is no message but the records on their way out.
    async fn range(self) -> Response<Body> {
        let permitted = self.permitted();
        // A compressed request is refused by the other path, in gRPC's words.
        if self.request.headers().contains_key("grpc-encoding") {
            return self.large(|request| permitted.range(request)).await;
        }
        let limit = self.services.member.limits.request_bytes.saturating_add(OVERHEAD);
        let decoder = ProstCodec::<RangeResponse, RangeRequest>::default().decoder();
        let body = self.request.into_body();
        let request = Streaming::new_request(decoder, body, None, Some(limit)).message().await;
        let request =
            request.and_then(|request| request.ok_or_else(|| Status::internal("Missing request message.")));
        let answered = match request {
            Ok(request) => permitted.range_body(request).await,
            Err(status) => Err(status),
        };
        answered.unwrap_or_else(Status::into_http)
    }

    /// A call whose response may be large.
    async fn large<Req, Resp, F, Answered>(self, answer: F) -> Response<Body>
    where
        Req: Message + Default + Send + 'static,
        Resp: Message + Send + 'static,
        F: FnOnce(Req) -> Answered + Clone,
        Answered: Future<Output = Result<Answer<Resp>, Status>> + Send + 'static,
    {
        self.codec().unary(Large(answer), self.request).await
    }

    /// A call that changes nothing in the store and is refused.
    async fn refuse(self, status: Status) -> Response<Body> {
        self.unary(|_: Empty| async { Err::<Empty, Status>(status) }).await
    }

    fn permitted(&self) -> Permitted {
        Permitted { member: self.member(), credentials: self.credentials.clone() }
    }

    async fn kv(self, method: &str) -> Response<Body> {
        let permitted = self.permitted();
        let limit = permitted.member.limits.request_bytes;
        match method {
            "Range" => self.range().await,
            "RangeStream" => {
                let answer =
                    |request| async move { permitted.range_stream(request).await.map(ReceiverStream::new) };
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "Put" => {
                self.unary(move |request: PutRequest| async move {
                    check_size(&request, limit)?;
                    permitted.put(request).await
                })
                .await
            }
            "DeleteRange" => {
                self.large(move |request: DeleteRangeRequest| async move {
                    check_size(&request, limit)?;
                    permitted.delete_range(request).await
                })
                .await
            }
            "Txn" => {
                self.large(move |request: TxnRequest| async move {
                    check_size(&request, limit)?;
                    permitted.txn(request).await
                })
                .await
            }
            "Compact" => self.unary(|request| permitted.compact(request)).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn watch_or_lease(self, method: &str) -> Response<Body> {
        let permitted = self.permitted();
        match method {
            "Watch" => {
                let (interval, stop) = (self.services.progress_interval, self.services.stop.clone());
                let Permitted { member, credentials } = permitted;
                let answer = |requests| watch::serve(member, credentials, requests, interval, stop);
                self.codec().streaming(Streamed(answer), self.request).await
            }
            "LeaseGrant" => self.unary(|request| permitted.grant_lease(request)).await,
            "LeaseRevoke" => self.unary(|request| permitted.revoke_lease(request)).await,
            "LeaseKeepAlive" => {
                let answer = |requests| permitted.keep_alive(requests);
                self.codec().streaming(Streamed(answer), self.request).await
            }
            "LeaseTimeToLive" => self.unary(|request| permitted.time_to_live(request)).await,
            "LeaseLeases" => self.unary(|_: Empty| permitted.leases()).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn concurrency(self, method: &str) -> Response<Body> {
        let (permitted, stop) = (self.permitted(), self.services.stop.clone());
        match method {
            "Lock" => self.unary(|request| permitted.lock(stop, request)).await,
            "Unlock" => self.unary(|request| permitted.unlock(request)).await,
            "Campaign" => self.unary(|request| permitted.campaign(stop, request)).await,
            "Proclaim" => self.unary(|request| permitted.proclaim(request)).await,
            "Leader" => self.unary(|request| permitted.leader(request)).await,
            "Observe" => {
                let answer =
                    |request| async move { permitted.observe(stop, request).await.map(ReceiverStream::new) };
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "Resign" => self.unary(|request| permitted.resign(request)).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    /// What needs the user root, but for questions.
    async fn maintenance(self, method: &str) -> Response<Body> {
        let permitted = self.permitted();
        let member = self.member();
        match method {
            "Status" | "Alarm" => {}
            "Defragment" | "Hash" | "HashKV" | "Snapshot" | "MoveLeader" | "Downgrade" => {
                if let Err(status) = permitted.check_root() {
                    return self.refuse(status).await;
                }
            }
            // Before anything else: a refusal would be counted by its name.
            _ => return unknown(self.request.uri().path()),
        }
        match method {
            "Status" => {
                let status = |_: Empty| async move {
                    permitted.check_known()?;
                    maintenance::status(&member).await
                };
                self.unary(status).await
            }
            "Alarm" => {
                let alarms = |request: AlarmRequest| async move {
                    match request.action {
                        alarm_action::GET => permitted.check_known().map(drop)?,
                        _ => permitted.check_root()?,
                    }
                    maintenance::alarms(&member, request).await
                };
                self.unary(alarms).await
            }
            "Defragment" => {
                self.unary(|_: Empty| async move { maintenance::defragment(&member).await }).await
            }
            "Hash" => self.unary(|_: Empty| async move { maintenance::hash(&member).await }).await,
            "HashKV" => {
                self.unary(|request| async move { maintenance::hash_kv(&member, request).await }).await
            }
            "Snapshot" => {
                let stop = self.services.stop.clone();
                let answer = |_: Empty| async move { Ok(ReceiverStream::new(snapshot::serve(member, stop))) };
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "MoveLeader" => {
                self.unary(|request| async move { maintenance::move_leader(&member, request) }).await
            }
            "Downgrade" => {
                self.unary(|request| async move { maintenance::downgrade(&member, &request) }).await
            }
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn cluster(self, method: &str) -> Response<Body> {
        let member = self.member();
        let permitted = match method {
            "MemberList" => self.permitted().check_known().map(drop),
            "MemberAdd" | "MemberRemove" | "MemberUpdate" | "MemberPromote" => self.permitted().check_root(),
            _ => return unknown(self.request.uri().path()),
        };
        if let Err(status) = permitted {
            return self.refuse(status).await;
        }
        match method {
            "MemberList" => {
                let members = maintenance::members(&member, &self.services.identity);
                self.unary(|_: Empty| async move { Ok(members) }).await
            }
            "MemberAdd" => self.refuse(errors::unsupported("the cluster has one member")).await,
            "MemberRemove" => {
                let refuse = |request: MemberRequest| async move {
                    Err::<Empty, _>(maintenance::remove_member(&member, request.id))
                };
                self.unary(refuse).await
            }
            "MemberUpdate" => {
                let refuse = |request: MemberRequest| async move {
                    Err::<Empty, _>(maintenance::update_member(&member, request.id))
                };
                self.unary(refuse).await
            }
            "MemberPromote" => {
                let refuse = |request: MemberRequest| async move {
                    Err::<Empty, _>(maintenance::promote_member(&member, request.id))
                };
                self.unary(refuse).await
            }
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn auth(self, method: &str) -> Response<Body> {
        let permitted = self.permitted();
        match method {
            "AuthStatus" => self.unary(|_: Empty| async move { permitted.auth_status() }).await,
            "AuthEnable" => self.unary(|_: Empty| permitted.enable_auth()).await,
            "AuthDisable" => self.unary(|_: Empty| permitted.disable_auth()).await,
            "Authenticate" => self.unary(|request| permitted.authenticate(request)).await,
            "UserAdd" => self.unary(|request| permitted.add_user(request)).await,
            "UserGet" => self.unary(|request| async move { permitted.get_user(&request) }).await,
            "UserList" => self.unary(|_: Empty| async move { permitted.users() }).await,
            "UserDelete" => self.unary(|request| permitted.delete_user(request)).await,
            "UserChangePassword" => self.unary(|request| permitted.change_password(request)).await,
            "UserGrantRole" => self.unary(|request| permitted.grant_role(request)).await,
            "UserRevokeRole" => self.unary(|request| permitted.revoke_role(request)).await,
            "RoleAdd" => self.unary(|request| permitted.add_role(request)).await,
            "RoleGet" => self.unary(|request| async move { permitted.get_role(&request) }).await,
            "RoleList" => self.unary(|_: Empty| async move { permitted.roles() }).await,
            "RoleDelete" => self.unary(|request| permitted.delete_role(request)).await,
            "RoleGrantPermission" => self.unary(|request| permitted.grant_permission(request)).await,
            "RoleRevokePermission" => self.unary(|request| permitted.revoke_permission(request)).await,
            _ => unknown(self.request.uri().path()),
        }
    }
}

/// Refuses a request that is larger than the log of etcd takes.
fn check_size(request: &impl Message, limit: usize) -> Result<(), Status> {
    match request.encoded_len().saturating_add(LOG_OVERHEAD) > limit {
        true => Err(errors::request_too_large()),
        false => Ok(()),
    }
}
