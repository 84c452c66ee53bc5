//! Calls of gRPC: from the path of a request to the function that answers it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

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
use crate::errors;
use crate::lease_service as lease;
use crate::maintenance::{self, Identity};
use crate::member::Member;
use crate::watch::{self, OVERHEAD};
use crate::wire::auth::{AuthStatusResponse, NamesResponse};
use crate::wire::kv::{DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, TxnRequest};
use crate::wire::maintenance::{HealthCheckResponse, MemberRequest};
use crate::wire::{Empty, HeaderResponse};
use crate::{concurrency, kv, range_body, range_stream, snapshot};

/// Bytes that a request has more in etcd's log than on the wire: an id and the kind of request.
const LOG_OVERHEAD: usize = 18;

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

impl<F, Request, Resp, Responses> ServerStreamingService<Request> for Streamed<F>
where
    F: FnOnce(Request) -> Responses + Clone,
    Responses: Stream<Item = Result<Resp, Status>> + Send + 'static,
{
    type Response = Resp;
    type ResponseStream = Responses;
    type Future = std::future::Ready<Result<tonic::Response<Responses>, Status>>;

    fn call(&mut self, request: tonic::Request<Request>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new((self.0.clone())(request.into_inner()))))
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
    let call = Call { services, request };
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
    let response = readable_size_error(response);
    let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
    // A method that does not exist is no label value.
    if code == Code::Unimplemented {
        return response;
    }
    let code = if code == Code::Ok { "OK".to_owned() } else { format!("{code:?}") };
    services.member.metrics.handled.with_label_values(&[&code, method, service, "unary"]).inc();
    response
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

/// A call that is being answered.
struct Call<'a> {
    services: &'a Services,
    request: Request<Body>,
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
        // A compressed request is refused by the other path, in gRPC's words.
        if self.request.headers().contains_key("grpc-encoding") {
            let member = self.member();
            return self.large(|request| async move { kv::range(&member, request).await }).await;
        }
        let limit = self.services.member.limits.request_bytes.saturating_add(OVERHEAD);
        let decoder = ProstCodec::<RangeResponse, RangeRequest>::default().decoder();
        let body = self.request.into_body();
        let request = Streaming::new_request(decoder, body, None, Some(limit)).message().await;
        match request.and_then(|request| request.ok_or_else(|| Status::internal("Missing request message.")))
        {
            Ok(request) => range_body::answer(&self.services.member, request).await,
            Err(status) => status.into_http(),
        }
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

    async fn kv(self, method: &str) -> Response<Body> {
        let member = self.member();
        let limit = member.limits.request_bytes;
        match method {
            "Range" => self.range().await,
            "RangeStream" => {
                let answer = |request| ReceiverStream::new(range_stream::serve(member, request));
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "Put" => {
                self.unary(move |request: PutRequest| async move {
                    check_size(&request, limit)?;
                    kv::put(&member, request).await
                })
                .await
            }
            "DeleteRange" => {
                self.large(move |request: DeleteRangeRequest| async move {
                    check_size(&request, limit)?;
                    kv::delete_range(&member, request).await
                })
                .await
            }
            "Txn" => {
                self.large(move |request: TxnRequest| async move {
                    check_size(&request, limit)?;
                    kv::txn(&member, request).await
                })
                .await
            }
            "Compact" => self.unary(|request| async move { kv::compact(&member, request).await }).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn watch_or_lease(self, method: &str) -> Response<Body> {
        let member = self.member();
        match method {
            "Watch" => {
                let (interval, stop) = (self.services.progress_interval, self.services.stop.clone());
                let answer = |requests| watch::serve(member, requests, interval, stop);
                self.codec().streaming(Streamed(answer), self.request).await
            }
            "LeaseGrant" => self.unary(|request| async move { lease::grant(&member, request).await }).await,
            "LeaseRevoke" => self.unary(|request| async move { lease::revoke(&member, request).await }).await,
            "LeaseKeepAlive" => {
                let answer = |requests| lease::keep_alive(member, requests);
                self.codec().streaming(Streamed(answer), self.request).await
            }
            "LeaseTimeToLive" => {
                self.unary(|request| async move { lease::time_to_live(&member, request).await }).await
            }
            "LeaseLeases" => self.unary(|_: Empty| async move { Ok(lease::all(&member)) }).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn concurrency(self, method: &str) -> Response<Body> {
        let (member, stop) = (self.member(), self.services.stop.clone());
        match method {
            "Lock" => {
                self.unary(|request| async move { concurrency::lock(&member, &stop, request).await }).await
            }
            "Unlock" => {
                self.unary(|request| async move { concurrency::unlock(&member, request).await }).await
            }
            "Campaign" => {
                self.unary(|request| async move { concurrency::campaign(&member, &stop, request).await })
                    .await
            }
            "Proclaim" => {
                self.unary(|request| async move { concurrency::proclaim(&member, request).await }).await
            }
            "Leader" => {
                self.unary(|request| async move { concurrency::leader(&member, request).await }).await
            }
            "Observe" => {
                let answer = |request| ReceiverStream::new(concurrency::observe(member, stop, request));
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "Resign" => {
                self.unary(|request| async move { concurrency::resign(&member, request).await }).await
            }
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn maintenance(self, method: &str) -> Response<Body> {
        let member = self.member();
        match method {
            "Status" => self.unary(|_: Empty| async move { maintenance::status(&member).await }).await,
            "Alarm" => self.unary(|request| async move { maintenance::alarms(&member, request).await }).await,
            "Defragment" => {
                self.unary(|_: Empty| async move { maintenance::defragment(&member).await }).await
            }
            "Hash" => self.unary(|_: Empty| async move { maintenance::hash(&member).await }).await,
            "HashKV" => {
                self.unary(|request| async move { maintenance::hash_kv(&member, request).await }).await
            }
            "Snapshot" => {
                let stop = self.services.stop.clone();
                let answer = |_: Empty| ReceiverStream::new(snapshot::serve(member, stop));
                self.codec().server_streaming(Streamed(answer), self.request).await
            }
            "MoveLeader" => {
                self.unary(|request| async move { maintenance::move_leader(&member, request) }).await
            }
            "Downgrade" => self.unary(|request| async move { maintenance::downgrade(&request) }).await,
            _ => unknown(self.request.uri().path()),
        }
    }

    async fn cluster(self, method: &str) -> Response<Body> {
        let member = self.member();
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

    /// There are no users and no roles, and authentication is not enabled: answers are those of such an etcd.
    async fn auth(self, method: &str) -> Response<Body> {
        let header = Some(self.services.member.header());
        match method {
            "AuthStatus" => {
                let response = AuthStatusResponse { header, enabled: false, auth_revision: 1 };
                self.unary(|_: Empty| async move { Ok(response) }).await
            }
            "AuthDisable" => self.unary(|_: Empty| async move { Ok(HeaderResponse { header }) }).await,
            "UserList" | "RoleList" => {
                let names = Vec::new();
                self.unary(|_: Empty| async move { Ok(NamesResponse { header, names }) }).await
            }
            "AuthEnable" => self.refuse(errors::root_user_missing()).await,
            "Authenticate" => self.refuse(errors::auth_not_enabled()).await,
            "UserGet" | "UserDelete" | "UserChangePassword" | "UserGrantRole" | "UserRevokeRole" => {
                self.refuse(errors::user_not_found()).await
            }
            "RoleGet" | "RoleDelete" | "RoleGrantPermission" | "RoleRevokePermission" => {
                self.refuse(errors::role_not_found()).await
            }
            "UserAdd" | "RoleAdd" => {
                self.refuse(errors::unsupported(
                    "there are no users and roles; use client certificates (--client-cert-auth)",
                ))
                .await
            }
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
