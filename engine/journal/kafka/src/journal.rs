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
            // At the start, a mistake of whoever configured it.
            Err(Error::Denied { message }) => Err(Error::Refused { message }),
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(KafkaJournal(Arc::new(shared))),
        }
    }

    /// The address of the broker that leads the partition, as far as this client knows.
    pub fn leader(&self) -> Option<String> {
        self.0.leader_address()
    }
}

impl KafkaJournal {
    /// A call that has no outcome where what was found at its beginning is given up before its end.
    fn of_one_journal<T>(&self, call: impl FnOnce(&Shared) -> Result<T>) -> Result<T> {
        let given_up = self.0.review.given_up();
        self.0.review.outcome(given_up, call(&self.0))
    }

    fn tail(&self, from: Position) -> Result<KafkaTail> {
        let given_up = self.0.review.given_up();
        self.of_one_journal(|shared| {
            let topic = shared.known()?;
            let leader = shared.leader(&topic)?;
            Ok(KafkaTail::new(Arc::clone(&self.0), topic, leader, (from, given_up)))
        })
    }
}

impl Journal for KafkaJournal {
    fn append(&self, record: Bytes) -> Result<Position> {
        let limit = self.0.max_record_bytes;
        let size = record.len();
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        let given_up = self.0.review.given_up();
        self.0.review.outcome_of_append(given_up, self.0.append(&record))
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        Ok(Box::new(TailReader::new(self.tail(from.max(Position::new(1)))?)))
    }

    fn end(&self) -> Result<Position> {
        self.of_one_journal(|shared| shared.end_of(&shared.known()?))
    }

    fn trim(&self, before: Position) -> Result<()> {
        self.of_one_journal(|shared| shared.trim(before))
    }

    /// While no leader is known, those that the URL names: one alone is not believed.
    fn members(&self) -> usize {
        let newest = self.0.leader.lock().newest.clone();
        newest.map_or_else(|| self.0.client.seeds().max(1), |leader| leader.replicas.len())
    }

    fn given_up(&self) -> u64 {
        self.0.review.given_up()
    }

    fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes
    }

    fn problems(&self) -> Result<Vec<Problem>> {
        self.of_one_journal(|shared| shared.problems(&shared.known()?))
    }

    fn close(&self) {
        self.0.client.close();
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
        let given_up = self.review.given_up();
        if self.known.lock().is_none() {
            // Which one it is then, nobody has compared.
            return Err(Error::Unavailable { message: "the journal is looked for in Kafka".to_owned() });
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
        self.review.outcome(given_up, Ok(()))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Api;
    use crate::scripted::{self, ScriptedBroker};
    use crate::settings::settings_of_new;

    const CLUSTER: ClusterId = ClusterId([1; 16]);

    /// What a broker answers that has this topic.
    fn answers(addresses: &[String], topic: u8, (leader, epoch): (i32, i32)) -> Vec<(Api, Vec<u8>)> {
        let settings = settings_of_new(3, KafkaOptions::DEFAULT_MAX_RECORD_BYTES);
        vec![
            (wire::METADATA, scripted::metadata(addresses, &[topic; 16], (leader, epoch), &[1, 2, 3])),
            (wire::DESCRIBE_CONFIGS, scripted::settings(&settings)),
            (wire::LIST_OFFSETS, scripted::listed(4)),
        ]
    }

    /// Also by a call that is not one of whoever follows the journal.
    #[test]
    fn a_journal_that_is_given_up_is_counted_whatever_finds_it_out() {
        type Call = fn(&KafkaJournal) -> Result<()>;
        let calls: [(&str, Call); 5] = [
            ("problems", |journal| journal.problems().map(drop)),
            ("trim", |journal| journal.trim(Position::new(2))),
            ("end", |journal| journal.end().map(drop)),
            ("append", |journal| journal.append("a record".into()).map(drop)),
            ("read", |journal| journal.read(Position::new(2)).map(drop)),
        ];
        for (name, call) in calls {
            let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
            let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
            // The first one is of another Kafka, with a copy of the topic, and the others know none yet.
            brokers[0].answers(answers(&addresses[..1], 9, (1, 9)));
            for broker in &brokers[1..] {
                broker.answers(vec![(wire::METADATA, scripted::no_topic(&addresses[1..]))]);
            }
            let shared = Shared::of_test(&addresses, "topic", CLUSTER, Founding::Forbidden);
            let journal = KafkaJournal(Arc::new(shared));
            journal.0.known().unwrap();
            assert_eq!(journal.given_up(), 0);
            for broker in &brokers[1..] {
                broker.answers(answers(&addresses[1..], 7, (1, 7)));
            }
            journal.0.review.make_due();
            let error = call(&journal).unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{name}: {error}");
            assert_eq!(journal.given_up(), 1, "{name}");
            assert_eq!(journal.members(), 3, "{name}");
            // Whoever follows it finds the next one, and trims nothing before.
            assert!(journal.trim(Position::new(2)).is_err_and(|error| error.is_transient()));
            assert_eq!(journal.end(), Ok(Position::new(4)), "{name}");
            assert_eq!(journal.given_up(), 1, "{name}");
        }
    }

    /// Nobody gives the right by waiting for it.
    #[test]
    fn a_user_without_a_right_is_refused_at_the_start() {
        let broker = ScriptedBroker::start();
        let addresses = [broker.address.clone()];
        let settings = settings_of_new(1, KafkaOptions::DEFAULT_MAX_RECORD_BYTES);
        let options = KafkaOptions::parse(&format!("kafka://{}/topic", broker.address)).unwrap();
        let (read, write, describe) = (1 << 3, 1 << 4, 1 << 8);
        let connect = |rights: i32, listed: Vec<u8>| {
            broker.answers(vec![
                (wire::METADATA, scripted::metadata_with(rights, &addresses, &[7; 16], (1, 7), &[1])),
                (wire::DESCRIBE_CONFIGS, scripted::settings(&settings)),
                (wire::LIST_OFFSETS, listed),
            ]);
            KafkaJournal::connect(&options, CLUSTER, Founding::Forbidden).map(drop)
        };
        let is_refused = |connected: Result<()>, right: &str| match connected {
            Err(Error::Refused { message }) => assert!(message.contains(right), "{message}"),
            outcome => panic!("{right}: {outcome:?}"),
        };
        is_refused(connect(write | describe, scripted::listed(4)), "no right to READ topic \"topic\"");
        is_refused(connect(read | describe, scripted::listed(4)), "no right to WRITE topic \"topic\"");
        let denied = scripted::not_listed(code::TOPIC_AUTHORIZATION_FAILED);
        is_refused(connect(read | write | describe, denied.clone()), "give the user READ, WRITE");
        // A broker that reports no rights is believed, and the call itself shows it.
        for unknown in [0, i32::MIN] {
            is_refused(connect(unknown, denied.clone()), "give the user READ, WRITE");
        }
        is_refused(connect(read | write | describe, scripted::listed(0)), "topic \"topic\" is empty");
    }

    /// A call may wait for a minute, where its record is large.
    #[test]
    fn a_journal_that_is_closed_waits_for_no_answer() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        brokers.iter().for_each(|broker| broker.answers(answers(&addresses, 7, (1, 7))));
        let shared = Shared::of_test(&addresses, "topic", CLUSTER, Founding::Forbidden);
        let journal = KafkaJournal(Arc::new(shared));
        assert_eq!(journal.end(), Ok(Position::new(4)));
        // No append is ever answered.
        std::thread::scope(|threads| {
            let appending = threads.spawn(|| journal.append("a record".into()));
            let mut reader = journal.read(Position::new(5)).unwrap();
            assert_eq!(reader.next(Duration::from_millis(10)), Ok(None));
            journal.close();
            let is_closed = |error: Option<Error>| {
                let error = error.unwrap();
                assert!(error.is_transient() && error.to_string().contains("closed"), "{error}");
            };
            is_closed(reader.next(Duration::from_secs(3600)).err());
            is_closed(appending.join().unwrap().err());
            is_closed(journal.end().err());
            is_closed(journal.read(Position::new(5)).err());
        });
    }

    /// Kafka was put back to an old copy, in which the partition had an earlier leader.
    #[test]
    fn a_kafka_that_was_put_back_is_counted_whatever_finds_it_out() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let has_epoch = |epoch: i32| {
            brokers.iter().for_each(|broker| broker.answers(answers(&addresses, 7, (1, epoch))));
        };
        has_epoch(8);
        let shared = Shared::of_test(&addresses, "topic", CLUSTER, Founding::Forbidden);
        let journal = KafkaJournal(Arc::new(shared));
        assert_eq!(journal.end(), Ok(Position::new(4)));
        let mut reader = journal.read(Position::new(5)).unwrap();
        has_epoch(5);
        let topic = journal.0.known().unwrap();
        let look = || journal.0.look_up(&topic, None).unwrap_err();
        assert!(look().is_transient());
        assert_eq!(journal.given_up(), 0, "the brokers may lag");
        journal.0.leader.lock().outdated_since = Instant::now().checked_sub(Duration::from_secs(60));
        assert!(look().is_transient());
        assert_eq!(journal.given_up(), 1);
        assert_eq!(journal.end(), Ok(Position::new(4)), "what they know is all there is");
        assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        assert_eq!(journal.given_up(), 1);
    }
}
