//! What the records of a journal mean: an interpreter over plain maps, which shares no code with the engine.

use std::collections::BTreeMap;

use bytes::Bytes;
use plinth_journal::record::{
    Body, ConditionRecord, OperationRecord, ProposalRecord, Record, ReplicaId, Session,
};

use crate::common::Model;

/// State and history after the records of a journal.
pub(crate) struct Specification {
    pub model: Model,
    pub floor: u64,
    /// Deadlines by key and revision, in milliseconds since 1970.
    pub deadlines: BTreeMap<(Vec<u8>, u64), u64>,
    /// Time of the newest commit.
    time_ms: u64,
    sessions: BTreeMap<ReplicaId, (Session, u64)>,
    /// Groups that were applied.
    pub groups: u64,
    /// Records that were void.
    pub void: u64,
    /// Sessions that were begun.
    pub begun: u64,
}

impl Specification {
    pub(crate) fn of(records: &[Bytes]) -> Specification {
        let mut specification = Specification {
            model: Model::default(),
            floor: 0,
            deadlines: BTreeMap::new(),
            time_ms: 0,
            sessions: BTreeMap::new(),
            groups: 0,
            void: 0,
            begun: 0,
        };
        for bytes in records {
            specification.apply(Record::decode(bytes.clone()).unwrap());
        }
        specification
    }

    fn apply(&mut self, record: Record) {
        let current = self.sessions.get(&record.replica).copied();
        let valid = match &record.body {
            Body::Session { replaces } => *replaces == current.map(|current| current.0),
            _ => current == Some((record.session, record.sequence - 1)),
        };
        if !valid {
            self.void += 1;
            return;
        }
        self.sessions.insert(record.replica, (record.session, record.sequence));
        self.begun += u64::from(matches!(record.body, Body::Session { .. }));
        let Body::Group(proposals) = record.body else { return };
        self.groups += 1;
        // One time for the group, not below that of the commit before.
        let (before, time_ms) = (self.model.latest_revision(), record.clock_ms.max(self.time_ms));
        for proposal in proposals {
            match proposal {
                ProposalRecord::Floor(floor) if floor <= self.model.latest_revision() => {
                    self.floor = self.floor.max(floor);
                }
                ProposalRecord::Floor(_) => {}
                ProposalRecord::Transaction(transaction) => {
                    let state = self.model.latest();
                    let holds = transaction.conditions.iter().all(|condition| match condition {
                        ConditionRecord::ModRevision(key, revision) => {
                            state.get(&key[..]).is_some_and(|version| version.modified == *revision)
                        }
                        ConditionRecord::Absent(key) => !state.contains_key(&key[..]),
                        ConditionRecord::Exists(key) => state.contains_key(&key[..]),
                    });
                    if holds {
                        let ttls = transaction.operations.iter().filter_map(|operation| match operation {
                            OperationRecord::Put { key, ttl_ms: Some(ttl_ms), .. } => {
                                Some((key.to_vec(), *ttl_ms))
                            }
                            _ => None,
                        });
                        let revision = self.model.latest_revision() + 1;
                        self.deadlines.extend(ttls.map(|(key, ttl)| ((key, revision), time_ms + ttl)));
                        let operations: Vec<_> = transaction
                            .operations
                            .into_iter()
                            .map(|operation| match operation {
                                OperationRecord::Put { key, value, .. } => {
                                    (key.to_vec(), Some(value.to_vec()))
                                }
                                OperationRecord::Delete(key) => (key.to_vec(), None),
                            })
                            .collect();
                        self.model.apply(&operations);
                    }
                }
            }
        }
        if self.model.latest_revision() > before {
            self.time_ms = time_ms;
        }
    }

    /// The mod revision of a key at a revision, zero when it is absent.
    pub(crate) fn modified(&self, key: &[u8], at: u64) -> u64 {
        self.model.states[at as usize].get(key).map_or(0, |version| version.modified)
    }
}
