//! What the roles of a user permit, and what a request needs.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::wire::auth::{permission_type, Permission, Role};
use crate::wire::kv::request_op::Request;
use crate::wire::kv::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};

/// Keys from one on, up to another one that is not among them; without an end for all.
type Interval = (Bytes, Option<Bytes>);

/// The interval of a key, or of a range whose end is a zero byte where it has none.
fn interval(key: &Bytes, range_end: &Bytes) -> Interval {
    let end = match range_end.as_ref() {
        [] => Some([key, &[0][..]].concat().into()),
        [0] => None,
        _ => Some(range_end.clone()),
    };
    (key.clone(), end)
}

/// Whether a permission may have this range: a key, or a range that is not empty.
pub(crate) fn is_valid_range(key: &Bytes, range_end: &Bytes) -> bool {
    !key.is_empty() && (range_end.is_empty() || range_end.as_ref() == [0] || key < range_end)
}

/// Keys that may be read, or written: intervals that neither overlap nor meet, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<Interval>);

impl Ranges {
    fn new(mut intervals: Vec<Interval>) -> Ranges {
        intervals.retain(|(start, end)| end.as_ref().is_none_or(|end| start < end));
        intervals.sort();
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for (start, end) in intervals {
            match merged.last_mut() {
                // It begins within the last one, or where that ends.
                Some((_, last)) if last.as_ref().is_none_or(|last| start <= *last) => {
                    let is_longer =
                        last.as_ref().is_some_and(|last| end.as_ref().is_none_or(|end| end > last));
                    if is_longer {
                        *last = end;
                    }
                }
                _ => merged.push((start, end)),
            }
        }
        Ranges(merged)
    }

    /// Whether all keys of a range are among them.
    fn contain(&self, key: &Bytes, range_end: &Bytes) -> bool {
        let (start, end) = interval(key, range_end);
        let next = self.0.partition_point(|(first, _)| *first <= start);
        let Some((_, last)) = next.checked_sub(1).and_then(|at| self.0.get(at)) else { return false };
        match (last, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(last), Some(end)) => start < *last && end <= *last,
        }
    }
}

/// What a user may read and write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UserPermissions {
    read: Ranges,
    write: Ranges,
}

impl UserPermissions {
    /// Everything that the roles permit.
    pub(crate) fn by<'r>(roles: impl Iterator<Item = &'r Role>) -> UserPermissions {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for Permission { perm_type, key, range_end } in roles.flat_map(|role| &role.permissions) {
            let interval = interval(key, range_end);
            if [permission_type::READ, permission_type::READWRITE].contains(perm_type) {
                read.push(interval.clone());
            }
            if [permission_type::WRITE, permission_type::READWRITE].contains(perm_type) {
                write.push(interval);
            }
        }
        UserPermissions { read: Ranges::new(read), write: Ranges::new(write) }
    }

    pub(crate) fn may_read(&self, key: &Bytes, range_end: &Bytes) -> bool {
        self.read.contain(key, range_end)
    }

    pub(crate) fn may_write(&self, key: &Bytes, range_end: &Bytes) -> bool {
        self.write.contain(key, range_end)
    }
}

/// What a request needs to be permitted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Ranges to read, each a key and an end as in requests.
    pub reads: Vec<(Bytes, Bytes)>,
    /// Ranges to write.
    pub writes: Vec<(Bytes, Bytes)>,
    /// Leases that keys are attached to: whoever attaches one could revoke it, and must be allowed to write
    /// the keys that it has already.
    pub leases: BTreeSet<i64>,
}

impl Needs {
    /// Reads a range.
    pub(crate) fn read(mut self, key: &Bytes, range_end: &Bytes) -> Needs {
        self.reads.push((key.clone(), range_end.clone()));
        self
    }

    /// Writes a range.
    pub(crate) fn write(mut self, key: &Bytes, range_end: &Bytes) -> Needs {
        self.writes.push((key.clone(), range_end.clone()));
        self
    }

    /// Ends a lease, or gives it another key.
    pub(crate) fn lease(mut self, id: i64) -> Needs {
        self.leases.extend((id != 0).then_some(id));
        self
    }

    /// Puts a key.
    pub(crate) fn put(self, request: &PutRequest) -> Needs {
        let needs = self.write(&request.key, &Bytes::new()).lease(request.lease);
        match request.prev_kv {
            true => needs.read(&request.key, &Bytes::new()),
            false => needs,
        }
    }

    /// Deletes a range.
    pub(crate) fn delete(self, request: &DeleteRangeRequest) -> Needs {
        let needs = self.write(&request.key, &request.range_end);
        match request.prev_kv {
            true => needs.read(&request.key, &request.range_end),
            false => needs,
        }
    }

    /// Everything that a transaction does whichever way it goes. As deep as a checked one may be nested.
    pub(crate) fn txn(self, request: &TxnRequest) -> Needs {
        let compared = request.compare.iter();
        let needs = compared.fold(self, |needs, compare| needs.read(&compare.key, &compare.range_end));
        request.success.iter().chain(&request.failure).fold(needs, Needs::operation)
    }

    fn operation(self, operation: &RequestOp) -> Needs {
        match &operation.request {
            Some(Request::Range(request)) => self.read(&request.key, &request.range_end),
            Some(Request::Put(request)) => self.put(request),
            Some(Request::DeleteRange(request)) => self.delete(request),
            Some(Request::Txn(request)) => self.txn(request),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn role(permissions: &[(i32, &str, &str)]) -> Role {
        let permissions = permissions.iter().map(|(perm_type, key, end)| Permission {
            perm_type: *perm_type,
            key: bytes(key),
            range_end: bytes(end),
        });
        Role { name: bytes("r"), permissions: permissions.collect() }
    }

    #[test]
    fn ranges_of_all_roles_are_united() {
        use permission_type::{READ, READWRITE, WRITE};
        let roles = [
            role(&[(READ, "a", "c"), (READ, "c", "e"), (READWRITE, "k", "")]),
            role(&[(READ, "b", "c"), (WRITE, "x", "\0"), (READ, "g", "f"), (7, "z", "")]),
        ];
        let permitted = UserPermissions::by(roles.iter());
        for (key, end, reads) in [
            ("a", "", true),
            ("a", "e", true),
            ("a", "f", false),
            ("b", "d", true),
            ("d", "\0", false),
            ("e", "", false),
            ("0", "b", false),
            ("f", "", false),
            ("k", "", true),
            ("k", "k\0", true),
            ("k", "l", false),
            ("z", "", false),
        ] {
            assert_eq!(permitted.may_read(&bytes(key), &bytes(end)), reads, "{key:?} {end:?}");
        }
        for (key, end, writes) in
            [("k", "", true), ("a", "", false), ("x", "\0", true), ("z", "zz", true), ("w", "\0", false)]
        {
            assert_eq!(permitted.may_write(&bytes(key), &bytes(end)), writes, "{key:?} {end:?}");
        }
        assert!(!UserPermissions::default().may_read(&bytes("a"), &bytes("")));
    }

    #[test]
    fn ranges_of_permissions_are_not_empty() {
        for (key, end, valid) in [
            ("a", "", true),
            ("a", "b", true),
            ("b", "a", false),
            ("a", "a", false),
            ("", "", false),
            ("\0", "\0", true),
            ("a", "\0", true),
        ] {
            assert_eq!(is_valid_range(&bytes(key), &bytes(end)), valid, "{key:?} {end:?}");
        }
    }

    #[test]
    fn a_transaction_needs_what_all_its_branches_need() {
        let put = PutRequest { key: bytes("p"), lease: 4, prev_kv: true, ..PutRequest::default() };
        let delete = DeleteRangeRequest { key: bytes("d"), range_end: bytes("e"), prev_kv: false };
        let inner = TxnRequest {
            success: vec![RequestOp { request: Some(Request::DeleteRange(delete)) }],
            ..TxnRequest::default()
        };
        // Its lease is looked at once.
        let second = PutRequest { key: bytes("q"), prev_kv: false, ..put.clone() };
        let outer = TxnRequest {
            success: [put, second].map(|put| RequestOp { request: Some(Request::Put(put)) }).into(),
            failure: vec![RequestOp { request: Some(Request::Txn(inner)) }],
            ..TxnRequest::default()
        };
        let needs = Needs::default().txn(&outer);
        assert_eq!(needs.reads, [(bytes("p"), bytes(""))]);
        let writes = [("p", ""), ("q", ""), ("d", "e")];
        assert_eq!(needs.writes, writes.map(|(key, end)| (bytes(key), bytes(end))));
        assert_eq!(needs.leases, BTreeSet::from([4]));
    }
}
