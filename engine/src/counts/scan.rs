//! Counts by reading: how many keys a range has, and where buckets of so many keys end in it.

use bytes::Bytes;

use crate::error::Result;
use crate::range::KeyRange;
use crate::read::Snapshot;

/// Buckets that one scan makes; of a longer range they have more keys.
const MOST: usize = 1 << 14;

/// A range that was counted.
pub(super) struct Scanned {
    pub(super) range: KeyRange,
    pub(super) total: u64,
    /// Where each bucket begins, and how many keys it has. The first begins where the range does.
    pub(super) buckets: Vec<(Bytes, u64)>,
    /// Keys of a bucket, the last one apart.
    pub(super) step: u64,
}

/// Counts a range in buckets of `step` keys or more.
pub(super) fn scan(snapshot: &Snapshot, range: KeyRange, step: u64) -> Result<Scanned> {
    let mut scanned = Scanned { total: 0, buckets: vec![(range.start().clone(), 0)], step, range };
    let mut entries = snapshot.range(&scanned.range);
    let mut last = Vec::new();
    while let Some(entry) = entries.next()? {
        if scanned.is_full() {
            scanned.buckets.push((between(&last, entry.key), 0));
        }
        scanned.add();
        if scanned.is_full() {
            last.clear();
            last.extend_from_slice(entry.key);
        }
    }
    Ok(scanned)
}

impl Scanned {
    /// Whether the next key is in another bucket.
    fn is_full(&self) -> bool {
        self.buckets.last().is_some_and(|(_, keys)| *keys >= self.step)
    }

    fn add(&mut self) {
        self.total += 1;
        if let Some((_, keys)) = self.buckets.last_mut() {
            *keys += 1;
        }
        if self.buckets.len() > MOST && self.is_full() {
            self.step *= 2;
            let pairs = self.buckets.chunks(2).filter_map(|pair| {
                let (start, _) = pair.first()?;
                Some((start.clone(), pair.iter().map(|(_, keys)| keys).sum()))
            });
            self.buckets = pairs.collect();
        }
    }
}

/// The shortest key after `last` that is not after `next`.
fn between(last: &[u8], next: &[u8]) -> Bytes {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    Bytes::copy_from_slice(next.get(..=shared).unwrap_or(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Engine, Options, Transaction};

    #[test]
    fn what_is_between_two_keys_is_short() {
        for (last, next, expected) in [
            (&b"a"[..], &b"b"[..], &b"b"[..]),
            (b"pods/a/web-1", b"pods/b/web-2", b"pods/b"),
            (b"a", b"a\0", b"a\0"),
            (b"a", b"abc", b"ab"),
            (b"", b"abc", b"a"),
            (b"a\xff", b"b", b"b"),
        ] {
            let found = between(last, next);
            assert_eq!(found, expected);
            assert!(last < found.as_ref() && found.as_ref() <= next);
        }
    }

    #[test]
    fn buckets_have_the_keys_of_their_range() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let fill = (0..100).fold(Transaction::new(), |t, n| t.put(format!("k/{n:03}"), "value"));
        engine.transact(fill).wait().unwrap();
        let snapshot = engine.snapshot(At::Latest).unwrap();
        for (range, total) in [
            (KeyRange::all(), 100),
            (KeyRange::prefix("k/"), 100),
            (KeyRange::between("k/010", "k/041"), 31),
            (KeyRange::between("k/0", "k/0"), 0),
            (KeyRange::from("k/099"), 1),
        ] {
            for step in [1, 3, 7, 100, 1000] {
                let scanned = scan(&snapshot, range.clone(), step).unwrap();
                assert_eq!((scanned.total, scanned.buckets[0].0.clone()), (total, range.start().clone()));
                for (n, (start, keys)) in scanned.buckets.iter().enumerate() {
                    let end = scanned.buckets.get(n + 1).map(|(end, _)| end.clone());
                    let bucket = match end.or_else(|| range.end().cloned()) {
                        Some(end) => KeyRange::between(start.clone(), end),
                        None => KeyRange::from(start.clone()),
                    };
                    assert_eq!(snapshot.count(&bucket).unwrap(), *keys, "{range:?} {step} {start:?}");
                    assert!(*keys <= step);
                }
            }
        }
    }

    #[test]
    fn a_long_scan_makes_larger_buckets() {
        let mut scanned =
            Scanned { range: KeyRange::all(), total: 0, buckets: vec![(Bytes::new(), 0)], step: 2 };
        for n in 0..5 * MOST as u64 {
            if scanned.is_full() {
                scanned.buckets.push((Bytes::copy_from_slice(&n.to_be_bytes()), 0));
            }
            scanned.add();
        }
        assert!(scanned.buckets.len() <= MOST + 1 && scanned.step == 8, "{}", scanned.step);
        assert_eq!(scanned.buckets.iter().map(|(_, keys)| keys).sum::<u64>(), scanned.total);
    }
}
