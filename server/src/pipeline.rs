//! The path of a request, top to bottom: request info, authentication, impersonation, flow control,
//! authorization, handler, answer.

use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use plinth_codec::negotiate::{self, Shape};
use plinth_codec::schema;

use crate::audit;
use crate::authn::{impersonation, Identity, Peer, User};
use crate::authz::{Attributes, RequestAttributes};
use crate::endpoints;
use crate::flow_control;
use crate::handlers::{self, Context, Warnings};
use crate::http::body::Body;
use crate::http::upgrade::Upgrade;
use crate::query::Query;
use crate::registry::{Registry, ResourceType};
use crate::representation;
use crate::request_info::{self, RequestInfo, Route, Verb};
use crate::server::Server;
use crate::status::ApiError;

/// Answers one request. Never fails: what goes wrong becomes a Status.
pub async fn handle(server: Arc<Server>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let started = Instant::now();
    let route = request_info::route(request.method(), request.uri().path(), request.uri().query());
    let audit_id = audit::id(request.headers());
    let accept = request.headers().get(ACCEPT).cloned();
    let label = RequestLabel::of(&route, request.method());
    let http1 = request.version() < hyper::Version::HTTP_2;
    let is_head = request.method() == Method::HEAD;
    let _in_flight = server.metrics.in_flight(label.verb.mutates());
    let mut response = match answer(&server, &peer, route, request).await {
        Ok(response) => response,
        Err(error) => refuse(&error, accept.as_ref(), http1),
    };
    response.headers_mut().insert(audit::HEADER, audit_id);
    if is_head {
        drop_body(&mut response);
    }
    server.metrics.observe(&label, response.status().as_u16(), started.elapsed());
    response
}

/// The steps of a request, each a function of its own; the first that fails ends it.
async fn answer(
    server: &Arc<Server>,
    peer: &Peer,
    route: Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let user = identify(server, peer, &request).await?;
    let user = impersonate(server, user, &route, &request).await?.user;
    let _seat = server.flow_control.admit(&user, &route, mutates(&route, request.method())).await?;
    match flow_control::runs_long(&route) {
        true => serve(server, user, route, request).await,
        false => {
            let limit = server.flow_control.request_timeout;
            tokio::time::timeout(limit, serve(server, user, route, request))
                .await
                .unwrap_or_else(|_| Err(ApiError::timeout()))
        }
    }
}

/// Whether a request counts as one that changes something.
fn mutates(route: &Route, method: &Method) -> bool {
    match route {
        Route::Resource(info) => info.verb.mutates(),
        Route::NonResource => !matches!(*method, Method::GET | Method::HEAD),
    }
}

/// What metrics call a request.
pub struct RequestLabel {
    /// Verb.
    pub verb: Verb,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource; empty for other paths.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
}

impl RequestLabel {
    fn of(route: &Route, method: &Method) -> RequestLabel {
        match route {
            Route::Resource(info) => RequestLabel {
                verb: info.verb,
                group: info.group.clone(),
                version: info.version.clone(),
                resource: info.resource.clone(),
                subresource: info.subresource.clone(),
            },
            Route::NonResource => RequestLabel {
                verb: if *method == Method::GET { Verb::Get } else { Verb::Other },
                group: String::new(),
                version: String::new(),
                resource: String::new(),
                subresource: String::new(),
            },
        }
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

/// Who asks. Credentials that are not to be trusted are refused even where nobody needs any, as upstream does.
async fn identify(server: &Server, peer: &Peer, request: &Request<Incoming>) -> Result<Arc<User>, ApiError> {
    let user = server.authenticator.authenticate(peer, request.headers(), request.uri().path()).await;
    user.map_err(|fault| {
        tracing::debug!(%fault, "unable to authenticate the request");
        ApiError::unauthorized()
    })
}

/// As whom the request is made: as its sender, or as the user that it names and its sender may act as.
async fn impersonate(
    server: &Server,
    sender: Arc<User>,
    route: &Route,
    request: &Request<Incoming>,
) -> Result<Identity, ApiError> {
    let Some(wanted) = impersonation::wanted(request.headers())? else {
        return Ok(Identity { user: sender, impersonator: None });
    };
    let asked = read_attributes(route, request);
    let attributes = attributes(&asked, &sender, route, request.uri().path());
    let user = impersonation::impersonate(&server.authorizer, &attributes, &wanted).await?;
    Ok(Identity { user, impersonator: Some(sender) })
}

async fn serve(
    server: &Arc<Server>,
    user: Arc<User>,
    route: Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    authorize(server, &user, &route, &request).await?;
    match route {
        Route::Resource(info) => {
            // Authorized as what it would be, but served nowhere, as upstream does.
            if request.uri().path().contains("//") {
                return Ok(endpoints::not_found_text());
            }
            let registry = server.registry();
            let resource = find_resource(&registry, &info);
            let Some(resource) = resource? else { return Ok(endpoints::not_found_text()) };
            let (mut parts, body) = request.into_parts();
            let upgrade = Upgrade::take(&mut parts.extensions);
            let (method, uri) = (parts.method, parts.uri);
            let query = Query::parse(uri.query())?;
            let raw_query = uri.query().map(str::to_owned);
            let headers = parts.headers;
            let cx = Context {
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
                warnings: Warnings::default(),
            };
            handlers::dispatch(cx, body).await
        }
        Route::NonResource => endpoints::serve(server, &request).await,
    }
}

/// Whether they may.
async fn authorize(
    server: &Server,
    user: &User,
    route: &Route,
    request: &Request<Incoming>,
) -> Result<(), ApiError> {
    let asked = read_attributes(route, request);
    let attributes = attributes(&asked, user, route, request.uri().path());
    server.authorizer.require(&attributes).await.map(|_| ())
}

/// What the authorizer needs to know of a request besides its route.
fn read_attributes(route: &Route, request: &Request<Incoming>) -> RequestAttributes {
    match route {
        Route::Resource(info) => {
            RequestAttributes::read(request.method(), Some(info.verb), request.uri().query())
        }
        Route::NonResource => RequestAttributes::read(request.method(), None, None),
    }
}

/// The question whether a user may make a request.
fn attributes<'a>(
    asked: &'a RequestAttributes,
    user: &'a User,
    route: &'a Route,
    path: &'a str,
) -> Attributes<'a> {
    match route {
        Route::Resource(info) => asked.of_resource(user, info),
        Route::NonResource => asked.of_path(user, path),
    }
}

/// The resource of a request; `None` for a group or version that is not served at all, which upstream answers
/// in plain text.
fn find_resource(registry: &Registry, info: &RequestInfo) -> Result<Option<Arc<ResourceType>>, ApiError> {
    match registry.get(&info.group, &info.version, &info.resource) {
        Some(resource) => Ok(Some(resource.clone())),
        None if registry.serves_group(&info.group) => Err(ApiError::no_such_resource()),
        None => Ok(None),
    }
}

/// An error as a Status, in the encoding that the client accepts.
fn refuse(error: &ApiError, accept: Option<&HeaderValue>, http1: bool) -> Response<Body> {
    let accepted = negotiate::accept_for_error(accept.and_then(|a| a.to_str().ok()));
    let mut out = Vec::with_capacity(512);
    let status = error.to_status();
    let mut content_type = accepted.content_type(Shape::Plain);
    let written =
        representation::write_tree(&status, schema::builtin(), accepted.encoding, accepted.pretty, &mut out);
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
    if error.code == 413 && http1 {
        // What is left of the body will not be read.
        headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
