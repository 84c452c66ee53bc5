//! The data directory and what is in it beside the store: identity, credentials, kubeconfig.

mod datadir;
pub(crate) mod files;
pub mod identity;
pub mod kubeconfig;
pub mod pki;

pub use datadir::{DataDir, DataDirError, Stage};
