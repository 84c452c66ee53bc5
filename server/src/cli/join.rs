//! `plinth join`: makes the data directory of another replica.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use plinth_apiserver::private_files;

use super::client::{self, ClientError};
use crate::bootstrap::files::{exists, parent, sync_parent};
use crate::bootstrap::identity::{random_id, Identity, IdentityError};
use crate::bootstrap::{DataDir, DataDirError};
use crate::replica::checkpoint;

/// Path of a replica's checkpoint.
const CHECKPOINT_PATH: &str = "/plinth/checkpoint";

/// Options of `plinth join`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  plinth join --kubeconfig admin.kubeconfig --data-dir /var/lib/plinth\n  plinth serve --data-dir /var/lib/plinth --journal etcd://h1:2379,h2:2379,h3:2379/plinth\n\nCopies the cluster's keys and a checkpoint of the store from a running replica. The kubeconfig is that of its\nadministrator (DATA_DIR/admin.kubeconfig there); its server must be reachable from here."
)]
pub struct JoinOptions {
    /// Kubeconfig for a running replica; its user must be in system:masters
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
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
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("the checkpoint cannot be used: {0}")]
    Checkpoint(io::Error),
    #[error("{path} is not empty; give --data-dir an absent or empty directory")]
    NotEmpty { path: PathBuf },
    #[error("{path} is in the way: an earlier join did not finish, remove that directory")]
    InTheWay { path: PathBuf },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("the checkpoint names no cluster")]
    NoCluster,
    #[error("no id is free: there are {0} replicas; remove those that are gone")]
    NoId(usize),
}

/// Makes the directory. It gets its name when it is complete.
///
/// # Errors
/// See [`JoinError`]; the directory is as it was then.
pub fn join(options: JoinOptions) -> Result<(), JoinError> {
    let path = &options.data_dir;
    let error = |source| JoinError::File { path: path.clone(), source };
    if exists(path).map_err(error)? && fs::read_dir(path).map_err(error)?.next().is_some() {
        return Err(JoinError::NotEmpty { path: path.clone() });
    }
    private_files::create_dir_all(parent(path)).map_err(error)?;
    let name = path.file_name().ok_or_else(|| error(io::ErrorKind::InvalidInput.into()))?;
    let unfinished = path.with_file_name([name.to_os_string(), ".joining".into()].join("".as_ref()));
    match fs::DirBuilder::new().create(&unfinished) {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Err(JoinError::InTheWay { path: unfinished });
        }
        created => created.map_err(error)?,
    }
    let identity = match fill(&options.kubeconfig, &unfinished) {
        Ok(identity) => identity,
        Err(error) => {
            // It was made here.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
    };
    fs::rename(&unfinished, path).and_then(|()| sync_parent(path)).map_err(error)?;
    println!("{}: replica {} of cluster {}", path.display(), identity.id.0, identity.cluster);
    println!("start it with: plinth serve --data-dir {} --journal URL", path.display());
    Ok(())
}

fn fill(kubeconfig: &Path, dir: &Path) -> Result<Identity, JoinError> {
    let (mut sender, receiver) = UnixStream::pair().map_err(JoinError::Checkpoint)?;
    let to = dir.to_owned();
    let unpacking = std::thread::spawn(move || checkpoint::unpack(receiver, &to));
    let downloaded = client::download(kubeconfig, CHECKPOINT_PATH, &mut sender);
    drop(sender);
    let unpacked = unpacking.join().unwrap_or_else(|_| Err(io::Error::other("unpacking panicked")));
    // A download fails by the unpacking that has failed; anything else it says itself.
    let ids = match (downloaded, unpacked) {
        (Err(ClientError::Write(_)), Err(error)) | (Ok(_), Err(error)) => {
            return Err(JoinError::Checkpoint(error));
        }
        (Err(error), _) => return Err(error.into()),
        (Ok(_), Ok(ids)) => ids,
    };
    let Some(of_source) = Identity::read(dir)? else { return Err(JoinError::NoCluster) };
    let id = (0..1000).map(|_| random_id()).find(|id| !ids.contains(&id.0) && *id != of_source.id);
    let id = id.ok_or(JoinError::NoId(ids.len()))?;
    let identity = Identity { cluster: of_source.cluster, id };
    identity.write(dir)?;
    DataDir::mark_restored(dir)?;
    Ok(identity)
}
