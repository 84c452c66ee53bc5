//! System objects, which exist in every cluster: created at start, and reconciled on every replica.

mod objects;
mod rbac;
mod reconcile_object;
mod trust;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{ApiError, Reason};
use plinth_apiserver::context::Server;

pub use objects::{
    ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, is_reachable,
};
pub use trust::ensure_trust;

/// Handles an error for one of these objects at start. A first start fails. A later one continues, and
/// [`start`]'s controller retries: stored objects (a quota, a webhook whose backend is a pod, a
/// damaged store after a repair) must not prevent the start of the server that is needed to change them.
///
/// # Errors
/// At a first start, and when the storage has failed.
pub fn tolerate(
    server: &Server,
    is_first_start: bool,
    what: &'static str,
    outcome: Result<(), ApiError>,
) -> Result<bool, ApiError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if is_first_start || server.store.engine().failure().is_some() => Err(error),
        Err(error) => {
            let retry_ms = PERIOD.as_millis();
            tracing::warn!(
                %error,
                object = what,
                retry_ms,
                "object cannot be created; the server starts without it and retries"
            );
            Ok(false)
        }
    }
}

/// How long a replica that starts waits for its writes of these objects, all together: its journal may be
/// away, and reads go on without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a start waits for writes of these objects.
pub struct Patience(Option<Instant>);

impl Patience {
    /// For good, but for a replica whose cluster has them: what is left is for [`start`]'s controller.
    pub fn of(server: &Server, is_first_start: bool) -> Patience {
        let is_short = server.replica.is_some() && !is_first_start;
        Patience(Instant::now().checked_add(PATIENCE).filter(|_| is_short))
    }

    /// Waits for a write, which may be made later where it is not awaited.
    ///
    /// # Errors
    /// Those of the write, and 504 when it takes too long.
    pub async fn wait(&self, write: impl Future<Output = Result<(), ApiError>>) -> Result<(), ApiError> {
        let Some(until) = self.0 else { return write.await };
        let too_late = || ApiError::new(504, Reason::Timeout, "the journal has not answered in time");
        tokio::time::timeout_at(until.into(), write).await.unwrap_or_else(|_| Err(too_late()))
    }
}

/// Interval of reconciliation; that of upstream for the endpoints of its own Service.
const PERIOD: Duration = Duration::from_secs(10);

/// Starts the controller of the system objects, so that deleted ones are recreated and changed ones repaired.
/// If nothing has changed, a round reads each object once. Roles, bindings and priority classes are
/// reconciled at start, as upstream does, and then until they are complete.
pub fn start(server: &Arc<Server>, listening: SocketAddr, has_classes_and_roles: bool) {
    let server = server.clone();
    reconciler::spawn(&server.clone(), SystemObjects { server, listening, has_classes_and_roles });
}

/// Recreates and repairs the system objects.
struct SystemObjects {
    server: Arc<Server>,
    listening: SocketAddr,
    /// Whether these were complete at the start.
    has_classes_and_roles: bool,
}

/// A task of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    ClassesAndRoles,
    Namespaces,
    TokenTracking,
    Trust,
    ServiceCidr,
    KubernetesService,
}

/// The tasks that are repeated, each for itself: one that fails keeps none of the others.
const REPEATED: [Task; 5] =
    [Task::Namespaces, Task::TokenTracking, Task::Trust, Task::ServiceCidr, Task::KubernetesService];

impl Reconciler for SystemObjects {
    type Key = Task;

    fn settings(&self) -> Settings {
        Settings { name: "system-objects", workers: 1, retry: (PERIOD, PERIOD), gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Task>, ApiError> {
        let incomplete = (!self.has_classes_and_roles).then_some(Task::ClassesAndRoles);
        Ok(Start::new(incomplete.into_iter().chain(REPEATED)))
    }

    async fn reconcile(&self, task: Task) -> Result<Action, ApiError> {
        let server = &self.server;
        match task {
            Task::ClassesAndRoles => {
                ensure_classes_and_roles(server).await?;
                return Ok(Action::AwaitChange);
            }
            Task::Namespaces => ensure_system_namespaces(server).await?,
            Task::TokenTracking => ensure_token_tracking(server).await?,
            Task::Trust => ensure_trust(server).await?,
            Task::ServiceCidr => ensure_service_cidr(server).await?,
            Task::KubernetesService => ensure_kubernetes_service(server, self.listening).await?,
        }
        Ok(Action::RequeueAfter(PERIOD))
    }
}
