//! Granting and revoking leases.

use std::sync::Arc;

use plinth_engine::{At, Committed, Engine, Error, Transaction};
use tonic::Status;

use crate::errors;
use crate::leases::{hints_of, lease_name, HINT_PAGE, MAX_TTL};
use crate::member::{random_id, Member};
use crate::numbers::pages;
use crate::value::lease_of;

/// Shortest time to live, in seconds: three halves of etcd's default election timeout, rounded up.
const MIN_TTL: i64 = 2;
/// Keys that one revision deletes for a lease, and bytes of them, their values and hints. A larger lease
/// takes several.
const KEYS_PER_REVISION: usize = 100_000;
const BYTES_PER_REVISION: usize = 64 << 20;

/// Grants a lease; zero stands for any id. Returns its id and time to live.
pub(crate) async fn grant(member: &Arc<Member>, id: i64, ttl: i64) -> Result<(i64, i64), Status> {
    if ttl > MAX_TTL {
        return Err(errors::lease_ttl_too_large());
    }
    let ttl = ttl.max(MIN_TTL);
    let id = match id {
        0 => i64::try_from(random_id() >> 1).unwrap_or(1).max(1),
        id => id,
    };
    if !member.leases.begin_grant(id) {
        return Err(errors::lease_exists());
    }
    // To its end, whether or not the client waits: what is stored must be known.
    let member = Arc::clone(member);
    let granted = tokio::spawn(async move {
        let number = Transaction::new().set_number(lease_name(id), ttl.unsigned_abs());
        let stored = member.engine.transact(number).await;
        member.leases.end_grant(id, stored.is_ok().then_some(ttl));
        stored.map_err(|error| errors::from_engine(&error))?;
        member.metrics.leases_granted.inc();
        Ok::<_, Status>(())
    });
    granted.await.map_err(errors::from_task)??;
    Ok((id, ttl))
}

/// Revokes leases: deletes their keys, each lease in a revision of its own. Those that do not exist are
/// skipped; returns how many did.
pub(crate) async fn revoke(member: &Arc<Member>, ids: Vec<i64>) -> Result<usize, Status> {
    let member = Arc::clone(member);
    let revoked = tokio::spawn(async move {
        let _alone = member.writes.write().await;
        member.barrier().await?;
        let mut existing: Vec<i64> = ids.into_iter().filter(|id| member.leases.has(*id)).collect();
        let count = existing.len();
        // Once for all, and again for those that have more keys.
        while !existing.is_empty() {
            let all = existing.clone();
            existing = revoke_part(&member, existing).await.inspect_err(|_| {
                // Those that are not gone are there again.
                all.into_iter().for_each(|id| member.leases.end_revoke(id, false));
            })?;
        }
        Ok(count)
    });
    revoked.await.map_err(errors::from_task)?
}

/// Deletes keys of leases, as many as one revision of each may. Returns the leases that have more; the others
/// are gone.
async fn revoke_part(member: &Arc<Member>, ids: Vec<i64>) -> Result<Vec<i64>, Status> {
    let reader = Arc::clone(member);
    let planned = tokio::task::spawn_blocking(move || {
        // Queued one after the other, so that they are written together.
        let queued = ids.into_iter().map(|id| {
            let (transaction, is_last) = revocation(&reader.engine, id)?;
            reader.leases.begin_revoke(id);
            Ok((id, reader.engine.transact(transaction), is_last))
        });
        queued.collect::<Vec<Result<_, Error>>>()
    });
    let queued = planned.await.map_err(errors::from_task)?;
    // Each to its end, whatever becomes of the others: a lease that is not gone has to be seen again.
    let (mut left, mut failed) = (Vec::new(), None);
    for queued in queued {
        let ended = match queued {
            Ok((id, proposal, is_last)) => revoked_part(member, id, proposal.await, is_last),
            Err(error) => Err(error),
        };
        match ended {
            Ok(more) => left.extend(more),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(left), |error| Err(errors::from_engine(&error)))
}

/// Notes the outcome of a part of a revocation; returns the lease if there is more of it.
fn revoked_part(
    member: &Member,
    id: i64,
    outcome: Result<Committed, Error>,
    is_last: bool,
) -> Result<Option<i64>, Error> {
    if is_last && outcome.is_ok() {
        member.leases.end_revoke(id, true);
    }
    if let Some(commit) = &outcome?.commit {
        member.metrics.changed(&commit.events);
    }
    if is_last {
        member.metrics.leases_revoked.inc();
    }
    Ok((!is_last).then_some(id))
}

/// The transaction that revokes a lease, or the first part of it, and whether it is all. Nothing else is
/// written while it is built and committed. Reads from disk.
fn revocation(engine: &Engine, id: i64) -> Result<(Transaction, bool), Error> {
    let prefix = hints_of(id);
    let snapshot = engine.snapshot(At::Latest)?;
    let (mut transaction, mut keys, mut bytes) = (Transaction::new(), 0, 0);
    for hints in pages(engine, &prefix, HINT_PAGE) {
        for (name, _) in hints? {
            if keys >= KEYS_PER_REVISION || bytes >= BYTES_PER_REVISION {
                // It has expired, should the server end before the next part.
                return Ok((transaction.set_number(lease_name(id), 0), false));
            }
            let key = name.slice(prefix.len()..);
            keys += 1;
            bytes += name.len();
            transaction = transaction.remove_number(name);
            // A hint of a key that is attached no longer is removed alone.
            if let Some(record) = snapshot.get(&key)?.filter(|record| lease_of(&record.value) == id) {
                bytes += record.key.len() + record.value.len();
                transaction = transaction.delete(record.key.clone()).having_read(record);
            }
        }
    }
    Ok((transaction.remove_number(lease_name(id)), true))
}
