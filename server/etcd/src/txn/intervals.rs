//! A set of ranges of keys that answers in logarithmic time whether a key is in one of them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::keys::Keys;

/// Disjoint ranges by their first keys; the end is exclusive, none stands for no end.
#[derive(Debug, Default)]
pub(crate) struct Intervals(BTreeMap<Bytes, Option<Bytes>>);

impl Intervals {
    /// Adds keys.
    pub(crate) fn insert(&mut self, keys: &Keys) {
        let range = keys.to_range();
        if !range.is_empty() {
            self.insert_interval(range.start().clone(), range.end().cloned());
        }
    }

    /// Adds all ranges of `other`.
    pub(crate) fn union(&mut self, other: Intervals) {
        for (start, end) in other.0 {
            self.insert_interval(start, end);
        }
    }

    /// Whether `key` is in one of the ranges.
    pub(crate) fn contains(&self, key: &Bytes) -> bool {
        let before = self.0.range(..=key.clone()).next_back();
        before.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end))
    }

    fn insert_interval(&mut self, mut start: Bytes, mut end: Option<Bytes>) {
        if let Some((first, last)) = self.0.range(..=start.clone()).next_back() {
            if last.as_ref().is_none_or(|last| *last >= start) {
                start = first.clone();
            }
        }
        // Every range that begins within the new one becomes part of it.
        loop {
            let next = self.0.range(start.clone()..).next();
            let Some((first, last)) = next.filter(|(first, _)| end.as_ref().is_none_or(|end| *first <= end))
            else {
                break;
            };
            end = match (end, last) {
                (Some(end), Some(last)) => Some(end.max(last.clone())),
                _ => None,
            };
            let first = first.clone();
            self.0.remove(&first);
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use plinth_engine::KeyRange;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Bytes> {
        "[a-d]{1,2}".prop_map(Bytes::from)
    }

    fn keys() -> impl Strategy<Value = Keys> {
        prop_oneof![
            key().prop_map(Keys::One),
            (key(), key()).prop_map(|(start, end)| Keys::Range(KeyRange::between(start, end))),
            key().prop_map(|start| Keys::Range(KeyRange::from(start))),
        ]
    }

    proptest! {
        #[test]
        fn a_key_is_contained_when_one_of_the_ranges_has_it(
            all in prop::collection::vec(keys(), 0..12),
            asked in prop::collection::vec(key(), 20),
        ) {
            let mut intervals = Intervals::default();
            all.iter().for_each(|keys| intervals.insert(keys));
            for key in asked {
                prop_assert_eq!(intervals.contains(&key), all.iter().any(|keys| keys.contains(&key)));
            }
        }
    }
}
