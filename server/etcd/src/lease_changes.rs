//! Granting and revoking leases.

use std::sync::Arc;
use std::time::Instant;

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
/// Bytes of revocations that are planned before the first of them is written, beyond that of the last one.
const BYTES_AT_ONCE: usize = 64 << 20;

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
        let stored = member.transact(number).await;
        member.leases.end_grant(id, stored.is_ok().then_some(ttl));
        stored.map_err(|error| errors::from_engine(&error))?;
        member.metrics.leases_granted.inc();
        member.metrics.timings.lease_ttls.observe(ttl as f64);
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
        // Once for all that fit in memory, and again for the others and for those that have more keys.
        while !existing.is_empty() {
            let all = existing.clone();
            existing = revoke_part(&member, existing, BYTES_AT_ONCE).await.inspect_err(|_| {
                // Those that are not gone are there again.
                all.into_iter().for_each(|id| member.leases.end_revoke(id, false));
            })?;
        }
        Ok(count)
    });
    revoked.await.map_err(errors::from_task)?
}

/// Deletes keys of leases, as many as one revision of each may, until they are `most_bytes` or more. Returns
/// the leases that have more, and those that nothing was deleted of; the others are gone.
async fn revoke_part(member: &Arc<Member>, ids: Vec<i64>, most_bytes: usize) -> Result<Vec<i64>, Status> {
    let reader = Arc::clone(member);
    let planned = tokio::task::spawn_blocking(move || {
        let (mut queued, mut bytes, mut ids) = (Vec::new(), 0, ids.into_iter());
        // Queued one after the other, so that they are written together.
        while let Some(id) = (bytes < most_bytes).then(|| ids.next()).flatten() {
            queued.push(revocation(&reader.engine, id).map(|revocation| {
                bytes += revocation.bytes;
                reader.leases.begin_revoke(id);
                (id, reader.engine.transact(revocation.transaction), revocation.is_last)
            }));
        }
        (queued, ids.collect::<Vec<_>>())
    });
    let (queued, unplanned) = planned.await.map_err(errors::from_task)?;
    // Each to its end, whatever becomes of the others: a lease that is not gone has to be seen again.
    let (mut left, mut failed) = (unplanned, None);
    for queued in queued {
        let ended = match queued {
            Ok((id, proposal, is_last)) => {
                let (start, outcome) = (Instant::now(), proposal.await);
                member.metrics.proposed(&outcome, start.elapsed());
                revoked_part(member, id, outcome, is_last)
            }
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

/// What revokes a lease, or the first part of it.
struct Revocation {
    transaction: Transaction,
    /// Of the keys, values and hints in it.
    bytes: usize,
    is_last: bool,
}

/// Plans the revocation of a lease. Nothing else is written while it is built and committed. Reads from disk.
fn revocation(engine: &Engine, id: i64) -> Result<Revocation, Error> {
    let prefix = hints_of(id);
    let snapshot = engine.snapshot(At::Latest)?;
    let (mut transaction, mut keys, mut bytes) = (Transaction::new(), 0, 0);
    for hints in pages(engine, &prefix, HINT_PAGE) {
        for (name, _) in hints? {
            if keys >= KEYS_PER_REVISION || bytes >= BYTES_PER_REVISION {
                // It has expired, should the server end before the next part.
                transaction = transaction.set_number(lease_name(id), 0);
                return Ok(Revocation { transaction, bytes, is_last: false });
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
    let transaction = transaction.remove_number(lease_name(id));
    Ok(Revocation { transaction, bytes, is_last: true })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::kv;
    use crate::wire::kv::PutRequest;

    /// Sixty-four leases of the largest revisions would be held in memory together.
    #[tokio::test(flavor = "multi_thread")]
    async fn leases_are_revoked_as_many_at_once_as_fit() {
        let dir = tempfile::tempdir().unwrap();
        let member = Arc::new(Member::of_test(dir.path(), 4));
        for lease in 1..=5 {
            grant(&member, lease, 100).await.unwrap();
            let key = format!("key {lease}").into();
            let put = PutRequest { key, value: Bytes::from(vec![0; 1000]), lease, ..Default::default() };
            kv::put(&member, put).await.unwrap();
        }
        let _alone = member.writes.write().await;
        let ids: Vec<i64> = (1..=5).collect();
        let left = revoke_part(&member, ids, 1500).await.unwrap();
        assert_eq!((left.as_slice(), member.leases.all()), ([3, 4, 5].as_slice(), vec![3, 4, 5]));
        let left = revoke_part(&member, left, 1).await.unwrap();
        assert_eq!((left.as_slice(), member.leases.all()), ([4, 5].as_slice(), vec![4, 5]));
        assert_eq!(revoke_part(&member, left, usize::MAX).await.unwrap(), [0_i64; 0]);
        assert_eq!(member.leases.all(), [0_i64; 0]);
    }
}
