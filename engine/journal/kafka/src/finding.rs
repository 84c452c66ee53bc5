//! Finding the journal's topic: the one that most addresses of the URL know. Another Kafka may have a copy of
//! it as it was once.

use std::collections::BTreeMap;

use plinth_journal::{Error, Founding, Opinion, Result};

use crate::codec::TopicId;
use crate::shared::{LeaderState, Shared, Topic};
use crate::wire::View;

impl Shared {
    /// The topic, once it is known to be this journal's.
    pub(crate) fn known(&self) -> Result<Topic> {
        let found = {
            let mut known = self.known.lock();
            match *known {
                Some(topic) => topic,
                None => *known.insert(self.silence.look(|| self.find())?),
            }
        };
        self.review(&found)?;
        Ok(found)
    }

    /// Asks the addresses of the URL again where too few of them had answered when the topic was found: they
    /// may have another one, and it is looked for once more then.
    fn review(&self, found: &Topic) -> Result<()> {
        self.review.check(|| Some(self.others_on(found).0)).map_err(|message| {
            let mut known = self.known.lock();
            if *known == Some(*found) {
                self.give_up(&mut known);
            }
            Error::Unavailable { message }
        })
    }

    /// Looks whether Kafka holds this journal, and founds it where there is none and that is allowed. A topic
    /// that cannot be the journal's is believed to be what there is where most brokers have it.
    fn find(&self) -> Result<Topic> {
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

    /// The topic that was found, or the one that most addresses of the URL know. A new cluster begins in
    /// whichever Kafka there is: nobody has a copy of its journal.
    fn chosen(&self, found: Topic) -> Result<Topic> {
        if self.founding == Founding::Allowed {
            self.review.found(true);
            return Ok(found);
        }
        let (opinion, other) = self.others_on(&found);
        match (opinion, other) {
            (Opinion::Outvoted(_), Some(view)) => {
                // The epochs are those of another topic, and the brokers those of another Kafka.
                *self.leader.lock() = LeaderState::default();
                self.client.note_brokers(&view);
                let chosen = self.find_in(view)?;
                self.review.found(true);
                Ok(chosen)
            }
            (Opinion::Outvoted(message) | Opinion::Undecided(message), _) => {
                *self.leader.lock() = LeaderState::default();
                Err(Error::Unavailable { message })
            }
            (opinion @ (Opinion::Agreed | Opinion::Uncontested), _) => {
                self.review.found(opinion == Opinion::Agreed);
                Ok(found)
            }
        }
    }

    /// What the addresses of the URL say of the topic that was found, and what those know of another one that
    /// are most. A topic that cannot be the journal's is no opinion, unless most have it.
    fn others_on(&self, found: &Topic) -> (Opinion, Option<View>) {
        let (mut views, addresses) = self.client.views_of_seeds(&self.topic, &found.id);
        let agreeing = views.iter().filter(|view| view.topic == found.id).count();
        views.retain(|view| view.topic != found.id);
        let mut counts: BTreeMap<TopicId, usize> = BTreeMap::new();
        views.iter().for_each(|view| *counts.entry(view.topic).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let name = &self.topic;
        let outvoted = || {
            format!(
                "most addresses of the URL have another topic {name:?} than the one that was found: name the \
                 brokers of one Kafka alone"
            )
        };
        let undecided = || {
            views.iter().any(|view| self.may_be_journal(view)).then(|| {
                format!(
                    "addresses of the URL have different topics {name:?} that may be this journal, and too few \
                     answer to tell which one is right: name the brokers of one Kafka alone"
                )
            })
        };
        let differing = most.map_or(0, |(_, count)| count);
        let opinion = Opinion::of(addresses, (agreeing, differing), outvoted, undecided);
        let other = most.and_then(|(id, _)| views.iter().find(|view| view.topic == id));
        (opinion, other.cloned())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use plinth_journal::record::ClusterId;
    use plinth_journal::{Position, Reader as _, TailReader};

    use super::*;
    use crate::codec::Api;
    use crate::options::KafkaOptions;
    use crate::scripted::{self, ScriptedBroker};
    use crate::settings::{setting, settings_of_new};
    use crate::tail::KafkaTail;
    use crate::wire;

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

    /// The others had nothing to say at the start.
    #[test]
    fn a_copy_that_was_taken_for_the_journal_is_given_up() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let has_topic = |broker: usize, topic: u8, min_in_sync: &str| {
            brokers[broker].answers(answers(&addresses, topic, min_in_sync));
        };
        has_topic(0, 9, "2");
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        let (copy, right) = (Topic { id: [9; 16], min_in_sync: 2 }, Topic { id: [7; 16], min_in_sync: 2 });
        assert_eq!(shared.known(), Ok(copy));
        // One against one, which cannot be the journal, and then may be.
        has_topic(1, 7, "1");
        shared.review.make_due();
        assert_eq!(shared.known(), Ok(copy));
        assert_eq!(shared.review.given_up(), 0);
        assert!(!shared.review.is_agreed());
        let leader = shared.leader(&copy).unwrap();
        let shared = Arc::new(shared);
        let tail = KafkaTail::new(Arc::clone(&shared), copy, leader, (Position::new(5), 0));
        has_topic(1, 7, "2");
        assert_eq!(shared.known(), Ok(copy), "they were asked just now");
        shared.review.make_due();
        let message = shared.known().unwrap_err().to_string();
        assert!(message.contains("different topics"), "{message}");
        // Nothing more is read of it.
        assert_eq!(shared.review.given_up(), 1);
        let mut reader = TailReader::new(tail);
        assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        // Most have it.
        has_topic(2, 7, "2");
        assert_eq!(shared.known(), Ok(right));
        assert!(shared.review.is_agreed());
        // To a reader of the copy it is another topic, which is no reason to stop.
        for timeout in [Duration::ZERO, Duration::from_secs(2)] {
            let next = reader.next(timeout);
            assert!(matches!(next, Err(Error::Unavailable { .. })), "{next:?}");
        }
        assert_eq!(shared.client.address(1).as_ref(), Some(&addresses[1]), "the brokers are its own");
    }

    /// The operating system takes connections for them. Each call of a start, and each thread of a replica,
    /// would wait for them once more.
    #[test]
    fn brokers_that_stand_still_cost_a_start_one_look() {
        let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [frozen.local_addr().unwrap().to_string()];
        frozen.set_nonblocking(true).unwrap();
        let accepted = || std::iter::from_fn(|| frozen.accept().ok()).count();
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        let error = shared.known().unwrap_err();
        assert!(error.is_transient() && accepted() > 0, "{error}");
        assert_eq!(shared.silence.error().as_ref(), Some(&error));
        shared.silence.prolong();
        for _ in 0..3 {
            assert_eq!(shared.known(), Err(error.clone()));
        }
        assert_eq!(accepted(), 0);
        shared.silence.end();
        assert!(shared.known().is_err() && accepted() > 0);
        // One that ends the connections is asked at once again.
        shared.silence.end();
        drop(frozen);
        assert!(shared.known().is_err() && shared.silence.error().is_none());
    }
}
