//! Copies the checkpoint of another replica into a directory.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use hyper::Method;

use super::checkpoint;
use crate::client::{ClientError, ServerClient};

/// Path of a replica's checkpoint, for `system:masters`.
pub const CHECKPOINT_PATH: &str = "/plinth/checkpoint";

/// The checkpoint was not copied.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server refused, or cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It is incomplete, or cannot be written here.
    #[error("the checkpoint cannot be used: {0}")]
    Checkpoint(io::Error),
}

/// Unpacks what a server answers to a request into `to`; returns the ids of the replicas that there are.
/// Blocks.
///
/// # Errors
/// See [`DownloadError`]; `to` may hold a part of it then.
pub fn download(
    server: &ServerClient,
    (method, path): (Method, &str),
    to: &Path,
) -> Result<BTreeSet<u16>, DownloadError> {
    let (mut sender, receiver) = UnixStream::pair().map_err(DownloadError::Checkpoint)?;
    let to = to.to_owned();
    let unpacking = std::thread::spawn(move || checkpoint::unpack(receiver, &to));
    let downloaded = server.call(method, path, "", &mut sender);
    drop(sender);
    let unpacked = unpacking.join().unwrap_or_else(|_| Err(io::Error::other("unpacking panicked")));
    // A download fails by the unpacking that has failed; anything else it returns itself.
    match (downloaded, unpacked) {
        (Err(ClientError::Write(_)), Err(error)) | (Ok(_), Err(error)) => {
            Err(DownloadError::Checkpoint(error))
        }
        (Err(error), _) => Err(error.into()),
        (Ok(_), Ok(ids)) => Ok(ids),
    }
}
