//! Controllers that the API requires of a server alone.
//!
//! Each is a task that watches the keys that concern it with an engine subscription. There is no polling
//! except for retries. All end when the server stops.
//!
//! | controller | module |
//! |---|---|
//! | contents of Terminating namespaces | `namespace` |
//! | dependents of deleted owners | `collector` |
//! | protection finalizers of claims, volumes and classes | `protection` |
//! | usage of quotas | `quota` |
//! | CertificateSigningRequests: approval, signing, cleanup | `certificates` |
//! | aggregated cluster roles | `aggregation` |
//! | token Secrets of service accounts | `tokens` |
//! | unused legacy token Secrets | `legacy_tokens` |
//! | allocations of addresses and node ports of Services (part of the API server, always on) | `allocations` |
//! | ServiceAccount `default` and ConfigMap `kube-root-ca.crt` in each namespace | `namespace_defaults` |
//!
//! Their names, and the format of `--controllers` that selects them ([`Controllers`]), are
//! kube-controller-manager's. `queue` and `workers` are shared by most of them.

mod aggregation;
pub mod allocations;
mod certificates;
mod collector;
pub mod definitions;
mod enabled;
pub mod flow_control;
mod legacy_tokens;
mod namespace;
mod namespace_defaults;
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

/// Settings of the controllers.
#[derive(Clone)]
pub struct Settings {
    /// The selected controllers.
    pub controllers: Controllers,
    /// The authority that clients inside of the cluster trust, PEM.
    pub root_ca: String,
    /// Admission's caches, for quotas.
    pub plugins: Arc<Plugins>,
    /// The authority that signs certificates.
    pub signing: SigningOptions,
    /// How long a legacy token may be unused.
    pub unused_tokens: Duration,
}

/// Starts a controller.
type Start = fn(Arc<Server>, &Settings);

const ALL: &[(&str, Start)] = &[
    ("namespace-controller", |server, _| spawn(server.clone(), namespace::run(server))),
    ("garbage-collector-controller", |server, _| spawn(server.clone(), collector::run(server))),
    (protection::CLAIMS.name, |server, _| {
        spawn(server.clone(), protection::run(server, protection::CLAIMS));
    }),
    (protection::VOLUMES.name, |server, _| {
        spawn(server.clone(), protection::run(server, protection::VOLUMES));
    }),
    (protection::CLASSES.name, |server, _| {
        spawn(server.clone(), protection::run(server, protection::CLASSES));
    }),
    ("resourcequota-controller", |server, settings| {
        spawn(server.clone(), quota::run(server, settings.plugins.clone()));
    }),
    ("clusterrole-aggregation-controller", |server, _| spawn(server.clone(), aggregation::run(server))),
    ("serviceaccount-controller", |server, _| {
        spawn(server.clone(), namespace_defaults::run(server, namespace_defaults::default_service_account()));
    }),
    (tokens::NAME, |server, settings| {
        spawn(server.clone(), tokens::run(server, settings.root_ca.clone()));
    }),
    (legacy_tokens::NAME, |server, settings| {
        spawn(server.clone(), legacy_tokens::run(server, settings.unused_tokens));
    }),
    ("root-ca-certificate-publisher-controller", |server, settings| {
        spawn(
            server.clone(),
            namespace_defaults::run(server, namespace_defaults::root_ca(&settings.root_ca)),
        );
    }),
    ("certificatesigningrequest-approving-controller", |server, _| {
        spawn(server.clone(), certificates::run(server, "csr-approving", None, certificates::approve));
    }),
    ("certificatesigningrequest-signing-controller", |server, settings| {
        let signing = settings.signing.clone();
        let sign = move |server, name| certificates::sign(server, signing.clone(), name);
        spawn(server.clone(), certificates::run(server, "csr-signing", None, sign));
    }),
    ("certificatesigningrequest-cleaner-controller", |server, _| {
        let period = Some(certificates::PERIOD);
        spawn(server.clone(), certificates::run(server, "csr-cleaner", period, certificates::clean));
    }),
];

/// Starts the selected controllers.
pub fn start(server: &Arc<Server>, settings: &Settings) {
    for (name, start) in ALL.iter().filter(|(name, _)| settings.controllers.runs(name)) {
        tracing::info!(controller = name, "starting controller");
        start(server.clone(), settings);
    }
}

/// Runs a controller until the server stops or its storage fails.
fn spawn(server: Arc<Server>, run: impl Future<Output = ()> + Send + 'static) {
    server.spawn(run);
}

/// Runs `watch` in a loop, restarting it from the current state each time it fails.
async fn run_with_restarts<F>(name: &'static str, pause: Duration, watch: impl Fn() -> F)
where
    F: Future<Output = Result<Infallible, ApiError>>,
{
    loop {
        let Err(error) = watch().await;
        end_if_over().await;
        tracing::warn!(%error, controller = name, "controller failed, restarting");
        tokio::time::sleep(pause).await;
    }
}
