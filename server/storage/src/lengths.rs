//! Lengths of objects in protobuf, for lists, whose length prefix comes first.
//!
//! A list that is longer than what its first pass buffers would encode every object twice, once to learn its
//! length. Lengths are therefore cached: an object at a revision has the same length for the lifetime of the
//! process. The table has a fixed size and no locks; an overwritten entry is recomputed.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use plinth_engine::Revision;

/// Number of entries, a power of two: 1 MiB, allocated for the first long list.
const ENTRIES: usize = 1 << 17;
/// Bits of an entry for the length; the others identify the object. Objects are far below 16 MiB.
const LENGTH_BITS: u32 = 24;

/// Lengths by object, revision and encoding. Shared by all lists; every entry is one atomic word.
#[derive(Default)]
pub struct Lengths {
    /// Randomly keyed, so that clients cannot choose names that collide.
    hasher: RandomState,
    entries: OnceLock<Box<[AtomicU64]>>,
}

/// Hash of an object at a revision in an encoding. Two of them collide with a probability of 2^-40 per
/// lookup; a list with a wrong length is aborted and calls [`Lengths::forget`].
#[derive(Clone, Copy)]
pub struct Owner(u64);

impl Lengths {
    /// The hash of an object at a revision in an encoding.
    pub fn owner(&self, key: &[u8], revision: Revision, form: impl Hash) -> Owner {
        Owner(self.hasher.hash_one((key, revision, form)))
    }

    /// The cached length.
    pub fn get(&self, owner: Owner) -> Option<usize> {
        let entry = self.entries.get()?.get(owner.place())?.load(Ordering::Relaxed);
        let known = entry >> LENGTH_BITS == owner.tag() && entry != 0;
        known.then_some((entry & ((1 << LENGTH_BITS) - 1)) as usize)
    }

    /// Caches a length.
    pub fn put(&self, owner: Owner, length: usize) {
        if length >> LENGTH_BITS != 0 {
            return;
        }
        let entries = self.entries.get_or_init(|| (0..ENTRIES).map(|_| AtomicU64::new(0)).collect());
        if let Some(entry) = entries.get(owner.place()) {
            entry.store(owner.tag() << LENGTH_BITS | length as u64, Ordering::Relaxed);
        }
    }

    /// Clears the cache.
    pub fn forget(&self) {
        for entry in self.entries.get().into_iter().flatten() {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

impl Owner {
    fn place(self) -> usize {
        self.0 as usize % ENTRIES
    }

    fn tag(self) -> u64 {
        self.0 >> LENGTH_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_belong_to_object_revision_and_form() {
        let lengths = Lengths::default();
        let owner =
            |key: &str, revision, form: u8| lengths.owner(key.as_bytes(), Revision::new(revision), form);
        assert_eq!(lengths.get(owner("a", 1, 0)), None);
        lengths.put(owner("a", 1, 0), 100);
        lengths.put(owner("b", 1, 0), 200);
        assert_eq!((lengths.get(owner("a", 1, 0)), lengths.get(owner("b", 1, 0))), (Some(100), Some(200)));
        for other in [owner("a", 2, 0), owner("a", 1, 1), owner("aa", 1, 0)] {
            assert_eq!(lengths.get(other), None);
        }
        lengths.put(owner("a", 1, 0), 1 << LENGTH_BITS);
        assert_eq!(lengths.get(owner("a", 1, 0)), Some(100), "what does not fit is not noted");
        lengths.forget();
        assert_eq!(lengths.get(owner("b", 1, 0)), None);
    }

    #[test]
    fn many_objects_find_their_own_length_or_none() {
        let lengths = Lengths::default();
        let owner = |n: u64| lengths.owner(&n.to_be_bytes(), Revision::new(n), 0u8);
        (0..ENTRIES as u64).for_each(|n| lengths.put(owner(n), n as usize));
        let known = (0..ENTRIES as u64).filter_map(|n| Some((n, lengths.get(owner(n))?))).collect::<Vec<_>>();
        assert!(known.iter().all(|(n, length)| *n as usize == *length));
        assert!(known.len() > ENTRIES / 2, "{} of {ENTRIES}", known.len());
    }
}
