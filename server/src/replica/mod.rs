//! A server among others of one cluster: which journal they share, and which of them there are.
//!
//! | module | subject |
//! |---|---|
//! | [`checkpoint_dir`] | checkpoints in a directory |
//! | [`checkpoint`] | what a joining replica gets |
//! | [`controller_lease`] | which replica runs the controllers |
//! | [`download`] | copies that from another replica |
//! | [`journal`] | the journal that `--journal` names |
//! | [`journal_settings`] | its settings, which others may change, and its members |
//! | `pace` | a writer that keeps to a rate |
//! | [`rejoin`] | a new checkpoint for a replica that was away for long |
//!
//! Which replicas there are lies below this: [`crate::members`].
//!
//! What a replica is, and what it promises: `docs/replication.md`.

pub mod checkpoint;
pub mod checkpoint_dir;
pub mod controller_lease;
pub mod download;
pub mod journal;
pub mod journal_settings;
mod pace;
pub mod rejoin;
