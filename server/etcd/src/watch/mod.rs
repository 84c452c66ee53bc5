//! The service Watch: many watches on one stream (`stream`), and how their events become responses
//! (`response`).
//!
//! A watch is a subscription of the engine: a position, not a queue. A client that reads slowly leaves its
//! stream waiting, and what it has not read is read from the log later.

mod response;
mod stream;

pub(crate) use stream::{serve, OVERHEAD};
