//! The error of a stored value that cannot be read.

/// A stored value that is not what [`crate::HeaderFields::encode`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored object is damaged: {0}")]
pub struct DamagedValue(&'static str);

impl DamagedValue {
    /// A damaged value with a description.
    pub const fn new(what: &'static str) -> DamagedValue {
        DamagedValue(what)
    }
}
