//! The verbs, written once for all resources.
//!
//! A mutating request goes decode -> (patch) -> default -> prepare -> validate -> transaction -> encode; the
//! rows of [`crate::registry`] and [`plinth_kinds`] say what differs.

mod access_reviews;
mod binding;
mod body;
pub mod connect;
mod create;
pub(crate) mod delete;
mod delete_options;
mod eviction;
mod get;
pub mod list;
mod other_part;
mod patch;
mod scale;
mod tokens;
mod update;
mod virtual_resources;
mod watch;

pub mod write;

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Method, Response, StatusCode, Uri, Version};
use parking_lot::Mutex;
use plinth_codec::negotiate::{self, Accepted, Offer, Shape};
use plinth_codec::resources::Resource;
use plinth_codec::table::IncludeObject;
use plinth_codec::Value;

use crate::audit;
use crate::authz::Authorized;
use crate::custom_resources::{object, present};
use crate::heavy::Heavy;
use crate::http::body::Body;
use crate::http::compression;
use crate::http::request_body::RequestBody;
use crate::http::upgrade::Upgrade;
use crate::registry::{Registry, ResourceType};
use crate::representation::Representation;
use crate::server::Server;
use crate::storage::Fetched;
use plinth_api::api_error::ApiError;
use plinth_api::query::Query;
use plinth_api::request_info::{RequestInfo, Verb};
use plinth_api::user::User;

/// One request for a resource on its way through a handler.
pub struct Context {
    /// What all requests share.
    pub server: Arc<Server>,
    /// What is served, as of when the request came.
    pub registry: Arc<Registry>,
    /// Group, version, resource, names and verb, as they were authorized.
    pub info: Authorized,
    /// Query parameters.
    pub query: Query,
    /// The query as it came, for what negotiation reads.
    pub raw_query: Option<String>,
    /// Headers.
    pub headers: HeaderMap,
    /// Who asks.
    pub user: Arc<User>,
    /// The resource in the version asked for.
    pub resource: Arc<ResourceType>,
    /// Lets a handler take the connection over, where the client asked for that.
    pub upgrade: Option<Upgrade>,
    /// Method and address as they were sent, for requests that are passed on.
    pub method: Method,
    /// See `method`.
    pub uri: Uri,
    /// What it came by.
    pub protocol: Version,
    /// What the client is to be warned of.
    pub warnings: Warnings,
    /// What is recorded of the request.
    pub audit: crate::audit::Recorder,
    /// The place among the requests that are served. A list or watch takes it along until its state has been sent.
    pub seat: Arc<crate::flow_control::Seat>,
    /// Whether its body is large.
    pub heavy: Heavy,
}

/// Texts for `Warning` headers that come up on the way. Shared by the request's parts; the lock is held for the moment of
/// adding alone.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Texts that are told: each is a header, and clients (hyper's among them) take a hundred lines of headers.
    pub(super) const MOST: usize = 64;

    /// Adds a text, once.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock();
        if texts.len() < Warnings::MOST && !texts.contains(&text) {
            texts.push(text);
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Context {
    /// A request of the server's own, as `system:apiserver`.
    ///
    /// # Errors
    /// When the resource is not served; a programming fault.
    pub fn internal(
        server: &Arc<Server>,
        (group, version, plural): (&str, &str, &str),
        namespace: &str,
        name: &str,
        verb: Verb,
    ) -> Result<Context, ApiError> {
        let registry = server.registry();
        let resource = registry.get(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        Ok(Context::of_resource(server, &registry, resource, (namespace, name), verb))
    }

    /// What a request does besides to another object, in its own namespace or to a cluster-scoped one, as part of what it was
    /// authorized for: a binding changes its pod, an eviction its budget.
    ///
    /// # Errors
    /// When the resource is not served; a programming error.
    pub(super) fn on_behalf(
        &self,
        (group, version, plural): (&str, &str, &str),
        name: &str,
        verb: Verb,
    ) -> Result<Context, ApiError> {
        let registry = self.server.registry();
        let resource = registry.get(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        let namespace = if resource.row.namespaced { self.info.namespace.as_str() } else { "" };
        Ok(Context::of_resource(&self.server, &registry, resource, (namespace, name), verb))
    }

    /// The same request of the server's own for a subresource.
    pub fn at_subresource(self, subresource: &str) -> Context {
        let (namespace, name) = (self.info.namespace.as_str(), self.info.name.as_str());
        let info = Authorized::by_server(&self.resource, subresource, (namespace, name), self.info.verb);
        let user = Arc::new(server_user());
        Context { info, user, ..self }
    }

    /// A request of the server's own for a resource that need not be served in this version.
    pub fn of_resource(
        server: &Arc<Server>,
        registry: &Arc<Registry>,
        resource: &Arc<ResourceType>,
        (namespace, name): (&str, &str),
        verb: Verb,
    ) -> Context {
        Context {
            server: server.clone(),
            registry: registry.clone(),
            info: Authorized::by_server(resource, "", (namespace, name), verb),
            query: Query { field_manager: Some("plinth".into()), ..Query::default() },
            raw_query: None,
            headers: HeaderMap::new(),
            user: Arc::new(server_user()),
            resource: resource.clone(),
            upgrade: None,
            method: Method::GET,
            uri: Uri::default(),
            protocol: Version::default(),
            warnings: Warnings::default(),
            seat: Default::default(),
            heavy: Default::default(),
            audit: Default::default(),
        }
    }

    fn header(&self, name: hyper::header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The field manager: the parameter, or the User-Agent up to the first slash.
    pub fn field_manager(&self) -> String {
        let given = self.query.field_manager.as_deref().unwrap_or_default();
        let agent = self.header(hyper::header::USER_AGENT).unwrap_or_default();
        plinth_codec::apply::managed::manager_or_user_agent(given, agent)
    }

    /// How answers of that shape are to be written.
    ///
    /// # Errors
    /// 406.
    pub fn representation(&self, shape: Shape) -> Result<Representation, ApiError> {
        let mut offer = match self.resource.is_custom() {
            true => Offer::custom(shape),
            false => Offer::builtin(shape),
        };
        // The answer to a question has no columns.
        offer.tables = self.resource.storage.is_some() || self.info.verb != Verb::Create;
        let header = self.header(ACCEPT);
        let accepted: Accepted = negotiate::accept(header, &offer).map_err(|e| not_acceptable(&e))?;
        let agent = self.header(hyper::header::USER_AGENT);
        let pretty = negotiate::wants_pretty(&accepted, self.raw_query.as_deref(), agent);
        let include = IncludeObject::parse(self.query.include_object.as_deref())
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        Ok(Representation {
            resource: self.resource.clone(),
            accepted,
            include,
            pretty,
            now: std::time::SystemTime::now(),
        })
    }

    /// Whether the client takes gzip.
    fn accepts_gzip(&self) -> bool {
        negotiate::gzip(self.header(hyper::header::ACCEPT_ENCODING))
    }

    /// A record as the resource serves it: a custom resource may be stored in another version.
    ///
    /// # Errors
    /// 500 when it cannot be read or converted.
    pub(crate) async fn present(&self, record: Fetched) -> Result<Fetched, ApiError> {
        present::one(&self.server, &self.resource, record).await
    }

    /// The same for a value.
    ///
    /// # Errors
    /// 500 when it cannot be read or converted.
    pub(crate) async fn present_value(&self, value: Bytes) -> Result<Bytes, ApiError> {
        present::value(&self.server, &self.resource, value).await
    }

    /// The stored form of a tree in the resource's version.
    ///
    /// # Errors
    /// 500 when it cannot be converted.
    pub(crate) async fn to_stored(&self, tree: plinth_codec::Value) -> Result<Bytes, ApiError> {
        object::to_stored(&self.server, &self.resource, tree).await
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource.group(), self.resource.plural(), &self.info.name)
    }
}

/// As whom the server itself writes.
fn server_user() -> User {
    User::new("system:apiserver", &["system:masters"])
}

/// Answers a request for a resource.
///
/// # Errors
/// Whatever goes wrong on the way, for [`crate::pipeline`] to encode.
pub async fn dispatch(cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let warnings = cx.warnings.clone();
    let told = |mut error: ApiError| {
        error.warnings = warnings.take();
        error
    };
    let mut response = answer(cx, body).await.map_err(told)?;
    write::add_warnings(&mut response, &warnings.take());
    Ok(response)
}

async fn answer(cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let deprecation = cx.resource.custom.as_ref().and_then(|custom| custom.version().deprecation.clone());
    let part = cx.info.subresource.as_str();
    let is_served = part.is_empty() || cx.resource.row.subresource(part).is_some();
    let texts = cx.resource.strategy.warning.map(str::to_owned).into_iter().chain(deprecation);
    for text in texts.filter(|_| is_served) {
        cx.warnings.add(text);
        cx.audit.annotate(audit::DEPRECATED, "true");
    }
    check_scope(&cx)?;
    check_name(&cx.info.name)?;
    if !is_routed(&cx) {
        return Err(ApiError::method_not_allowed());
    }
    if !cx.info.subresource.is_empty() {
        return Box::pin(subresource(cx, body)).await;
    }
    let named = !cx.info.name.is_empty();
    let fits = match cx.info.verb {
        Verb::Create => !named,
        Verb::Update | Verb::Patch => named,
        _ => true,
    };
    if !fits || !cx.resource.row.has_verb(cx.info.verb.as_str()) {
        // What is only created has no place for a named object.
        let is_only_created = cx.resource.row.verbs.iter().all(|verb| verb == "create");
        return Err(match named && is_only_created {
            true => ApiError::no_such_resource(),
            false => ApiError::method_not_allowed(),
        });
    }
    if cx.resource.storage.is_none() {
        return match (cx.resource.row.kind.as_str(), cx.info.verb) {
            ("ComponentStatus", Verb::Get | Verb::List) => {
                Box::pin(virtual_resources::component_statuses(cx)).await
            }
            ("Binding", Verb::Create) => Box::pin(binding::bind(cx, body)).await,
            (_, Verb::Create) => Box::pin(virtual_resources::create(cx, body)).await,
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    // Each verb's own state is put on the heap once: here it would make the state of every request as large as the
    // largest, and that is moved several times on its way into the connection's task.
    match cx.info.verb {
        Verb::Get => {
            let gzip = cx.accepts_gzip();
            let response = Box::pin(get::get(cx)).await?;
            Ok(if gzip { compression::compress(response).await } else { response })
        }
        Verb::List => Box::pin(list::list(cx)).await,
        Verb::Watch => Box::pin(watch::watch(cx)).await,
        Verb::Create => Box::pin(create::create(cx, body)).await,
        Verb::Update => Box::pin(update::update(cx, body)).await,
        Verb::Patch => Box::pin(patch::patch(cx, body)).await,
        Verb::Delete => Box::pin(delete::delete(cx, body)).await,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(cx, body)).await,
        Verb::Proxy | Verb::Other => Err(ApiError::method_not_allowed()),
    }
}

/// Whether the method has a route: HEAD is authorized as GET and served for custom resources and proxies alone, and what the path
/// says to be a watch is one for GET alone (k8s.io/apiserver `pkg/endpoints/installer.go`; apiextensions-apiserver
/// `pkg/apiserver/customresource_handler.go`).
fn is_routed(cx: &Context) -> bool {
    let serves_head = cx.resource.is_custom() || cx.info.subresource == "proxy";
    match cx.method {
        Method::HEAD => serves_head && cx.info.verb != Verb::Watch,
        Method::GET => true,
        _ => cx.info.verb != Verb::Watch,
    }
}

/// A subresource whose body is the object itself is a face of the object; the others have handlers of
/// their own.
async fn subresource(cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let Some(row) = cx.resource.row.subresource(&cx.info.subresource) else {
        return Err(if cx.resource.is_custom() { cx.not_found() } else { ApiError::no_such_resource() });
    };
    if !row.verbs.iter().any(|v| v == cx.info.verb.as_str()) {
        return Err(ApiError::method_not_allowed());
    }
    if connect::SUBRESOURCES.contains(&cx.info.subresource.as_str()) {
        return Box::pin(connect::connect(cx, body)).await;
    }
    // By name, not by kind: a custom resource has `status` and `scale` alone, but its own kind, which is that of its
    // `status`, may be called TokenRequest.
    match cx.info.subresource.as_str() {
        "scale" => return Box::pin(scale::scale(cx, body)).await,
        "binding" => return Box::pin(binding::bind(cx, body)).await,
        "eviction" => return Box::pin(eviction::evict(cx, body)).await,
        "token" => return Box::pin(tokens::request(cx, body)).await,
        _ => {}
    }
    if row.gvk != cx.resource.row.gvk() {
        return Err(not_served(&cx.info.subresource));
    }
    match cx.info.verb {
        Verb::Get => Box::pin(get::get(cx)).await,
        Verb::Update => Box::pin(update::update(cx, body)).await,
        Verb::Patch => Box::pin(patch::patch(cx, body)).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// 406. Where upstream's router refuses, the details are there and say nothing.
fn not_acceptable(error: &negotiate::NotAcceptable) -> ApiError {
    let message = error.to_string();
    let by_router = message.starts_with("406: ");
    let error = ApiError::new(406, plinth_api::api_error::Reason::NotAcceptable, message);
    match by_router {
        true => error.with_empty_details(),
        false => error,
    }
}

/// 501: part of the API that this version lacks, said plainly.
fn not_served(what: &str) -> ApiError {
    let message = format!("{what:?} is not served by this version of plinth");
    ApiError::new(501, plinth_api::api_error::Reason::Unknown, message)
}

/// A name that no object can have is refused before anything is looked up.
fn check_name(name: &str) -> Result<(), ApiError> {
    match plinth_codec::names::path_segment_faults(name).first() {
        // A slash can only come from an escape, which upstream routes nowhere.
        Some(_) if name.contains('/') => Err(ApiError::no_such_resource()),
        Some(why) => Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: {why}"))),
        None => Ok(()),
    }
}

/// The path must fit the resource's scope: a namespaced object has a namespace, a cluster-scoped one has none.
fn check_scope(cx: &Context) -> Result<(), ApiError> {
    match fits_scope(&cx.resource.row, &cx.info) {
        true => Ok(()),
        // Upstream routes a namespaced collection without a namespace, but only to read it.
        false if cx.resource.row.namespaced && cx.info.name.is_empty() => Err(ApiError::method_not_allowed()),
        false => Err(ApiError::no_such_resource()),
    }
}

/// Whether the path of a request has a namespace where the resource has one.
pub(crate) fn fits_scope(row: &Resource, info: &RequestInfo) -> bool {
    match row.namespaced {
        true => !info.namespace.is_empty() || (info.name.is_empty() && !info.verb.mutates()),
        // Nothing of the cluster is served below a namespace, least of all another namespace.
        false => !info.is_below_namespace,
    }
}

/// The namespace part of an object's key.
pub(crate) fn key_namespace(cx: &Context) -> &str {
    cx.info.key_namespace(&cx.resource)
}

/// Answers with a Status that is not an error of the request path.
fn respond_status(
    representation: &Representation,
    code: StatusCode,
    status: &Value,
) -> Result<Response<Body>, ApiError> {
    let mut out = Vec::with_capacity(256);
    representation.write_tree(status, &mut out)?;
    Ok(respond(code, representation.content_type(Shape::Object), out))
}

fn respond(code: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
