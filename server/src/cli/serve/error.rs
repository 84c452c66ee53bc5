//! Reasons why a server does not start, or ends.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::feature_gates::FeatureGateError;
use super::super::runtime_config::RuntimeConfigError;
use super::super::service_manager::ServiceManagerError;
use super::super::upstream::{UpstreamFlagError, VersionFlagError};
use crate::admission::options::BadPlugins;
use crate::archives::ArchiveError;
use crate::bootstrap::identity::IdentityError;
use crate::bootstrap::pki::PkiError;
use crate::bootstrap::DataDirError;
use crate::replica::journal::JournalOptionsError;
use crate::replica::rejoin::RejoinError;
use plinth_api::ApiError;
use plinth_apiserver::audit::AuditError;
use plinth_apiserver::authn;
use plinth_apiserver::authz;
use plinth_apiserver::egress::kubelets::KubeletSetupError;
use plinth_apiserver::listener::BindError;
use plinth_apiserver::traces::TracesError;
use plinth_http::TlsError;
use plinth_pki::AuthorityError;
use plinth_storage::EncryptionConfigError;

/// The server did not start, or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ServeError {
    #[error(transparent)]
    Flag(#[from] UpstreamFlagError),
    #[error(transparent)]
    Version(#[from] VersionFlagError),
    #[error("--feature-gates: {0}")]
    FeatureGates(#[from] FeatureGateError),
    #[error(
        "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"
    )]
    RangesOfOneFamily,
    #[error("--service-cluster-ip-range must not contain more than two entries")]
    TooManyRanges,
    #[error("service IP family {range:?} must match public address family {address:?}: give \
             --service-cluster-ip-range with a range of the family of --advertise-address first",
            range = range.to_string(), address = address.to_string())]
    Families { range: IpNet, address: IpAddr },
    #[error("--runtime-config: {0}")]
    RuntimeConfig(#[from] RuntimeConfigError),
    #[error(transparent)]
    ServiceManager(#[from] ServiceManagerError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    JournalOptions(#[from] JournalOptionsError),
    #[error("--journal: {0}")]
    Journal(#[source] plinth_journal::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot open the store: {0}{remedy}", remedy = crate::cli::store::remedy(.0))]
    Engine(#[from] plinth_engine::Error),
    #[error("--checkpoint-dir is for replicas: give --journal, too, or back up a single server with plinth backup")]
    CheckpointsOfSingle,
    #[error("--{what}-dir: {source}")]
    Archives { what: &'static str, source: ArchiveError },
    #[error("cannot open the store: {trimmed}\nThis replica was away for longer than the journal is kept, and cannot take a new checkpoint by itself: {source}\n{}", remedy(.source))]
    Rejoin { trimmed: Box<plinth_engine::Error>, source: Box<RejoinError> },
    #[error("cannot move custom resources to their own keys: {0}; nothing is lost, and the next start continues. If a record is damaged, \
             run `plinth verify` and restore a backup")]
    Layout(#[source] plinth_engine::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("--tls-cert-file and --tls-private-key-file: {0}")]
    Serving(#[source] TlsError),
    #[error("--cluster-signing-cert-file and --cluster-signing-key-file: {0}")]
    Signing(#[source] AuthorityError),
    #[error("authorization: {0}")]
    Authorization(#[from] authz::config::AuthorizationSetupError),
    #[error(transparent)]
    Traces(#[from] TracesError),
    #[error("authentication: {0}")]
    Authentication(#[from] authn::AuthenticationSetupError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot create the system objects: {0}")]
    Bootstrap(#[from] ApiError),
    #[error(transparent)]
    Admission(#[from] BadPlugins),
    #[error(transparent)]
    Kubelets(#[from] KubeletSetupError),
    #[error("--proxy-client-cert-file: {0}")]
    ProxyClient(#[source] TlsError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("encryption at rest: {0}")]
    Encryption(#[from] EncryptionConfigError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Logged when it occurred.
    #[error("the storage engine has failed: {0}")]
    StorageFailed(plinth_engine::Failure),
    #[error("the storage failed while the server stopped: {0}\nNo acknowledged write is lost. Check the disk and the kernel's log, then start \
             the server again; if it does not start, run plinth verify")]
    Close(#[source] plinth_engine::Error),
    #[error("stopped before the start had ended")]
    StartAbandoned,
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

impl ServeError {
    /// Whether the storage of a running server has failed.
    pub fn is_storage_failure(&self) -> bool {
        matches!(self, ServeError::StorageFailed(_) | ServeError::Close(_))
    }
}

/// Advice on a replica that could not take a checkpoint.
fn remedy(source: &RejoinError) -> &'static str {
    match source {
        RejoinError::OtherHistory(_) => {
            "The members of the journal have lost what they had on disk, and the others went on without it. \
             Nothing was removed: this replica may alone have what was acknowledged. Keep its data \
             directory, make a backup of it, and compare before you make the replica again with plinth join \
             (docs/replication.md)"
        }
        _ => {
            "Nothing was removed. Start it again when another replica is up; where all have moved, write \
             the address of one into DATA_DIR/peers. Where none comes back, keep the data directory: it \
             may have what others lack. Move it aside, and make the replica again with plinth join"
        }
    }
}
