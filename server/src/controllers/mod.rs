//! Controllers that the API requires of a server alone.
//!
//! Each implements `Reconciler` (`server/src/reconciler/`), whose loop watches the keys that concern it
//! with engine subscriptions. There is no polling except for retries. All end when the server stops.
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
//! | ServiceAccount `default` and ConfigMap `kube-root-ca.crt` in each namespace | `namespace_defaults` |
//!
//! Their names, and the format of `--controllers` that selects them ([`Controllers`]), are
//! kube-controller-manager's. Some are part of the API server and always on:
//!
//! | controller | module |
//! |---|---|
//! | CustomResourceDefinitions | `definitions` |
//! | APIServices of what is served | `api_services` |
//! | APIServices of other API servers: discovery, availability | `remote_apis` |
//! | priority and fairness | `flow_control` |
//! | allocations of addresses and node ports of Services | `allocations` |
//! | dates of last use of token Secrets | `token_use` |
//! | objects that every cluster has | `system_objects` |
//! | the Lease that shows that this server is there | `identity_lease` |

mod aggregation;
pub mod allocations;
pub mod api_services;
mod certificates;
mod collector;
pub mod definitions;
mod enabled;
pub mod flow_control;
pub mod identity_lease;
mod legacy_tokens;
mod namespace;
mod namespace_defaults;
mod protection;
mod quota;
pub mod remote_apis;
pub mod system_objects;
pub mod token_use;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use crate::admission::Plugins;
use crate::reconciler::spawn;
use plinth_apiserver::context::Server;
use tokio::task::JoinHandle;

pub use certificates::SigningOptions;
pub use enabled::{Controllers, UnknownController};

/// Settings of the controllers.
#[derive(Clone)]
pub struct ControllerSettings {
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
type Start = fn(&Arc<Server>, &ControllerSettings) -> JoinHandle<()>;

const ALL: &[(&str, Start)] = &[
    (namespace::NAME, |server, _| spawn(server, namespace::Namespaces::new(server))),
    (collector::NAME, |server, _| spawn(server, collector::Collector::new(server))),
    (protection::CLAIMS.name, |server, _| spawn(server, protection::CLAIMS.reconciler(server))),
    (protection::VOLUMES.name, |server, _| spawn(server, protection::VOLUMES.reconciler(server))),
    (protection::CLASSES.name, |server, _| spawn(server, protection::CLASSES.reconciler(server))),
    (quota::NAME, |server, settings| spawn(server, quota::Quotas::new(server, &settings.plugins))),
    (aggregation::NAME, |server, _| spawn(server, aggregation::Aggregation::new(server))),
    (namespace_defaults::SERVICE_ACCOUNT, |server, _| {
        spawn(server, namespace_defaults::default_service_account(server))
    }),
    (tokens::NAME, |server, settings| spawn(server, tokens::TokenSecrets::new(server, &settings.root_ca))),
    (legacy_tokens::NAME, |server, settings| {
        spawn(server, legacy_tokens::LegacyTokens::new(server, settings.unused_tokens))
    }),
    (namespace_defaults::ROOT_CA, |server, settings| {
        spawn(server, namespace_defaults::root_ca(server, &settings.root_ca))
    }),
    (certificates::APPROVING, |server, _| spawn(server, certificates::Requests::approving(server))),
    (certificates::SIGNING, |server, settings| {
        spawn(server, certificates::Requests::signing(server, &settings.signing))
    }),
    (certificates::CLEANER, |server, _| spawn(server, certificates::Requests::cleaner(server))),
];

/// Starts the selected controllers; returns their tasks.
pub fn start(server: &Arc<Server>, settings: &ControllerSettings) -> Vec<JoinHandle<()>> {
    let selected = ALL.iter().filter(|(name, _)| settings.controllers.runs(name));
    let start = selected.map(|(name, start)| {
        tracing::info!(controller = name, "starting controller");
        start(server, settings)
    });
    start.collect()
}
