//! [`Shared`]: what the journal and its readers share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_journal::record::ClusterId;
use plinth_journal::{Founding, Position, Result, Review, Silence};

use crate::client::Client;
use crate::codec::TopicId;
use crate::options::KafkaOptions;
use crate::records;

/// What the journal shares with its readers.
pub(crate) struct Shared {
    pub client: Client,
    pub topic: String,
    pub max_record_bytes: usize,
    pub cluster: ClusterId,
    pub founding: Founding,
    /// The key of each record, which names its format and its cluster.
    pub key: Bytes,
    pub leader: Mutex<LeaderState>,
    /// None until Kafka was found to hold this journal. Held while that is found out.
    pub known: Mutex<Option<Topic>>,
    /// Keeps whoever looks for it from doing so one after the other.
    pub silence: Silence,
    /// What the addresses of the URL have reported of it.
    pub review: Review,
    /// A record that a broker has damaged, or lacks.
    pub suspect_record: Mutex<Option<SuspectRecord>>,
    /// When the journal was last trimmed.
    pub trimmed: Mutex<Option<Instant>>,
}

impl Shared {
    /// What has made no call yet.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub(crate) fn new(options: &KafkaOptions, cluster: ClusterId, founding: Founding) -> Result<Shared> {
        Ok(Shared {
            client: Client::new(options, founding)?,
            topic: options.topic.clone(),
            max_record_bytes: options.max_record_bytes,
            cluster,
            founding,
            key: records::key(cluster),
            leader: Mutex::default(),
            known: Mutex::new(None),
            silence: Silence::default(),
            review: Review::default(),
            suspect_record: Mutex::new(None),
            trimmed: Mutex::new(None),
        })
    }
}

impl Shared {
    /// Gives up the topic that was found, by whoever holds it: the next call looks for the journal again.
    /// What is known of its leader and its records holds for no other one.
    pub(crate) fn give_up(&self, known: &mut Option<Topic>) {
        self.review.give_up();
        *known = None;
        self.client.trust_none();
        *self.leader.lock() = LeaderState::default();
        *self.suspect_record.lock() = None;
    }
}

/// A record that was not served as it should be.
#[derive(Debug, Clone)]
pub(crate) struct SuspectRecord {
    pub position: Position,
    /// Addresses of the brokers that have served it so, or not at all.
    pub brokers: BTreeSet<String>,
}

/// The topic, once it was found to be one that this journal may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Topic {
    /// It distinguishes the topic from any other that ever has the same name.
    pub id: TopicId,
    /// Replicas that have a record before its append is answered.
    pub min_in_sync: usize,
}

/// The leader of the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leader {
    pub broker: i32,
    /// Grows with each leader.
    pub epoch: i32,
    pub address: String,
    /// All brokers that have the partition.
    pub replicas: Vec<i32>,
}

impl Leader {
    /// The other brokers that have the partition.
    pub(crate) fn others(&self) -> impl Iterator<Item = i32> + '_ {
        self.replicas.iter().copied().filter(|broker| *broker != self.broker)
    }
}

/// What is known of the leader.
#[derive(Default)]
pub(crate) struct LeaderState {
    /// The topic whose leader it is: the epochs of two have nothing to do with each other.
    pub topic: TopicId,
    pub newest: Option<Arc<Leader>>,
    /// Since when all brokers that answered know an earlier one only.
    pub outdated_since: Option<Instant>,
    /// Whether it has not answered as a leader does.
    pub is_suspect: bool,
    /// The replica that has confirmed it last.
    pub witness: i32,
}
