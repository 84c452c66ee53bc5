//! Ranges of keys.

use bytes::Bytes;

/// A contiguous range of keys in bytewise order.
///
/// ```
/// use plinth_engine::KeyRange;
///
/// let pods = KeyRange::prefix("pods/");
/// assert!(pods.contains(b"pods/default/web"));
/// assert!(!pods.contains(b"nodes/n1"));
/// assert!(!pods.after(b"pods/default/web").contains(b"pods/default/web"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// First key in the range.
    start: Bytes,
    /// First key after the range; none when it has no upper bound.
    end: Option<Bytes>,
    /// Longest prefix that all keys of the range share; its key in the feed index.
    prefix: Bytes,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { start: Bytes::new(), end: None, prefix: Bytes::new() }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let prefix = prefix.into();
        KeyRange { end: successor(&prefix), start: prefix.clone(), prefix }
    }

    /// The range of one key alone.
    pub fn key(key: impl Into<Bytes>) -> KeyRange {
        let key = key.into();
        let mut end = Vec::with_capacity(key.len() + 1);
        end.extend_from_slice(&key);
        end.push(0);
        KeyRange { start: key.clone(), end: Some(end.into()), prefix: key }
    }

    /// The keys from `start` (inclusive) to `end` (exclusive). Empty when `end <= start`.
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> KeyRange {
        let (start, end) = (start.into(), end.into());
        let shared = start.iter().zip(end.iter()).take_while(|(a, b)| a == b).count();
        KeyRange { prefix: start.slice(..shared), start, end: Some(end) }
    }

    /// The keys from `start` on, without an upper bound.
    pub fn from(start: impl Into<Bytes>) -> KeyRange {
        KeyRange { start: start.into(), end: None, prefix: Bytes::new() }
    }

    /// The part of this range after `key`: where a paged read continues.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> KeyRange {
        let mut start = Vec::with_capacity(key.len() + 1);
        start.extend_from_slice(key);
        start.push(0);
        let start =
            if start.as_slice() > self.start.as_ref() { Bytes::from(start) } else { self.start.clone() };
        KeyRange { start, end: self.end.clone(), prefix: self.prefix.clone() }
    }

    /// First key of the range.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// First key after the range; none when it has no upper bound.
    pub fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_ref() && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end <= &self.start)
    }

    /// The longest prefix that all keys of the range share.
    pub(crate) fn shared_prefix(&self) -> &Bytes {
        &self.prefix
    }
}

/// The first key after all keys that begin with `prefix`; none when there is no such key.
fn successor(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ranges_end_behind_their_last_key() {
        assert_eq!(KeyRange::prefix("a/").end().unwrap().as_ref(), b"a0");
        assert_eq!(KeyRange::prefix(&b"a\xff\xff"[..]).end().unwrap().as_ref(), b"b");
        assert_eq!(KeyRange::prefix(&b"\xff"[..]).end(), None);
        assert_eq!(KeyRange::prefix("").end(), None);
    }

    #[test]
    fn a_key_range_holds_only_that_key() {
        let range = KeyRange::key("a");
        assert!(range.contains(b"a"));
        assert!(!range.contains(b"a\0"));
        assert!(!range.contains(b"b"));
    }

    #[test]
    fn after_never_moves_backwards() {
        let range = KeyRange::between("b", "d");
        assert_eq!(range.after(b"a").start().as_ref(), b"b");
        assert_eq!(range.after(b"c").start().as_ref(), b"c\0");
        assert!(range.after(b"d").is_empty());
    }

    #[test]
    fn every_key_of_a_range_has_the_shared_prefix() {
        assert_eq!(KeyRange::between("pods/a", "pods/c").shared_prefix().as_ref(), b"pods/");
        assert_eq!(KeyRange::between("a", "b").shared_prefix().as_ref(), b"");
        assert_eq!(KeyRange::from("x").shared_prefix().as_ref(), b"");
    }
}
