//! How a value is stored: one byte that shows whether the key is attached to a lease, the lease's id if so,
//! and the client's bytes. All else that etcd knows of a key is in the engine's records.
//!
//! ```text
//! 0           no lease, the value follows
//! 1  id i64   big endian, the value follows
//! ```

use bytes::{BufMut as _, Bytes, BytesMut};
use plinth_engine::{Entry, Event, EventKind, Record, Revision};

use crate::wire::kv::KeyValue;

/// No lease.
const PLAIN: u8 = 0;
/// A lease's id follows.
const LEASED: u8 = 1;
/// Most bytes before the client's.
pub(crate) const MAX_HEADER: usize = 9;

/// The revision as etcd counts: its empty store has revision 1, the engine's 0.
pub(crate) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX).saturating_add(1)
}

/// The engine's revision for one of etcd's; zero for those before the first change.
pub(crate) fn to_engine(revision: i64) -> Revision {
    Revision::new(u64::try_from(revision.saturating_sub(1)).unwrap_or(0))
}

/// The stored form of a value.
pub(crate) fn encode(value: &[u8], lease: i64) -> Bytes {
    let mut out = BytesMut::with_capacity(MAX_HEADER + value.len());
    match lease {
        0 => out.put_u8(PLAIN),
        lease => {
            out.put_u8(LEASED);
            out.put_i64(lease);
        }
    }
    out.extend_from_slice(value);
    out.freeze()
}

/// Lease and length of the header of a stored value. The store's checksums exclude another form; should there
/// be one nevertheless, the key is shown without a lease rather than not at all.
fn header(stored: &[u8]) -> (i64, usize) {
    match stored.split_first() {
        Some((&LEASED, rest)) => match rest.first_chunk() {
            Some(id) => (i64::from_be_bytes(*id), MAX_HEADER),
            None => (0, stored.len()),
        },
        Some(_) => (0, 1),
        None => (0, 0),
    }
}

/// Lease and client's part of a stored value.
pub(crate) fn lease_and_value(stored: &[u8]) -> (i64, &[u8]) {
    let (lease, length) = header(stored);
    (lease, stored.get(length..).unwrap_or_default())
}

/// The lease of a stored value; zero for none.
pub(crate) fn lease_of(stored: &[u8]) -> i64 {
    header(stored).0
}

/// The client's part of a stored value.
pub(crate) fn value_of(stored: &Bytes) -> Bytes {
    stored.slice(header(stored).1..)
}

/// The number of puts as etcd shows it.
pub(crate) fn version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// A record as etcd shows it.
pub(crate) fn key_value(record: &Record) -> KeyValue {
    KeyValue {
        key: record.key.clone(),
        create_revision: to_etcd(record.create_revision),
        mod_revision: to_etcd(record.mod_revision),
        version: version(record.version),
        value: value_of(&record.value),
        lease: lease_of(&record.value),
    }
}

/// The key that an event has put as etcd shows it; none for a deletion.
pub(crate) fn put_key_value(event: &Event) -> Option<KeyValue> {
    let EventKind::Put { value, create_revision, version: puts, .. } = &event.kind else { return None };
    Some(KeyValue {
        key: event.key.clone(),
        create_revision: to_etcd(*create_revision),
        mod_revision: to_etcd(event.revision),
        version: version(*puts),
        value: value_of(value),
        lease: lease_of(value),
    })
}

/// An entry of a range as etcd shows it; without its value if that is not wanted.
pub(crate) fn entry_key_value(entry: &Entry<'_>, with_value: bool) -> KeyValue {
    let (lease, value) = lease_and_value(entry.value);
    let value = match with_value {
        true => Bytes::copy_from_slice(value),
        false => Bytes::new(),
    };
    KeyValue {
        key: Bytes::copy_from_slice(entry.key),
        create_revision: to_etcd(entry.create_revision),
        mod_revision: to_etcd(entry.mod_revision),
        version: version(entry.version),
        value,
        lease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_leases_are_read_back() {
        for lease in [0, 1, -1, i64::MAX, i64::MIN] {
            for value in [&b""[..], b"v", b"\0\x01\xff"] {
                let stored = encode(value, lease);
                assert_eq!((lease_of(&stored), value_of(&stored).as_ref()), (lease, value));
            }
        }
    }

    #[test]
    fn an_empty_store_has_revision_one() {
        assert_eq!(to_etcd(Revision::ZERO), 1);
        assert_eq!(to_engine(1), Revision::ZERO);
        assert_eq!(to_engine(to_etcd(Revision::new(7))), Revision::new(7));
        assert_eq!(to_engine(-5), Revision::ZERO);
    }
}
