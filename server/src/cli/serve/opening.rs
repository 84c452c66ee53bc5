//! Opens the store of a server: a single one, or that of a replica, which may need another one first.

use std::sync::Arc;

use plinth_engine::{Engine, Options, Replica};
use plinth_journal::record::ClusterId;
use plinth_journal::{Error as JournalError, Founding};

use super::ServeError;
use crate::archives::ArchiveLocation;
use crate::bootstrap::identity::Identity;
use crate::bootstrap::{DataDir, Stage};
use crate::replica::checkpoint::{self, Source};
use crate::replica::checkpoint_dir::{CheckpointOptions, CheckpointWriter};
use crate::replica::journal::Connect;
use crate::replica::rejoin;
use plinth_apiserver::context::Server;
use plinth_registry::Registry;
use plinth_storage::migrate_layout;

/// What writes checkpoints while this replica runs the controllers, if a place for them is named.
pub(super) fn checkpoint_writer(
    server: &Arc<Server>,
    replica: &Replica,
    source: Option<Arc<Source>>,
    options: &CheckpointOptions,
) -> Option<Arc<CheckpointWriter>> {
    let (source, location) = (source?, options.checkpoint_dir.clone()?);
    let (server, cluster, interval) = (server.clone(), replica.cluster, options.checkpoint_interval);
    Some(Arc::new(CheckpointWriter { server, source, cluster, location, interval }))
}

/// Opens the store: a single one, or that of a replica, and what replica it is.
pub(super) async fn open_engine(
    dir: &DataDir,
    options: Options,
    connect: Option<Connect>,
    checkpoint_dir: Option<ArchiveLocation>,
) -> Result<(Engine, Option<Replica>), ServeError> {
    let Some(connect) = connect else {
        Identity::check_none(dir)?;
        return Ok((Engine::open(options)?, None));
    };
    let founding = check_store(dir, &options).await?;
    let has_identity = Identity::read(dir.path())?.is_some();
    let Identity { cluster, id } = Identity::of(dir)?;
    checkpoint::remove_leftovers(dir.path())
        .map_err(|source| ServeError::Io { what: "cannot remove checkpoints of an earlier start", source })?;
    let dir = dir.clone();
    let open = move || {
        let journal = connect(cluster, founding).map_err(|error| {
            // Nothing was written to it, so this identity is nobody's.
            if let Err(error) = if has_identity { Ok(()) } else { dir.undo_first_start() } {
                tracing::warn!(%error, path = %dir.path().display(), "files of the refused start stay");
            }
            ServeError::Journal(error)
        })?;
        let replica = Replica { journal, cluster, id };
        let opened = Engine::open_replicated(options.clone(), replica.clone());
        let (trimmed, oldest) = match opened {
            Err(error @ plinth_engine::Error::Journal { source: JournalError::Trimmed { oldest, .. } }) => {
                (error, oldest)
            }
            opened => return Ok((opened?, Some(replica))),
        };
        rejoin::rejoin(&dir, Identity { cluster, id }, &*replica.journal, checkpoint_dir.as_ref(), oldest)
            .map_err(|source| ServeError::Rejoin { trimmed: Box::new(trimmed), source: Box::new(source) })?;
        Ok((Engine::open_replicated(options, replica.clone())?, Some(replica)))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|error| ServeError::Io {
        what: "cannot open the store",
        source: std::io::Error::other(error),
    })?
}

/// Refuses a store that is of no replica, or of another cluster's. An empty journal becomes that of the first
/// cluster that connects, and a new directory gets an identity: not for a store that is refused. Returns
/// whether this one may found its journal.
async fn check_store(dir: &DataDir, options: &Options) -> Result<Founding, ServeError> {
    let cluster = match Identity::read(dir.path())? {
        Some(identity) => identity.cluster,
        // There is no store yet, or one that is not a server's.
        None if dir.stage() == Stage::New => ClusterId([0; 16]),
        // Refused with what to do.
        None => return Ok(Founding::Forbidden),
    };
    let options = options.clone();
    let checked = tokio::task::spawn_blocking(move || plinth_engine::check_replica(&options, cluster));
    let checked = checked.await.map_err(|error| ServeError::Io {
        what: "cannot check the store",
        source: std::io::Error::other(error),
    })?;
    Ok(checked?)
}

/// Migrates the store to the current layout of keys, before anything reads it.
pub(super) async fn migrate(engine: &Engine) -> Result<(), ServeError> {
    let store = engine.clone();
    let migrated = tokio::task::spawn_blocking(move || migrate_layout(&store, &Registry::builtin())).await;
    let moved = migrated
        .map_err(|error| ServeError::Io {
            what: "cannot move custom resources to their own keys",
            source: std::io::Error::other(error),
        })?
        .map_err(ServeError::Layout)?;
    if moved.objects > 0 {
        let (objects, among_builtin) = (moved.objects, moved.among_builtin);
        tracing::warn!(
            objects,
            among_builtin,
            "custom resources were moved to their own keys; older watches and continue tokens are answered with 410"
        );
    }
    Ok(())
}
