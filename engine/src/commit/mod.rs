//! The write path: from a proposal to an acknowledged, published transaction.
//!
//! ```text
//! callers ── Transaction ──> queue (bounded queue) ──> builder ── group ──> syncer ──> hub, answers
//! ```
//!
//! - [`proposal`]: what a caller holds while the transaction is under way.
//! - [`queue`]: the queue, and the hand-over between the two threads.
//! - [`builder`]: one thread that decides: checks conditions, gives out revisions, builds the batch.
//! - [`recent`]: tells whether what a caller has read is still the newest.
//! - [`syncer`]: one thread that waits for the disk, group by group.
//! - [`writer`]: one synced write for a group, then publication and answers.
//! - [`group_delay`]: whether a group waits a moment for callers that were just answered.
//! - [`group`]: what goes from one to the other.
//!
//! When nothing is under way, the builder writes a group of a few transactions itself: waking the syncer would cost
//! a lone caller more than it saves. While the syncer waits for the disk, the builder extends the next group with whatever arrives.
//! Conditions of that group are checked against the database plus the groups that are still on
//! their way to it (the builder's overlay). Nothing is visible before it is durable: RocksDB makes a synced write
//! readable after the sync, and the latest moves after that. When a group fails, everything built on
//! top of it fails with it and the builder starts again from the last published revision.

pub(crate) mod builder;
pub(crate) mod group;
pub(crate) mod group_delay;
#[cfg(all(test, feature = "loom"))]
mod interleavings;
pub(crate) mod proposal;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod syncer;
pub(crate) mod writer;
