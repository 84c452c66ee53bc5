//! A revisioned key-value store on RocksDB.
//!
//! Every committed transaction takes the next number of one global, gapless [`Revision`]. The state at each
//! revision can be read until it is compacted, and every change after a revision can be subscribed to, in
//! order, exactly once. A directory is opened by one process at a time; an acknowledged write survives a
//! killed process and a power failure.
//!
//! ```
//! use plinth_engine::{At, Condition, Engine, KeyRange, Options, Subscribe, Transaction, Feed};
//!
//! # fn main() -> Result<(), plinth_engine::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! let engine = Engine::open(Options::new(dir.path()))?;
//! let mut changes = engine.subscribe(Subscribe::new(KeyRange::prefix("stock/")))?;
//!
//! let first = engine.transact(Transaction::new().put("stock/apples", "10").put("stock/pears", "3")).wait()?;
//! let second = engine
//!     .transact(
//!         Transaction::new()
//!             .require(Condition::ModRevision { key: "stock/apples".into(), revision: first.revision })
//!             .put("stock/apples", "9"),
//!     )
//!     .wait()?;
//!
//! // The newest state, and the state before the second transaction.
//! assert_eq!(engine.get(b"stock/apples", At::Latest)?.unwrap().value, "9");
//! assert_eq!(engine.get(b"stock/apples", At::Exact(first.revision))?.unwrap().value, "10");
//!
//! // A pinned snapshot is streamed without copying.
//! let mut range = engine.snapshot(At::Latest)?.range(&KeyRange::prefix("stock/"));
//! while let Some(entry) = range.next()? {
//!     assert!(entry.mod_revision <= second.revision);
//! }
//!
//! // The feed delivers the same changes.
//! let Feed::Events(events) = changes.try_next()?.unwrap() else { panic!("no events") };
//! assert_eq!(events[0].revision, first.revision);
//! engine.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! From the top down: [`Engine`] (`engine`) is the public handle. Writes pass `transaction` (what callers
//! submit) and `commit` (queue, builder, syncer), in a replica `replica` (proposer, applier). Reads are in
//! `read`, change feeds in `feed`, which `history` supplies with what is no longer in memory; `counts` is
//! above both. `compact` removes history, `maintenance` is the thread that runs it and expires keys. Below
//! them `stored`, `log` and `layout` define the on-disk format, and `store` opens RocksDB.
//! `docs/storage-format.md` documents the format as a whole.

mod archive;
mod block;
mod builder;
mod clock;
mod commit;
mod compact;
mod counts;
mod directory;
mod directory_watch;
mod engine;
mod error;
#[cfg(feature = "failpoints")]
pub mod failpoint;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
mod feed;
mod floor;
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod history;
mod layout;
mod log;
mod maintenance;
mod maintenance_control;
mod options;
mod range;
mod read;
mod record;
mod recovery;
mod repair;
mod replica;
mod reserve;
mod revision;
mod start;
mod stats;
mod store;
mod store_mark;
mod stored;
mod sync;
mod tables;
mod transaction;
mod verify;
mod view;
mod wal;
mod watermark;

pub use archive::{prepare_restore, restore, ArchiveSummary, Continuation, PreparedRestore, Progress};
pub use builder::StoreBuilder;
pub use clock::Clock;
pub use commit::proposal::Proposal;
pub use commit::reply::Committed;
pub use counts::KeyCounts;
pub use directory::check_restorable;
pub use engine::Engine;
pub use error::{Error, Result};
pub use feed::event::{Commit, Event, EventKind, Extension};
pub use feed::subscription::{Feed, Subscribe, Subscription};
pub use feed::wait::WaitFor;
pub use health::{Failed, Failure, Warning};
pub use options::Options;
pub use range::KeyRange;
pub use read::{Entry, InMemory, Range, Snapshot};
pub use record::Record;
pub use recovery::DroppedTail;
pub use repair::{repair, RepairReport};
pub use replica::barrier::ReadBarrier;
#[doc(hidden)]
pub use replica::stepped::Stepper;
pub use replica::{
    applied_position, applied_records, check_replica, is_replicated, replicate, unreplicate, AppliedRecords,
    Replica, ReplicaStatus,
};
pub use revision::{At, Revision};
pub use stats::{Distribution, FamilyStats, JournalStats, Stats, BUCKETS};
pub use transaction::{Condition, Transaction};
pub use verify::{verify, Finding, VerifyReport};
