//! The condition `Available` of APIServices.
//!
//! Upstream: k8s.io/kube-aggregator `pkg/controllers/status/{local,remote}`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use plinth_codec::Value;
use plinth_engine::{Event, EventKind};
use smol_str::SmolStr;

use super::api_service::{prefix, read, RESOURCE};
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{find_condition, is_condition_true, set_condition, ApiError, User, Verb, MASTERS_GROUP};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::egress::resolver;
use plinth_apiserver::handlers::internal;
use plinth_registry::{prefix_range, resource_prefix, split_key, RemoteVersion};
use plinth_storage::Header;

/// The type of the condition.
const AVAILABLE: &str = "Available";
/// Interval at which a server is checked again, and the first delay after a failed check.
const RESYNC: Duration = Duration::from_secs(30);
const RETRY: (Duration, Duration) = (Duration::from_millis(50), RESYNC);
/// APIServices that are checked at a time.
const WORKERS: usize = 5;
/// Requests of a check, of which one has to succeed, and the time limit of each.
const ATTEMPTS: usize = 5;
const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// As whom servers are checked.
const USER: &str = "system:kube-aggregator";
/// The field manager of the status.
const MANAGER: &str = "kube-apiserver";

/// The controller; its keys are the names of APIServices.
pub(super) struct Availability {
    server: Arc<Server>,
    services: String,
    slices: String,
}

/// The outcome of a check.
#[derive(Debug)]
struct Condition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn failed(reason: &'static str, message: String) -> Condition {
        Condition { status: "False", reason, message }
    }
}

impl Availability {
    pub(super) fn new(server: &Arc<Server>) -> Availability {
        Availability {
            server: server.clone(),
            services: resource_prefix("", "services"),
            slices: resource_prefix("discovery.k8s.io", "endpointslices"),
        }
    }

    /// The APIServices that a change concerns.
    fn concerned(&self, event: &Event) -> Vec<SmolStr> {
        if let Some((_, name)) = split_key(&prefix(), false, &event.key) {
            return vec![name.into()];
        }
        let registry = self.server.registry();
        let of = |is_concerned: &dyn Fn(&RemoteVersion) -> bool| {
            let remote = registry.remote_versions().values().filter(|remote| is_concerned(remote));
            remote.map(|remote| remote.api_service().into()).collect()
        };
        if let Some((namespace, name)) = split_key(&self.services, true, &event.key) {
            return of(&|remote| remote.service.namespace == namespace && remote.service.name == name);
        }
        let Some((namespace, _)) = split_key(&self.slices, true, &event.key) else { return Vec::new() };
        // Which Service a deleted slice belonged to is not known.
        let service = match &event.kind {
            EventKind::Put { value, .. } => Header::parse(value).ok(),
            EventKind::Delete => None,
        };
        let service = service.as_ref().and_then(|header| header.label("kubernetes.io/service-name"));
        of(&|remote| {
            remote.service.namespace == namespace
                && service.is_none_or(|service| service == remote.service.name)
        })
    }
}

impl Reconciler for Availability {
    type Key = SmolStr;

    fn settings(&self) -> Settings {
        let name = "apiservice-status-available-controller";
        Settings { name, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<SmolStr>, ApiError> {
        let prefix = prefix();
        let range = prefix_range(prefix.as_bytes());
        let pick = move |entry: &plinth_engine::Entry<'_>| {
            split_key(&prefix, false, entry.key).map(|(_, name)| SmolStr::from(name))
        };
        let (names, revision) = self.server.store.scan(range, pick).await?;
        Start::new(names)
            .watch(&self.server, &super::api_service::prefix(), revision)?
            .watch(&self.server, &self.services, revision)?
            .watch(&self.server, &self.slices, revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<SmolStr>, ApiError> {
        let names: BTreeSet<SmolStr> = events.iter().flat_map(|event| self.concerned(event)).collect();
        Ok(names.into_iter().collect())
    }

    async fn reconcile(&self, name: SmolStr) -> Result<Action, ApiError> {
        let Some(api_service) = read(&self.server, &name).await? else {
            self.server.metrics.api_services.set(&name, None);
            return Ok(Action::AwaitChange);
        };
        let Some(remote) = RemoteVersion::of(&api_service) else {
            let message = "Local APIServices are always available".to_owned();
            let local = Condition { status: "True", reason: "Local", message };
            self.write(&name, &api_service, &local).await?;
            return Ok(Action::AwaitChange);
        };
        let condition = check(&self.server, &remote).await;
        self.write(&name, &api_service, &condition).await?;
        match condition.reason {
            // Retried with growing delays; not worth a line each time, since the condition shows it.
            "FailedDiscoveryCheck" => {
                Err(ApiError::conflict(RESOURCE.0, RESOURCE.2, &name, &condition.message))
            }
            _ => Ok(Action::RequeueAfter(RESYNC)),
        }
    }
}

impl Availability {
    /// Writes the condition where it differs.
    async fn write(&self, name: &str, api_service: &Value, condition: &Condition) -> Result<(), ApiError> {
        let Condition { status, reason, message } = condition;
        let is_available = *status == "True";
        let was_available = is_condition_true(api_service, AVAILABLE);
        self.server.metrics.api_services.set(name, Some(is_available));
        let is_set = find_condition(api_service, AVAILABLE).is_some_and(|present| {
            [("status", *status), ("reason", *reason), ("message", message.as_str())]
                .iter()
                .all(|(key, text)| present.str_at(&[key]) == Some(*text))
        });
        if is_set {
            return Ok(());
        }
        let mut cx =
            Context::internal(&self.server, RESOURCE, "", name, Verb::Update)?.at_subresource("status");
        cx.query.field_manager = Some(MANAGER.into());
        let checked = api_service.get("spec");
        let transform = |live: Option<&Value>| {
            let mut new = live.cloned().unwrap_or_default();
            // Another spec is checked by itself.
            if new.get("spec") != checked {
                return Err(ApiError::modified(RESOURCE.0, RESOURCE.2, name));
            }
            set_condition(&mut new, AVAILABLE, status, reason, message);
            Ok(new)
        };
        match internal::update(&cx, &transform).await {
            Err(error) if error.is_not_found() => return Ok(()),
            outcome => outcome?,
        }
        match (was_available, is_available) {
            (true, false) => {
                tracing::warn!(
                    name,
                    reason,
                    message,
                    "remote API is unavailable; check its Service and its server"
                );
                self.server.metrics.api_services.became_unavailable(name, reason);
            }
            (false, true) if *reason != "Local" => tracing::info!(name, "remote API is available"),
            _ => {}
        }
        Ok(())
    }
}

/// Checks the Service of a remote API, its endpoints and its server.
async fn check(server: &Server, remote: &RemoteVersion) -> Condition {
    let target = &remote.service;
    let service = format!("service/{} in {:?}", target.name, target.namespace);
    let unknown = |reason, error: ApiError| Condition {
        status: "Unknown",
        reason,
        message: format!("{service} cannot be checked due to: {error}"),
    };
    let object = match resolver::read(&server.store, target).await {
        Ok(Some(object)) => object,
        Ok(None) => return Condition::failed("ServiceNotFound", format!("{service} is not present")),
        Err(error) => return unknown("ServiceAccessError", error),
    };
    if object.str_at(&["spec", "type"]).unwrap_or("ClusterIP") == "ClusterIP" {
        let Some(port) = resolver::port_name(&object, target.port) else {
            let message = format!("{service} is not listening on port {}", target.port);
            return Condition::failed("ServicePortError", message);
        };
        let slices = match resolver::slices(&server.store, &target.namespace, &target.name).await {
            Ok(slices) => slices,
            Err(error) => return unknown("EndpointsAccessError", error),
        };
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for {service}");
            return Condition::failed("EndpointsNotFound", message);
        }
        if !resolver::has_available_endpoint(&slices, port) {
            let message = format!("endpointslices for {service} have no addresses with port name {port:?}");
            return Condition::failed("MissingEndpoints", message);
        }
    }
    let attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| attempt(server, remote)).collect();
    match first_success(attempts).await {
        Ok(()) => Condition { status: "True", reason: "Passed", message: "all checks passed".to_owned() },
        Err(message) => Condition::failed("FailedDiscoveryCheck", message),
    }
}

/// Success as soon as one has succeeded, else the last error.
async fn first_success<F>(mut attempts: FuturesUnordered<F>) -> Result<(), String>
where
    F: std::future::Future<Output = Result<(), String>>,
{
    let mut last = Ok(());
    while let Some(outcome) = attempts.next().await {
        last = outcome;
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Reads the version's discovery document, whose status shows whether its server works.
async fn attempt(server: &Server, remote: &RemoteVersion) -> Result<(), String> {
    let apis = &server.remote_apis;
    let address = apis.resolve(&server.store, remote).await.map_err(|error| error.to_string())?;
    let path = remote.path();
    let url = format!("https://{address}{path}");
    let user = User::new(USER, &[MASTERS_GROUP]);
    match apis.probe(address, remote, &user, &path, ATTEMPT_TIME).await {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => {
            Err(format!("failing or missing response from {url}: bad status from {url}: {}", status.as_u16()))
        }
        Err(error) => Err(format!("failing or missing response from {url}: Get {url:?}: {error}")),
    }
}
