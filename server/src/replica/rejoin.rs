//! Takes a new checkpoint where the journal does not go back to what this replica has applied, as after it
//! was away for long.
//!
//! It asks the replicas that it last knew of, with a client certificate that it issues itself: like each of
//! them it holds the key of the cluster's authority, so nothing has to be kept for this, and no right is
//! added. It stays the replica that it was: its id and keys are kept, and what an earlier process of it may
//! still have on its way to the journal is void by the rules of sessions. The old store is set aside once the
//! new one was verified to its last record (`bootstrap/datadir/replacement.rs`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use plinth_apiserver::egress::client::Origin;
use plinth_apiserver::egress::tls::{self, ServerTrust};
use plinth_journal::{Error as JournalError, Journal, Position};
use plinth_pki::{parse_certificates, parse_private_key};

use super::checkpoint::{self, UnverifiedError};
use super::checkpoint_dir::{self, StoredCheckpoint};
use super::download::{download, DownloadError, CHECKPOINT_PATH};
use crate::archives::{ArchiveError, ArchiveLocation};
use crate::bootstrap::identity::{Identity, IdentityError};
use crate::bootstrap::pki::{Pki, PkiError};
use crate::bootstrap::{DataDir, DataDirError};
use crate::client::ServerClient;
use crate::members::peers;

/// The user as whom a replica asks others, in audit logs; its id follows.
const USER_PREFIX: &str = "plinth:replica:";
/// Validity of the certificate.
const VALID_FOR: time::Duration = time::Duration::hours(1);
/// How long the record after a checkpoint is waited for, if there is one.
const RECORD_WAIT: Duration = Duration::from_millis(500);

/// No new checkpoint was taken, and the old store is in place.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum RejoinError {
    #[error("no other replica is known here, and there is no checkpoint in a directory")]
    NobodyKnown,
    #[error("{0}")]
    All(String),
    /// As [`RejoinError::All`], and one of them does not have what this replica had.
    #[error("{0}")]
    OtherHistory(String),
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("certificate: {0}")]
    Certificate(String),
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("it is a checkpoint of another cluster")]
    OtherCluster,
    #[error("its checkpoint ends at position {position}, and the journal begins at {oldest}")]
    TooOld { position: Position, oldest: Position },
    #[error(
        "its checkpoint ends at position {position}, and the journal at {end}: it is of another history"
    )]
    TooNew { position: Position, end: Position },
    #[error("cannot read its position: {0}")]
    Position(plinth_engine::Error),
    #[error("it does not have what this replica had applied at position {applied}: {what}")]
    Lacks { applied: Position, what: String },
    #[error(transparent)]
    Unverified(#[from] UnverifiedError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{checkpoint}: {source}")]
    Checkpoint { checkpoint: ArchiveLocation, source: std::io::Error },
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

/// Replaces the store of `dir` by a checkpoint of another replica, or, where none gives one that `journal`
/// goes back to, by one in `checkpoints`. The oldest record of the journal was `oldest`. Blocks.
///
/// # Errors
/// See [`RejoinError`].
pub fn rejoin(
    dir: &DataDir,
    identity: Identity,
    journal: &dyn Journal,
    checkpoints: Option<&ArchiveLocation>,
    oldest: Position,
) -> Result<(), RejoinError> {
    let path = dir.path();
    let read = |source| RejoinError::Read { path: path.join("peers"), source };
    let peers = peers::read(path).map_err(read)?;
    let (mut failures, mut is_other_history) = (Vec::new(), false);
    for peer in peers {
        tracing::warn!(replica = %peer, "the journal does not go back to what this replica has; taking a checkpoint of another one");
        let taken = client(path, peer, identity).and_then(|server| {
            replace(dir, identity, journal, |to| {
                Ok(download(&server, (Method::GET, CHECKPOINT_PATH), to).map(drop)?)
            })
        });
        match taken {
            Ok(()) => return Ok(()),
            // The directory itself: the next one would fail, too.
            Err(error @ RejoinError::DataDir(_)) => return Err(error),
            Err(error) => {
                is_other_history |= matches!(error, RejoinError::Lacks { .. });
                failures.push(format!("{peer}: {error}"));
            }
        }
    }
    if let Some(checkpoints) = checkpoints {
        let archives = checkpoint_dir::open(checkpoints, None)?;
        let usable = |checkpoint: &StoredCheckpoint| {
            checkpoint.cluster == identity.cluster && checkpoint.position.next() >= oldest
        };
        for checkpoint in checkpoint_dir::list(&archives)?.checkpoints.into_iter().filter(usable) {
            let name = checkpoint.name();
            let checkpoint = archives.location(&name);
            tracing::warn!(path = %checkpoint, "the journal does not go back to what this replica has; taking a stored checkpoint");
            let taken = replace(dir, identity, journal, |to| {
                let unpacked = checkpoint::unpack(archives.read(&name)?, to);
                unpacked.map(drop).map_err(|source| RejoinError::Checkpoint { checkpoint, source })
            });
            match taken {
                Ok(()) => return Ok(()),
                Err(error @ RejoinError::DataDir(_)) => return Err(error),
                Err(error) => failures.push(format!("{name}: {error}")),
            }
        }
    }
    match (failures.is_empty(), is_other_history) {
        (true, _) => Err(RejoinError::NobodyKnown),
        (false, false) => Err(RejoinError::All(failures.join("; "))),
        (false, true) => Err(RejoinError::OtherHistory(failures.join("; "))),
    }
}

/// Fills a directory with a checkpoint, checks it, and makes its store that of `dir`.
fn replace(
    dir: &DataDir,
    identity: Identity,
    journal: &dyn Journal,
    fill: impl FnOnce(&Path) -> Result<(), RejoinError>,
) -> Result<(), RejoinError> {
    let new = dir.replacement().begin()?;
    let checked = fill(&new).and_then(|()| check(&new, &dir.store(), identity, journal));
    if checked.is_ok() {
        dir.replacement().replace(&new.join("store"))?;
        tracing::warn!(
            path = %dir.replacement().replaced().display(),
            "the store of this replica was replaced by a checkpoint of another one; the old one is kept until the next time"
        );
    }
    // Keys among it; its store, if it is whole, has another name by now.
    dir.replacement().end()?;
    checked
}

/// Checks that it is of the same cluster and has what the store of this replica has, that the journal
/// continues it, and every record of its store.
fn check(new: &Path, own: &Path, identity: Identity, journal: &dyn Journal) -> Result<(), RejoinError> {
    if Identity::read_source(new)?.map(|of_source| of_source.cluster) != Some(identity.cluster) {
        return Err(RejoinError::OtherCluster);
    }
    let applied = plinth_engine::applied_position(new.join(checkpoint::STORE));
    let (position, _) = applied.map_err(RejoinError::Position)?.ok_or(RejoinError::OtherCluster)?;
    check_contains(&new.join(checkpoint::STORE), own)?;
    check_position(journal, position)?;
    Ok(checkpoint::verify(new)?)
}

/// Checks that a store has what another one of the cluster has. It has not where the members of the journal
/// lost records and went on without them: then that store alone may have what was acknowledged.
fn check_contains(new: &Path, own: &Path) -> Result<(), RejoinError> {
    let records = |dir: &Path| plinth_engine::applied_records(dir).map_err(RejoinError::Position);
    let (Some(new), Some(own)) = (records(new)?, records(own)?) else {
        return Err(RejoinError::OtherCluster);
    };
    match new.lacks(&own) {
        None => Ok(()),
        Some(what) => Err(RejoinError::Lacks { applied: own.position(), what }),
    }
}

/// Checks that the journal has what follows a position. One that does not answer is seen by the start.
fn check_position(journal: &dyn Journal, position: Position) -> Result<(), RejoinError> {
    match journal.end() {
        Ok(end) if end < position => return Err(RejoinError::TooNew { position, end }),
        _ => {}
    }
    let next = journal.read(position.next()).and_then(|mut reader| reader.next(RECORD_WAIT));
    match next {
        Err(JournalError::Trimmed { oldest, .. }) => Err(RejoinError::TooOld { position, oldest }),
        _ => Ok(()),
    }
}

/// Another replica, asked as this one.
fn client(dir: &Path, peer: SocketAddr, identity: Identity) -> Result<ServerClient, RejoinError> {
    let invalid = |error: &dyn std::fmt::Display| RejoinError::Certificate(error.to_string());
    let pki = Pki::at(dir);
    let authority = pki.ca_cert();
    let authority =
        std::fs::read(&authority).map_err(|source| RejoinError::Read { path: authority, source })?;
    let roots = tls::authorities(&authority).map_err(|error| invalid(&error))?;
    let user = format!("{USER_PREFIX}{}", identity.id.0);
    let (certificate, key) = pki.issue_client(&user, &[plinth_api::MASTERS_GROUP], "", VALID_FOR)?;
    let chain = parse_certificates(certificate.as_bytes()).map_err(|error| invalid(&error))?;
    let key = parse_private_key(key.as_bytes()).map_err(|error| invalid(&error))?;
    let config =
        tls::config(ServerTrust::Authorities(roots), Some((chain, key))).map_err(|error| invalid(&error))?;
    let origin = Origin {
        host: peer.ip().to_string(),
        port: peer.port(),
        authority: peer.to_string(),
        tls: Some((config, peer.ip().to_string())),
        authorization: None,
        proxy: None,
    };
    Ok(ServerClient::new(origin, format!("https://{peer}")))
}
