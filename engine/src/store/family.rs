//! The column families of the database.

use crate::layout;

/// A column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Current,
    History,
    Log,
    Expiry,
    Meta,
}

impl Family {
    pub(crate) const ALL: [Family; 5] =
        [Family::Current, Family::History, Family::Log, Family::Expiry, Family::Meta];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Family::Current => layout::CURRENT,
            Family::History => layout::HISTORY,
            Family::Log => layout::LOG,
            Family::Expiry => layout::EXPIRY,
            Family::Meta => rocksdb::DEFAULT_COLUMN_FAMILY_NAME,
        }
    }

    /// The family with this number in RocksDB: the default one is 0, the others are numbered in the order of
    /// their creation, which is that of [`Family::ALL`].
    pub(crate) fn of_number(number: usize) -> Option<Family> {
        match number {
            0 => Some(Family::Meta),
            number => Family::ALL.get(number - 1).copied().filter(|family| *family != Family::Meta),
        }
    }
}
