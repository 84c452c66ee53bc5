//! A [`Journal`](plinth_journal::Journal) in Kafka: a topic with one partition, whose records are those of
//! the journal.
//!
//! A position is an offset plus one. An append is answered when all replicas in sync have it, two of three
//! at least. A reader fetches from the leader. The end is what the leader reports, once other replicas have
//! confirmed that it leads still. Why it is built like this and what was refused:
//! `docs/design/0033-journal-on-kafka.md`.
//!
//! - `journal`: the calls, and trims; `append`: appends; `tail`: reads; `leader`: who leads, and the end.
//! - `finding`: which topic it is; `topic`, `registered`: check and create the topic; `shared`: what all of
//!   these share.
//! - `client`, `connection`, `scram`: calls over connections that TLS and SASL secure.
//! - `wire`, `error_code`, `codec`, `records`: the messages, and batches of records.
//!
//! ```no_run
//! use plinth_journal::record::ClusterId;
//! use plinth_journal::{Founding, Journal};
//! use plinth_journal_kafka::{KafkaJournal, KafkaOptions};
//!
//! let options = KafkaOptions::parse("kafka://127.0.0.1:9092,127.0.0.1:9192/plinth")?;
//! let journal = KafkaJournal::connect(&options, ClusterId([7; 16]), Founding::Allowed)?;
//! let position = journal.append("a record".into())?;
//! assert_eq!(journal.read(position)?.next(std::time::Duration::from_secs(1))?.unwrap().bytes, "a record");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append;
mod client;
mod codec;
mod connection;
mod error_code;
mod finding;
mod journal;
mod leader;
mod options;
mod records;
mod registered;
mod rights;
mod scram;
#[cfg(test)]
mod scripted;
mod settings;
mod shared;
#[cfg(test)]
#[path = "../../tests/slow_link/mod.rs"]
#[allow(clippy::disallowed_methods)] // plain threads of a test
mod slow_link;
#[cfg(test)]
mod slow_path;
mod tail;
mod topic;
mod wire;

pub use journal::KafkaJournal;
pub use options::{KafkaOptions, OptionsError, SaslMechanism, User};
pub use plinth_journal::Tls;
