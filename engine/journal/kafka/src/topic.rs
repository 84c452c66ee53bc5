//! What a topic is: it is checked before anything is written, and created where it is absent.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Error, Founding, Problem, Result};

use crate::client::CALL_TIMEOUT;
use crate::connection::CallError;
use crate::error_code::{code, error_name};
use crate::leader::leader_of;
use crate::records;
use crate::settings::{as_arguments, check_settings, setting, settings_of_new};
use crate::shared::{Leader, Shared, Topic};
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
    /// The topic of a view, once it was found to be this journal's; founds it where there is none and that is
    /// allowed.
    pub(crate) fn find_in(&self, mut view: View) -> Result<Topic> {
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

    /// Whether the topic of a view may be this journal's, as far as can be known. Notes nothing of it.
    pub(crate) fn may_be_journal(&self, view: &View) -> bool {
        let judged = self.check(view, Founding::Forbidden).and_then(|topic| {
            let leader = leader_of(view)?;
            self.owner(&topic, &leader)
        });
        !matches!(judged, Err(Error::Refused { .. }))
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

    pub(crate) fn view(&self) -> Result<View> {
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
        self.check_rights(view)?;
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
