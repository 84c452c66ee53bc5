//! The replicas of the cluster. Each records in the store that they share who it is and how far it has come:
//!
//! | key | value | ends |
//! |---|---|---|
//! | `replicas/members/ID` | [`Member`] | when the replica is removed |
//! | `replicas/live/ID` | the same | some seconds after it was last renewed, or when the replica stops |
//!
//! No API shows these keys. They are written like objects, through the journal, so every replica knows the
//! same.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plinth_api::api_error::{ApiError, Reason};
use plinth_apiserver::context::{end_if_over, Server};
use plinth_engine::{At, Condition, Transaction};
use plinth_journal::record::ReplicaId;
use plinth_journal::{Journal, Position};
use plinth_registry::key;
use plinth_storage::{unchanged, Store};
use serde::{Deserialize, Serialize};

const MEMBERS: &str = "replicas/members/";
const LIVE: &str = "replicas/live/";

/// Interval at which a replica renews its record.
const PERIOD: Duration = Duration::from_secs(5);
/// A replica that has not renewed its record for this long is not live: upstream's time for the endpoints of
/// its servers (kubernetes `pkg/controlplane/instance.go`, `DefaultEndpointReconcilerTTL`).
const LIVE_FOR: Duration = Duration::from_secs(15);
/// The journal is kept for a replica that is away for up to this long. After that it needs a checkpoint.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// A replica as it last recorded itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its id.
    pub id: u16,
    /// Where clients reach it.
    pub address: SocketAddr,
    /// Version of its program.
    pub version: String,
    /// The position of the journal up to which it has everything on disk.
    pub position: u64,
    /// Its revision.
    pub revision: u64,
    /// The position up to which it had applied the journal, and its hash there: equal on all replicas.
    pub applied: u64,
    /// See `applied`.
    pub hash: String,
    /// When it was recorded, in milliseconds since 1970.
    pub renewed_ms: u64,
}

impl Member {
    /// Time since it was recorded.
    pub fn age_now(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.renewed_ms))
    }
}

/// The membership of this server.
pub struct Membership {
    /// This server.
    pub server: Arc<Server>,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// This replica.
    pub id: ReplicaId,
    /// Where clients reach it.
    pub address: SocketAddr,
}

impl Membership {
    /// Renews the record of this replica, and trims the journal behind all of them, until the server stops.
    pub fn start(self) {
        let server = self.server.clone();
        server.spawn(async move {
            let mut is_warned = false;
            loop {
                match self.round(is_warned).await {
                    Ok(warned) => is_warned = warned,
                    Err(error) => {
                        end_if_over().await;
                        tracing::warn!(%error, "the record of this replica could not be renewed; trying again");
                    }
                }
                tokio::time::sleep(PERIOD).await;
            }
        });
    }

    /// Takes and returns whether it was warned that the journal cannot be trimmed.
    async fn round(&self, is_warned: bool) -> Result<bool, ApiError> {
        let store = &self.server.store;
        let Some(status) = store.engine().replica_status() else { return Ok(is_warned) };
        let synced = store.read(plinth_engine::Engine::sync_applied).await?;
        let member = Member {
            id: self.id.0,
            address: self.address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            position: synced.map_or(0, Position::get),
            revision: status.revision.get(),
            applied: status.position.get(),
            hash: status.hash.to_string(),
            renewed_ms: now_ms(),
        };
        let value = serde_json::to_vec(&member).map_err(ApiError::internal)?;
        let transaction = Transaction::new().put(key_of(MEMBERS, self.id), value.clone()).put_expiring(
            key_of(LIVE, self.id),
            value,
            LIVE_FOR,
        );
        store.commit_by(transaction, Instant::now().checked_add(PERIOD)).await?;
        let (members, live) = (all(store).await?, live(store).await?);
        let Some(before) = trimmed_before(&members, &live, now_ms()) else { return Ok(is_warned) };
        let journal = self.journal.clone();
        let trimmed = tokio::task::spawn_blocking(move || journal.trim(Position::new(before))).await;
        match trimmed {
            Ok(Err(error)) if !error.is_transient() && !is_warned => {
                tracing::warn!(%error, "the journal cannot be trimmed, it grows");
                Ok(true)
            }
            Ok(Ok(())) => Ok(false),
            _ => Ok(is_warned),
        }
    }
}

/// Records that a replica has stopped: its address is no endpoint any more.
///
/// # Errors
/// When the journal does not answer in time.
pub async fn leave(store: &Store, id: ReplicaId, deadline: Instant) -> Result<(), ApiError> {
    store.commit_by(Transaction::new().delete(key_of(LIVE, id)), Some(deadline)).await.map(|_| ())
}

/// Forgets a replica that is gone: the journal is not kept for it, and its id is free.
///
/// # Errors
/// 404 of an id that no replica has, 409 of a replica that is up; 503 when the journal does not answer.
pub async fn remove(store: &Store, id: ReplicaId) -> Result<(), ApiError> {
    let deadline = Instant::now().checked_add(PERIOD);
    store.reach_most_recent(deadline).await?;
    let Some(member) = store.newest(key_of(MEMBERS, id)).await? else {
        let message = format!("no replica has the id {}; \"plinth replicas\" lists them", id.0);
        return Err(ApiError::new(404, Reason::NotFound, message));
    };
    let transaction = Transaction::new()
        .require(unchanged(&member))
        .require(Condition::Absent(key_of(LIVE, id).into()))
        .delete(key_of(MEMBERS, id));
    match store.commit_by(transaction, deadline).await? {
        Some(_) => Ok(()),
        None => {
            let message =
                format!("replica {} is up, or was {} seconds ago: stop it first", id.0, LIVE_FOR.as_secs());
            Err(ApiError::new(409, Reason::Conflict, message))
        }
    }
}

/// All replicas that have not been removed, by id.
///
/// # Errors
/// When they cannot be read.
pub async fn all(store: &Store) -> Result<Vec<Member>, ApiError> {
    below(store, MEMBERS).await
}

/// The replicas that are up, by id.
///
/// # Errors
/// When they cannot be read.
pub async fn live(store: &Store) -> Result<Vec<Member>, ApiError> {
    below(store, LIVE).await
}

/// The ids of all replicas that have not been removed. Blocks.
///
/// # Errors
/// When they cannot be read.
pub fn ids(store: &Store) -> Result<BTreeSet<u16>, plinth_engine::Error> {
    let snapshot = store.engine().snapshot(At::Latest)?;
    let range = key::range(MEMBERS.as_bytes());
    let mut entries = snapshot.range(&range);
    let mut ids = BTreeSet::new();
    while let Some(entry) = entries.next()? {
        let id = entry.key.strip_prefix(MEMBERS.as_bytes()).and_then(|id| std::str::from_utf8(id).ok());
        ids.extend(id.and_then(|id| id.parse::<u16>().ok()));
    }
    Ok(ids)
}

async fn below(store: &Store, prefix: &str) -> Result<Vec<Member>, ApiError> {
    let (records, _) = store.records(key::range(prefix.as_bytes())).await?;
    let members = records.iter().map(|record| serde_json::from_slice(&record.value));
    members
        .collect::<Result<_, _>>()
        .map_err(|error| ApiError::internal(format!("record of a replica: {error}")))
}

/// The first position that some replica may still need: of those that are up, and of those that were seen
/// lately.
fn trimmed_before(members: &[Member], live: &[Member], now_ms: u64) -> Option<u64> {
    let kept_ms = u64::try_from(KEPT_FOR.as_millis()).unwrap_or(u64::MAX);
    let counts = |member: &&Member| {
        now_ms.saturating_sub(member.renewed_ms) < kept_ms || live.iter().any(|live| live.id == member.id)
    };
    members.iter().filter(counts).map(|member| member.position).min()?.checked_add(1)
}

fn key_of(prefix: &str, id: ReplicaId) -> Vec<u8> {
    // Ids in their order.
    format!("{prefix}{:05}", id.0).into_bytes()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u16, position: u64, renewed_ms: u64) -> Member {
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        let (version, hash) = (String::new(), String::new());
        Member { id, address, version, position, revision: 0, applied: 0, hash, renewed_ms }
    }

    #[test]
    fn the_journal_is_kept_for_replicas_that_are_up_or_were_lately() {
        let now = 10_000_000;
        let (ahead, behind) = (member(1, 90, now), member(2, 40, now - 5_000));
        let (away, gone) = (member(3, 30, now - 599_000), member(4, 7, now - 601_000));
        assert_eq!(trimmed_before(&[], &[], now), None);
        assert_eq!(trimmed_before(&[ahead.clone(), behind.clone()], &[], now), Some(41));
        assert_eq!(trimmed_before(&[ahead.clone(), behind.clone(), away.clone()], &[], now), Some(31));
        let all = [ahead, behind, away, gone.clone()];
        assert_eq!(trimmed_before(&all, &[], now), Some(31));
        // Its clock is wrong, and it is up.
        assert_eq!(trimmed_before(&all, &[gone], now), Some(8));
    }
}
