//! A [`Journal`](plinth_journal::Journal) in etcd: one key whose versions are the records.
//!
//! An append puts the key. etcd counts the puts of a key since it was created, so that number, its `version`,
//! is the position: without gaps, given by etcd, and with no comparison that two replicas could lose against
//! each other. A reader watches the key. Trimming compacts etcd's history. Why it is built like this and what
//! was refused: `docs/design/0030-journal-on-etcd.md`.
//!
//! The etcd is this journal's own: whoever else compacts its history trims the journal, which is noticed.
//!
//! ```no_run
//! use plinth_journal::record::ClusterId;
//! use plinth_journal::{Founding, Journal};
//! use plinth_journal_etcd::{EtcdJournal, EtcdOptions};
//!
//! let options = EtcdOptions::parse("etcd://127.0.0.1:2379,127.0.0.1:2479/plinth")?;
//! let journal = EtcdJournal::connect(&options, ClusterId([7; 16]), Founding::Allowed)?;
//! let position = journal.append("a record".into())?;
//! assert_eq!(journal.read(position)?.next(std::time::Duration::from_secs(1))?.unwrap().bytes, "a record");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call_error;
mod client;
mod connector;
mod doubts;
mod etcd_cluster;
mod finding;
mod journal;
mod member_state;
mod options;
mod request_sizes;
#[cfg(test)]
mod scripted;
mod shared;
mod tail;

pub use journal::EtcdJournal;
pub use options::{EtcdOptions, OptionsError, User};
pub use plinth_journal::Tls;
