//! Small collections held in memory, for what every write has to look at: limit ranges, quotas, classes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use plinth_codec::Value;

use super::follow::{Change, Collection, Followed};
use super::key;
use super::stored::Stored;
use crate::conversion;
use crate::registry::ResourceType;
use crate::server::Server;
use crate::status::ApiError;

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
    pub async fn objects(&self, server: &Server, namespace: &str) -> Result<Vec<Arc<Value>>, ApiError> {
        let followed = self.followed(server)?;
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
    pub async fn object(&self, server: &Server, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        let followed = self.followed(server)?;
        followed.look(|objects| objects.by_key.get(&*key::object(&objects.prefix, "", name)).cloned()).await
    }

    fn followed(&self, server: &Server) -> Result<&Followed<Objects>, ApiError> {
        if let Some(followed) = self.objects.get() {
            return Ok(followed);
        }
        let (group, version, plural) = self.resource;
        let resource = server.registry().get(group, version, plural).cloned();
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        let prefix = resource.storage.as_ref().map(|form| form.prefix.clone());
        let prefix = prefix.ok_or_else(ApiError::no_such_resource)?;
        let objects = Objects { resource, prefix, by_key: BTreeMap::new() };
        Ok(self.objects.get_or_init(|| Followed::new(server.store.clone(), objects)))
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
        let tree = conversion::served_tree(&self.resource, &stored, change.revision)?;
        self.by_key.insert(change.key.clone(), Arc::new(tree));
        Ok(())
    }
}
