//! Values that live as long as somebody holds them, by key.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Number of entries beyond which those are removed that nobody holds.
pub(crate) const SWEEP_AT: usize = 1024;

/// What is shared as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct SharedByKey<K, V> {
    pub(crate) entries: HashMap<K, Weak<V>>,
    sweep_at: usize,
}

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> SharedByKey<K, V> {
        SharedByKey { entries: HashMap::new(), sweep_at: SWEEP_AT }
    }
}

impl<K: Hash + Eq, V> SharedByKey<K, V> {
    /// The value of `key`, made if nobody holds one.
    pub(crate) fn get_or_make<Q>(&mut self, key: &Q, make: impl FnOnce() -> V) -> Arc<V>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Hash + Eq + ?Sized,
    {
        if let Some(shared) = self.entries.get(key).and_then(Weak::upgrade) {
            return shared;
        }
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, shared| shared.strong_count() > 0);
            self.sweep_at = (2 * self.entries.len()).max(SWEEP_AT);
        }
        let made = Arc::new(make());
        self.entries.insert(key.to_owned(), Arc::downgrade(&made));
        made
    }
}
