//! Ranges of keys as requests name them.

use bytes::Bytes;
use plinth_engine::KeyRange;

/// The keys that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The one key that is named.
    One(Bytes),
    /// A range, which may be empty.
    Range(KeyRange),
}

impl Keys {
    /// Reads `key` and `range_end`: no end stands for one key, a zero byte for all keys from `key` on.
    pub(crate) fn of(key: &Bytes, range_end: &Bytes) -> Keys {
        match range_end.as_ref() {
            [] => Keys::One(key.clone()),
            [0] => Keys::Range(KeyRange::from(key.clone())),
            _ => Keys::Range(KeyRange::between(key.clone(), range_end.clone())),
        }
    }

    /// As a range.
    pub(crate) fn to_range(&self) -> KeyRange {
        match self {
            Keys::One(key) => KeyRange::key(key.clone()),
            Keys::Range(range) => range.clone(),
        }
    }

    /// Whether `key` is among them.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Keys::One(own) => own == key,
            Keys::Range(range) => range.contains(key),
        }
    }
}

/// A key of a request, in memory of its own, for what outlives the request: the newest events, watches. As a
/// part of the request it would keep all of that, up to megabytes.
pub(crate) fn owned(key: &Bytes) -> Bytes {
    Bytes::copy_from_slice(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_those_of_etcd() {
        let keys = |key: &'static str, end: &'static str| Keys::of(&key.into(), &end.into());
        assert!(keys("a", "").contains(b"a") && !keys("a", "").contains(b"a\0"));
        assert!(keys("a", "c").contains(b"b") && !keys("a", "c").contains(b"c"));
        assert!(keys("b", "\0").contains(b"\xff\xff") && !keys("b", "\0").contains(b"a"));
        assert!(keys("\0", "\0").contains(b"\0"));
        assert!(!keys("c", "a").contains(b"b"));
    }
}
