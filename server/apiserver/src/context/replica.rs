//! What a server knows of itself as a replica.

use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;

use plinth_api::ApiError;

/// A checkpoint that was made, and is still to be written. Blocks; fails where it cannot be read or written:
/// it is incomplete then, which its reader notices.
pub type WriteCheckpoint = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A replica, as its endpoints ask it.
pub trait ReplicaInfo: Send + Sync {
    /// The replicas of the cluster as a JSON array.
    fn members(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ApiError>> + Send + '_>>;

    /// Has each replica record its hash at one position, which is returned.
    ///
    /// # Errors
    /// 503 when the journal does not answer.
    fn compare(&self) -> Pin<Box<dyn Future<Output = Result<u64, ApiError>> + Send + '_>>;

    /// Forgets a replica that is gone.
    ///
    /// # Errors
    /// 404 of an id that no replica has, 409 of a replica that is up; 503 when the journal does not answer.
    fn remove(&self, id: u16) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + '_>>;

    /// Has the journal kept for a replica that begins with a checkpoint which is made after this call.
    ///
    /// # Errors
    /// 503 when the journal does not answer.
    fn keep_for_checkpoint(&self) -> Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + '_>>;

    /// The certificate of the cluster's authority, PEM.
    fn authority(&self) -> &[u8];

    /// Makes what another replica needs to begin. Blocks.
    ///
    /// # Errors
    /// When it cannot be made.
    fn make_checkpoint(&self) -> io::Result<WriteCheckpoint>;
}
