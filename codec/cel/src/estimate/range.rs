//! Ranges of sizes and costs, and where a value lies in the data.

use crate::cost::scaled;
use crate::types::{DeclType, Shape};

/// The minimum and maximum of a size or cost. Saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

pub(super) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

impl Range {
    pub(super) fn exactly(n: u64) -> Range {
        Range { min: n, max: n }
    }

    pub(super) fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn scaled(self, factor: f64) -> Range {
        Range { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    pub(super) fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The path of a value in the data.
#[derive(Clone, Debug)]
pub(super) enum DataPath {
    At(DeclType),
    /// A key of a map, of at most that many bytes.
    Key(u64),
    /// A value that the schema does not describe.
    Unknown,
}

impl DataPath {
    pub(super) fn size(&self) -> Option<Range> {
        match self {
            DataPath::At(declared) => Some(Range { min: 0, max: declared.max_elements() }),
            DataPath::Key(max) => Some(Range { min: 0, max: *max }),
            DataPath::Unknown => None,
        }
    }

    pub(super) fn element(&self) -> DataPath {
        match self {
            DataPath::At(declared) => declared.element().cloned().map_or(DataPath::Unknown, DataPath::At),
            _ => DataPath::Unknown,
        }
    }

    pub(super) fn field(&self, name: &str) -> DataPath {
        match self {
            DataPath::At(declared) => match (declared.field(name), declared.element()) {
                (Some(field), _) => DataPath::At(field.declared.clone()),
                // The values of attributes of a device are bounded whatever their names.
                (None, Some(element)) if matches!(element.shape(), Shape::Any) => {
                    DataPath::At(element.clone())
                }
                _ => DataPath::Unknown,
            },
            _ => DataPath::Unknown,
        }
    }
}

/// The sizes of the entries of a list or map that an expression creates.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySizes {
    pub(super) list: bool,
    pub(super) key: Range,
    pub(super) value: Range,
}

impl EntrySizes {
    pub(super) fn union(self, other: EntrySizes) -> EntrySizes {
        EntrySizes { list: self.list, key: self.key.union(other.key), value: self.value.union(other.value) }
    }
}
