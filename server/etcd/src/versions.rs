//! The versions of etcd that the server reports.

/// The version of etcd whose API this is.
pub const VERSION: &str = "3.6.0";
/// What the cluster reports as its own version, and that of its storage: the minor version and a zero.
pub(crate) const CLUSTER_VERSION: &str = "3.6.0";
