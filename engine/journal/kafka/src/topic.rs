//! Finding the journal's topic: it is checked before anything is written, and created where it is absent.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Error, Founding, Problem, Result};

use crate::client::CALL_TIMEOUT;
use crate::codec::TopicId;
use crate::connection::CallError;
use crate::error_code::{code, error_name};
use crate::records;
use crate::settings::{as_arguments, check_settings, setting, settings_of_new};
use crate::shared::{Leader, LeaderState, Shared, Topic};
use crate::wire::{self, FetchOptions, ListedOffset, Outcome, PartitionView, Place, Settings, View};

/// Replicas of a topic that is created, where there are as many brokers.
const REPLICAS: usize = 3;
/// Longest time until a new topic has a leader.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Records of clusters that did not become the topic's that are passed over, at most.
const MAX_FOUNDERS: i64 = 64;
/// Further partitions that are looked at, at most.
const MAX_FURTHER_PARTITIONS: usize = 64;

fn refused<T>(message: String) -> Result<T> {
    Err(Error::Refused { message })
}

fn unavailable<T>(message: String) -> Result<T> {
    Err(Error::Unavailable { message })
}

/// The text that a broker returns with an error.
fn why(message: Option<String>, error: i16) -> String {
    message.filter(|message| !message.is_empty()).unwrap_or_else(|| error_name(error))
}

/// Whose a topic is.
enum Owner {
    This,
    /// There is no record in it.
    Nobody,
}

impl Shared {
    /// Looks whether Kafka holds this journal, and founds it where there is none and that is allowed. A topic
    /// that cannot be the journal's is believed to be what there is where most brokers have it.
    pub(crate) fn find(&self) -> Result<Topic> {
        self.client.reject(None);
        loop {
            let view = self.view()?;
            let topic = view.topic;
            match self.find_in(view) {
                Err(Error::Refused { .. }) if self.client.reject(Some(topic)) => {
                    // The epochs are those of another topic.
                    *self.leader.lock() = LeaderState::default();
                }
                Ok(topic) => {
                    let topic = self.chosen(topic)?;
                    self.client.trust(topic.id);
                    return Ok(topic);
                }
                found => return found,
            }
        }
    }

    /// The topic that was found, or the one that most addresses of the URL know: another Kafka may have a
    /// copy of it as it was once. A new cluster begins in whichever Kafka there is.
    fn chosen(&self, found: Topic) -> Result<Topic> {
        if self.founding == Founding::Allowed {
            return Ok(found);
        }
        let (views, addresses) = self.client.views_of_seeds(&self.topic, &found.id);
        let is_most =
            |topic: &TopicId| views.iter().filter(|view| view.topic == *topic).count() * 2 > addresses;
        if is_most(&found.id) {
            return Ok(found);
        }
        let others: BTreeMap<TopicId, &View> = views.iter().map(|view| (view.topic, view)).collect();
        let mut is_contested = false;
        for (id, view) in others.into_iter().filter(|(id, _)| *id != found.id) {
            // The epochs are those of another topic.
            *self.leader.lock() = LeaderState::default();
            match self.find_in(view.clone()) {
                Err(Error::Refused { .. }) if !is_most(&id) => {}
                outcome if is_most(&id) => return outcome,
                _ => is_contested = true,
            }
        }
        *self.leader.lock() = LeaderState::default();
        match is_contested {
            false => Ok(found),
            true => unavailable(format!(
                "addresses of the URL have different topics {:?} that may be this journal, and too few answer to \
                 tell which one is right: name the brokers of one Kafka alone",
                self.topic
            )),
        }
    }

    fn find_in(&self, mut view: View) -> Result<Topic> {
        let name = &self.topic;
        if view.error == code::UNKNOWN_TOPIC_OR_PARTITION {
            if self.founding == Founding::Forbidden {
                return self.absent(&format!("topic {name:?} does not exist"));
            }
            view = self.create(&view)?;
        }
        let topic = self.check(&view, self.founding)?;
        let leader = self.note(&topic, &view)?;
        match (self.owner(&topic, &leader)?, self.founding) {
            (Owner::This, _) => Ok(topic),
            (Owner::Nobody, Founding::Forbidden) => self.absent(&format!("topic {name:?} is empty")),
            (Owner::Nobody, Founding::Allowed) => self.found(&topic, &leader).map(|()| topic),
        }
    }

    /// Refuses a place where the journal of this replica is not.
    fn absent<T>(&self, what: &str) -> Result<T> {
        refused(format!(
            "{what}: the journal that this replica has applied is not there; use the Kafka and the topic that hold \
             it. Where its data is lost, make a backup of the replica that is furthest, and restore it. \
             Nothing was written"
        ))
    }

    /// Appends the record that founds the journal. Of all clusters that do so at once the one whose record is
    /// the first of the topic has the journal; Kafka has no comparison that would keep the others from
    /// writing theirs, which readers pass over.
    fn found(&self, topic: &Topic, leader: &Leader) -> Result<()> {
        let key = records::founding_key(self.cluster);
        match self.append_with(topic, leader, &key, &Bytes::new()) {
            Ok(_) => {}
            // It may come into the log later. The next time the first record shows it.
            Err(Error::OutcomeUnknown { message }) => return unavailable(message),
            Err(error) => return Err(error),
        }
        match self.owner(topic, leader)? {
            Owner::This => Ok(()),
            Owner::Nobody => unavailable(format!("topic {:?} has lost its first record", self.topic)),
        }
    }

    fn view(&self) -> Result<View> {
        self.client.view(&self.topic, None, -1).map_err(CallError::of_all)
    }

    fn create(&self, view: &View) -> Result<View> {
        // Those on brokers that are down follow when they are up. Brokers that Kafka does not know yet are
        // waited for.
        let replicas = self.registered_brokers(view)?.max(self.client.seeds()).min(REPLICAS);
        let settings = settings_of_new(replicas, self.max_record_bytes);
        let timeout_ms = i32::try_from(CREATE_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let body =
            wire::create_topic(&self.topic, i16::try_from(replicas).unwrap_or(1), &settings, timeout_ms);
        let name = &self.topic;
        let mut failed = CallError::NotMade("no broker of Kafka is up".to_owned());
        let mut answered = None;
        for address in self.client.addresses(view) {
            match self.client.call(address, wire::CREATE_TOPICS, &body, CREATE_TIMEOUT + CALL_TIMEOUT) {
                Ok(answer) => {
                    answered = Some((address, answer));
                    break;
                }
                Err(error) => failed = failed.or(error),
            }
        }
        let Some((address, answer)) = answered else { return Err(failed.of_all()) };
        let malformed = |_| Error::Unavailable { message: format!("{address} gave a malformed answer") };
        let outcome = Outcome::decode_created(answer).map_err(malformed)?;
        let why = why(outcome.message, outcome.error);
        match outcome.error {
            code::NONE | code::TOPIC_ALREADY_EXISTS => {}
            code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => {
                return refused(format!(
                    "topic {name:?} does not exist, and this user has no right to create it: {why}; give the user \
                     CREATE, or create the topic with {}",
                    as_arguments(replicas, &settings)
                ));
            }
            code::INVALID_REPLICATION_FACTOR => {
                return unavailable(format!(
                    "topic {name:?} is to be created with {replicas} replicas, which needs as many brokers: {why}"
                ));
            }
            code::INVALID_CONFIG | code::INVALID_REQUEST | code::POLICY_VIOLATION => {
                return refused(format!("topic {name:?} cannot be created: {why}"));
            }
            _ => return unavailable(format!("topic {name:?} is not created yet: {why}")),
        }
        let deadline = Instant::now() + CREATE_TIMEOUT;
        loop {
            let view = self.view()?;
            if view.error == code::NONE && view.partition().is_some_and(|part| part.leader >= 0) {
                return Ok(view);
            }
            if Instant::now() >= deadline {
                return unavailable(format!("topic {name:?} was created and has no leader yet"));
            }
            thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Checks partitions, replicas and settings.
    fn check(&self, view: &View, founding: Founding) -> Result<Topic> {
        let name = &self.topic;
        match view.error {
            code::NONE => {}
            code::TOPIC_AUTHORIZATION_FAILED => {
                return refused(format!(
                    "this user may not see topic {name:?}: give the user READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS \
                     and DELETE"
                ));
            }
            error => return unavailable(format!("topic {name:?}: {}", error_name(error))),
        }
        let Some(partition) = view.partition() else {
            return unavailable(format!("topic {name:?} has no partition 0 yet"));
        };
        self.check_further_partitions(view, founding)?;
        let replicas = partition.replicas.len();
        let wanted = match founding {
            Founding::Allowed => self.wanted_replicas(self.registered_brokers(view)?, replicas),
            Founding::Forbidden => None,
        };
        if let Some(wanted) = wanted {
            return refused(format!(
                "topic {name:?} has {replicas} replicas where there are more brokers: fewer of them may fail than \
                 could; create the topic with a replication factor of {wanted}"
            ));
        }
        let settings = self.settings(view)?;
        let min_in_sync = check_settings(&settings, replicas, self.max_record_bytes).map_err(|problem| {
            Error::Refused { message: format!("topic {name:?} cannot hold a journal: {problem}") }
        })?;
        Ok(Topic { id: view.topic, min_in_sync })
    }

    /// How many replicas the topic could have, where it has fewer: Kafka may have grown since it was created.
    fn wanted_replicas(&self, brokers: usize, replicas: usize) -> Option<usize> {
        Some(brokers.max(self.client.seeds()).min(REPLICAS)).filter(|wanted| replicas < *wanted)
    }

    /// Refuses further partitions where a journal may be founded, and those that hold anything. Empty ones
    /// beside a journal are accepted: Kafka cannot remove what was added by mistake.
    fn check_further_partitions(&self, view: &View, founding: Founding) -> Result<()> {
        let name = &self.topic;
        if founding == Founding::Allowed && view.partitions.len() > 1 {
            return refused(format!(
                "topic {name:?} has {} partitions, and a journal is one log: use a topic with one partition, or \
                 one that does not exist, which is created",
                view.partitions.len()
            ));
        }
        for partition in view.further_partitions().take(MAX_FURTHER_PARTITIONS) {
            let number = partition.number;
            let end = self.end_of_further(view, partition)?;
            if end > 0 {
                return refused(format!(
                    "topic {name:?} has {} partitions, and partition {number} ends at offset {end}: another program \
                     writes to it, and a journal needs a topic of its own",
                    view.partitions.len()
                ));
            }
        }
        Ok(())
    }

    fn end_of_further(&self, view: &View, partition: &PartitionView) -> Result<i64> {
        let (name, number) = (&self.topic, partition.number);
        let address = view.brokers.iter().find(|(id, _)| *id == partition.leader);
        let Some((_, address)) = address else {
            return unavailable(format!("partition {number} of topic {name:?} has no leader"));
        };
        let body = wire::list_offsets_of(name, number, partition.leader_epoch, Place::End);
        let answer = self
            .client
            .call(address, wire::LIST_OFFSETS, &body, CALL_TIMEOUT)
            .map_err(CallError::of_reading)?;
        let malformed = |_| Error::Unavailable { message: format!("{address} gave a malformed answer") };
        let listed = ListedOffset::decode(answer).map_err(malformed)?;
        match listed.error {
            code::NONE => Ok(listed.offset),
            error => {
                let why = error_name(error);
                unavailable(format!("{address} does not say where partition {number} ends: {why}"))
            }
        }
    }

    /// What has changed about the topic since it was found that a start would refuse, or that is only
    /// accepted because it cannot be undone.
    pub(crate) fn problems(&self, topic: &Topic) -> Result<Vec<Problem>> {
        let view = self.view()?;
        self.check_identity(topic, &view)?;
        let name = &self.topic;
        let mut problems = Vec::new();
        if view.partitions.len() > 1 {
            problems.push(format!(
                "topic {name:?} has {} partitions, of which the journal is partition 0 alone: nothing may write to \
                 the others, and no cluster can be founded there",
                view.partitions.len()
            ));
        }
        let replicas = view.partition().map_or(0, |partition| partition.replicas.len());
        if let Some(wanted) = self.wanted_replicas(view.brokers.len(), replicas) {
            problems.push(format!(
                "topic {name:?} has {replicas} replicas where there are more brokers, so fewer of them may fail than \
                 could; kafka-reassign-partitions gives it {wanted}"
            ));
        }
        match self.check(&view, Founding::Forbidden) {
            Err(Error::Refused { message }) => problems.push(message),
            checked => drop(checked?),
        }
        Ok(problems.into_iter().map(Problem::new).collect())
    }

    fn settings(&self, view: &View) -> Result<Settings> {
        use setting::*;
        let name = &self.topic;
        let names =
            [CLEANUP, COMPRESSION, MAX_MESSAGE, MIN_IN_SYNC, RETENTION_BYTES, RETENTION_TIME, UNCLEAN];
        let body = wire::describe_topic(name, &names);
        let mut failed = CallError::NotMade("no broker of Kafka is up".to_owned());
        for address in self.client.addresses(view) {
            let answer = match self.client.call(address, wire::DESCRIBE_CONFIGS, &body, CALL_TIMEOUT) {
                Ok(answer) => answer,
                Err(error) => {
                    failed = failed.or(error);
                    continue;
                }
            };
            let malformed = |_| Error::Unavailable { message: format!("{address} gave a malformed answer") };
            let settings = Settings::decode(answer).map_err(malformed)?;
            match settings.error {
                code::NONE => return Ok(settings),
                code::TOPIC_AUTHORIZATION_FAILED => {
                    return refused(format!(
                        "this user may not see the settings of topic {name:?}: give the user DESCRIBE_CONFIGS"
                    ));
                }
                // A topic that was just created is not known to all.
                error => {
                    let why = why(settings.message, error);
                    failed = failed.or(CallError::NotMade(format!("the settings of topic {name:?}: {why}")));
                }
            }
        }
        Err(failed.of_all())
    }

    /// Refuses a topic that is not this cluster's, by its newest record. Readers check every other one.
    ///
    /// Records of clusters that were too late to found a journal here are ignored: the one before counts.
    /// The first of all shows whose the topic is.
    fn owner(&self, topic: &Topic, leader: &Leader) -> Result<Owner> {
        let oldest = self.offset_at(leader, Place::Oldest)?;
        let end = self.offset_at(leader, Place::End)?;
        let name = &self.topic;
        if end <= oldest {
            return match (end, self.founding) {
                (0, _) => Ok(Owner::Nobody),
                // What was trimmed cannot be known here; the replica compares positions.
                (_, Founding::Forbidden) => Ok(Owner::This),
                (_, Founding::Allowed) => refused(format!(
                    "the records of topic {name:?} up to offset {end} were deleted: begin a journal in a topic that \
                     does not exist"
                )),
            };
        }
        for offset in (oldest.max(end.saturating_sub(MAX_FOUNDERS))..end).rev() {
            match self.key_at(topic, leader, offset)? {
                Some(key) if key == self.key => return Ok(Owner::This),
                Some(key) if records::founder_of(&key) == Some(self.cluster) && offset == 0 => {
                    return Ok(Owner::This);
                }
                Some(key) if records::founder_of(&key).is_some() && offset > 0 => {}
                Some(key) if records::founder_of(&key).or(records::cluster_of(&key)).is_some() => {
                    return refused(format!(
                        "the record at offset {offset} of topic {name:?} has the key {:?} where {:?} is due: the topic is \
                         another cluster's; use another topic, or join that cluster in an empty data directory",
                        String::from_utf8_lossy(&key),
                        String::from_utf8_lossy(&self.key)
                    ));
                }
                _ => {
                    return refused(format!(
                        "topic {name:?} holds a record at offset {offset} that no replica has written, or a later \
                         version of this program has: a journal needs a topic of its own"
                    ));
                }
            }
        }
        match self.founding {
            Founding::Forbidden => Ok(Owner::This),
            Founding::Allowed => refused(format!(
                "the newest records of topic {name:?} do not tell which cluster's it is: use a topic that does not \
                 exist"
            )),
        }
    }

    /// The key of the record at an offset; none for one that no replica can have written, wherever it is
    /// read.
    fn key_at(&self, topic: &Topic, leader: &Leader, offset: i64) -> Result<Option<Bytes>> {
        if let Some(key) = self.key_from(&leader.address, topic, leader, offset)? {
            return Ok(Some(key));
        }
        // The leader may have it damaged.
        let mut others = leader.others().filter_map(|broker| self.client.address(broker));
        Ok(others.find_map(|address| self.key_from(&address, topic, leader, offset).ok().flatten()))
    }

    fn key_from(&self, address: &str, topic: &Topic, leader: &Leader, offset: i64) -> Result<Option<Bytes>> {
        let options = FetchOptions {
            topic: topic.id,
            leader_epoch: leader.epoch,
            offset,
            max_wait_ms: 500,
            // A batch comes whole.
            max_bytes: 1,
        };
        let answer = self
            .client
            .call(address, wire::FETCH, &wire::fetch(&options), CALL_TIMEOUT * 2)
            .map_err(CallError::of_reading)?;
        let malformed = |_| Error::Unavailable { message: format!("{address} gave a malformed answer") };
        let fetched = wire::Fetched::decode(answer).map_err(malformed)?;
        match fetched.error {
            code::NONE => {}
            code::TOPIC_AUTHORIZATION_FAILED => {
                return refused(format!("this user may not read topic {:?}: give the user READ", self.topic));
            }
            error => return unavailable(format!("topic {:?}: {}", self.topic, error_name(error))),
        }
        match records::decode(fetched.records) {
            Ok(records) => match records.into_iter().find(|record| record.offset == offset) {
                Some(record) => Ok(Some(record.key)),
                None => {
                    unavailable(format!("topic {:?}: the record at offset {offset} did not come", self.topic))
                }
            },
            Err(_unreadable) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use plinth_journal::record::ClusterId;

    use super::*;
    use crate::codec::Api;
    use crate::options::KafkaOptions;
    use crate::scripted::{self, ScriptedBroker};

    /// The first address leads to another Kafka, whose topic of the name is not as a journal's has to be.
    #[test]
    fn a_topic_of_another_kafka_refuses_no_start() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let has_topic = |broker: usize, topic: u8, min_in_sync: &str| {
            brokers[broker].answers(answers(&addresses, topic, min_in_sync));
        };
        let find = || Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden).find();
        has_topic(0, 9, "1");
        (1..3).for_each(|broker| has_topic(broker, 7, "2"));
        assert_eq!(find(), Ok(Topic { id: [7; 16], min_in_sync: 2 }));
        // It is the other one that is alone.
        (1..3).for_each(|broker| has_topic(broker, 7, "1"));
        assert!(matches!(find(), Err(Error::Refused { message }) if message.contains("set it to 2")));
    }

    /// The first of these addresses has a Kafka of its own.
    fn answers(addresses: &[String], topic: u8, min_in_sync: &str) -> Vec<(Api, Vec<u8>)> {
        let named = if topic == 7 { &addresses[1..] } else { &addresses[..1] };
        let mut settings = settings_of_new(3, KafkaOptions::DEFAULT_MAX_RECORD_BYTES);
        settings.retain(|(name, _)| *name != setting::MIN_IN_SYNC);
        settings.push((setting::MIN_IN_SYNC, min_in_sync.to_owned()));
        vec![
            (wire::METADATA, scripted::metadata(named, &[topic; 16], (1, topic.into()), &[1, 2, 3])),
            (wire::DESCRIBE_CONFIGS, scripted::settings(&settings)),
            (wire::LIST_OFFSETS, scripted::listed(4)),
        ]
    }

    /// The first address leads to another Kafka, with a copy of the topic as it was once.
    #[test]
    fn a_copy_of_the_topic_in_another_kafka_is_not_taken_for_the_journal() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let has_topic = |broker: usize, topic: u8, min_in_sync: &str| {
            brokers[broker].answers(answers(&addresses, topic, min_in_sync));
        };
        let find = |named: &[String]| {
            Shared::of_test(named, "topic", ClusterId([1; 16]), Founding::Forbidden).find()
        };
        has_topic(0, 9, "2");
        (1..3).for_each(|broker| has_topic(broker, 7, "2"));
        let right = Ok(Topic { id: [7; 16], min_in_sync: 2 });
        for first in 0..3 {
            let mut named = addresses.clone();
            named.rotate_left(first);
            assert_eq!(find(&named), right, "{first}");
        }
        // Of two it cannot be known.
        let error = find(&addresses[..2]).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable { message } if message.contains("different topics")),
            "{error}"
        );
        // What most have cannot be the journal.
        (1..3).for_each(|broker| has_topic(broker, 7, "1"));
        assert!(
            matches!(find(&addresses), Err(Error::Refused { message }) if message.contains("set it to 2"))
        );
        // Nor can it where it does not count: the other one has it alone.
        assert_eq!(find(&addresses[..2]), Ok(Topic { id: [9; 16], min_in_sync: 2 }));
        (1..3).for_each(|broker| brokers[broker].answers(Vec::new()));
        assert_eq!(find(&addresses), Ok(Topic { id: [9; 16], min_in_sync: 2 }), "the others are away");
    }
}
