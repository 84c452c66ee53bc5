//! Controllers that the API requires of a server alone.
//!
//! Each implements `Reconciler` (`server/src/reconciler/`), whose loop watches the keys that concern it
//! with engine subscriptions. What no subscription reports is reconciled again after a while
//! (`Action::RequeueAfter`). All end when the server stops.
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
//! They write as the accounts that upstream's have (`accounts`). Their names, and the format of
//! `--controllers` that selects them ([`Controllers`]), are kube-controller-manager's. Some are part of the
//! API server and always on:
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

mod accounts;
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

pub use certificates::SigningOptions;
pub use enabled::{start, ControllerSettings, Controllers, UnknownController};
