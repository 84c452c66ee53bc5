//! The replicated log that several engines share.
//!
//! A [`Journal`] orders [`record::Record`]s: each replica appends what it proposes, and applies what all
//! have appended, in the order of the journal. The journal knows nothing of what a record does. Why it is
//! built like this: `docs/design/0029-proposals-over-one-log.md`.
//!
//! `record` is the format of what is appended. For tests there are `simulated`, a journal in memory that
//! fails in every way that a real one may, and `conformance`, the promises of a journal as assertions.

pub mod conformance;
mod crc32c;
mod error;
mod identity;
mod journal;
mod position;
pub mod record;
pub mod simulated;
mod varint;

pub use crc32c::crc32c;
pub use error::{Error, Result};
pub use journal::{Entry, Journal, Reader};
pub use position::Position;
pub use varint::{put_varint, take_varint};
