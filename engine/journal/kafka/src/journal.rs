//! [`KafkaJournal`]: the calls of a journal as calls of Kafka.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::record::ClusterId;
use plinth_journal::{Error, Founding, Journal, Position, Problem, Reader, Result, TailReader};

use crate::client::CALL_TIMEOUT;
use crate::connection::CallError;
use crate::error_code::{code, error_name};
use crate::options::KafkaOptions;
use crate::shared::Shared;
use crate::tail::KafkaTail;
use crate::wire::{self, Outcome};

/// Pause between two trims.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// A journal in a topic of Kafka. Cheap to clone: clones share their connections.
///
/// Calls block their thread, for some seconds at most, an append that waits for a replica of the topic ten.
/// They must not be made on an async thread.
#[derive(Clone)]
pub struct KafkaJournal(Arc<Shared>);

impl KafkaJournal {
    /// The journal of `cluster` in a topic; founds it in one that is empty or does not exist, which is
    /// created then, if that is allowed.
    ///
    /// A Kafka that cannot be reached now is no error: it is looked at by the first call that reaches it. One
    /// broker that can be used is enough.
    ///
    /// # Errors
    /// [`Error::Refused`] for options that cannot be used, a Kafka that does not accept them, a topic that
    /// cannot hold this journal, and one without a journal where none may be founded. Nothing was written.
    /// Also where another cluster has founded its journal in the topic at the same time, and was first.
    pub fn connect(options: &KafkaOptions, cluster: ClusterId, founding: Founding) -> Result<KafkaJournal> {
        let shared = Shared::new(options, cluster, founding)?;
        match shared.known() {
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(KafkaJournal(Arc::new(shared))),
        }
    }

    /// The address of the broker that leads the partition, as far as this client knows.
    pub fn leader(&self) -> Option<String> {
        self.0.leader_address()
    }
}

impl Journal for KafkaJournal {
    fn append(&self, record: Bytes) -> Result<Position> {
        let limit = self.0.max_record_bytes;
        let size = record.len();
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        self.0.append(&record)
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        let topic = self.0.known()?;
        let leader = self.0.leader(&topic)?;
        Ok(Box::new(TailReader::new(KafkaTail::new(
            Arc::clone(&self.0),
            topic,
            leader,
            from.max(Position::new(1)),
        ))))
    }

    fn end(&self) -> Result<Position> {
        let topic = self.0.known()?;
        self.0.end_of(&topic)
    }

    fn trim(&self, before: Position) -> Result<()> {
        self.0.trim(before)
    }

    fn members(&self) -> usize {
        self.0.leader.lock().newest.as_ref().map_or(1, |leader| leader.replicas.len())
    }

    fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes
    }

    fn problems(&self) -> Result<Vec<Problem>> {
        self.0.problems(&self.0.known()?)
    }
}

impl Shared {
    fn append(&self, record: &Bytes) -> Result<Position> {
        let topic = self.known()?;
        let leader = self.leader(&topic)?;
        self.append_with(&topic, &leader, &self.key, record)
    }

    fn trim(&self, before: Position) -> Result<()> {
        let is_due = |last: Instant| last.elapsed() >= TRIM_INTERVAL;
        if !self.trimmed.lock().is_none_or(is_due) {
            return Ok(());
        }
        let topic = self.known()?;
        // The newest record stays: its key names the cluster of this journal.
        let kept = before.min(self.end_of(&topic)?);
        let Some(offset) = kept.get().checked_sub(1).and_then(|offset| i64::try_from(offset).ok()) else {
            return Ok(());
        };
        *self.trimmed.lock() = Some(Instant::now());
        let leader = self.leader(&topic)?;
        // The call names the topic by its name, and it may be another one by now.
        let view = self.client.view_of(&leader.address, &self.topic).map_err(CallError::of_reading)?;
        self.check_identity(&topic, &view)?;
        let wait_ms = i32::try_from(CALL_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let body = wire::delete_records(&self.topic, offset, wait_ms);
        let answer = self
            .client
            .call(&leader.address, wire::DELETE_RECORDS, &body, CALL_TIMEOUT * 2)
            .map_err(CallError::of_reading)?;
        let malformed =
            |_| Error::Unavailable { message: format!("{} gave a malformed answer", leader.address) };
        let outcome = Outcome::decode_deleted(answer).map_err(malformed)?;
        let name = &self.topic;
        match outcome.error {
            // A replica that is away follows later. What is out of range is trimmed already.
            code::NONE | code::REQUEST_TIMED_OUT | code::OFFSET_OUT_OF_RANGE => Ok(()),
            code::TOPIC_AUTHORIZATION_FAILED => Err(Error::Refused {
                message: format!(
                    "the journal is not trimmed: give the user of Kafka DELETE on topic {name:?}"
                ),
            }),
            code::POLICY_VIOLATION => Err(Error::Refused {
                message: format!(
                    "the journal is not trimmed: set cleanup.policy of topic {name:?} to delete"
                ),
            }),
            error => {
                self.suspect(&leader);
                Err(Error::Unavailable { message: format!("{}: {}", leader.address, error_name(error)) })
            }
        }
    }
}
