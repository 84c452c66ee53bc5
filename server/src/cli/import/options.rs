//! Options of an import.

use std::path::PathBuf;

use clap::Args;

/// Options of all sources.
#[derive(Debug, Args)]
pub(super) struct TargetOptions {
    /// Data directory to create; must not exist
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: PathBuf,
    /// What the keys of the kube-apiserver begin with: its --etcd-prefix
    #[arg(long, default_value = "/registry", value_name = "PREFIX")]
    pub(super) prefix: String,
    /// The EncryptionConfiguration of the kube-apiserver; the new store is encrypted by it, too
    #[arg(long, value_name = "FILE")]
    pub(super) encryption_provider_config: Option<PathBuf>,
    /// Leave out what cannot be imported
    #[arg(long)]
    pub(super) skip_unknown: bool,
}

/// Options of `plinth import snapshot`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  etcdctl snapshot save snapshot.db\n  plinth import snapshot snapshot.db --data-dir ./data\n  plinth serve --data-dir ./data\n  plinth import snapshot snapshot.db --data-dir ./etcd-data --for-etcd\n\nWhat cannot be imported is listed, with key and reason, before anything is written. Prints the number of objects by kind and\na hash of all, which plinth export prints for the same objects. resourceVersions continue above those of the snapshot."
)]
pub(super) struct SnapshotOptions {
    /// File to read
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Take a file without the hash at its end: that of a stopped member (member/snap/db)
    #[arg(long)]
    pub(super) skip_hash_check: bool,
    /// Make a directory of plinth etcd: all keys with their revisions, leases, users and roles, as they are
    #[arg(long, conflicts_with_all = ["prefix", "encryption_provider_config", "skip_unknown"])]
    pub(super) for_etcd: bool,
    #[command(flatten)]
    pub(super) target: TargetOptions,
}
