//! The write path: from a proposed transaction to an acknowledged, published one.
//!
//! ```text
//! callers ── Transaction ──> commit queue ──> builder ── group ──> syncer ──> hub, answers
//! ```
//!
//! - [`proposal`]: the caller's handle of a transaction in flight.
//! - [`reply`]: its answer, and the two ends that the answer passes between.
//! - [`queue`]: the commit queue, and the hand-over between the two threads.
//! - [`builder`]: one thread that takes them from the queue and builds groups.
//! - [`state`]: what a transaction does to the state: conditions, revision, versions, log entry, events.
//! - [`recent`]: whether a record that a caller has read is still the newest.
//! - [`syncer`]: one thread that writes and syncs, group by group.
//! - [`writer`]: one synced write for a group, then publication and answers.
//! - [`group_delay`]: the group-commit delay.
//! - [`group`]: transactions that are written together.
//!
//! When nothing is in flight, the builder writes a group of a few transactions itself: waking the syncer
//! would cost a lone caller more than it saves. While the syncer waits for the disk, the builder extends the
//! next group with whatever arrives. Conditions of that group are checked against the database plus the
//! groups in flight (the overlay). Nothing is visible before it is durable: RocksDB makes a synced
//! write readable after the sync, and the hub's latest revision advances after that. When a group fails,
//! everything built on top of it fails with it and the builder restarts from the last published revision.
//!
//! A replica of a cluster has neither builder nor syncer: see [`crate::replica`].

pub(crate) mod builder;
pub(crate) mod group;
pub(crate) mod group_delay;
#[cfg(all(test, feature = "loom"))]
mod interleavings;
pub(crate) mod proposal;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod reply;
pub(crate) mod state;
pub(crate) mod syncer;
pub(crate) mod writer;
