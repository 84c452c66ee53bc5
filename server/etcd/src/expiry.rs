//! The task that revokes expired leases, and removes hints of attachments that have ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_engine::{At, Condition, Engine, Error, Transaction};
use tokio_util::sync::CancellationToken;

use crate::lease_changes::revoke;
use crate::leases::{hint_name, HINTS};
use crate::member::Member;
use crate::value::lease_of;

/// How often expired leases are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);
/// Most leases that are revoked then: etcd revokes 1,000 a second.
const REVOKED_AT_ONCE: usize = 500;
/// Leases that are revoked while other writes wait.
const REVOKED_TOGETHER: usize = 64;

/// Revokes expired leases and removes hints, until it is stopped.
pub(crate) async fn run(member: Arc<Member>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        for ids in member.leases.expired(REVOKED_AT_ONCE).chunks(REVOKED_TOGETHER) {
            match revoke(&member, ids.to_vec()).await {
                Ok(revoked) => member.metrics.leases_expired.inc_by(revoked as u64),
                Err(error) => {
                    tracing::warn!(error = error.message(), "expired leases could not be revoked");
                    break;
                }
            }
        }
        remove_hints(&member).await;
    }
}

/// Removes the hints of attachments that have ended, where the key has not been attached again.
async fn remove_hints(member: &Arc<Member>) {
    let detached = member.leases.take_detached();
    for detached in detached.chunks(HINTS) {
        let (engine, detached) = (member.engine.clone(), detached.to_vec());
        let checked = tokio::task::spawn_blocking(move || stale_hints(&engine, &detached)).await;
        let Ok(Ok(transaction)) = checked else { continue };
        match member.transact(transaction).await {
            // A key has been changed meanwhile. Its hint stays until that is noted, or until the lease ends.
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) => tracing::debug!(%error, "attachments of leases were not removed"),
        }
    }
}

fn stale_hints(engine: &Engine, detached: &[(i64, Bytes)]) -> Result<Transaction, Error> {
    let mut transaction = Transaction::new();
    for (id, key) in detached {
        let current = engine.get(key, At::Latest)?;
        if current.as_ref().is_some_and(|record| lease_of(&record.value) == *id) {
            continue;
        }
        let unchanged = match current {
            Some(record) => Condition::ModRevision { key: key.clone(), revision: record.mod_revision },
            None => Condition::Absent(key.clone()),
        };
        transaction = transaction.require(unchanged).remove_number(hint_name(*id, key));
    }
    Ok(transaction)
}
