//! The controllers that a server alone needs to keep the API's promises.
//!
//! Each is a task fed by an engine subscription over the keys that concern it. It asks for nothing in
//! between: no polling but for the retries of what could not be done yet. All end when the server stops.
//!
//! | controller | module |
//! |---|---|
//! | contents of Terminating namespaces | `namespace` |
//! | dependents of deleted owners | `collector` |
//! | claims, volumes and classes that are still used | `protection` |
//! | usage of quotas | `quota` |
//! | requests for certificates: approval, signature, end | `certificates` |
//! | cluster roles that are made of others | `aggregation` |
//! | Secrets with tokens of service accounts | `tokens` |
//! | those of them that nobody uses | `legacy_tokens` |
//! | addresses and node ports of Services (of the API server itself, always on) | `allocations` |
//! | ServiceAccount `default` and ConfigMap `kube-root-ca.crt` in each namespace | `furnish` |
//!
//! Their names, and the form of `--controllers` that switches them on and off ([`Controllers`]), are
//! kube-controller-manager's. `queue` and `workers` are what the newer ones stand on.

mod aggregation;
pub mod allocations;
mod certificates;
mod collector;
pub mod definitions;
mod enabled;
pub mod flow_control;
mod furnish;
mod legacy_tokens;
mod namespace;
mod protection;
mod queue;
mod quota;
pub mod token_use;
mod tokens;
mod workers;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::Plugins;
use plinth_api::api_error::ApiError;
use plinth_apiserver::context::{end_if_over, Server};

pub use certificates::SigningOptions;
pub use enabled::{Controllers, UnknownController};

/// What controllers need beside the server.
#[derive(Clone)]
pub struct Settings {
    /// Which of them run.
    pub controllers: Controllers,
    /// The authority that clients inside of the cluster trust, PEM.
    pub root_ca: String,
    /// What admission knows of quotas.
    pub plugins: Arc<Plugins>,
    /// What signs requests for certificates.
    pub signing: SigningOptions,
    /// How long the token of a Secret that upstream made may be unused.
    pub unused_tokens: Duration,
}

/// Starts a controller.
type Start = fn(Arc<Server>, &Settings);

const ALL: &[(&str, Start)] = &[
    ("namespace-controller", |server, _| spawn(server.clone(), namespace::lead(server))),
    ("garbage-collector-controller", |server, _| spawn(server.clone(), collector::lead(server))),
    (protection::CLAIMS.name, |server, _| {
        spawn(server.clone(), protection::lead(server, protection::CLAIMS));
    }),
    (protection::VOLUMES.name, |server, _| {
        spawn(server.clone(), protection::lead(server, protection::VOLUMES));
    }),
    (protection::CLASSES.name, |server, _| {
        spawn(server.clone(), protection::lead(server, protection::CLASSES));
    }),
    ("resourcequota-controller", |server, settings| {
        spawn(server.clone(), quota::lead(server, settings.plugins.clone()));
    }),
    ("clusterrole-aggregation-controller", |server, _| spawn(server.clone(), aggregation::lead(server))),
    ("serviceaccount-controller", |server, _| {
        spawn(server.clone(), furnish::lead(server, furnish::default_service_account()));
    }),
    (tokens::NAME, |server, settings| {
        spawn(server.clone(), tokens::lead(server, settings.root_ca.clone()));
    }),
    (legacy_tokens::NAME, |server, settings| {
        spawn(server.clone(), legacy_tokens::lead(server, settings.unused_tokens));
    }),
    ("root-ca-certificate-publisher-controller", |server, settings| {
        spawn(server.clone(), furnish::lead(server, furnish::root_ca(&settings.root_ca)));
    }),
    ("certificatesigningrequest-approving-controller", |server, _| {
        spawn(server.clone(), certificates::lead(server, "csr-approving", None, certificates::approve));
    }),
    ("certificatesigningrequest-signing-controller", |server, settings| {
        let signing = settings.signing.clone();
        let sign = move |server, name| certificates::sign(server, signing.clone(), name);
        spawn(server.clone(), certificates::lead(server, "csr-signing", None, sign));
    }),
    ("certificatesigningrequest-cleaner-controller", |server, _| {
        let period = Some(certificates::PERIOD);
        spawn(server.clone(), certificates::lead(server, "csr-cleaner", period, certificates::clean));
    }),
];

/// Starts the controllers that were chosen.
pub fn start(server: &Arc<Server>, settings: &Settings) {
    for (name, start) in ALL.iter().filter(|(name, _)| settings.controllers.runs(name)) {
        tracing::info!(controller = name, "starts");
        start(server.clone(), settings);
    }
}

/// Runs a controller until the server stops or its storage fails.
fn spawn(server: Arc<Server>, lead: impl Future<Output = ()> + Send + 'static) {
    server.spawn(lead);
}

/// Follows something, again from the present state each time that this breaks off, until its task is ended.
async fn again<F>(name: &'static str, pause: Duration, follow: impl Fn() -> F)
where
    F: Future<Output = Result<Infallible, ApiError>>,
{
    loop {
        let Err(error) = follow().await;
        end_if_over().await;
        tracing::warn!(%error, controller = name, "the controller starts again");
        tokio::time::sleep(pause).await;
    }
}
