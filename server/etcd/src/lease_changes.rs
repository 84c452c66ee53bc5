//! Granting and revoking leases.

use std::sync::Arc;

use plinth_engine::{Engine, Error, Transaction};
use tonic::Status;

use crate::errors;
use crate::leases::{attached, hints_of, lease_name, MAX_TTL};
use crate::member::{random_id, Member};
use crate::numbers::pages;

/// Shortest time to live, in seconds: three halves of etcd's default election timeout, rounded up.
const MIN_TTL: i64 = 2;
/// Keys that one revision deletes for a lease; those of a larger one take several.
const KEYS_PER_REVISION: usize = 100_000;

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
        let existing: Vec<i64> = ids.into_iter().filter(|id| member.leases.has(*id)).collect();
        let reader = Arc::clone(&member);
        let planned = tokio::task::spawn_blocking(move || {
            let plan = |id| revocation(&reader.engine, id).map(|transactions| (id, transactions));
            existing.into_iter().map(plan).collect::<Result<Vec<_>, Error>>()
        });
        let planned =
            planned.await.map_err(errors::from_task)?.map_err(|error| errors::from_engine(&error))?;
        let count = planned.len();
        // Queued one after the other, so that they are written together.
        let queued = planned.into_iter().map(|(id, transactions)| {
            let proposals: Vec<_> =
                transactions.into_iter().map(|transaction| member.engine.transact(transaction)).collect();
            (id, proposals)
        });
        for (id, proposals) in queued.collect::<Vec<_>>() {
            for proposal in proposals {
                let committed = proposal.await.map_err(|error| errors::from_engine(&error))?;
                if let Some(commit) = &committed.commit {
                    member.metrics.changed(&commit.events);
                }
            }
            member.leases.remove(id);
            member.metrics.leases_revoked.inc();
        }
        Ok(count)
    });
    revoked.await.map_err(errors::from_task)?
}

/// The transactions that revoke a lease. Nothing else is written while they are built and committed.
fn revocation(engine: &Engine, id: i64) -> Result<Vec<Transaction>, Error> {
    let records = attached(engine, id, |record| record)?;
    let mut transactions = Vec::new();
    for records in records.chunks(KEYS_PER_REVISION) {
        let mut transaction = Transaction::new();
        for record in records {
            transaction = transaction.delete(record.key.clone()).having_read(record.clone());
        }
        transactions.push(transaction);
    }
    // Hints of keys that are attached no longer are among them.
    let prefix = hints_of(id);
    let mut last = transactions.pop().unwrap_or_default().remove_number(lease_name(id));
    for hints in pages(engine, &prefix, KEYS_PER_REVISION) {
        let hints = hints?;
        let is_full = hints.len() == KEYS_PER_REVISION;
        last = hints.into_iter().fold(last, |last, (name, _)| last.remove_number(name));
        if is_full {
            transactions.push(std::mem::take(&mut last));
        }
    }
    transactions.push(last);
    Ok(transactions)
}
