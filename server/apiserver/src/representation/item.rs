//! What is encoded: stored objects, in lists and in watch events.

use plinth_api::ApiError;
use plinth_engine::Revision;
use plinth_storage::Stored;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the protocol's own words
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The revision of the list.
    pub resource_version: String,
    /// Token of the next page; empty on the last.
    pub continue_token: String,
    /// Number of items after this page, where that is known.
    pub remaining_item_count: Option<u64>,
}

/// A stored object to be encoded.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// Header and body.
    pub stored: Stored<'a>,
    /// Its resourceVersion: its own, or for a deletion that of the deletion.
    pub revision: Revision,
}

impl<'a> Item<'a> {
    /// Parses header and body of a stored value.
    ///
    /// # Errors
    /// 500 when the value is corrupt.
    pub fn new(value: &'a [u8], revision: Revision) -> Result<Item<'a>, ApiError> {
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        Ok(Item { stored, revision })
    }
}
