//! Small collections cached in memory, for the objects that every write needs: limit ranges, quotas, classes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::Value;

use super::informer::{Informer, InformerChange, InformerView};
use super::object;
use super::stored::Stored;
use super::Store;
use plinth_api::ApiError;
use plinth_registry::{collection_prefix, object_key, ResourceType};

/// A cached collection, loaded by the first read (see [`Informer`]).
pub struct ObjectCache {
    /// Group, version and plural of the storage version.
    resource: (&'static str, &'static str, &'static str),
    objects: OnceLock<Informer<Objects>>,
}

/// The objects by their keys; shared and immutable.
struct Objects {
    resource: Arc<ResourceType>,
    prefix: String,
    by_key: BTreeMap<Bytes, Arc<Value>>,
}

impl ObjectCache {
    /// An empty cache of a resource (group, version, plural).
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> ObjectCache {
        ObjectCache { resource: (group, version, plural), objects: OnceLock::new() }
    }

    /// The objects of a namespace, or all if it is empty, in the order of their keys.
    ///
    /// # Errors
    /// When the collection cannot be loaded.
    pub async fn objects(&self, store: &Store, namespace: &str) -> Result<Vec<Arc<Value>>, ApiError> {
        let informer = self.informer(store)?;
        informer
            .read(|objects| {
                let start = collection_prefix(&objects.prefix, namespace);
                let from = objects.by_key.range(Bytes::copy_from_slice(&start)..);
                let inside = from.take_while(|(key, _)| key.starts_with(&start));
                inside.map(|(_, object)| object.clone()).collect()
            })
            .await
    }

    /// The object with the given name.
    ///
    /// # Errors
    /// When the collection cannot be loaded.
    pub async fn object(&self, store: &Store, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        let informer = self.informer(store)?;
        informer.read(|objects| objects.by_key.get(&*object_key(&objects.prefix, "", name)).cloned()).await
    }

    fn informer(&self, store: &Store) -> Result<&Informer<Objects>, ApiError> {
        if let Some(informer) = self.objects.get() {
            return Ok(informer);
        }
        let (group, version, plural) = self.resource;
        let resource = store.registry().internal(group, version, plural).cloned();
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        let prefix = resource.storage.as_ref().map(|form| form.prefix.clone());
        let prefix = prefix.ok_or_else(ApiError::no_such_resource)?;
        let objects = Objects { resource, prefix, by_key: BTreeMap::new() };
        Ok(self.objects.get_or_init(|| Informer::new(store.clone(), objects)))
    }
}

/// Values derived from each object of a cache, computed once per version of the object: compiled expressions.
/// The lock is held to read and to replace, not while values are computed.
pub struct DerivedCache<T> {
    cache: ObjectCache,
    derive: fn(&Value) -> T,
    derived: Mutex<Entries<T>>,
}

/// Objects and their derived values, in the order of the objects' keys.
pub type Entries<T> = Arc<[(Arc<Value>, Arc<T>)]>;

impl<T> DerivedCache<T> {
    /// Over an empty cache.
    pub fn new(cache: ObjectCache, derive: fn(&Value) -> T) -> DerivedCache<T> {
        DerivedCache { cache, derive, derived: Mutex::new(Arc::new([])) }
    }

    /// The objects and their derived values, as fresh as a read.
    ///
    /// # Errors
    /// When the collection cannot be loaded.
    pub async fn entries(&self, store: &Store) -> Result<Entries<T>, ApiError> {
        let objects = self.cache.objects(store, "").await?;
        let previous = self.derived.lock().clone();
        let same = |(object, _): &(Arc<Value>, _), other: &Arc<Value>| Arc::ptr_eq(object, other);
        if previous.len() == objects.len()
            && previous.iter().zip(&objects).all(|(entry, other)| same(entry, other))
        {
            return Ok(previous);
        }
        // The old list keeps its objects alive, so their addresses are unique.
        let by_address: HashMap<*const Value, &Arc<T>> =
            previous.iter().map(|(object, derived)| (Arc::as_ptr(object), derived)).collect();
        let entries: Entries<T> = objects
            .into_iter()
            .map(|object| {
                let derived = by_address.get(&Arc::as_ptr(&object)).map(|derived| (*derived).clone());
                let derived = derived.unwrap_or_else(|| Arc::new((self.derive)(&object)));
                (object, derived)
            })
            .collect();
        *self.derived.lock() = entries.clone();
        Ok(entries)
    }
}

impl InformerView for Objects {
    fn empty(&self) -> Objects {
        let (resource, prefix) = (self.resource.clone(), self.prefix.clone());
        Objects { resource, prefix, by_key: BTreeMap::new() }
    }

    fn prefixes(&self) -> Vec<String> {
        vec![self.prefix.clone()]
    }

    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError> {
        let Some(value) = change.value else {
            self.by_key.remove(change.key);
            return Ok(());
        };
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let tree = object::decode_served_object(&self.resource, &stored, change.revision)?;
        self.by_key.insert(change.key.clone(), Arc::new(tree));
        Ok(())
    }
}
