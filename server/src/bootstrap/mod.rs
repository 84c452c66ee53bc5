//! The data directory and what is in it beside the store: identity, credentials, kubeconfig.

mod datadir;
pub(crate) mod files;
pub mod identity;
pub mod kubeconfig;
pub mod pki;
mod stage;

pub(crate) use datadir::ADMIN_KUBECONFIG;
pub use datadir::{DataDir, DataDirError, JoiningDir, StoreReplacement};
pub use stage::Stage;
