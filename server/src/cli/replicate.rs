//! `plinth replicate`: makes the data directory of a single server that of a cluster's first replica.

use std::path::PathBuf;

use clap::Args;
use plinth_engine::Options;

use crate::bootstrap::identity::{Identity, IdentityError};
use crate::bootstrap::{DataDir, DataDirError, Stage};

/// Options of `plinth replicate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  plinth backup --data-dir ./data --to before.backup\n  plinth replicate --data-dir ./data\n  plinth serve --data-dir ./data --journal etcd://h1:2379,h2:2379,h3:2379/plinth\n\nObjects, resourceVersions, certificates and keys stay. The journal must be empty. The way back is a backup, which\nrestores as a single server."
)]
pub struct ReplicateOptions {
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
}

/// The directory was not made one of a replica.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ReplicateError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0} holds no data of a server yet; start it with --journal at once")]
    Empty(PathBuf),
    #[error("cannot open the store: {0}{remedy}", remedy = super::store::remedy(.0))]
    Engine(#[from] plinth_engine::Error),
}

/// Makes it one. May be repeated after it was interrupted.
///
/// # Errors
/// See [`ReplicateError`].
pub fn replicate(options: ReplicateOptions) -> Result<(), ReplicateError> {
    DataDir::existing(&options.data_dir)?;
    let dir = DataDir::open(&options.data_dir)?;
    if dir.stage() == Stage::New {
        return Err(ReplicateError::Empty(options.data_dir));
    }
    // Before the store: with an identity and a single store it is started neither as the one nor as the
    // other.
    let identity = Identity::ensure(&dir)?;
    plinth_engine::replicate(Options::new(dir.store()), identity.cluster)?;
    println!("{}: replica {} of cluster {}", dir.path().display(), identity.id.0, identity.cluster);
    println!("start it with: plinth serve --data-dir {} --journal URL", dir.path().display());
    Ok(())
}
