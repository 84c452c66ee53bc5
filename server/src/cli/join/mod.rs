//! `plinth join`: makes the data directory of another replica.

mod by_token;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use hyper::Method;
use plinth_journal::record::ClusterId;

use self::by_token::TokenError;
use super::hidden_token::HiddenToken;
use super::output;
use crate::archives::{ArchiveError, ArchiveLocation, Archives};
use crate::bootstrap::files::exists;
use crate::bootstrap::identity::{random_id, Identity, IdentityError};
use crate::bootstrap::{DataDirError, JoiningDir};
use crate::client::{ClientError, ServerClient};
use crate::members::{self, peers};
use crate::replica::checkpoint::{self, UnverifiedError};
use crate::replica::checkpoint_dir::{self, StoredCheckpoint};
use crate::replica::download::{download, DownloadError, CHECKPOINT_PATH};

pub(super) use by_token::{authority_of, client_of, JOIN_PATH};

/// Most checkpoints that are tried, the newest first.
const MAX_TRIED: usize = 3;

/// Options of `plinth join`.
#[derive(Debug, Default, Args)]
#[command(
    group(ArgGroup::new("source").required(true).args(["server", "kubeconfig", "checkpoint_dir"])),
    after_help = "Examples:\n  plinth token create --kubeconfig admin.kubeconfig        (where the administrator is)\n  plinth join --server https://10.0.0.1:6443 --token plinth-join.… --data-dir /var/lib/plinth\n  plinth join --kubeconfig admin.kubeconfig --data-dir /var/lib/plinth\n  plinth join --checkpoint-dir s3://bucket/checkpoints --data-dir /var/lib/plinth\n  plinth serve --data-dir /var/lib/plinth --journal etcd://h1:2379,h2:2379,h3:2379/plinth\n\nCopies the cluster's keys and a checkpoint of the store from a running replica. The token names the authority that the\nserver's certificate must be of, and is used up. A kubeconfig is that of an administrator (DATA_DIR/admin.kubeconfig on\na replica); its server must be reachable from here."
)]
pub struct JoinOptions {
    /// URL of a running replica
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Token of "plinth token create"; other users of this machine may see arguments, see --token-file
    #[arg(long, value_name = "TOKEN", requires = "server", conflicts_with = "token_file")]
    pub token: Option<HiddenToken>,
    /// File with the token; - is standard input
    #[arg(long, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
    /// Kubeconfig for a running replica; its user must be in system:masters
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Directory or s3://BUCKET/PREFIX with checkpoints of replicas (their --checkpoint-dir): no replica
    /// needs to run
    #[arg(long, value_name = "DIR", value_parser = ArchiveLocation::value_parser())]
    pub checkpoint_dir: Option<ArchiveLocation>,
    /// Data directory to create; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
}

/// The data directory was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum JoinError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("give one of --server (with --token or --token-file), --kubeconfig and --checkpoint-dir")]
    NoSource,
    #[error("--checkpoint-dir: {0}")]
    Archive(#[from] ArchiveError),
    #[error("--checkpoint-dir: {checkpoint}: {source}")]
    Checkpoint { checkpoint: ArchiveLocation, source: io::Error },
    #[error("--checkpoint-dir: {0} holds no checkpoint")]
    NoCheckpoint(ArchiveLocation),
    #[error("--checkpoint-dir: {0} holds checkpoints of several clusters; move those of the others away")]
    SeveralClusters(ArchiveLocation),
    #[error("--checkpoint-dir: {checkpoint} is of cluster {cluster}, not of the one in its name")]
    OtherCluster { checkpoint: ArchiveLocation, cluster: ClusterId },
    #[error(
        "--checkpoint-dir: {0} holds only checkpoints of another history of the cluster: wait for one that the \
         replicas write, or join a running one"
    )]
    OtherHistories(ArchiveLocation),
    #[error("{0}")]
    Unverified(#[from] UnverifiedError),
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error("cannot read the list of replicas: {0}")]
    Members(#[from] plinth_engine::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("the checkpoint names no cluster")]
    NoCluster,
    #[error("no id is free: there are {0} replicas; remove those that are gone")]
    NoId(usize),
}

/// Fills the directory. It is one of a replica when everything is in it.
///
/// # Errors
/// See [`JoinError`]; the directory is as it was then, unless the last step failed.
pub fn join(options: JoinOptions) -> Result<(), JoinError> {
    // Before anything is asked for: a token is used up by that.
    let dir = JoiningDir::create(&options.data_dir)?;
    let identity = fill(&options, dir.unfinished())?;
    let path = dir.finish()?;
    let shown = path.display();
    output::line(format_args!("{shown}: replica {} of cluster {}", identity.id.0, identity.cluster));
    let encryption = path.join(checkpoint::ENCRYPTION);
    let has_encryption = exists(&encryption);
    let flag = match has_encryption.map_err(|source| JoinError::File { path: encryption.clone(), source })? {
        true => format!(" --encryption-provider-config {}", encryption.display()),
        false => String::new(),
    };
    output::line(format_args!("start it with: plinth serve --data-dir {shown} --journal URL{flag}"));
    Ok(())
}

/// Unpacks and verifies the newest checkpoint, or an older one where that cannot be used; returns the ids of
/// the replicas at that time.
fn unpack_newest(checkpoints: &ArchiveLocation, dir: &Path) -> Result<BTreeSet<u16>, JoinError> {
    let archives = checkpoint_dir::open(checkpoints, None)?;
    let checkpoint_dir::Listing { checkpoints: found, of_other_histories } = checkpoint_dir::list(&archives)?;
    for checkpoint in &of_other_histories {
        let name = checkpoint.name();
        output::error_line(format_args!("note: checkpoint {name} is of another history of the cluster, as replicas have found, and is not used"));
    }
    let newest = found.first().ok_or_else(|| match of_other_histories.is_empty() {
        true => JoinError::NoCheckpoint(checkpoints.clone()),
        false => JoinError::OtherHistories(checkpoints.clone()),
    })?;
    if found.iter().any(|checkpoint| checkpoint.cluster != newest.cluster) {
        return Err(JoinError::SeveralClusters(checkpoints.clone()));
    }
    let mut unusable = None;
    for checkpoint in found.iter().take(MAX_TRIED) {
        match unpack(&archives, checkpoint, dir) {
            Ok(ids) => return Ok(ids),
            Err(error) => {
                output::error_line(format_args!(
                    "note: checkpoint {} cannot be used: {error}",
                    checkpoint.name()
                ));
                unusable.get_or_insert(error);
                // It was made here, and so was what is in it.
                let emptied =
                    fs::remove_dir_all(dir).and_then(|()| fs::DirBuilder::new().mode(0o700).create(dir));
                emptied.map_err(|source| JoinError::File { path: dir.to_owned(), source })?;
            }
        }
    }
    Err(unusable.unwrap_or_else(|| JoinError::NoCheckpoint(checkpoints.clone())))
}

fn unpack(
    archives: &Archives,
    checkpoint: &StoredCheckpoint,
    dir: &Path,
) -> Result<BTreeSet<u16>, JoinError> {
    let name = checkpoint.name();
    let ids = checkpoint::unpack(archives.read(&name)?, dir).map_err(|source| {
        let checkpoint = archives.location(&name);
        JoinError::Checkpoint { checkpoint, source }
    })?;
    checkpoint::verify(dir)?;
    match Identity::read_source(dir)? {
        Some(source) if source.cluster != checkpoint.cluster => {
            Err(JoinError::OtherCluster { checkpoint: archives.location(&name), cluster: source.cluster })
        }
        _ => Ok(ids),
    }
}

fn fill(options: &JoinOptions, dir: &Path) -> Result<Identity, JoinError> {
    let ids = match (&options.kubeconfig, &options.server, &options.checkpoint_dir) {
        (Some(kubeconfig), None, None) => {
            download(&ServerClient::of_kubeconfig(kubeconfig)?, (Method::GET, CHECKPOINT_PATH), dir)?
        }
        (None, None, Some(checkpoints)) => unpack_newest(checkpoints, dir)?,
        (None, Some(url), None) => {
            let token = by_token::read(options.token.as_ref(), options.token_file.as_deref())?;
            let server = by_token::connect(url, &token)?;
            let ids = download(&server, (Method::POST, JOIN_PATH), dir)?;
            by_token::check_authority(dir, &token)?;
            ids
        }
        _ => return Err(JoinError::NoSource),
    };
    let Some(of_source) = Identity::read_source(dir)? else { return Err(JoinError::NoCluster) };
    let id = (0..1000).map(|_| random_id()).find(|id| !ids.contains(&id.0) && *id != of_source.id);
    let id = id.ok_or(JoinError::NoId(ids.len()))?;
    let identity = Identity { cluster: of_source.cluster, id };
    identity.write(dir)?;
    let error = |source| JoinError::File { path: dir.to_owned(), source };
    fs::remove_file(dir.join(Identity::SOURCE)).map_err(error)?;
    // Whom it asks for a newer checkpoint, should this one be too old when it starts.
    peers::write(dir, &members::addresses(&dir.join(checkpoint::STORE))?).map_err(error)?;
    Ok(identity)
}
