//! A server among others of one cluster: which journal they share, and which of them there are.
//!
//! | module | subject |
//! |---|---|
//! | [`checkpoint`] | what a joining replica gets |
//! | [`controller_lease`] | which replica runs the controllers |
//! | [`journal`] | the journal that `--journal` names |
//! | [`members`] | the replicas of the cluster, and how far each has come |
//!
//! What a replica is, and what it promises: `docs/replication.md`.

pub mod checkpoint;
pub mod controller_lease;
pub mod journal;
pub mod members;
