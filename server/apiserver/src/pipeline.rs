//! The path of a request, top to bottom: request info, authentication, audit, impersonation, unread answers,
//! flow control, authorization, handler, answer.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HeaderValue, ACCEPT};
use hyper::{Method, Request, Response, StatusCode};
use plinth_codec::negotiate::Accepted;

use crate::audit::{self, Recorder};
use crate::authn::{impersonation, websocket, Identity, Peer};
use crate::authn::{AuthnError, Notice};
use crate::authz::{AuthorizedPath, Decision, RequestAttributes, Verdict};
use crate::catch_panic::catch_panic;
use crate::context::Warnings;
use crate::context::{Context, Server};
use crate::documents;
use crate::endpoints;
use crate::flow_control::{self, FlowSchema, Refused, RequestDigest, Seat};
use crate::handlers::{self, respond};
use crate::large_requests::RequestSlot;
use crate::metrics::{Authentication, Authorization, RequestFilter, RequestMeter};
use crate::remote_apis::{self, Forwarding};
use crate::representation;
use crate::request_log::{LoggedTarget, RequestLog};
use crate::served_resource::{find_resource, is_served_nowhere, ServedResource};
use crate::traces::{RequestTrace, TracedRequest};
use plinth_api::{
    parse_route, record_latencies, timed, ApiError, Latencies, Layer, Query, Reason, Route, User,
};
use plinth_http::{
    BegunRequest, Body, ConnectionUnread, RequestBody, ScheduledConnection, Upgrade, UserUnread,
};

/// What the steps of a request have established so far; it survives the request's failure.
#[derive(Default)]
struct RequestState {
    /// The flow schema that matched.
    flow_schema: Option<Arc<FlowSchema>>,
    /// Its audit event; off until the request has been authenticated.
    audit: Recorder,
    /// What its client is to be warned of, however it is answered.
    warnings: Warnings,
    /// Its metrics; `None` where it is not counted.
    meter: Option<Arc<RequestMeter>>,
    /// The authenticated user, for the log.
    user: Option<Arc<User>>,
    /// Its span, if it is traced.
    trace: Option<RequestTrace>,
    /// What its user has not read on its connection.
    unread: Option<Arc<UserUnread>>,
    /// Counts it there until it is answered.
    begun: Option<BegunRequest>,
}

impl RequestState {
    /// What its steps report to; a trace shares it with the audit event.
    fn latencies(&self) -> Option<&Arc<Latencies>> {
        self.trace.as_ref().map(RequestTrace::latencies).or_else(|| self.audit.latencies())
    }

    /// Runs steps of the request and records their latencies.
    async fn measure<F: Future>(&self, steps: F) -> F::Output {
        match self.latencies() {
            Some(latencies) => record_latencies(latencies.clone(), steps).await,
            None => steps.await,
        }
    }

    /// Records the latency of a step that was not measured.
    fn add_latency(&self, layer: Layer, time: Duration) {
        if let Some(latencies) = self.latencies() {
            latencies.add(layer, time);
        }
    }
}

/// The connection that a request arrived on.
pub struct ConnectionInfo {
    /// The client certificate of its handshake.
    pub peer: Peer,
    /// The client's address.
    pub remote: IpAddr,
    /// The connection's entry in its user's fair-queuing state.
    pub scheduled: Arc<ScheduledConnection>,
    /// Answers on it that are not read.
    pub unread: Arc<ConnectionUnread>,
}

impl ConnectionInfo {
    /// Counts an answer until it is read.
    fn count(&self, response: Response<Body>, user: Option<&Arc<UserUnread>>, http1: bool) -> Response<Body> {
        self.unread.count_response(response, user, (self.scheduled.streams(), http1))
    }
}

/// Answers one request. Never fails: an error becomes a Status.
pub async fn handle(
    server: Arc<Server>,
    connection: ConnectionInfo,
    request: Request<RequestBody>,
) -> Response<Body> {
    let received = Instant::now();
    let is_head = request.method() == Method::HEAD;
    let http1 = request.version() < hyper::Version::HTTP_2;
    let route = parse_route(request.method(), request.uri().path(), request.uri().query());
    let route = match route {
        Ok(route) => route,
        Err(error) => {
            let mut refused = endpoints::refuse_path(error, request.uri());
            if is_head {
                drop_body(&mut refused);
            }
            return connection.count(refused, None, http1);
        }
    };
    let audit_id = audit::id(request.headers());
    let accept = request.headers().get(ACCEPT).cloned();
    let pretty = representation::wants_pretty(&Accepted::JSON, request.uri().query(), request.headers());
    let target = ServedResource::of(server.registry(), &route);
    let _in_flight = (!flow_control::is_long_running(&route))
        .then(|| server.metrics.in_flight(mutates(&route, request.method()), received));
    let described = (request.method(), request.headers(), request.uri().query());
    let metered = endpoints::metered_target(&route, target.resource.as_ref(), request.headers());
    let meter = metered.and_then(|metered| server.metrics.requests.meter(metered, described, received));
    let mut state = RequestState { meter, ..RequestState::default() };
    let logged = RequestLog::begin(&request, connection.remote, received);
    let named = LoggedTarget::of(&request);
    let origin = RequestOrigin { connection: &connection, audit_id: &audit_id };
    // Boxed: a future that is passed by value takes its room in the state of both functions.
    let answer = Box::pin(answer(&server, &origin, (route, target), request, &mut state));
    let outcome = catch_panic(answer).await;
    let (mut response, error) = match outcome {
        Ok(Ok(response)) => (response, None),
        Ok(Err(error)) => {
            // Once the storage has failed, the errors that follow from it are not logged for each request.
            if server.store.engine().failure().is_none() {
                server.error_log.note(&error, || named.to_string());
            }
            if error.code == StatusCode::METHOD_NOT_ALLOWED.as_u16() {
                state.meter.as_ref().inspect(|meter| meter.not_routed());
            }
            (respond::refuse(&error, accept.as_ref(), pretty, http1), Some(error))
        }
        Err(panic) => {
            tracing::error!(error = %panic, "request handler panicked");
            state.audit.panicked(&panic).await;
            state.audit = Recorder::default();
            (respond::panicked(), None)
        }
    };
    respond::add_warnings(&mut response, &state.warnings.take());
    if state.audit.is_on() {
        response = state.audit.answered(response, error.as_ref()).await;
    }
    if let Some(trace) = state.trace.take() {
        trace.end(response.status());
    }
    if let Some(logged) = logged {
        logged.answered(&named, response.status(), state.user.as_deref(), &audit_id);
    }
    response.headers_mut().insert(audit::HEADER, audit_id);
    if let Some(flow_schema) = &state.flow_schema {
        flow_control::add_headers(flow_schema, response.headers_mut());
    }
    if is_head {
        drop_body(&mut response);
    }
    let response = match state.meter {
        Some(meter) => meter.answered(response),
        None => response,
    };
    connection.count(response, state.unread.as_ref(), http1)
}

/// The connection and the audit ID of a request.
struct RequestOrigin<'a> {
    connection: &'a ConnectionInfo,
    audit_id: &'a HeaderValue,
}

/// The authorized user of a request, where it comes from and when it is given up.
struct Sender<'a> {
    user: Arc<User>,
    deadline: Option<Instant>,
    origin: &'a RequestOrigin<'a>,
    is_long_running: bool,
}

impl Sender<'_> {
    /// The same for a request that another API server answers.
    fn forwarding(&self) -> Forwarding<'_> {
        Forwarding {
            user: &self.user,
            client: self.origin.connection.remote,
            audit_id: self.origin.audit_id,
            deadline: self.deadline.filter(|_| !self.is_long_running),
        }
    }
}

/// The steps of a request, each a function of its own; the first that fails ends it.
async fn answer(
    server: &Arc<Server>,
    origin: &RequestOrigin<'_>,
    (route, target): (Route, ServedResource),
    mut request: Request<RequestBody>,
    state: &mut RequestState,
) -> Result<Response<Body>, ApiError> {
    let started = Instant::now();
    let path = match &route {
        Route::NonResource(path) => path,
        Route::Resource(_) => request.uri().path(),
    };
    let (sender, notices) = identify(server, &origin.connection.peer, &request, path, started).await;
    if let Ok(sender) = &sender {
        origin.connection.scheduled.assign_user(&sender.name);
        state.user = Some(sender.clone());
    }
    websocket::remove_tokens(request.headers_mut());
    state.audit = record(server, origin, sender.as_ref().ok().map(|user| &**user), &route, &request);
    state.trace = trace(server, origin, &route, &request, started, state);
    state.add_latency(Layer::Authentication, started.elapsed());
    let warnings = state.warnings.clone();
    for notice in notices {
        match notice {
            Notice::Audit(key, value) => state.audit.annotate(key, value),
            Notice::Warning(text) => warnings.add(text),
        }
    }
    let (filters, audited) = (&server.metrics.filters, Instant::now());
    state.audit.received(request.headers_mut()).await?;
    filters.passed(RequestFilter::Audit, audited.elapsed());
    let impersonating = Instant::now();
    let impersonated = impersonate(server, sender?, &route, &request);
    let identity = state.measure(impersonated).await?;
    filters.passed(RequestFilter::Impersonation, impersonating.elapsed());
    if let Some(constraint) = &identity.impersonated {
        state.audit.impersonated(&identity.user, constraint);
    }
    let user = identity.user;
    let query = options(&route, &request);
    let queued = Instant::now();
    let (unread, longest) = (origin.connection.unread.of(&user), server.flow_control.request_timeout);
    state.unread = Some(unread.clone());
    state.begun = origin.connection.unread.wait_for_reader(&unread, &request, longest).await;
    if state.begun.is_none() {
        let what = "answers to earlier requests on this connection are not read";
        return Err(ApiError::new(429, Reason::TooManyRequests, what).retry_after(1));
    }
    let admitted =
        admit(server, &user, (&route, query.as_ref().ok()), &request, &mut state.flow_schema).await;
    let seat = match admitted {
        Ok(seat) => seat,
        Err(refused) => {
            let response = refused.response();
            state.meter.as_ref().inspect(|meter| meter.refused(response.status().as_u16()));
            return Ok(response);
        }
    };
    let waited = queued.elapsed();
    filters.passed(server.flow_control.filter(), waited);
    state.add_latency(Layer::QueueWait, waited);
    state.meter.as_ref().inspect(|meter| meter.spent_waiting(waited));
    let limit = match flow_control::is_long_running(&route) {
        true => None,
        false => Some(server.flow_control.limit(request.uri().query())?),
    };
    let deadline = deadline(limit.unwrap_or(server.flow_control.request_timeout));
    let sender = Sender { user, deadline, origin, is_long_running: limit.is_none() };
    // Boxed: each arm below would otherwise have room for its whole state.
    let meter = state.meter.clone();
    let observers = (warnings, state.audit.clone(), state.meter.clone());
    let served = Box::pin(serve(server, sender, (route, query, target), request, seat, observers));
    state
        .measure(async {
            match limit {
                None => served.await,
                Some(limit) => tokio::time::timeout(limit, served).await.unwrap_or_else(|_| {
                    let error = ApiError::timeout();
                    meter.inspect(|meter| meter.terminated(error.code));
                    Err(error)
                }),
            }
        })
        .await
}

/// The trace of a request, if it has one.
fn trace(
    server: &Server,
    origin: &RequestOrigin<'_>,
    route: &Route,
    request: &Request<RequestBody>,
    received: Instant,
    state: &RequestState,
) -> Option<RequestTrace> {
    let request = TracedRequest {
        route,
        method: request.method(),
        uri: request.uri(),
        version: request.version(),
        headers: request.headers(),
        audit_id: origin.audit_id.to_str().unwrap_or_default(),
        user: state.user.as_deref(),
        received,
    };
    server.traces.begin(&request, || state.audit.latencies().cloned().unwrap_or_default())
}

/// When a request that may take `limit` gives up waiting by itself: early enough to say what it waits for.
fn deadline(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit - limit / 20)
}

/// Audit: creates the event that the policy asks for.
fn record(
    server: &Server,
    origin: &RequestOrigin<'_>,
    user: Option<&User>,
    route: &Route,
    request: &Request<RequestBody>,
) -> Recorder {
    if !server.audit.is_on() {
        return Recorder::default();
    }
    let request_attributes = read_attributes(route, request);
    let (verb, name) = match route {
        Route::Resource(info) => (info.verb.authorized_as(), request_attributes.name(info)),
        Route::NonResource(_) => (lower_case(request.method()), ""),
    };
    server.audit.begin(&audit::ReceivedRequest {
        user,
        route,
        verb,
        name,
        uri: request.uri(),
        headers: request.headers(),
        remote: origin.connection.remote,
        id: origin.audit_id,
        received: SystemTime::now(),
    })
}

/// Flow control: waits for a seat.
async fn admit(
    server: &Server,
    user: &User,
    (route, query): (&Route, Option<&Query>),
    request: &Request<RequestBody>,
    flow_schema: &mut Option<Arc<FlowSchema>>,
) -> Result<Seat, Refused> {
    let method = request.method();
    let digest = RequestDigest::new(user, route, lower_case(method));
    server.flow_control.admit(&digest, route, query, mutates(route, method), flow_schema).await
}

/// The options in the query of a request for a resource. An error is answered where the handler would read
/// them: authorization comes first, and so does that the resource is served.
fn options(route: &Route, request: &Request<RequestBody>) -> Result<Query, ApiError> {
    match route {
        Route::Resource(info) => Query::parse(request.uri().query(), info.options_of()),
        Route::NonResource(_) => Ok(Query::default()),
    }
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

/// Whether a request counts as mutating.
fn mutates(route: &Route, method: &Method) -> bool {
    match route {
        Route::Resource(info) => info.verb.mutates(),
        Route::NonResource(_) => !matches!(*method, Method::GET | Method::HEAD),
    }
}

/// The answer to HEAD: the body's length without the body.
fn drop_body(response: &mut Response<Body>) {
    if let Body::Full(bytes) = response.body() {
        let length = HeaderValue::from(bytes.len());
        response.headers_mut().insert(hyper::header::CONTENT_LENGTH, length);
    }
    *response.body_mut() = Body::empty();
}

/// Authenticates the sender; returns the warnings and audit annotations that its credentials produced.
/// Invalid credentials are refused even where anonymous requests are allowed, as upstream does.
async fn identify(
    server: &Server,
    peer: &Peer,
    request: &Request<RequestBody>,
    path: &str,
    started: Instant,
) -> (Result<Arc<User>, ApiError>, Vec<Notice>) {
    let mut notices = Vec::new();
    let user = server.authenticator.authenticate(peer, request.headers(), path, &mut notices).await;
    let metrics = &server.metrics.identity;
    let outcome = match &user {
        Ok(user) => Authentication::Success(&user.name),
        Err(AuthnError::NoCredentials) => Authentication::Failure,
        Err(_) => Authentication::Error,
    };
    metrics.authenticated(outcome, started.elapsed());
    if user.is_ok() {
        server.metrics.filters.passed(RequestFilter::Authentication, started.elapsed());
    }
    if let Some(remaining) = peer.valid_for() {
        metrics.certificate_valid_for(remaining);
    }
    let user = user.map_err(|error| {
        tracing::debug!(%error, "unable to authenticate the request");
        ApiError::unauthorized()
    });
    (user, notices)
}

/// The user that the request acts as: the sender, or the user of its impersonation headers.
async fn impersonate(
    server: &Server,
    sender: Arc<User>,
    route: &Route,
    request: &Request<RequestBody>,
) -> Result<Identity, ApiError> {
    let Some(wanted) = impersonation::requested(request.headers())? else {
        return Ok(Identity { user: sender, impersonated: None });
    };
    let request_attributes = read_attributes(route, request);
    let attributes = match route {
        Route::Resource(info) => request_attributes.of_resource(&sender, info),
        Route::NonResource(path) => request_attributes.of_path(&sender, path),
    };
    let impersonated = Box::pin(impersonation::impersonate(&*server.authorizer, &attributes, &wanted));
    let impersonated = timed(Layer::Impersonation, impersonated).await?;
    Ok(Identity { user: impersonated.user, impersonated: Some(impersonated.constraint) })
}

async fn serve(
    server: &Arc<Server>,
    sender: Sender<'_>,
    (route, query, target): (Route, Result<Query, ApiError>, ServedResource),
    request: Request<RequestBody>,
    seat: Seat,
    (warnings, audit, meter): (Warnings, Recorder, Option<Arc<RequestMeter>>),
) -> Result<Response<Body>, ApiError> {
    let started = Instant::now();
    let request_attributes = read_attributes(&route, &request);
    match route {
        Route::Resource(info) => {
            let outcome = server.authorizer.authorize_resource(&sender.user, info, &request_attributes);
            let (decision, info) = timed(Layer::Authorization, outcome).await;
            server.metrics.identity.authorized(result_of(&decision), started.elapsed());
            note_decision(&audit, &decision);
            let info = info?;
            server.metrics.filters.passed(RequestFilter::Authorization, started.elapsed());
            let target = target.refresh(server.registry(), &info);
            if let Some(remote) = target.remote(&info) {
                drop(seat);
                meter.as_ref().inspect(|meter| meter.begin());
                let forwarding = sender.forwarding();
                let forwarded = remote_apis::forward_resource(server, &remote, request, forwarding);
                return Ok(Box::pin(forwarded).await);
            }
            let ServedResource { registry, resource } = Box::pin(target.sync_to_latest(server, &info)).await;
            if is_served_nowhere(&info) {
                return answer_nowhere(registry.has_builtin_group(&info.group), request.uri().path());
            }
            let Some(resource) = find_resource(&registry, resource, &info)? else {
                return Ok(documents::not_found_text());
            };
            meter.as_ref().inspect(|meter| meter.begin());
            let (mut parts, body) = request.into_parts();
            let slot = RequestSlot::new(seat.is_exempt());
            let upgrade = Upgrade::take(&mut parts.extensions);
            let (method, uri, protocol) = (parts.method, parts.uri, parts.version);
            let query = query?;
            let raw_query = uri.query().map(str::to_owned);
            let Sender { user, deadline, origin, .. } = sender;
            // Boxed: it is passed by value through several futures and would take room in each.
            let cx = Box::new(Context {
                server: server.clone(),
                registry,
                info,
                query,
                raw_query,
                headers: parts.headers,
                user,
                kind_handler: (server.kind_handler)(&resource),
                resource,
                upgrade,
                deadline,
                client: Some(origin.connection.remote),
                method,
                uri,
                protocol,
                warnings,
                seat: Arc::new(seat),
                slot: slot.clone(),
                audit,
                meter,
                reads_may_be_stale: AtomicBool::new(false),
            });
            slot.run(&server.large_requests, handlers::dispatch(cx, body)).await
        }
        Route::NonResource(path) => {
            let outcome = server.authorizer.authorize_path(&sender.user, path, &request_attributes);
            let (decision, path) = timed(Layer::Authorization, outcome).await;
            server.metrics.identity.authorized(result_of(&decision), started.elapsed());
            note_decision(&audit, &decision);
            let path = path?;
            server.metrics.filters.passed(RequestFilter::Authorization, started.elapsed());
            meter.inspect(|meter| meter.begin());
            // Boxed: its state is larger than that of any resource.
            Box::pin(serve_path(server, &sender, &path, (request, &audit), seat)).await
        }
    }
}

/// The answer where neither this server nor another one has what a request is for.
fn answer_nowhere(has_group: bool, path: &str) -> Result<Response<Body>, ApiError> {
    match has_group && !path.starts_with("//") {
        true => Err(ApiError::no_such_resource()),
        false => Ok(documents::not_found_text()),
    }
}

/// Answers a request for a path that is no resource: here, or at another API server.
async fn serve_path(
    server: &Arc<Server>,
    sender: &Sender<'_>,
    path: &AuthorizedPath,
    (request, audit): (Request<RequestBody>, &Recorder),
    seat: Seat,
) -> Result<Response<Body>, ApiError> {
    let registry = server.registry();
    let Some((remote, document)) = remote_apis::of_path(&registry, path.as_str()) else {
        return endpoints::serve(server, path, &request, audit).await;
    };
    drop(seat);
    let forwarded = remote_apis::forward_document(server, (remote, document), request, sender.forwarding());
    Ok(Box::pin(forwarded).await)
}

/// The result that metrics count.
fn result_of(decision: &Decision) -> Authorization {
    match decision.verdict {
        Verdict::Allow => Authorization::Allowed,
        _ if decision.error.is_some() => Authorization::Error,
        Verdict::Deny => Authorization::Denied,
        Verdict::NoOpinion => Authorization::NoOpinion,
    }
}

/// Audit: annotates the event with the authorization decision.
fn note_decision(audit: &Recorder, decision: &Decision) {
    if audit.is_on() {
        audit.annotate(audit::DECISION, if decision.allowed() { "allow" } else { "forbid" });
        audit.annotate(audit::REASON, decision.reason.to_string());
    }
}

/// The attributes for the authorizer in addition to the route.
fn read_attributes(route: &Route, request: &Request<RequestBody>) -> RequestAttributes {
    match route {
        Route::Resource(info) => RequestAttributes::read(request.method(), Some(info), request.uri().query()),
        Route::NonResource(_) => RequestAttributes::read(request.method(), None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The state of a request is moved into its connection's task, so what only some requests need is boxed.
    #[test]
    fn the_state_of_a_request_is_small() {
        let state = state_of(handle);
        assert!(state < 8 << 10, "{state} bytes");
    }
}
