use std::sync::Arc;

use crate::custom_resources::Converter;
use plinth_storage::{HeaderIndex, Store};

/// Reads objects in the version that a request asks for.
pub struct ObjectReader {
    /// Converts custom resources.
    pub converter: Converter,
    /// Headers of collections that are searched by selectors.
    pub header_index: Arc<HeaderIndex>,
}

impl ObjectReader {
    /// Stored objects.
    pub fn store(&self) -> &Store {
        &self.converter.store
    }
}
