//! The end of every write: one transaction, or none.

use bytes::Bytes;
use plinth_engine::{Condition, Revision, Transaction};

use super::{Context, Written};
use crate::authz::ObjectKey;
use crate::context::TransactionParts;
use plinth_api::ApiError;
use plinth_storage::{unchanged, Fetched, Stored};

/// A change of a stored object.
pub(in crate::handlers) struct Commit {
    /// What the object was, for the transaction to require; `None` for one that must be absent.
    pub live: Option<Fetched>,
    /// Key of the stored object.
    pub key: ObjectKey,
    /// The object as it is to be stored, or as it was last.
    pub value: Bytes,
    /// Whether the object is to be deleted.
    pub delete: bool,
    /// What is written with it.
    pub parts: TransactionParts,
    /// Whether nothing is to be kept.
    pub dry_run: bool,
}

/// The outcome of a [`Commit`].
pub(in crate::handlers) enum Committed {
    /// It was written, or nothing was to be written.
    Done(Done),
    /// Another write was committed between; nothing was written.
    Conflict,
}

/// A commit that has ended.
pub(in crate::handlers) struct Done {
    /// The object as it is now, or as it was last, in the version of the request.
    pub value: Bytes,
    /// The revision that it has been given: `None` where nothing was written.
    pub committed: Option<Revision>,
    /// The revision that it had before.
    pub before: Option<Revision>,
}

impl Done {
    /// The object as clients see it: one that is gone has the revision that it had last.
    pub(crate) fn written(self, deleted: bool) -> Written {
        let revision = if deleted { self.before } else { self.committed.or(self.before) };
        Written { value: self.value, revision }
    }
}

impl Commit {
    /// Writes, unless the request is a dry run or the write would change nothing.
    ///
    /// # Errors
    /// When the object cannot be read or stored.
    pub(crate) async fn run(self, cx: &Context) -> Result<Committed, ApiError> {
        Ok(match self.run_unshown(cx).await? {
            Committed::Done(done) => {
                Committed::Done(Done { value: cx.convert_value(done.value).await?, ..done })
            }
            Committed::Conflict => Committed::Conflict,
        })
    }

    /// The same where the answer does not show the object, which may be in another version.
    ///
    /// # Errors
    /// When the object cannot be read or stored.
    pub(in crate::handlers) async fn run_unshown(self, cx: &Context) -> Result<Committed, ApiError> {
        let Commit { live, key, value, delete, parts, dry_run } = self;
        let store = &cx.server.store;
        let before = live.as_ref().map(|live| live.mod_revision);
        let changes = delete || live.as_ref().is_none_or(|live| value != live.value || store.is_stale(live));
        let committed = match (dry_run, changes) {
            (false, true) => {
                let transaction = match &live {
                    Some(live) => Transaction::new().require(unchanged(live)),
                    None => Transaction::new().require(Condition::Absent(key.to_vec().into())),
                };
                let transaction = match delete {
                    true => transaction.delete(key.to_vec()).reclaiming(),
                    // What is being deleted has to lose its finalizers.
                    false if store.engine().is_out_of_space() && is_being_deleted(&value) => {
                        put(cx, transaction, &key, value.clone())?.reclaiming()
                    }
                    false => put(cx, transaction, &key, value.clone())?,
                };
                let transaction = match live {
                    Some(live) => transaction.having_read(live.into_record()),
                    None => transaction,
                };
                let Some(committed) = store.commit_by(parts.add_to(transaction), cx.deadline).await? else {
                    return Ok(Committed::Conflict);
                };
                Some(committed.revision)
            }
            // Nothing to be written, as far as this replica knows.
            (false, false) if cx.sync_to_latest().await? => return Ok(Committed::Conflict),
            _ if live.is_none() && cx.record(&key).await?.is_some() => return Ok(Committed::Conflict),
            _ => None,
        };
        Ok(Committed::Done(Done { value, committed, before }))
    }
}

fn is_being_deleted(value: &[u8]) -> bool {
    Stored::parse(value).is_ok_and(|stored| stored.deleting())
}

/// Adds an object to a transaction; it is deleted after its time where its kind expires.
pub(in crate::handlers) fn put(
    cx: &Context,
    transaction: Transaction,
    key: &ObjectKey,
    value: Bytes,
) -> Result<Transaction, ApiError> {
    let value = cx.server.store.seal(key, value)?;
    let key = key.to_vec();
    let ttl = cx.server.limits.default_ttl;
    Ok(match cx.resource.strategy.expires && !ttl.is_zero() {
        true => transaction.put_expiring(key, value, ttl),
        false => transaction.put(key, value),
    })
}
