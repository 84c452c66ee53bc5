//! Reads stored objects in the served version. For built-in kinds that is the stored form; custom resources
//! may have been stored under another schema or in another version.
//!
//! | module | subject |
//! |---|---|
//! | [`read`] | single objects and events |
//! | `scan` | the objects of a range, or of some keys, at one revision |
//! | `reader` | what reading needs |

pub mod read;
mod reader;
mod scan;

pub use reader::ObjectReader;
pub(crate) use scan::{Filter, Scan};
