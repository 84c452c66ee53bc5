//! A request on its way: who asks for what, and what all requests share.

mod admission;
mod kind_handler;
mod replica;
mod server;
mod transaction_parts;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, Uri, Version};
use parking_lot::Mutex;
use plinth_codec::negotiate::{self, Offer, Shape};
use plinth_engine::{At, Record};

use crate::authz::{Authorized, ObjectKey};
use crate::custom_resources::object;
use crate::large_requests::RequestSlot;
use crate::representation::Representation;
use crate::stored_objects::read;
use plinth_api::{ApiError, Query, User, Verb, AUTHENTICATED_GROUP, MASTERS_GROUP, SERVER_USER};
use plinth_http::Upgrade;
use plinth_registry::{object_key, Registry, ResourceType, StorageForm};
use plinth_storage::Fetched;

pub use self::server::{return_if_stopping, Limits, Server};
pub use admission::{Admission, AdmissionRequest, Operation, Outcome};
pub use kind_handler::{Endpoint, FindKindHandler, KindHandler, Write};
pub use replica::{ReplicaInfo, WriteCheckpoint};
pub use transaction_parts::TransactionParts;

/// How long requests of the server's own wait for other replicas, before they are tried again.
pub const OWN_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// One request for a resource on its way through a handler.
pub struct Context {
    /// What all requests share.
    pub server: Arc<Server>,
    /// What is served, as of when the request arrived.
    pub registry: Arc<Registry>,
    /// Group, version, resource, names and verb, as they were authorized.
    pub info: Authorized,
    /// Query parameters.
    pub query: Query,
    /// The query as it was sent, for what negotiation reads.
    pub raw_query: Option<String>,
    /// Headers of the request, those of credentials included.
    pub headers: HeaderMap,
    /// The user that sends the request.
    pub user: Arc<User>,
    /// The resource in the version asked for.
    pub resource: Arc<ResourceType>,
    /// What the resource's kind does beyond its strategy.
    pub kind_handler: &'static KindHandler,
    /// Lets a handler take the connection over, where the client asked for that.
    pub upgrade: Option<Upgrade>,
    /// When the request gives up waiting for other replicas.
    pub deadline: Option<Instant>,
    /// The address of the client; `None` for requests of the server's own.
    pub client: Option<IpAddr>,
    /// Method and address as they were sent, for requests that are passed on.
    pub method: Method,
    /// See `method`.
    pub uri: Uri,
    /// The HTTP version of the request.
    pub protocol: Version,
    /// What the client is to be warned of.
    pub warnings: Warnings,
    /// What is recorded of the request.
    pub audit: crate::audit::Recorder,
    /// The metrics of the request; `None` for requests of the server's own.
    pub meter: Option<Arc<crate::metrics::RequestMeter>>,
    /// The place among the requests that are served. A list or watch takes it along until its state has been
    /// sent.
    pub seat: Arc<crate::flow_control::Seat>,
    /// Whether it takes long, as one whose object is large.
    pub slot: RequestSlot,
    /// Whether a write goes by what this replica has applied, and other replicas may have accepted more; see
    /// [`Context::sync_to_latest`].
    pub(crate) reads_may_be_stale: AtomicBool,
}

/// Texts for `Warning` headers that come up on the way. Shared by the request's parts; the lock is held for
/// the moment of adding alone.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Most texts that are sent: each is a header, and clients (hyper's among them) take a hundred lines of
    /// headers.
    pub(crate) const MOST: usize = 64;

    /// Adds a text, once.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock();
        if texts.len() < Warnings::MOST && !texts.contains(&text) {
            texts.push(text);
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Context {
    /// A request of the server's own, as `system:apiserver`.
    ///
    /// # Errors
    /// When the resource is not served; a programming error.
    pub fn internal(
        server: &Arc<Server>,
        (group, version, plural): (&str, &str, &str),
        namespace: &str,
        name: &str,
        verb: Verb,
    ) -> Result<Context, ApiError> {
        let registry = server.registry();
        let resource = registry.internal(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        Ok(Context::of_resource(server, &registry, resource, (namespace, name), verb))
    }

    /// What a request does besides to another object, in its own namespace or to a cluster-scoped one, as
    /// part of what it was authorized for: a binding changes its pod, an eviction its budget.
    ///
    /// # Errors
    /// When the resource is not served; a programming error.
    pub(crate) fn on_behalf(
        &self,
        (group, version, plural): (&str, &str, &str),
        name: &str,
        verb: Verb,
    ) -> Result<Context, ApiError> {
        let registry = self.server.registry();
        let resource = registry.internal(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        let namespace = if resource.row.namespaced { self.info.namespace.as_str() } else { "" };
        let made = Context::of_resource(&self.server, &registry, resource, (namespace, name), verb);
        Ok(Context { slot: self.slot.clone(), ..made })
    }

    /// The same request of the server's own as another user, whom admission and authorization by the object
    /// see. The request itself stays authorized.
    pub fn acting_as(self, user: User) -> Context {
        Context { user: Arc::new(user), ..self }
    }

    /// The same request of the server's own, recorded.
    pub(crate) fn recorded_by(&self, audit: crate::audit::Recorder) -> Context {
        Context {
            server: self.server.clone(),
            registry: self.registry.clone(),
            info: self.info.clone(),
            query: self.query.clone(),
            raw_query: self.raw_query.clone(),
            headers: self.headers.clone(),
            user: self.user.clone(),
            resource: self.resource.clone(),
            kind_handler: self.kind_handler,
            upgrade: None,
            deadline: self.deadline,
            client: self.client,
            method: self.method.clone(),
            uri: self.uri.clone(),
            protocol: self.protocol,
            warnings: self.warnings.clone(),
            seat: self.seat.clone(),
            slot: self.slot.clone(),
            audit,
            meter: None,
            reads_may_be_stale: AtomicBool::new(self.reads_may_be_stale()),
        }
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
            kind_handler: (server.kind_handler)(resource),
            upgrade: None,
            deadline: Instant::now().checked_add(OWN_REQUEST_TIMEOUT),
            client: None,
            method: Method::GET,
            uri: Uri::default(),
            protocol: Version::default(),
            warnings: Warnings::default(),
            seat: Default::default(),
            slot: Default::default(),
            audit: Default::default(),
            meter: None,
            reads_may_be_stale: AtomicBool::new(false),
        }
    }

    /// Waits until what is read here is at least as new as everything that was committed before, on whichever
    /// replica.
    ///
    /// # Errors
    /// 503 when the journal does not answer until the deadline.
    pub async fn reach_most_recent(&self) -> Result<(), ApiError> {
        // A watch waits no longer than it would last.
        let seconds = self.query.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let given = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let end = given.and_then(|given| Instant::now().checked_add(given));
        let deadline = self.deadline.into_iter().chain(end).min();
        let store = &self.server.store;
        if store.reaches_most_recent(deadline).await? {
            return Ok(());
        }
        let refusal = store.engine().journal_refusal();
        let writes = self.info.verb.mutates() && !self.query.is_dry_run();
        Err(match writes {
            true => ApiError::journal_unavailable(refusal.as_deref()),
            false => ApiError::most_recent_unknown(refusal.as_deref()),
        })
    }

    /// Lets the write be tried on the local state, what this replica has applied, without asking the journal
    /// for its end: what it then commits is conditional on the object that it read, and what it would refuse
    /// is tried again after [`Context::sync_to_latest`].
    pub(crate) fn use_local_state(&self) {
        self.reads_may_be_stale.store(self.server.store.engine().is_replica(), Ordering::Relaxed);
    }

    /// Whether what was read for this request may be older than what other replicas have accepted.
    pub(crate) fn reads_may_be_stale(&self) -> bool {
        self.reads_may_be_stale.load(Ordering::Relaxed)
    }

    /// Reaches the most recent state where the request was tried on an older one: then the answer is true and
    /// it has to be tried again.
    ///
    /// # Errors
    /// As [`Context::reach_most_recent`].
    pub(crate) async fn sync_to_latest(&self) -> Result<bool, ApiError> {
        let lagged = self.reads_may_be_stale.swap(false, Ordering::Relaxed);
        if lagged {
            self.reach_most_recent().await?;
        }
        Ok(lagged)
    }

    pub(crate) fn header(&self, name: hyper::header::HeaderName) -> Option<&str> {
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
        let include = self.query.include_object.as_deref();
        Representation::negotiate(&self.resource, &offer, &self.headers, self.raw_query.as_deref(), include)
    }

    /// Whether the client takes gzip.
    pub(crate) fn accepts_gzip(&self) -> bool {
        negotiate::gzip(self.header(hyper::header::ACCEPT_ENCODING))
    }

    /// The newest record of an object.
    ///
    /// # Errors
    /// What the read answers.
    pub(crate) async fn record(&self, key: &ObjectKey) -> Result<Option<Fetched>, ApiError> {
        self.server.store.newest(key.to_vec()).await
    }

    /// The newest record of an object as it is stored, whether it can be read or not.
    ///
    /// # Errors
    /// What the read answers.
    pub(crate) async fn stored_record(&self, key: &ObjectKey) -> Result<Option<Record>, ApiError> {
        let key = key.clone();
        self.server.store.read(move |engine| engine.get(&key, At::Latest)).await
    }

    /// The record of an object at a revision.
    ///
    /// # Errors
    /// What the read answers.
    pub(crate) async fn record_at(&self, key: ObjectKey, at: At) -> Result<Option<Fetched>, ApiError> {
        let record = self.server.store.read(move |engine| engine.get(&key, at)).await?;
        Ok(record.map(|record| self.server.store.fetched(record)).transpose()?)
    }

    /// The newest record of an object, to be read as a tree: a request for a large one waits for a slot of
    /// the large-request limiter.
    ///
    /// # Errors
    /// What the read answers.
    pub(crate) async fn newest(&self, key: &ObjectKey) -> Result<Option<Fetched>, ApiError> {
        self.with_slot(self.record(key).await?).await
    }

    async fn with_slot(&self, record: Option<Fetched>) -> Result<Option<Fetched>, ApiError> {
        if let Some(record) = &record {
            self.slot.acquire_for_size(record.value.len()).await;
        }
        Ok(record)
    }

    /// The same for an object by its names, for what the server reads on its own account.
    ///
    /// # Errors
    /// What the read answers.
    pub async fn stored(
        &self,
        form: &StorageForm,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Fetched>, ApiError> {
        let key = object_key(&form.prefix, namespace, name);
        self.with_slot(self.server.store.newest(key).await?).await
    }

    /// A record as the resource serves it: a custom resource may be stored in another version.
    ///
    /// # Errors
    /// 500 when it cannot be read or converted.
    pub(crate) async fn convert_record(&self, record: Fetched) -> Result<Fetched, ApiError> {
        read::record(&self.server.reader, &self.resource, record).await
    }

    /// The same for a value.
    ///
    /// # Errors
    /// 500 when it cannot be read or converted.
    pub(crate) async fn convert_value(&self, value: Bytes) -> Result<Bytes, ApiError> {
        read::value(&self.server.reader, &self.resource, value).await
    }

    /// The stored form of a tree in the resource's version.
    ///
    /// # Errors
    /// 500 when it cannot be converted.
    pub(crate) async fn to_stored(&self, tree: plinth_codec::Value) -> Result<Bytes, ApiError> {
        object::to_stored(&self.server.reader.converter, &self.resource, tree).await
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource.group(), self.resource.plural(), &self.info.name)
    }
}

/// As whom the server itself writes.
fn server_user() -> User {
    User::new(SERVER_USER, &[AUTHENTICATED_GROUP, MASTERS_GROUP])
}

/// The namespace part of an object's key.
pub(crate) fn key_namespace(cx: &Context) -> &str {
    cx.info.key_namespace(&cx.resource)
}
