//! Small collections held in memory, for what every write has to look at: limit ranges, quotas, classes.
//!
//! A mirror is filled by the first look and then follows the engine's feed. Each look takes in what the feed has, and
//! the engine publishes a commit before it acknowledges it; so a look sees every write that was acknowledged before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::Value;
use plinth_engine::{EventKind, Feed, Subscribe, Subscription};

use super::stored::Stored;
use super::{key, object};
use crate::conversion;
use crate::registry::ResourceType;
use crate::server::Server;
use crate::status::ApiError;

/// One collection in memory. The lock is held to take in events and to copy references, never across an await; the
/// objects are shared and never change.
pub struct Mirror {
    /// Group, version and plural of the storage version.
    resource: (&'static str, &'static str, &'static str),
    state: Mutex<Option<State>>,
}

struct State {
    feed: Subscription,
    objects: BTreeMap<Bytes, Arc<Value>>,
}

impl Mirror {
    /// A mirror of that resource (group, version, plural) that is still empty.
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Mirror {
        Mirror { resource: (group, version, plural), state: Mutex::new(None) }
    }

    /// The objects of a namespace, or all of a cluster-scoped resource when it is empty, in the order of their names.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn objects(&self, server: &Server, namespace: &str) -> Result<Vec<Arc<Value>>, ApiError> {
        let resource = &self.resource_type(server)?;
        let Some(form) = &resource.storage else { return Ok(Vec::new()) };
        let start = key::collection(&form.prefix, namespace);
        loop {
            if let Some(state) = self.state.lock().as_mut() {
                if state.catch_up(server, resource).is_ok_and(|whole| whole) {
                    let from = state.objects.range(Bytes::copy_from_slice(&start)..);
                    let inside = from.take_while(|(key, _)| key.starts_with(&start));
                    return Ok(inside.map(|(_, object)| object.clone()).collect());
                }
            }
            let state = fill(server, resource, &form.prefix).await?;
            *self.state.lock() = Some(state);
        }
    }

    /// The object of that name.
    ///
    /// # Errors
    /// When the collection cannot be read.
    pub async fn object(&self, server: &Server, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        let objects = self.objects(server, "").await?;
        Ok(objects.into_iter().find(|object| crate::metadata::text(object, "name") == name))
    }

    fn resource_type(&self, server: &Server) -> Result<Arc<ResourceType>, ApiError> {
        let (group, version, plural) = self.resource;
        server.registry().get(group, version, plural).cloned().ok_or_else(ApiError::no_such_resource)
    }
}

impl State {
    /// Takes in what the feed has; false when that is not everything: a mirror that nobody looked at for long is
    /// sooner filled anew than led through the past.
    fn catch_up(&mut self, server: &Server, resource: &ResourceType) -> Result<bool, ApiError> {
        let wanted = server.store.engine().current_revision();
        while let Some(feed) = self.feed.try_next()? {
            let Feed::Events(events) = feed else { continue };
            for event in events.iter() {
                match &event.kind {
                    EventKind::Delete => {
                        self.objects.remove(&event.key);
                    }
                    EventKind::Put { value, .. } => {
                        let value = server.store.open(&event.key, value)?;
                        let stored = Stored::parse(&value).map_err(ApiError::internal)?;
                        let tree = conversion::served_tree(resource, &stored, event.revision)?;
                        self.objects.insert(event.key.clone(), Arc::new(tree));
                    }
                }
            }
        }
        Ok(self.feed.position() >= wanted)
    }
}

async fn fill(server: &Server, resource: &Arc<ResourceType>, prefix: &str) -> Result<State, ApiError> {
    let range = key::range(prefix.as_bytes());
    let (records, revision) = server.store.records(range.clone()).await?;
    let feed = server.store.engine().subscribe(Subscribe::new(range).after(revision))?;
    let mut objects = BTreeMap::new();
    for record in records {
        let tree = object::to_tree(resource, &record)?;
        objects.insert(record.key.clone(), Arc::new(tree));
    }
    Ok(State { feed, objects })
}
