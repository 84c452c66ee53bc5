//! Change feeds: from the committer to any number of subscribers.
//!
//! - [`event`]: what subscribers receive.
//! - [`ring`]: the most recent commits, in memory.
//! - [`hub`]: where the committer publishes and subscribers read; the index by key prefix.
//! - [`subscription`]: one subscriber's position and how it advances.
//! - [`feeder`]: the thread that reads the log on disk for subscribers that lag, through [`crate::history`].
//! - [`wait`]: waiting for a revision.
//! - [`wake`]: the thread that wakes many subscribers.
//!
//! A subscriber is a position in the history: the revision up to which it has received everything. The source
//! of the next events follows from comparing that position with two others, never from moving the subscriber
//! between sets:
//!
//! ```text
//! position >= complete_from of its range feed   take the next shared segment, or wait
//! position >= start of the ring                 scan the ring, a bounded piece at a time
//! position >= compaction floor                  have the feeder read a bounded piece of the log
//! otherwise                                     Compacted
//! ```
//!
//! Nothing here waits for a subscriber, so a slow one does not affect others.

pub(crate) mod event;
pub(crate) mod feeder;
pub(crate) mod hub;
#[cfg(all(test, feature = "loom"))]
pub(crate) mod interleavings;
pub(crate) mod ring;
pub(crate) mod subscription;
pub(crate) mod wait;
pub(crate) mod wake;
