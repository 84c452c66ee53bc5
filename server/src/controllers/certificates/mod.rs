//! Controllers of CertificateSigningRequests (kubernetes `pkg/controller/certificates`).
//!
//! | controller | function |
//! |---|---|
//! | `certificatesigningrequest-approving-controller` | approves nodes' requests for their own client certificates |
//! | `certificatesigningrequest-signing-controller` | signs approved requests for built-in signers |
//! | `certificatesigningrequest-cleaner-controller` | deletes decided and stale requests |
//!
//! All three watch the same feed; their keys are the names of requests.

mod approve;
mod clean;
mod request;
mod sign;

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use plinth_engine::{Entry, Event};

use self::request::RESOURCE;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{is_deleting, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_registry::{prefix_range, resource_prefix, split_key};
use plinth_storage::decode_object;

pub use self::request::SigningOptions;

/// The controllers' names.
pub(super) const APPROVING: &str = "certificatesigningrequest-approving-controller";
pub(super) const SIGNING: &str = "certificatesigningrequest-signing-controller";
pub(super) const CLEANER: &str = "certificatesigningrequest-cleaner-controller";

/// Maximum number of concurrent workers.
const WORKERS: usize = 2;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// One of the controllers.
pub(super) struct Requests {
    name: &'static str,
    server: Arc<Server>,
    prefix: String,
    work: Work,
}

enum Work {
    Approve,
    Sign(SigningOptions),
    Clean,
}

impl Requests {
    pub(super) fn approving(server: &Arc<Server>) -> Requests {
        Requests::new(APPROVING, server, Work::Approve)
    }

    pub(super) fn signing(server: &Arc<Server>, options: &SigningOptions) -> Requests {
        Requests::new(SIGNING, server, Work::Sign(options.clone()))
    }

    pub(super) fn cleaner(server: &Arc<Server>) -> Requests {
        Requests::new(CLEANER, server, Work::Clean)
    }

    fn new(name: &'static str, server: &Arc<Server>, work: Work) -> Requests {
        let prefix = resource_prefix(RESOURCE.0, RESOURCE.2);
        Requests { name, server: server.clone(), prefix, work }
    }
}

impl Reconciler for Requests {
    type Key = String;

    fn settings(&self) -> Settings {
        Settings { name: self.name, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<String>, ApiError> {
        let (range, prefix) = (prefix_range(self.prefix.as_bytes()), self.prefix.clone());
        let pick = move |entry: &Entry<'_>| Some(split_key(&prefix, false, entry.key)?.1.to_owned());
        let (names, revision) = self.server.store.scan(range, pick).await?;
        Start::new(names).watch(&self.server, &self.prefix, revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<String>, ApiError> {
        let changed = events.iter().filter(|event| !event.is_delete());
        Ok(changed
            .filter_map(|event| Some(split_key(&self.prefix, false, &event.key)?.1.to_owned()))
            .collect())
    }

    async fn reconcile(&self, name: String) -> Result<Action, ApiError> {
        let Some(request) = get(&self.server, &name).await? else { return Ok(Action::AwaitChange) };
        match &self.work {
            Work::Approve => approve::approve(&self.server, &request).await,
            Work::Sign(options) => sign::sign(&self.server, options, &request).await,
            Work::Clean => return clean::clean(&self.server, &request).await,
        }
        .map(|()| Action::AwaitChange)
    }
}

/// The current state of a request; `None` if it was deleted or is being deleted.
async fn get(server: &Arc<Server>, name: &str) -> Result<Option<Value>, ApiError> {
    let cx = Context::internal(server, RESOURCE, "", name, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(None) };
    let Some(record) = server.store.get(form, "", name).await? else { return Ok(None) };
    let request = decode_object(&cx.resource, &record)?;
    Ok(Some(request).filter(|request| !is_deleting(request)))
}
