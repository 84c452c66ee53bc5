//! Clients of other servers by what their TLS settings and connections depend on.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Clients that are cached; with more, all are dropped and made again when they are needed.
pub(super) const MAX_CLIENTS: usize = 64;

/// A cache of clients. The lock is held for a look-up or a replacement, not while a client is made.
pub(super) struct ClientCache<K, C>(Mutex<Clients<K, C>>);

struct Clients<K, C> {
    /// Counts [`ClientCache::clear`].
    generation: u64,
    by_key: HashMap<K, Arc<C>>,
}

impl<K, C> Default for ClientCache<K, C> {
    fn default() -> ClientCache<K, C> {
        ClientCache(Mutex::new(Clients { generation: 0, by_key: HashMap::new() }))
    }
}

impl<K: Hash + Eq, C> ClientCache<K, C> {
    /// The client of `key`, made if there is none. One that was begun before a [`clear`](ClientCache::clear)
    /// is returned and not kept: it may have been made of what was replaced.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn get_or_make<E>(&self, key: K, make: impl FnOnce(&K) -> Result<C, E>) -> Result<Arc<C>, E> {
        let generation = {
            let clients = self.0.lock();
            if let Some(client) = clients.by_key.get(&key) {
                return Ok(client.clone());
            }
            clients.generation
        };
        let client = Arc::new(make(&key)?);
        let mut clients = self.0.lock();
        if clients.generation != generation {
            return Ok(client);
        }
        if clients.by_key.len() >= MAX_CLIENTS {
            clients.by_key.clear();
        }
        Ok(clients.by_key.entry(key).or_insert(client).clone())
    }

    /// Drops all; requests in flight keep theirs. To be called once what they are made of was replaced.
    pub(super) fn clear(&self) {
        let mut clients = self.0.lock();
        clients.generation += 1;
        clients.by_key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &ClientCache<usize, usize>, key: usize, made: usize) -> usize {
        *cache.get_or_make(key, |_| Ok::<_, ()>(made)).unwrap()
    }

    #[test]
    fn a_client_is_made_once_and_not_kept_where_it_fails() {
        let cache = ClientCache::<usize, usize>::default();
        assert_eq!(cache.get_or_make(1, |_| Err("bad")).unwrap_err(), "bad");
        assert_eq!([get(&cache, 1, 10), get(&cache, 1, 11), get(&cache, 2, 20)], [10, 10, 20]);
        cache.clear();
        assert_eq!(get(&cache, 1, 12), 12);
    }

    #[test]
    fn a_client_that_was_begun_before_a_clear_is_not_kept() {
        let cache = ClientCache::<usize, usize>::default();
        let old = cache.get_or_make(1, |_| {
            cache.clear();
            Ok::<_, ()>(10)
        });
        assert_eq!(*old.unwrap(), 10);
        assert_eq!([get(&cache, 1, 11), get(&cache, 1, 12)], [11, 11]);
        // Of two that are made at a time, one is kept.
        let outer = cache.get_or_make(2, |_| Ok::<_, ()>(get(&cache, 2, 20) + 1));
        assert_eq!((*outer.unwrap(), get(&cache, 2, 22)), (20, 20));
    }

    #[test]
    fn there_are_not_too_many() {
        let cache = ClientCache::<usize, usize>::default();
        for key in 0..=MAX_CLIENTS {
            assert_eq!(get(&cache, key, key), key);
            assert!(cache.0.lock().by_key.len() <= MAX_CLIENTS);
        }
        assert_eq!(get(&cache, MAX_CLIENTS, 0), MAX_CLIENTS, "the last is kept");
    }
}
