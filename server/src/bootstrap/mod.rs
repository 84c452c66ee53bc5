//! First start: initialization of an empty data directory.

mod datadir;
pub(crate) mod files;
pub mod identity;
pub mod kubeconfig;
mod objects;
pub mod pki;
mod rbac;
mod reconcile_object;
mod trust;

pub use datadir::{DataDir, DataDirError, Stage};
pub use objects::{
    ensure_classes_and_roles, ensure_kubernetes_service, ensure_service_cidr, ensure_system_namespaces,
    ensure_token_tracking, start_reconciler, tolerate,
};
pub use trust::ensure_trust;
