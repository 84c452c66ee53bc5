//! Events of the change feed, shared by all subscribers.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::record::Record;
use crate::revision::Revision;

/// A change of one key. One allocation, shared by all subscribers that get it.
pub struct Event {
    /// Revision of the transaction that made the change.
    pub revision: Revision,
    /// Key that changed.
    pub key: Bytes,
    /// What became of it.
    pub kind: EventKind,
    /// The previous record; none when the key was absent. Events that a lagging subscriber reads from disk
    /// carry it only when [`crate::Subscribe::previous`] was asked for.
    pub previous: Option<Record>,
    /// Cache for a value that a caller derives from the event, such as its encoded form: made by the first
    /// subscriber that needs it, shared by all, dropped with the event.
    pub extension: Extension,
}

impl Event {
    pub(crate) fn new(revision: Revision, key: Bytes, kind: EventKind, previous: Option<Record>) -> Event {
        Event { revision, key, kind, previous, extension: Extension::default() }
    }

    /// Whether the key was deleted.
    pub fn is_delete(&self) -> bool {
        matches!(self.kind, EventKind::Delete)
    }

    /// Memory of the event in bytes, for the limit of the ring.
    pub(crate) fn size(&self) -> usize {
        /// Allocation overhead, approximately.
        const OVERHEAD: usize = 320;
        let value = match &self.kind {
            EventKind::Put { value, .. } => value.len(),
            EventKind::Delete => 0,
        };
        let previous = self.previous.as_ref().map_or(0, |record| record.value.len());
        OVERHEAD + self.key.len() + value + previous
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("revision", &self.revision)
            .field("key", &self.key)
            .field("kind", &self.kind)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A value was written.
    Put {
        /// The value that was put.
        value: Bytes,
        /// Revision at which the key was created: equal to the event's when this put created it.
        create_revision: Revision,
        /// Number of puts since then; 1 for the first.
        version: u64,
        /// When the key expires, in milliseconds since 1970; none for no expiry.
        expires_at_ms: Option<u64>,
    },
    /// The key was deleted, by a transaction or because it expired.
    Delete,
}

/// A slot for one value of any type, set once.
#[derive(Default)]
pub struct Extension(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Extension {
    /// The value in the slot, made by `make` when the slot is empty. None when it holds a value of another
    /// type.
    pub fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Arc::new(make())).downcast_ref()
    }

    /// The value in the slot, if it is of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get()?.downcast_ref()
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Extension(set)" } else { "Extension(empty)" })
    }
}

/// All events of one revision, in the order of the transaction.
#[derive(Debug)]
pub struct Commit {
    /// The revision that the commit made.
    pub revision: Revision,
    /// Its events; at least one.
    pub events: Vec<Arc<Event>>,
    /// Memory in bytes.
    pub(crate) size: usize,
}

impl Commit {
    pub(crate) fn new(revision: Revision, events: Vec<Arc<Event>>) -> Commit {
        let size = events.iter().map(|event| event.size()).sum();
        Commit { revision, events, size }
    }
}
