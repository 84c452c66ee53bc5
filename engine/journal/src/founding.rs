//! [`Founding`]: who may make an empty place a journal.

/// Whether a journal is founded where nothing is.
///
/// A replica that has applied records of its journal, or begins with those of another replica, has a journal
/// already. Where it finds none it was led to another place, or the journal is lost: nothing may be written
/// there, since the first one that writes makes it its cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Founding {
    /// An empty place becomes this cluster's: that of a replica that has applied nothing.
    Allowed,
    /// An empty place is refused.
    Forbidden,
}
