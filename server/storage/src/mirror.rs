//! Small collections held in memory, for what every write has to look at: limit ranges, quotas, classes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::Value;

use super::follow::{Change, Collection, Followed};
use super::object;
use super::stored::Stored;
use super::Store;
use plinth_api::api_error::ApiError;
use plinth_registry::key;
use plinth_registry::ResourceType;

/// One collection in memory: it follows the engine's feed from the first look on (see [`Followed`]).
pub struct Mirror {
    /// Group, version and plural of the storage version.
    resource: (&'static str, &'static str, &'static str),
    objects: OnceLock<Followed<Objects>>,
}

/// The objects by their keys; shared, they never change.
struct Objects {
    resource: Arc<ResourceType>,
    prefix: String,
    by_key: BTreeMap<Bytes, Arc<Value>>,
}

impl Mirror {
    /// A mirror of that resource (group, version, plural) that is still empty.
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Mirror {
        Mirror { resource: (group, version, plural), objects: OnceLock::new() }
    }

    /// The objects of a namespace, or all of a cluster-scoped resource when it is empty, in the order of their names.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn objects(&self, store: &Store, namespace: &str) -> Result<Vec<Arc<Value>>, ApiError> {
        let followed = self.followed(store)?;
        followed
            .look(|objects| {
                let start = key::collection(&objects.prefix, namespace);
                let from = objects.by_key.range(Bytes::copy_from_slice(&start)..);
                let inside = from.take_while(|(key, _)| key.starts_with(&start));
                inside.map(|(_, object)| object.clone()).collect()
            })
            .await
    }

    /// The object of that name.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn object(&self, store: &Store, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        let followed = self.followed(store)?;
        followed.look(|objects| objects.by_key.get(&*key::object(&objects.prefix, "", name)).cloned()).await
    }

    fn followed(&self, store: &Store) -> Result<&Followed<Objects>, ApiError> {
        if let Some(followed) = self.objects.get() {
            return Ok(followed);
        }
        let (group, version, plural) = self.resource;
        let resource = store.registry().get(group, version, plural).cloned();
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        let prefix = resource.storage.as_ref().map(|form| form.prefix.clone());
        let prefix = prefix.ok_or_else(ApiError::no_such_resource)?;
        let objects = Objects { resource, prefix, by_key: BTreeMap::new() };
        Ok(self.objects.get_or_init(|| Followed::new(store.clone(), objects)))
    }
}

/// What is made of each object of a mirror, once for each version of the object: compiled expressions. The lock is held
/// to look and to replace, never while something is made.
pub struct Derived<T> {
    mirror: Mirror,
    make: fn(&Value) -> T,
    made: Mutex<Entries<T>>,
}

/// Objects and what was made of them, in the order of the objects' names.
pub type Entries<T> = Arc<[(Arc<Value>, Arc<T>)]>;

impl<T> Derived<T> {
    /// Of a mirror that is still empty.
    pub fn new(mirror: Mirror, make: fn(&Value) -> T) -> Derived<T> {
        Derived { mirror, make, made: Mutex::new(Arc::new([])) }
    }

    /// The objects and what is made of them, as fresh as a read.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn entries(&self, store: &Store) -> Result<Entries<T>, ApiError> {
        let objects = self.mirror.objects(store, "").await?;
        let known = self.made.lock().clone();
        let same = |(object, _): &(Arc<Value>, _), other: &Arc<Value>| Arc::ptr_eq(object, other);
        if known.len() == objects.len() && known.iter().zip(&objects).all(|(entry, other)| same(entry, other))
        {
            return Ok(known);
        }
        // An object in the old list stays where it is as long as that is held, so its address is its own.
        let by_address: HashMap<*const Value, &Arc<T>> =
            known.iter().map(|(object, made)| (Arc::as_ptr(object), made)).collect();
        let entries: Entries<T> = objects
            .into_iter()
            .map(|object| {
                let made = by_address.get(&Arc::as_ptr(&object)).map(|made| (*made).clone());
                let made = made.unwrap_or_else(|| Arc::new((self.make)(&object)));
                (object, made)
            })
            .collect();
        *self.made.lock() = entries.clone();
        Ok(entries)
    }
}

impl Collection for Objects {
    fn empty(&self) -> Objects {
        let (resource, prefix) = (self.resource.clone(), self.prefix.clone());
        Objects { resource, prefix, by_key: BTreeMap::new() }
    }

    fn prefixes(&self) -> Vec<String> {
        vec![self.prefix.clone()]
    }

    fn change(&mut self, change: Change<'_>) -> Result<(), ApiError> {
        let Some(value) = change.value else {
            self.by_key.remove(change.key);
            return Ok(());
        };
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let tree = object::served_tree(&self.resource, &stored, change.revision)?;
        self.by_key.insert(change.key.clone(), Arc::new(tree));
        Ok(())
    }
}
