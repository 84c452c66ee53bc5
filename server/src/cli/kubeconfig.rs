//! `plinth kubeconfig`: issues credentials for a user, on the machine with the authority's key.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plinth_codec::{yaml, Value};

use super::output;
use crate::bootstrap::pki::{self, Pki, PkiError};
use crate::bootstrap::{kubeconfig, DataDir, DataDirError};

/// Options of `plinth kubeconfig`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth kubeconfig --data-dir ./data --user jane --group dev --group ops > jane.kubeconfig\n  plinth kubeconfig --data-dir ./data --user admin --group system:masters --to admin.kubeconfig\n\nA certificate cannot be revoked: choose a short validity."
)]
pub struct KubeconfigOptions {
    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Name of the user
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// Group of the user; may be repeated
    #[arg(long, value_name = "GROUP")]
    pub group: Vec<String>,
    /// UID of the user
    #[arg(long, value_name = "UID", default_value = "")]
    pub uid: String,
    /// Validity of the certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = plinth_apiserver::flags::duration)]
    pub valid_for: Duration,
    /// URL of the server (default: that of the administrator's kubeconfig)
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// File to write, mode 0600 (default: standard output)
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// The kubeconfig was not created.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The authority cannot be used.
    #[error("{0}; start `plinth serve` once to create the authority")]
    Pki(#[from] PkiError),
    /// The server's URL is unknown.
    #[error("the address of the server is unknown; start `plinth serve` once or give --server")]
    NoServer,
    /// Nobody reads it.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// It is not a data directory.
    #[error(
        "{0} is not a data directory; start `plinth serve` once to create it, or set --data-dir to the one that it uses"
    )]
    NoDirectory(PathBuf),
    /// An invalid value.
    #[error("{0}")]
    Option(&'static str),
}

/// Issues a certificate and writes the kubeconfig.
///
/// # Errors
/// [`KubeconfigError`].
pub(super) fn run(options: KubeconfigOptions) -> Result<(), KubeconfigError> {
    if options.user.is_empty() || options.group.iter().any(String::is_empty) {
        return Err(KubeconfigError::Option("a user or group must have a name"));
    }
    let valid = time::Duration::try_from(options.valid_for)
        .map_err(|_| KubeconfigError::Option("--valid-for is too long"))?;
    let dir = match DataDir::existing(&options.data_dir) {
        Err(DataDirError::NotOurs { path }) => return Err(KubeconfigError::NoDirectory(path)),
        found => found?,
    };
    let pki = Pki::at(dir.path());
    let server = options.server.or_else(|| known_server(&dir)).ok_or(KubeconfigError::NoServer)?;
    let groups: Vec<&str> = options.group.iter().map(String::as_str).collect();
    let (cert, key) = pki.issue_client(&options.user, &groups, &options.uid, valid)?;
    let ca_file = pki.ca_cert();
    let ca = std::fs::read_to_string(&ca_file).map_err(|source| PkiError::File { path: ca_file, source })?;
    let text = kubeconfig::render(&server, &options.user, &ca, &cert, &key);
    match &options.to {
        Some(path) => pki::write_secret(path, &text)?,
        None => output::write(&text).map_err(KubeconfigError::Output)?,
    }
    Ok(())
}

/// The server of the administrator's kubeconfig.
fn known_server(dir: &DataDir) -> Option<String> {
    let text = std::fs::read(dir.admin_kubeconfig()).ok()?;
    let (config, _) = yaml::to_value(&text).ok()?;
    let cluster = config.get("clusters").and_then(Value::as_array)?.first()?;
    cluster.str_at(&["cluster", "server"]).map(str::to_owned)
}
