//! The replicated log that several engines share.
//!
//! A [`Journal`] orders [`record::Record`]s: each replica appends what it proposes, and applies what all
//! have appended, in the order of the journal. The journal knows nothing of what a record does. Why it is
//! built like this: `docs/design/0029-proposals-over-one-log.md`.
//!
//! `record` is the format of what is appended. For tests there are `simulated`, a journal in memory that
//! fails in every way that a real one may, and `conformance`, the promises of a journal as assertions.
//!
//! ```
//! use std::time::Duration;
//!
//! use plinth_journal::simulated::SimulatedJournal;
//! use plinth_journal::{Journal, Position};
//!
//! # fn main() -> plinth_journal::Result<()> {
//! let journal = SimulatedJournal::new(1);
//! let (one, other) = (journal.client(1), journal.client(2));
//! let first = one.append("a".into())?;
//! let second = other.append("b".into())?;
//! assert_eq!((first, second), (Position::new(1), Position::new(2)));
//!
//! // Every replica reads the same records in the same order.
//! let mut reader = one.read(first)?;
//! for (position, bytes) in [(first, "a"), (second, "b")] {
//!     let entry = reader.next(Duration::from_secs(1))?.ok_or(plinth_journal::Error::Unavailable {
//!         message: "nothing was read".to_owned(),
//!     })?;
//!     assert_eq!((entry.position, &entry.bytes[..]), (position, bytes.as_bytes()));
//! }
//! # Ok(())
//! # }
//! ```

pub mod conformance;
mod crc32c;
mod endpoint;
mod error;
mod founding;
mod identity;
mod journal;
mod position;
mod problem;
pub mod record;
mod review;
mod silence;
pub mod simulated;
mod tail;
mod varint;

pub use crc32c::crc32c;
pub use endpoint::{is_address, shown_url, Tls};
pub use error::{Error, Result};
pub use founding::Founding;
pub use journal::{Entry, Journal, Reader};
pub use position::Position;
pub use problem::Problem;
pub use review::{outcome_of_append, Opinion, Review};
pub use silence::Silence;
pub use tail::{Tail, TailReader, LAG};
pub use varint::{put_varint, take_varint};
