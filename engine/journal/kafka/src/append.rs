//! Appends: what an answer, or none, means for the record.

use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Error, Position, Result};

use crate::client::CALL_TIMEOUT;
use crate::connection::CallError;
use crate::error_code::{code, denied, error_name};
use crate::records;
use crate::shared::{Leader, Shared, Topic};
use crate::wire::{self, Produced};

/// Longest time for which an append waits, as long as its leader leads.
const APPEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes per second of the slowest path: an append may take as much longer as its record takes there.
const SLOWEST_PATH: u64 = 16 << 10;
/// Longest time of an append, however large its record is.
const LONGEST_APPEND: Duration = Duration::from_secs(300);
/// An append that has waited for so long asks whether its leader leads still.
const APPEND_PATIENCE: Duration = Duration::from_millis(250);

impl Shared {
    /// Appends a record with a key.
    pub(crate) fn append_with(
        &self,
        topic: &Topic,
        leader: &Leader,
        key: &Bytes,
        record: &Bytes,
    ) -> Result<Position> {
        let timeout_ms = i32::try_from(APPEND_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let body = wire::produce(&topic.id, timeout_ms, &records::encode(key, record));
        match self.produce(topic, leader, &body) {
            Ok(produced) if produced.error == code::NONE => match u64::try_from(produced.offset) {
                Ok(offset) => Ok(Position::new(offset).next()),
                Err(_) => Err(Error::OutcomeUnknown { message: "Kafka gave no offset".to_owned() }),
            },
            Ok(produced) => {
                self.suspect(leader);
                Err(self.not_appended(topic, leader, &produced, record.len()))
            }
            Err(error) => {
                self.suspect(leader);
                Err(match error {
                    CallError::Unknown(message) => Error::OutcomeUnknown { message },
                    // This broker: another one may lead soon.
                    CallError::NotMade(message) | CallError::Refused(message) => {
                        Error::Unavailable { message }
                    }
                    CallError::Denied(message) => Error::Denied { message },
                })
            }
        }
    }

    /// Makes the call, and waits for the answer as long as this is the leader, also while the record is sent.
    fn produce(&self, topic: &Topic, leader: &Leader, body: &[u8]) -> Result<Produced, CallError> {
        let (started, longest) = (Instant::now(), longest_append(body.len()));
        let mut connection = self.client.open(&leader.address)?;
        // From the first byte on, nothing is known before the answer.
        connection.begin(wire::PRODUCE, body);
        let mut is_sent = false;
        loop {
            let pause = Instant::now() + APPEND_PATIENCE;
            is_sent = is_sent || connection.send_rest(pause).map_err(unknown)?;
            let answer = if is_sent { connection.receive(pause).map_err(unknown)? } else { None };
            if let Some(answer) = answer {
                let produced = Produced::decode(answer).map_err(|error| connection.malformed(error))?;
                self.client.keep(connection);
                return Ok(produced);
            }
            if started.elapsed() >= longest {
                return Err(connection.silent(started.elapsed()));
            }
            if self.has_moved(topic, leader) {
                let message = format!("{} no longer leads the journal", leader.address);
                return Err(CallError::Unknown(message));
            }
        }
    }

    /// What an error in the answer to an append means for the record. Where a broker may have appended it
    /// before that error, nothing is known.
    fn not_appended(&self, topic: &Topic, leader: &Leader, produced: &Produced, size: usize) -> Error {
        let why = produced.message.clone().unwrap_or_else(|| error_name(produced.error));
        let message = format!("{}: {why}", leader.address);
        match produced.error {
            // One that leads no more may know an earlier limit than the one that does.
            code::MESSAGE_TOO_LARGE | code::RECORD_LIST_TOO_LARGE => match self.confirm(topic, leader) {
                Ok(()) => Error::TooLarge { size, limit: size.saturating_sub(1) },
                Err(error) => Error::Unavailable { message: format!("{message}; {error}") },
            },
            // All of these are found before the record is appended.
            code::NOT_ENOUGH_REPLICAS
            | code::UNKNOWN_TOPIC_ID
            | code::INCONSISTENT_TOPIC_ID
            | code::CORRUPT_MESSAGE => Error::Unavailable { message },
            code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => denied(&message),
            code::INVALID_RECORD | code::POLICY_VIOLATION => {
                Error::Refused { message: format!("topic {:?} does not take records: {message}", self.topic) }
            }
            _ => Error::OutcomeUnknown { message },
        }
    }
}

/// How long an append of so many bytes is waited for: a record that is given up on its way over a slow path
/// is sent once more, and would never be there.
fn longest_append(bytes: usize) -> Duration {
    let on_its_way = u64::try_from(bytes).unwrap_or(u64::MAX) / SLOWEST_PATH;
    (APPEND_TIMEOUT + CALL_TIMEOUT + Duration::from_secs(on_its_way.min(3600))).min(LONGEST_APPEND)
}

/// A call that was begun may have reached the broker.
fn unknown(error: CallError) -> CallError {
    match error {
        CallError::NotMade(message) => CallError::Unknown(message),
        CallError::Refused(message) => CallError::Unknown(message),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use plinth_journal::record::ClusterId;
    use plinth_journal::Founding;

    use super::*;
    use crate::scripted::{self, ScriptedBroker};
    use crate::slow_link::SlowLink;

    /// One broker leads no more, and does not know it.
    #[test]
    fn a_record_is_too_large_where_the_broker_leads_that_says_so() {
        const TOPIC: Topic = Topic { id: [7; 16], min_in_sync: 2 };
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let known = Leader { broker: 1, epoch: 7, address: addresses[0].clone(), replicas: vec![1, 2, 3] };
        let append = |others: (i32, i32)| {
            for (broker, leads) in brokers.iter().zip([(1, 7), others, others]) {
                let metadata = scripted::metadata(&addresses, &TOPIC.id, leads, &[1, 2, 3]);
                let produced = scripted::produced(&TOPIC.id, (code::MESSAGE_TOO_LARGE, -1));
                broker.answers(vec![(wire::METADATA, metadata), (wire::PRODUCE, produced)]);
            }
            let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
            shared.client.view_of(&addresses[0], "topic").unwrap();
            shared.append_with(&TOPIC, &known, &shared.key, &Bytes::from_static(b"a record"))
        };
        assert_eq!(append((1, 7)), Err(Error::TooLarge { size: 8, limit: 7 }));
        let error = append((2, 8)).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable { message } if message.contains("leads the journal now")),
            "{error}"
        );
    }

    /// It takes no more of a record than the operating system does for it, and another broker leads by now.
    #[test]
    fn an_append_that_a_broker_takes_no_more_of_ends_with_its_lead() {
        const TOPIC: Topic = Topic { id: [7; 16], min_in_sync: 2 };
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        // It stands still for as long as a piece of the record needs.
        let link = SlowLink::both_ways(1 << 10);
        let mut addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        addresses[0] = link.to(addresses[0].clone());
        let known = Leader { broker: 1, epoch: 7, address: addresses[0].clone(), replicas: vec![1, 2, 3] };
        for broker in &brokers {
            let metadata = scripted::metadata(&addresses, &TOPIC.id, (2, 8), &[1, 2, 3]);
            broker.answers(vec![(wire::METADATA, metadata)]);
        }
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        let record = Bytes::from(vec![0; 64 << 20]);
        let outcome = shared.append_with(&TOPIC, &known, &shared.key, &record);
        assert!(
            matches!(&outcome, Err(Error::OutcomeUnknown { message }) if message.contains("no longer leads")),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_large_record_has_more_time_on_its_way() {
        assert_eq!(longest_append(1000), APPEND_TIMEOUT + CALL_TIMEOUT);
        // At half of 256 kbit/s.
        assert_eq!(longest_append(1 << 20), APPEND_TIMEOUT + CALL_TIMEOUT + Duration::from_secs(64));
        assert_eq!(longest_append(64 << 20), LONGEST_APPEND);
    }
}
