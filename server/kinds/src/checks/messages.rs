//! Messages that rows of checks and functions share.

/// Message for an invalid port number.
pub(crate) const PORT: &str = "must be between 1 and 65535, inclusive";

/// Message for a negative quantity.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
