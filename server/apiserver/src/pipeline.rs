//! The path of a request, top to bottom: request info, authentication, audit, impersonation, flow control,
//! authorization, handler, answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use hyper::header::{HeaderValue, ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use plinth_codec::negotiate::{self, Accepted, Shape};
use plinth_codec::schema;
use smol_str::SmolStr;

use crate::audit::{self, Recorder};
use crate::authn::remarks::{self, Remark};
use crate::authn::{impersonation, websocket, Identity, Peer};
use crate::authz::{Decision, RequestAttributes};
use crate::context::Warnings;
use crate::context::{Context, Server};
use crate::endpoints;
use crate::flow_control::{self, Digest, Refused, Schema, Seat};
use crate::handlers;
use crate::heavy::Heavy;
use crate::metrics::RequestLabel;
use crate::published;
use crate::recovery::recover;
use crate::representation;
use plinth_api::api_error::ApiError;
use plinth_api::latency::{timed, Layer};
use plinth_api::query::Query;
use plinth_api::request_info::{self, RequestInfo, Route, Verb};
use plinth_api::user::User;
use plinth_http::body::Body;
use plinth_http::request_body::RequestBody;
use plinth_http::turns::Member;
use plinth_http::upgrade::Upgrade;
use plinth_registry::{Registry, ResourceType};

/// What the steps of a request have found out so far, whatever comes of it.
#[derive(Default)]
struct Told {
    /// The flow schema that it belongs to.
    class: Option<Arc<Schema>>,
    /// Where it is recorded.
    audit: Recorder,
}

/// Where a request came from.
pub struct Came {
    /// What its connection's client showed in the handshake.
    pub peer: Peer,
    /// The other end of its connection.
    pub remote: IpAddr,
    /// Its connection, among those of its user.
    pub member: Arc<Member>,
}

/// Answers one request. Never fails: what goes wrong becomes a Status.
pub async fn handle(server: Arc<Server>, came: Came, request: Request<RequestBody>) -> Response<Body> {
    let is_head = request.method() == Method::HEAD;
    let route = request_info::route(request.method(), request.uri().path(), request.uri().query());
    let route = match route {
        Ok(route) => route,
        Err(error) => {
            let mut refused = endpoints::refuse_path(error, request.uri());
            if is_head {
                drop_body(&mut refused);
            }
            return refused;
        }
    };
    let audit_id = audit::id(request.headers());
    let accept = request.headers().get(ACCEPT).cloned();
    let pretty = representation::wants_pretty(&Accepted::JSON, request.uri().query(), request.headers());
    let target = Target::of(server.registry(), &route);
    let label = label_of(&route, request.method(), target.resource.as_deref());
    let http1 = request.version() < hyper::Version::HTTP_2;
    let _in_flight = server.metrics.in_flight(label.verb.mutates());
    let counted = server.metrics.count(label);
    let mut told = Told::default();
    let came_from = Origin { came: &came, audit_id: &audit_id };
    // On the heap: what is handed on by value has room in the state of both.
    let answer = Box::pin(answer(&server, &came_from, (route, target), request, &mut told));
    let outcome = recover(answer).await;
    let (mut response, error) = match outcome {
        Ok(Ok(response)) => (response, None),
        Ok(Err(error)) => {
            // What follows from a failure of the storage is not reported beside it, request by request.
            if server.store.engine().failure().is_none() {
                server.error_log.note(&error, || counted.label.to_string());
            }
            (refuse(&error, accept.as_ref(), pretty, http1), Some(error))
        }
        Err(panic) => {
            tracing::error!(%panic, "a request made the server panic");
            told.audit.panicked(&panic).await;
            told.audit = Recorder::default();
            (panicked(), None)
        }
    };
    if told.audit.is_on() {
        response = told.audit.answered(response, error.as_ref()).await;
    }
    response.headers_mut().insert(audit::HEADER, audit_id);
    if let Some(class) = &told.class {
        flow_control::mark(class, response.headers_mut());
    }
    if is_head {
        drop_body(&mut response);
    }
    counted.answered(response.status().as_u16());
    response
}

/// Where a request came from, and what it is called.
struct Origin<'a> {
    came: &'a Came,
    audit_id: &'a HeaderValue,
}

/// What a request is for, looked up once.
struct Target {
    registry: Arc<Registry>,
    /// The resource; `None` for other paths and for what is not served.
    resource: Option<Arc<ResourceType>>,
}

impl Target {
    fn of(registry: Arc<Registry>, route: &Route) -> Target {
        match route {
            Route::Resource(info) => Target::of_resource(registry, info),
            Route::NonResource(_) => Target { registry, resource: None },
        }
    }

    fn of_resource(registry: Arc<Registry>, info: &RequestInfo) -> Target {
        let resource = registry.get(&info.group, &info.version, &info.resource).cloned();
        Target { registry, resource }
    }

    /// The same in the registry of now: it may have changed while the request waited for its turn.
    fn refresh(self, current: Arc<Registry>, info: &RequestInfo) -> Target {
        match Arc::ptr_eq(&self.registry, &current) {
            true => self,
            false => Target::of_resource(current, info),
        }
    }
}

/// The steps of a request, each a function of its own; the first that fails ends it.
async fn answer(
    server: &Arc<Server>,
    origin: &Origin<'_>,
    (route, target): (Route, Target),
    mut request: Request<RequestBody>,
    told: &mut Told,
) -> Result<Response<Body>, ApiError> {
    let asked = Instant::now();
    let path = match &route {
        Route::NonResource(path) => path,
        Route::Resource(_) => request.uri().path(),
    };
    let (sender, remarks) = identify(server, &origin.came.peer, &request, path).await;
    if let Ok(sender) = &sender {
        origin.came.member.belongs_to(&sender.name);
    }
    websocket::hide(request.headers_mut());
    told.audit = record(server, origin, sender.as_ref().ok().map(|user| &**user), &route, &request);
    told.audit.took(Layer::Authentication, asked.elapsed());
    let warnings = Warnings::default();
    for remark in remarks {
        match remark {
            Remark::Audit(key, value) => told.audit.annotate(key, value),
            Remark::Warning(text) => warnings.add(text),
        }
    }
    told.audit.received(request.headers_mut()).await?;
    let impersonated = impersonate(server, sender?, &route, &request);
    let identity = told.audit.noting(impersonated).await?;
    if let Some(constraint) = &identity.impersonated {
        told.audit.impersonated(&identity.user, constraint);
    }
    let user = identity.user;
    let came = Instant::now();
    let seat = match admit(server, &user, &route, &request, &mut told.class).await {
        Ok(seat) => seat,
        Err(refused) => return Ok(refused.response()),
    };
    told.audit.took(Layer::QueueWait, came.elapsed());
    let limit = match flow_control::runs_long(&route) {
        true => None,
        false => Some(server.flow_control.limit(request.uri().query())?),
    };
    // On the heap: the two ways of waiting for it would each have room for its whole state.
    let served = Box::pin(serve(server, user, (route, target), request, seat, warnings, told.audit.clone()));
    told.audit
        .noting(async {
            match limit {
                None => served.await,
                Some(limit) => {
                    tokio::time::timeout(limit, served).await.unwrap_or_else(|_| Err(ApiError::timeout()))
                }
            }
        })
        .await
}

/// Audit: what the policy wants recorded of a request.
fn record(
    server: &Server,
    origin: &Origin<'_>,
    user: Option<&User>,
    route: &Route,
    request: &Request<RequestBody>,
) -> Recorder {
    if !server.audit.is_on() {
        return Recorder::default();
    }
    let asked = read_attributes(route, request);
    let (verb, name) = match route {
        Route::Resource(info) => (info.verb.authorized_as(), asked.name(info)),
        Route::NonResource(_) => (lower_case(request.method()), ""),
    };
    server.audit.begin(&audit::Came {
        user,
        route,
        verb,
        name,
        uri: request.uri(),
        headers: request.headers(),
        remote: origin.came.remote,
        id: origin.audit_id,
        received: SystemTime::now(),
    })
}

/// What a client hears of a panic; upstream's words.
fn panicked() -> Response<Body> {
    let text = b"This request caused apiserver to panic. Look in the logs for details.\n";
    let mut response = Response::new(Body::from(text.to_vec()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Flow control: a seat among those that are served, waited for where that is to be.
async fn admit(
    server: &Server,
    user: &User,
    route: &Route,
    request: &Request<RequestBody>,
    class: &mut Option<Arc<Schema>>,
) -> Result<Seat, Refused> {
    let (method, uri) = (request.method(), request.uri());
    let digest = Digest::new(user, route, lower_case(method));
    server.flow_control.admit(&digest, route, uri.query(), mutates(route, method), class).await
}

/// A method as the verb of a request for no resource.
fn lower_case(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

/// Whether a request counts as one that changes something.
fn mutates(route: &Route, method: &Method) -> bool {
    match route {
        Route::Resource(info) => info.verb.mutates(),
        Route::NonResource(_) => !matches!(*method, Method::GET | Method::HEAD),
    }
}

/// What metrics call a request. The names of what nobody serves are left out: each would be a series of its own, which anybody could make up.
fn label_of(route: &Route, method: &Method, resource: Option<&ResourceType>) -> RequestLabel {
    let is_served = |info: &RequestInfo| {
        let has_part =
            |part: &str| part.is_empty() || resource.is_some_and(|r| r.row.subresource(part).is_some());
        resource.is_some() && has_part(&info.subresource)
    };
    match route {
        Route::Resource(info) if is_served(info) => RequestLabel {
            verb: info.verb,
            group: SmolStr::new(&info.group),
            version: SmolStr::new(&info.version),
            resource: SmolStr::new(&info.resource),
            subresource: SmolStr::new(&info.subresource),
        },
        Route::Resource(_) | Route::NonResource(_) => RequestLabel {
            verb: match route {
                Route::Resource(info) => info.verb,
                Route::NonResource(_) if *method == Method::GET => Verb::Get,
                Route::NonResource(_) => Verb::Other,
            },
            group: SmolStr::default(),
            version: SmolStr::default(),
            resource: SmolStr::default(),
            subresource: SmolStr::default(),
        },
    }
}

/// The answer to a HEAD is a head: its length is told, its body is not sent.
fn drop_body(response: &mut Response<Body>) {
    if let Body::Full(bytes) = response.body() {
        let length = HeaderValue::from(bytes.len());
        response.headers_mut().insert(hyper::header::CONTENT_LENGTH, length);
    }
    *response.body_mut() = Body::empty();
}

/// Who asks, and what is to be said of the credentials. Those that are not to be trusted are refused even where nobody needs any,
/// as upstream does.
async fn identify(
    server: &Server,
    peer: &Peer,
    request: &Request<RequestBody>,
    path: &str,
) -> (Result<Arc<User>, ApiError>, Vec<Remark>) {
    let asked = server.authenticator.authenticate(peer, request.headers(), path);
    // Of certificates there is nothing to say.
    let (user, remarks) = match request.headers().contains_key(AUTHORIZATION) {
        true => remarks::collect(asked).await,
        false => (asked.await, Vec::new()),
    };
    let user = user.map_err(|error| {
        tracing::debug!(%error, "unable to authenticate the request");
        ApiError::unauthorized()
    });
    (user, remarks)
}

/// As whom the request is made: as its sender, or as the user that it names and its sender may act as.
async fn impersonate(
    server: &Server,
    sender: Arc<User>,
    route: &Route,
    request: &Request<RequestBody>,
) -> Result<Identity, ApiError> {
    let Some(wanted) = impersonation::wanted(request.headers())? else {
        return Ok(Identity { user: sender, impersonated: None });
    };
    let asked = read_attributes(route, request);
    let attributes = match route {
        Route::Resource(info) => asked.of_resource(&sender, info),
        Route::NonResource(path) => asked.of_path(&sender, path),
    };
    let impersonated = Box::pin(impersonation::impersonate(&*server.authorizer, &attributes, &wanted));
    let impersonated = timed(Layer::Impersonation, impersonated).await?;
    Ok(Identity { user: impersonated.user, impersonated: Some(impersonated.constraint) })
}

async fn serve(
    server: &Arc<Server>,
    user: Arc<User>,
    (route, target): (Route, Target),
    request: Request<RequestBody>,
    seat: Seat,
    warnings: Warnings,
    audit: Recorder,
) -> Result<Response<Body>, ApiError> {
    let asked = read_attributes(&route, &request);
    match route {
        Route::Resource(info) => {
            let outcome = server.authorizer.authorize_resource(&user, info, &asked);
            let (decision, info) = timed(Layer::Authorization, outcome).await;
            note_decision(&audit, &decision);
            let info = info?;
            let Target { registry, resource } = target.refresh(server.registry(), &info);
            if is_served_nowhere(&info) {
                return match registry.has_builtin_group(&info.group)
                    && !request.uri().path().starts_with("//")
                {
                    true => Err(ApiError::no_such_resource()),
                    false => Ok(published::not_found_text()),
                };
            }
            let Some(resource) = find_resource(&registry, resource, &info)? else {
                return Ok(published::not_found_text());
            };
            let (mut parts, body) = request.into_parts();
            let heavy = Heavy::perhaps(seat.is_exempt());
            let upgrade = Upgrade::take(&mut parts.extensions);
            let (method, uri, protocol) = (parts.method, parts.uri, parts.version);
            let query = Query::parse(uri.query())?;
            let raw_query = uri.query().map(str::to_owned);
            let headers = parts.headers;
            // On the heap: it is handed on by value, and would have room in the state of each who does.
            let cx = Box::new(Context {
                server: server.clone(),
                registry,
                info,
                query,
                raw_query,
                headers,
                user,
                resource,
                upgrade,
                method,
                uri,
                protocol,
                warnings,
                seat: Arc::new(seat),
                heavy: heavy.clone(),
                audit,
            });
            heavy.run(handlers::dispatch(cx, body)).await
        }
        Route::NonResource(path) => {
            let outcome = server.authorizer.authorize_path(&user, path, &asked);
            let (decision, path) = timed(Layer::Authorization, outcome).await;
            note_decision(&audit, &decision);
            endpoints::serve(server, &path?, &request).await
        }
    }
}

/// Paths that are authorized as what they would be, and that nothing is behind, as upstream's router does: empty segments,
/// something behind a subresource, the verb `proxy`.
fn is_served_nowhere(info: &RequestInfo) -> bool {
    let has_place_for_tail = info.subresource == "proxy";
    info.has_empty_segment || info.verb == Verb::Proxy || (info.has_tail() && !has_place_for_tail)
}

/// Audit: what the authorizers said.
fn note_decision(audit: &Recorder, decision: &Decision) {
    if audit.is_on() {
        audit.annotate(audit::DECISION, if decision.allowed() { "allow" } else { "forbid" });
        audit.annotate(audit::REASON, decision.reason.to_string());
    }
}

/// What the authorizer needs to know of a request besides its route.
fn read_attributes(route: &Route, request: &Request<RequestBody>) -> RequestAttributes {
    match route {
        Route::Resource(info) => RequestAttributes::read(request.method(), Some(info), request.uri().query()),
        Route::NonResource(_) => RequestAttributes::read(request.method(), None, None),
    }
}

/// The resource of a request; `None` for what upstream answers in plain text: a group that is not built in, or a path
/// that does not fit the scope of a custom resource.
fn find_resource(
    registry: &Registry,
    resource: Option<Arc<ResourceType>>,
    info: &RequestInfo,
) -> Result<Option<Arc<ResourceType>>, ApiError> {
    match resource {
        Some(resource) if resource.is_custom() && !handlers::fits_scope(&resource.row, info) => Ok(None),
        Some(resource) => Ok(Some(resource)),
        None if registry.has_builtin_group(&info.group) => Err(ApiError::no_such_resource()),
        None => Ok(None),
    }
}

/// An error as a Status, in the encoding that the client accepts; indented where it wants JSON so.
fn refuse(error: &ApiError, accept: Option<&HeaderValue>, pretty: bool, http1: bool) -> Response<Body> {
    let accepted = negotiate::accept_for_error(accept.and_then(|a| a.to_str().ok()));
    let pretty = accepted.pretty || pretty;
    let mut out = Vec::with_capacity(512);
    let status = error.to_status();
    let mut content_type = accepted.content_type(Shape::Plain);
    let written = representation::write_tree(&status, schema::builtin(), accepted.encoding, pretty, &mut out);
    if written.is_err() {
        out.clear();
        plinth_codec::json::write_untyped(&status, &mut out);
        content_type = "application/json";
    }
    let mut response = Response::new(Body::from(out));
    *response.status_mut() = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if error.denied {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    let retry = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        headers.insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    handlers::respond::add_warnings(&mut response, &error.warnings);
    let headers = response.headers_mut();
    if error.code == 413 && http1 {
        // What is left of the body will not be read.
        headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The state of a request is moved into its connection's task, so what only some requests need lies on the heap.
    #[test]
    fn the_state_of_a_request_is_small() {
        let state = state_of(handle);
        assert!(state < 8 << 10, "{state} bytes");
    }
}
