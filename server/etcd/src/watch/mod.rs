//! The service Watch: many watches on one stream (`stream`), how their events become responses (`response`),
//! and what of these waits for the client (`queue`).
//!
//! A watch is a subscription of the engine: a position, not a queue. A client that reads slowly leaves its
//! stream waiting, and what it has not read is read from the log later.

mod queue;
mod response;
mod stream;

pub(crate) use stream::{serve, OVERHEAD};
