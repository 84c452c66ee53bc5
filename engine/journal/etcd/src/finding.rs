//! Finding the journal in etcd: at all members, as what a single one reports may be its own, and at once, as
//! some may stand still.
//!
//! A member may have been emptied, be another etcd's, or have a key damaged. What it reports ends nothing: a
//! member that has the journal is believed where most have the same, or no other one has this journal
//! otherwise, and that it is not there, or is another one's, most have to say.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use plinth_etcd_wire::kv::{
    request_op, Compare, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest,
    TxnResponse,
};
use plinth_journal::{Error, Founding, Opinion, Result};

use crate::call_error::CallError;
use crate::shared::{created, range, range_of, KeyRevisions, Shared};

/// The oldest etcd that can cut the responses of a watch.
const OLDEST_ETCD: (u32, u32) = (3, 4);

/// What a member has of the journal.
enum Found {
    Journal(KeyRevisions),
    /// No key at all, where a journal may be founded.
    Nothing,
    /// What this replica cannot use.
    Unsuitable(Error),
}

/// What members have answered, none of which has the journal.
#[derive(Default)]
struct Answers {
    empty: Vec<usize>,
    unsuitable: Vec<(usize, Error)>,
    /// Why the first one may not be used that never can be.
    refused: Option<CallError>,
    /// Why the last one has not answered.
    failed: Option<CallError>,
}

impl Shared {
    /// Which journal it is, found out by the first call that reaches etcd.
    pub(crate) fn known(&self) -> Result<KeyRevisions> {
        let found = {
            let mut known = self.known.lock();
            match *known {
                Some(known) => known,
                None => {
                    let found = self.silence.look(|| self.find())?;
                    self.log_created.store(found.log, Ordering::Relaxed);
                    self.was_known.store(true, Ordering::Relaxed);
                    *known.insert(found)
                }
            }
        };
        self.review(found)?;
        Ok(found)
    }

    /// Asks the other members again where too few of them had answered when the journal was found: they may
    /// have another one, and it is looked for once more then.
    fn review(&self, found: KeyRevisions) -> Result<()> {
        let opinion = || {
            let member = self.client.in_turn().find(|member| self.client.is_trusted(*member))?;
            Some(self.others_on(member, found))
        };
        self.review.check(opinion).map_err(|message| {
            let mut known = self.known.lock();
            if *known == Some(found) {
                self.give_up(&mut known);
                // Nor is the right one to have the keys of the one that is given up, or its records.
                self.log_created.store(0, Ordering::Relaxed);
                self.highest.store(0, Ordering::Relaxed);
                self.client.trust_none();
            }
            Error::Unavailable { message }
        })
    }

    /// Looks at what the members hold, and founds the journal where that is nothing and it is allowed.
    fn find(&self) -> Result<KeyRevisions> {
        let founding = match self.was_known.load(Ordering::Relaxed) {
            true => Founding::Forbidden,
            false => self.founding,
        };
        // Another journal may be founded at the same time; the second look finds it.
        for _ in 0..2 {
            let mut answers = Answers::default();
            let mut unasked: Vec<usize> = self.client.in_turn().collect();
            while let Some((member, found)) = self.look(&mut unasked, founding, &mut answers) {
                match self.others_on(member, found) {
                    opinion @ (Opinion::Agreed | Opinion::Uncontested) => {
                        self.review.found(opinion == Opinion::Agreed);
                        self.client.prefer(member);
                        self.client.trust(member);
                        return Ok(found);
                    }
                    Opinion::Outvoted(message) | Opinion::Undecided(message) => {
                        answers.unsuitable.push((member, Error::Unavailable { message }));
                    }
                }
            }
            let member = self.emptied(answers)?;
            let response = self.found(member)?;
            if response.succeeded {
                self.client.trust(member);
                self.review.found(true);
                let marker = response.header.map_or(0, |header| header.revision);
                return Ok(KeyRevisions { marker, log: 0 });
            }
        }
        Err(Error::Unavailable {
            message: "a key of the journal in etcd was created and deleted meanwhile".to_owned(),
        })
    }

    /// Asks members at once what they have of the journal, each for as long as it is trusted with, until one
    /// has it. Those that have answered, or have not in that time, are asked no more.
    fn look(
        &self,
        unasked: &mut Vec<usize>,
        founding: Founding,
        answers: &mut Answers,
    ) -> Option<(usize, KeyRevisions)> {
        let mut journal = None;
        let members = unasked.clone();
        let take = |member: usize, found: Result<Found, CallError>| {
            unasked.retain(|other| *other != member);
            match found {
                Ok(Found::Journal(found)) => journal = Some((member, found)),
                Ok(Found::Nothing) => answers.empty.push(member),
                Ok(Found::Unsuitable(error)) => answers.unsuitable.push((member, error)),
                Err(error @ (CallError::Denied(_) | CallError::Refused(_))) => {
                    answers.refused.get_or_insert(error);
                }
                Err(error) => answers.failed = Some(error),
            }
            journal.is_some()
        };
        self.client.ask(&members, |member| self.find_at(member, founding), take);
        journal
    }

    /// A member of the majority that has nothing, where none has the journal.
    fn emptied(&self, answers: Answers) -> Result<usize> {
        let members = self.client.members();
        let Answers { empty, unsuitable, refused, failed } = answers;
        if let Some(error) = refused {
            return Err(error.of_reading());
        }
        match (empty.first(), unsuitable.first()) {
            (Some(member), _) if empty.len() * 2 > members => Ok(*member),
            (_, Some((_, error))) if unsuitable.len() * 2 > members => Err(error.clone()),
            (_, Some((member, error))) => {
                let address = self.client.address(*member);
                let message = format!("too few members have answered, and at {address} {error}");
                Err(Error::Unavailable { message })
            }
            _ => Err(failed.map_or_else(too_few, CallError::of_reading)),
        }
    }

    /// What a member has of the journal.
    async fn find_at(&self, member: usize, founding: Founding) -> Result<Found, CallError> {
        if let Some(error) = self.check_version(member).await? {
            return Ok(Found::Unsuitable(error));
        }
        if let Some(error) = self.check_keys(member).await? {
            return Ok(Found::Unsuitable(error));
        }
        let response = self.client.txn(member, &self.both_keys()).await?;
        Ok(self.judge(founding, range_of(&response, 0), range_of(&response, 1)))
    }

    fn both_keys(&self) -> TxnRequest {
        let success = vec![range(&self.marker, false), range(&self.log, true)];
        TxnRequest { success, ..TxnRequest::default() }
    }

    /// What the other members say of the journal that one has. Who has this journal with other revisions of
    /// the keys, or in another etcd, has another one, a copy of it: what is appended to either is not in the
    /// other. An etcd that has nothing of the journal shows nothing of the one that has.
    fn others_on(&self, member: usize, found: KeyRevisions) -> Opinion {
        let (etcd_cluster, members) = (self.client.etcd_cluster(member), self.client.members());
        let is_most = |count: usize| count * 2 > members;
        let (agreeing, differing, other) = (Cell::new(1), Cell::new(0), Cell::new(None));
        self.client.ask_others(member, &self.both_keys(), |response| {
            let Some(header) = &response.header else { return false };
            let is_same_etcd = header.cluster_id == etcd_cluster;
            match self.judge(Founding::Forbidden, range_of(&response, 0), range_of(&response, 1)) {
                // The first record may have come meanwhile.
                Found::Journal(other)
                    if is_same_etcd
                        && other.marker == found.marker
                        && (other.log == found.log || found.log == 0 || other.log == 0) =>
                {
                    agreeing.set(agreeing.get() + 1);
                }
                Found::Journal(_) => {
                    other.set(Some(header.cluster_id));
                    differing.set(differing.get() + 1);
                }
                _ if is_same_etcd => differing.set(differing.get() + 1),
                _ => {}
            }
            is_most(agreeing.get()) || is_most(differing.get())
        });
        let address = self.client.address(member);
        let outvoted = || {
            format!(
                "{address}, of the etcd cluster {etcd_cluster:x}, has another journal than most members: take it \
                 out of the URL"
            )
        };
        let undecided = || {
            other.get().map(|other| {
                format!(
                    "{address}, of the etcd cluster {etcd_cluster:x}, and a member of the etcd cluster {other:x} \
                     have different journals of this cluster, and too few members answer to tell which one \
                     is right: name the members of one etcd alone"
                )
            })
        };
        Opinion::of(members, (agreeing.get(), differing.get()), outvoted, undecided)
    }

    fn judge(&self, founding: Founding, marker: Option<&KeyValue>, log: Option<&KeyValue>) -> Found {
        let place = String::from_utf8_lossy(&self.marker);
        let Some(marker) = marker else {
            if log.is_none() && founding == Founding::Allowed {
                return Found::Nothing;
            }
            if log.is_some() {
                let message = format!(
                    "there are records in etcd, but the key {place:?}, which names their cluster, is absent; \
                     if they are this cluster's, put it back with the value {:?}",
                    self.marker_value()
                );
                return Found::Unsuitable(Error::Denied { message });
            }
            let message = format!(
                "the key {place:?} is absent in etcd: the journal that this replica has applied is not there; use \
                 the etcd that holds it. Where its data is lost, make a backup of the replica that is \
                 furthest, and restore it. Nothing was written"
            );
            return Found::Unsuitable(Error::Refused { message });
        };
        let expected = self.marker_value();
        let found = String::from_utf8_lossy(&marker.value);
        if found != expected {
            let found: String = found.chars().take(100).collect();
            let message = format!(
                "the key {place:?} in etcd has {found:?} in place of {expected:?}: it is another cluster's, \
                 or of a later version; use another etcd, or join that cluster in an empty data directory. \
                 Nothing was written"
            );
            return Found::Unsuitable(Error::Refused { message });
        }
        let found =
            KeyRevisions { marker: marker.create_revision, log: log.map_or(0, |log| log.create_revision) };
        let before = self.log_created.load(Ordering::Relaxed);
        match before != 0 && before != found.log {
            true => Found::Unsuitable(self.replaced()),
            false => Found::Journal(found),
        }
    }

    /// Puts the marker if etcd holds no key at all: of all clusters that do so at once, at this place or at
    /// others, one does. A user who may not see all keys goes by those of this place.
    fn found(&self, member: usize) -> Result<TxnResponse> {
        let put = PutRequest {
            key: self.marker.clone(),
            value: self.marker_value().into(),
            ..PutRequest::default()
        };
        let all = Bytes::from_static(b"\0");
        let nothing = Compare { range_end: all.clone(), ..created(&all, 0) };
        let mut request = TxnRequest {
            compare: vec![nothing],
            success: vec![RequestOp { request: Some(request_op::Request::Put(put)) }],
            failure: Vec::new(),
        };
        match self.client.txn_at(member, &request) {
            Err(CallError::Denied(_)) => {
                request.compare = vec![created(&self.marker, 0), created(&self.log, 0)];
                self.client.txn_at(member, &request).map_err(CallError::of_reading)
            }
            outcome => outcome.map_err(CallError::of_reading),
        }
    }

    /// Why the version of a member is too old.
    async fn check_version(&self, member: usize) -> Result<Option<Error>, CallError> {
        let version = match self.client.status(member).await {
            Ok(status) => status.version,
            // A user without this permission gets a precise error from the next call.
            Err(CallError::Denied(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut numbers = version.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST_ETCD => {
                let (major, minor) = OLDEST_ETCD;
                let message = format!("etcd {version} is too old, {major}.{minor} is needed");
                Ok(Some(Error::Refused { message }))
            }
            _ => Ok(None),
        }
    }

    /// Refuses an etcd that holds anything else: trimming removes the history of all keys. A user who may not
    /// see all keys is believed.
    pub(crate) async fn check_keys(&self, member: usize) -> Result<Option<Error>, CallError> {
        let all = Bytes::from_static(b"\0");
        let (key, range_end) = (all.clone(), all);
        let request = RangeRequest { key, range_end, limit: 3, keys_only: true, ..RangeRequest::default() };
        let response = match self.client.range(member, &request).await {
            Ok(response) => response,
            Err(CallError::Denied(_)) => RangeResponse::default(),
            Err(error) => return Err(error),
        };
        let other = response.kvs.iter().find(|kv| kv.key != self.marker && kv.key != self.log);
        Ok(other.map(|kv| {
            let key: String = String::from_utf8_lossy(&kv.key).chars().take(100).collect();
            let message = format!(
                "etcd holds the key {key:?} that is none of this journal's: remove it, or use another etcd; a \
                 journal needs an etcd of its own, because trimming it removes the history of all keys"
            );
            Error::Refused { message }
        }))
    }
}

fn too_few() -> Error {
    Error::Unavailable { message: "too few members of etcd answer to found a journal".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use plinth_journal::{Position, Reader as _, TailReader};

    use super::*;
    use crate::scripted::ScriptedMember;
    use crate::tail::EtcdTail;

    /// The etcd of the copy, and what it lacks.
    const OLD: u64 = 9;

    fn with_copy(at: usize) -> Vec<ScriptedMember> {
        let members: Vec<_> = (0..3).map(|n| ScriptedMember::start(if n == at { 3 } else { 5 })).collect();
        members[at].store().etcd_cluster = OLD;
        members
    }

    fn unavailable(outcome: Result<KeyRevisions>) -> String {
        match outcome {
            Err(Error::Unavailable { message }) => message,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// One address leads to another etcd, with a copy of this journal as it was once.
    #[test]
    fn a_copy_of_the_journal_in_another_etcd_is_not_taken_for_it() {
        for at in 0..3 {
            let mut members = with_copy(at);
            let shared = Shared::unknown_of_test(&members);
            assert_eq!(shared.end(), Ok(Position::new(5)));
            assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(6)));
            assert_eq!(members[at].store().keys[&shared.log].version, 3, "nothing is written there");
            // Of two it cannot be known, whoever is asked first.
            members.remove((at + 1) % 3);
            let shared = Shared::unknown_of_test(&members);
            let message = unavailable(shared.known());
            assert!(message.contains("different journals") && message.contains("cluster 9"), "{message}");
            for member in &members {
                member.store().etcd_cluster = OLD;
            }
            assert!(shared.known().is_ok(), "both are of one etcd");
        }
    }

    /// Three that take connections and do not answer, one after the other, would be waited for three times as
    /// long and longer, and that by each call of a start.
    #[test]
    fn members_that_stand_still_cost_a_start_one_look() {
        let members: Vec<_> = (0..3).map(|_| ScriptedMember::start(5)).collect();
        let freeze = |is_frozen| members.iter().for_each(|member| member.store().is_frozen = is_frozen);
        freeze(true);
        let shared = Shared::unknown_of_test(&members);
        let error = shared.known().unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert_eq!(shared.client.slow_calls(), 1, "they were asked at once");
        assert_eq!(shared.silence.error().as_ref(), Some(&error));
        shared.silence.prolong();
        freeze(false);
        for _ in 0..3 {
            assert_eq!(shared.end(), Err(error.clone()), "it is not looked for again");
        }
        shared.silence.end();
        assert_eq!(shared.end(), Ok(Position::new(5)));
        // One that answers is enough.
        (1..3).for_each(|member| members[member].store().is_frozen = true);
        assert_eq!(Shared::unknown_of_test(&members).end(), Ok(Position::new(5)));
    }

    /// Which may have been in the middle of any of them.
    #[test]
    fn a_journal_that_is_closed_waits_for_no_answer() {
        let members: Vec<_> = (0..3).map(|_| ScriptedMember::start(5)).collect();
        let shared = Arc::new(Shared::of_test(&members));
        let due = Position::new(6);
        let watch = shared.watch_from(due).unwrap();
        let mut reader = TailReader::new(EtcdTail::new(Arc::clone(&shared), watch, (due, 0)));
        members.iter().for_each(|member| member.store().is_frozen = true);
        shared.client.close();
        let is_closed = |error: Option<Error>| {
            let error = error.unwrap();
            assert!(error.is_transient() && error.to_string().contains("closed"), "{error}");
        };
        is_closed(shared.end().err());
        is_closed(reader.next(Duration::from_secs(3600)).err());
        is_closed(shared.watch_from(due).err());
        assert!(shared.append(&"a record".into()).is_err());
        assert!(shared.problems().is_ok_and(|problems| problems.is_empty()));
        let shared = Shared::unknown_of_test(&members);
        std::thread::scope(|threads| {
            let looking = threads.spawn(|| shared.known());
            while members.iter().all(|member| member.store().frozen == 0) {
                std::thread::yield_now();
            }
            shared.client.close();
            assert!(looking.join().unwrap().is_err());
        });
        assert_eq!(shared.client.slow_calls(), 0, "none has taken too long");
    }

    /// The others had nothing to say at the start.
    #[test]
    fn a_copy_that_was_taken_for_the_journal_is_given_up() {
        let members = with_copy(0);
        let keys = [1, 2].map(|member| std::mem::take(&mut members[member].store().keys));
        let shared = Arc::new(Shared::of_test(&members));
        assert_eq!(shared.end(), Ok(Position::new(3)));
        let due = Position::new(4);
        let opened = (due, shared.review.given_up());
        let tail = EtcdTail::new(Arc::clone(&shared), shared.watch_from(due).unwrap(), opened);
        let mut reader = TailReader::new(tail);
        assert!(reader.next(Duration::ZERO).is_ok());
        for (member, keys) in [1, 2].into_iter().zip(keys) {
            members[member].store().keys = keys;
        }
        shared.review.make_due();
        let message = unavailable(shared.known());
        assert!(message.contains(members[0].address()) && message.contains("than most"), "{message}");
        // Nothing more is read of it.
        assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        assert_eq!(shared.end(), Ok(Position::new(5)));
        assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        assert_ne!(shared.client.current(), 0);
        assert!(shared.review.is_agreed());
    }

    /// It has a key damaged: the revision that it names is expected of no other member.
    #[test]
    fn what_is_found_after_a_damaged_member_was_given_up_is_used() {
        for first in 0..3 {
            let members: Vec<_> = (0..3).map(|_| ScriptedMember::start(5)).collect();
            let shared = Shared::unknown_of_test(&members);
            members[0].store().keys.get_mut(&shared.log).unwrap().create_revision = 9;
            let freeze = |is_frozen| (1..3).for_each(|member| members[member].store().is_frozen = is_frozen);
            freeze(true);
            assert_eq!(shared.known().unwrap().log, 9);
            freeze(false);
            shared.review.make_due();
            unavailable(shared.known());
            shared.client.prefer(first);
            assert_eq!(shared.end(), Ok(Position::new(5)));
            assert!(shared.review.is_agreed() && shared.client.current() != 0);
            assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(6)));
        }
    }
}
