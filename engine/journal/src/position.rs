//! [`Position`]: a place in a journal.

use std::fmt;

/// Place of a record in a journal: the first record has position 1, each later one exactly one more. Zero
/// means "before anything".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Before the first record.
    pub const ZERO: Position = Position(0);

    /// The position with this number.
    pub const fn new(number: u64) -> Position {
        Position(number)
    }

    /// As a number; 0 is before the first record.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position after this one. The last one is its own successor; no journal comes near it.
    #[must_use]
    pub const fn next(self) -> Position {
        Position(self.0.saturating_add(1))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
