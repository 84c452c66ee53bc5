//! What is refused whatever the state (etcd's `api/v3rpc/key.go`): absent keys, contradictory options, too
//! many operations, a key that a transaction changes twice.

use std::collections::HashSet;

use bytes::Bytes;
use tonic::Status;

use crate::errors;
use crate::keys::Keys;
use crate::range;
use crate::txn::intervals::Intervals;
use crate::wire::kv::request_op::Request;
use crate::wire::kv::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};

/// Checks a put.
pub(crate) fn put(request: &PutRequest) -> Result<(), Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(errors::value_provided());
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(errors::lease_provided());
    }
    Ok(())
}

/// Checks a deletion.
pub(crate) fn delete(request: &DeleteRangeRequest) -> Result<(), Status> {
    match request.key.is_empty() {
        true => Err(errors::empty_key()),
        false => Ok(()),
    }
}

/// Checks a transaction, of which each list may have `max_operations`.
pub(crate) fn txn(request: &TxnRequest, max_operations: usize) -> Result<(), Status> {
    operations(request, max_operations)?;
    // Only now: the number of operations is bounded.
    changed_once(&request.success)?;
    changed_once(&request.failure)?;
    Ok(())
}

fn operations(request: &TxnRequest, max_operations: usize) -> Result<(), Status> {
    let most = request.compare.len().max(request.success.len()).max(request.failure.len());
    let Some(left) = max_operations.checked_sub(most) else {
        return Err(errors::too_many_operations());
    };
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(errors::empty_key());
    }
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            Some(Request::Range(request)) => range::check(request)?,
            Some(Request::Put(request)) => put(request)?,
            Some(Request::DeleteRange(request)) => delete(request)?,
            Some(Request::Txn(request)) => operations(request, left)?,
            None => return Err(errors::key_not_found()),
        }
    }
    Ok(())
}

/// The keys that a list of operations puts, and those that it deletes. Of a nested transaction both branches
/// count, but not against each other.
fn changed_once(operations: &[RequestOp]) -> Result<(HashSet<Bytes>, Intervals), Status> {
    let mut deleted = Intervals::default();
    for operation in operations {
        if let Some(Request::DeleteRange(request)) = &operation.request {
            deleted.insert(&Keys::of(&request.key, &request.range_end));
        }
    }
    let mut put: HashSet<Bytes> = HashSet::new();
    for operation in operations {
        let Some(Request::Txn(request)) = &operation.request else { continue };
        let (then_put, then_deleted) = changed_once(&request.success)?;
        let (else_put, else_deleted) = changed_once(&request.failure)?;
        if then_put.iter().any(|key| put.contains(key) || deleted.contains(key)) {
            return Err(errors::duplicate_key());
        }
        if else_put.iter().any(|key| put.contains(key) || deleted.contains(key)) {
            return Err(errors::duplicate_key());
        }
        put.extend(then_put);
        put.extend(else_put);
        deleted.union(then_deleted);
        deleted.union(else_deleted);
    }
    for operation in operations {
        let Some(Request::Put(request)) = &operation.request else { continue };
        if deleted.contains(&request.key) || !put.insert(request.key.clone()) {
            return Err(errors::duplicate_key());
        }
    }
    Ok((put, deleted))
}

/// Whether a transaction changes nothing, whichever branch is taken. A nested one counts as a change.
pub(crate) fn is_read_only(request: &TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.all(|operation| matches!(operation.request, Some(Request::Range(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_of(key: &'static str) -> RequestOp {
        RequestOp { request: Some(Request::Put(PutRequest { key: key.into(), ..PutRequest::default() })) }
    }

    fn delete_of(key: &'static str, end: &'static str) -> RequestOp {
        let request = DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv: false };
        RequestOp { request: Some(Request::DeleteRange(request)) }
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        RequestOp { request: Some(Request::Txn(TxnRequest { compare: Vec::new(), success, failure })) }
    }

    #[test]
    fn a_key_is_changed_once() {
        for (is_allowed, operations) in [
            (true, vec![put_of("a"), put_of("b")]),
            (false, vec![put_of("a"), put_of("a")]),
            (false, vec![put_of("a"), delete_of("a", "")]),
            (false, vec![delete_of("a", "c"), put_of("b")]),
            (true, vec![delete_of("a", "c"), put_of("c")]),
            (true, vec![delete_of("a", ""), delete_of("a", "b")]),
            (true, vec![nested(vec![put_of("a")], vec![put_of("a")])]),
            (false, vec![nested(vec![put_of("a")], vec![]), nested(vec![], vec![put_of("a")])]),
            (false, vec![nested(vec![put_of("a")], vec![]), put_of("a")]),
            (false, vec![nested(vec![delete_of("a", "")], vec![]), put_of("a")]),
            (false, vec![nested(vec![delete_of("a", "\0")], vec![]), put_of("b")]),
        ] {
            let request = TxnRequest { success: operations.clone(), ..TxnRequest::default() };
            assert_eq!(txn(&request, 128).is_ok(), is_allowed, "{operations:?}");
        }
    }

    #[test]
    fn nested_transactions_share_the_limit() {
        let request = |inner: usize| TxnRequest {
            success: vec![put_of("a"), nested((0..inner).map(|_| delete_of("b", "")).collect(), vec![])],
            ..TxnRequest::default()
        };
        assert!(txn(&request(2), 4).is_ok());
        assert_eq!(txn(&request(3), 4).unwrap_err().message(), errors::too_many_operations().message());
    }
}
