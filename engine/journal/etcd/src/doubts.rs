//! What the members have of the journal. What a single one has otherwise than it was, it has damaged or lost;
//! it is believed of most.

use std::mem::discriminant;
use std::sync::atomic::Ordering;

use plinth_etcd_wire::kv::TxnRequest;
use plinth_journal::{Error, Position, Problem, Result};

use crate::call_error::CallError;
use crate::member_state::{Doubt, Newest};
use crate::shared::{range, range_of, AppendError, KeyRevisions, Shared};

/// What the members have that were asked.
struct Survey {
    /// Those that have the journal as it was.
    sound: Vec<Newest>,
    doubts: Vec<(usize, Doubt)>,
}

/// The newest record of a member, or what it has otherwise than it was.
type Inspected = Result<Result<Newest, Doubt>, CallError>;

impl Shared {
    /// The newest record, of a member that has the journal as it was.
    pub(crate) fn newest(&self) -> Result<Newest> {
        let known = self.known()?;
        let expected = self.highest.load(Ordering::Relaxed);
        let survey = self.survey(known, expected, Vec::new()).map_err(CallError::of_reading)?;
        let (mut sound, is_doubted) = (survey.sound, !survey.doubts.is_empty());
        let newest = match self.decide(survey.doubts) {
            Ok(Doubt::Replaced) => return Err(self.replaced()),
            Ok(Doubt::Unmarked) => return Err(self.unmarked(known)),
            Ok(Doubt::Behind(newest)) => {
                // A member that has shown or answered more counts otherwise than most.
                let (to, order) = (newest.end(), Ordering::Relaxed);
                let _ = self.highest.compare_exchange(expected, to, order, order);
                newest
            }
            Err(message) => sound.pop().ok_or(Error::Unavailable { message })?,
        };
        if is_doubted {
            self.client.prefer(newest.member);
        }
        if let Some(log) = &newest.log {
            self.learn(log)?;
        }
        Ok(newest)
    }

    /// Asks the members what they have, beside the one that is doubted already: where none is, the one that
    /// is used is enough if it has the journal as it was, and otherwise most have to.
    fn survey(
        &self,
        known: KeyRevisions,
        expected: u64,
        mut doubts: Vec<(usize, Doubt)>,
    ) -> Result<Survey, CallError> {
        let mut sound = Vec::new();
        let doubted = doubts.first().map(|(member, _)| *member);
        let mut members: Vec<usize> =
            self.client.in_turn().filter(|member| Some(*member) != doubted).collect();
        if doubts.is_empty() {
            let first = members.remove(0);
            match self.client.run(self.inspect(first, known, expected))? {
                Ok(newest) => return Ok(Survey { sound: vec![newest], doubts }),
                Err(doubt) => doubts.push((first, doubt)),
            }
        }
        let take = |member: usize, inspected: Inspected| {
            match inspected {
                Ok(Ok(newest)) => sound.push(newest),
                Ok(Err(doubt)) => doubts.push((member, doubt)),
                // Too few may be left.
                Err(_) => {}
            }
            sound.len() * 2 > self.client.members()
        };
        self.client.ask(&members, |member| self.inspect(member, known, expected), take);
        Ok(Survey { sound, doubts })
    }

    /// The newest record of a member, or what it has otherwise than it was: it may not end before `expected`.
    async fn inspect(&self, member: usize, known: KeyRevisions, expected: u64) -> Inspected {
        // Of one revision. The marker shows that it is this journal still.
        let success = vec![range(&self.log, true), range(&self.marker, false)];
        let request = TxnRequest { success, ..TxnRequest::default() };
        let response = self.client.txn(member, &request).await?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let log = range_of(&response, 0);
        let is_other = match log {
            Some(log) => known.log != 0 && log.create_revision != known.log,
            None => known.log != 0,
        };
        if is_other {
            return Ok(Err(Doubt::Replaced));
        }
        if !range_of(&response, 1).is_some_and(|marker| self.is_marker(marker, known)) {
            return Ok(Err(Doubt::Unmarked));
        }
        let newest = Newest { log: log.cloned(), revision, member };
        Ok(if newest.end() < expected { Err(Doubt::Behind(newest)) } else { Ok(newest) })
    }

    /// What most members doubt, in the same way, or all of them; where these are too few, that in words.
    fn decide(&self, doubts: Vec<(usize, Doubt)>) -> Result<Doubt, String> {
        let addresses: Vec<&str> = doubts.iter().map(|(member, _)| self.client.address(*member)).collect();
        let message =
            format!("the journal is another one at {}, and not at most members", addresses.join(", "));
        let Some(kind) = self.decided(&doubts).map(discriminant) else { return Err(message) };
        let of_kind = doubts.into_iter().map(|(_, doubt)| doubt).filter(|doubt| discriminant(doubt) == kind);
        // What was appended between two answers is in the later one.
        of_kind.max_by_key(Doubt::end).ok_or(message)
    }

    /// A doubt of the kind that most members have, or that is the first one where all have some.
    fn decided<'a>(&self, doubts: &'a [(usize, Doubt)]) -> Option<&'a Doubt> {
        let members = self.client.members();
        let of_kind = |kind| doubts.iter().filter(|(_, doubt)| discriminant(doubt) == kind).count();
        let is_decided =
            |doubt: &Doubt| of_kind(discriminant(doubt)) * 2 > members || doubts.len() == members;
        doubts.iter().map(|(_, doubt)| doubt).find(|doubt| is_decided(doubt))
    }

    /// The outcome of an append that a member has not made, as the journal is another one there. Each member
    /// compares what it has itself: where others have it as it was, they have made the append.
    pub(crate) fn not_put(&self, known: KeyRevisions, member: usize, doubt: Doubt) -> AppendError {
        let unknown = |message| AppendError::Call(CallError::Unknown(message));
        let expected = self.highest.load(Ordering::Relaxed);
        let survey = match self.survey(known, expected, vec![(member, doubt)]) {
            Ok(survey) => survey,
            Err(error) => return unknown(error.to_string()),
        };
        match (self.decide(survey.doubts), survey.sound.last()) {
            (Ok(Doubt::Replaced), _) => AppendError::Journal(self.replaced()),
            (Ok(Doubt::Unmarked), _) => AppendError::Journal(self.unmarked(known)),
            (Ok(Doubt::Behind(_)), _) => unknown("the journal ends earlier".to_owned()),
            (Err(_), Some(other)) => {
                self.client.prefer(other.member);
                let (address, other) = (self.client.address(member), self.client.address(other.member));
                unknown(format!("{address} has another journal than {other}, and has not made the append"))
            }
            (Err(message), None) => unknown(message),
        }
    }

    /// The error of a reader whose member has the keys otherwise than they were.
    pub(crate) fn doubted(&self, member: usize) -> Error {
        match self.newest() {
            Ok(_) => {
                self.client.leave(member);
                let message = format!("{} has another journal than the others", self.client.address(member));
                Error::Unavailable { message }
            }
            Err(error) => error,
        }
    }

    /// Whether most members lack a position that one has named as there: it counts otherwise than they do.
    pub(crate) fn is_outvoted(&self, member: usize, position: Position) -> bool {
        let Ok(known) = self.known() else { return false };
        let others: Vec<usize> = self.client.in_turn().filter(|other| *other != member).collect();
        let is_most = |count: usize| count * 2 > self.client.members();
        let (mut lacking, mut left) = (0, others.len());
        let take = |_, newest: Inspected| {
            left -= 1;
            lacking += usize::from(matches!(newest, Ok(Ok(newest)) if newest.end() < position.get()));
            is_most(lacking) || !is_most(lacking + left)
        };
        self.client.ask(&others, |other| self.inspect(other, known, 0), take);
        is_most(lacking)
    }

    /// What a start would refuse, and what single members have otherwise than most, in words, and which are
    /// not used. What most have otherwise ends the calls of whoever follows the journal.
    pub(crate) fn problems(&self) -> Result<Vec<Problem>> {
        let known = self.known()?;
        let expected = self.highest.load(Ordering::Relaxed);
        let (mut sound, mut doubts, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        let all: Vec<usize> = self.client.in_turn().collect();
        let take = |member: usize, inspected: Inspected| {
            match inspected {
                Ok(Ok(newest)) => sound.push(newest),
                Ok(Err(doubt)) => doubts.push((member, doubt)),
                Err(CallError::Unusable(message)) => {
                    let text = format!("a member of the journal is passed over: {message}");
                    problems.push(Problem::of_member(self.client.address(member), text));
                }
                // One that is down is no problem of the journal.
                Err(_) => {}
            }
            false
        };
        self.client.ask(&all, |member| self.inspect(member, known, expected), take);
        if let Some(newest) = sound.first() {
            // It has what the others have.
            if let Ok(Some(error)) = self.client.run(self.check_keys(newest.member)) {
                problems.push(Problem::new(error.refusal().unwrap_or_default()));
            }
        }
        self.find_lacking(known, &mut sound, &mut doubts);
        let Some(furthest) = sound.iter().max_by_key(|newest| newest.end()) else { return Ok(problems) };
        let is_ahead = self.is_outvoted(furthest.member, Position::new(furthest.end()));
        if self.decided(&doubts).is_none() {
            let texts = doubts.iter().map(|(member, doubt)| match doubt {
                Doubt::Replaced => (*member, "has another journal".to_owned()),
                Doubt::Unmarked => {
                    let place = String::from_utf8_lossy(&self.marker);
                    (*member, format!("has the key {place:?} damaged, or lacks it"))
                }
                Doubt::Behind(_) => (*member, "lacks records".to_owned()),
            });
            let ahead = is_ahead.then(|| (furthest.member, "counts records that are not there".to_owned()));
            problems.extend(texts.chain(ahead).map(|(member, what)| {
                let address = self.client.address(member);
                let text = format!(
                    "member {address} of the journal {what}, unlike the others: take it out, and let a new one take \
                     its place"
                );
                Problem::of_member(address, text)
            }));
        }
        Ok(problems)
    }

    /// Doubts those that end before what most members have reached, when they are asked once more: each
    /// answers with all that any had answered before. The one that this replica uses may be among them, which
    /// knows of no more than it has shown.
    fn find_lacking(&self, known: KeyRevisions, sound: &mut Vec<Newest>, doubts: &mut Vec<(usize, Doubt)>) {
        let mut ends: Vec<u64> = sound.iter().map(Newest::end).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        let Some(reached) = ends.get(self.client.members() / 2).copied() else { return };
        self.expect(Position::new(reached));
        let behind = sound.iter().filter(|newest| newest.end() < reached);
        let behind: Vec<usize> = behind.map(|newest| newest.member).collect();
        let take = |member: usize, again: Inspected| {
            if let Ok(Err(doubt)) = again {
                sound.retain(|newest| newest.member != member);
                doubts.push((member, doubt));
            }
            false
        };
        self.client.ask(&behind, |member| self.inspect(member, known, reached), take);
    }

    pub(crate) fn replaced(&self) -> Error {
        let marker = String::from_utf8_lossy(&self.marker);
        let message = format!(
            "the keys beside {marker:?} were deleted or created again since this replica has used them; \
             start the replicas from a checkpoint on an empty prefix"
        );
        Error::Refused { message }
    }

    /// The error of a marker that is not the one that it was when the journal was found. What it is now, the
    /// next call finds out: it may have been put back, or be that of another cluster.
    fn unmarked(&self, when_found: KeyRevisions) -> Error {
        let mut known = self.known.lock();
        if known.is_some_and(|known| known.marker != when_found.marker) {
            return Error::Unavailable { message: "the journal was found again meanwhile".to_owned() };
        }
        self.give_up(&mut known);
        let (place, value) = (String::from_utf8_lossy(&self.marker), self.marker_value());
        let message = format!(
            "the key {place:?} in etcd, which names the journal's cluster, was removed or put again; it has to \
             be {value:?}"
        );
        Error::Denied { message }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plinth_etcd_wire::kv::KeyValue;
    use plinth_journal::Tail as _;

    use super::*;
    use crate::scripted::{ScriptedMember, LOG_CREATED, MARKER_CREATED};
    use crate::tail::EtcdTail;

    fn members<const N: usize>(records: [i64; N]) -> [ScriptedMember; N] {
        records.map(ScriptedMember::start)
    }

    fn end(shared: &Shared) -> Result<u64> {
        shared.end().map(Position::get)
    }

    /// A member has counted records twice, and has answered an append.
    #[test]
    fn most_members_outvote_one_that_counts_more() {
        let mut members = members([5, 8, 5]).into_iter().collect::<Vec<_>>();
        let shared = Shared::of_test(&members);
        shared.client.prefer(1);
        assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(9)));
        for member in [0, 2] {
            members[member].store().put("plinth/log", "a record".into());
        }
        for first in [0, 2] {
            shared.client.prefer(first);
            assert_eq!(end(&shared), Ok(6));
            assert_ne!(shared.client.current(), 1, "it is asked no more");
        }
        // What it has counted is expected of nobody.
        members.truncate(1);
        shared.client.prefer(0);
        assert_eq!(end(&shared), Ok(6));
    }

    #[test]
    fn a_member_that_lacks_records_is_believed_by_nobody() {
        let mut members = members([4, 5, 5]).into_iter().collect::<Vec<_>>();
        let shared = Shared::of_test(&members);
        shared.expect(Position::new(5));
        assert_eq!(end(&shared), Ok(5));
        // Of two that are left, the one that has them.
        members.truncate(2);
        shared.client.prefer(0);
        assert_eq!(end(&shared), Ok(5));
        assert_eq!(shared.client.current(), 1);
        members.truncate(1);
        shared.client.prefer(0);
        let error = end(&shared).unwrap_err();
        assert!(error.is_transient(), "{error}");
        // All have lost them.
        let (shared, lost) = (Shared::of_test(&members), 4);
        shared.expect(Position::new(5));
        assert_eq!(end(&shared), Ok(lost));
    }

    /// What a reader waits for is what one member alone has counted.
    #[test]
    fn a_member_is_not_left_for_a_record_that_most_lack() {
        for (records, left, is_outvoted) in [([5, 6, 5], 1, true), ([5, 6, 6], 0, false)] {
            let members = members(records);
            let shared = Arc::new(Shared::of_test(&members));
            let due = Position::new(6);
            let watch = shared.watch_from(due).unwrap();
            assert_eq!(watch.member, 0);
            let mut tail = EtcdTail::new(Arc::clone(&shared), watch, (due, 0));
            shared.client.prefer(1);
            assert_eq!(tail.end(), Ok(due));
            if left == 0 {
                shared.client.prefer(0);
            }
            let message = tail.leave().to_string();
            assert_eq!(message.contains("most lack it"), is_outvoted, "{message}");
            assert_eq!(shared.client.current(), (left + 1) % 3);
            let due = if is_outvoted { 5 } else { 6 };
            assert_eq!(end(&shared), Ok(due));
        }
    }

    /// It is the one that this replica uses, which has seen nothing of the record.
    #[test]
    fn a_member_that_lacks_what_most_have_is_named_and_left() {
        for (records, named) in [([5, 6, 6], 1), ([5, 6, 5], 1), ([5, 5, 5], 0)] {
            let members = members(records);
            let shared = Shared::of_test(&members);
            assert_eq!(end(&shared), Ok(5));
            let problems = shared.problems().unwrap();
            assert_eq!(problems.len(), named, "{problems:?}");
            if records == [5, 6, 6] {
                let problem = problems[0].to_string();
                assert!(problem.contains("lacks") && problem.contains(members[0].address()), "{problem}");
                assert_eq!(end(&shared), Ok(6));
                assert_ne!(shared.client.current(), 0);
            } else {
                assert_eq!(end(&shared), Ok(5));
            }
        }
    }

    /// The marker was removed, and put back: a late answer with what was before shows nothing of now.
    #[test]
    fn a_marker_that_was_found_again_stays_found() {
        let members = members([5]);
        let shared = Shared::of_test(&members);
        let before = shared.known().unwrap();
        {
            let mut store = members[0].store();
            let value = store.keys.remove(&shared.marker).unwrap().value;
            store.put("plinth/journal", value);
        }
        assert!(matches!(end(&shared), Err(Error::Denied { .. })));
        assert_eq!(end(&shared), Ok(5), "it is found again");
        let error = shared.unmarked(before);
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(shared.known.lock().is_some_and(|known| known.marker != MARKER_CREATED));
        // Also an append that was made under the condition of before.
        let late = shared.not_put(before, 0, Doubt::Unmarked);
        assert!(matches!(late, AppendError::Journal(Error::Unavailable { .. })));
        assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(6)));
    }

    /// The first record of all is there by the time at which the marker is gone.
    #[test]
    fn a_missing_marker_is_no_journal_that_was_replaced() {
        let members = members([0]);
        let shared = Shared::of_test(&members);
        assert_eq!(shared.known().unwrap().log, 0);
        members[0].store().put("plinth/log", "a record".into());
        let marker = members[0].store().keys.remove(&shared.marker).unwrap();
        match shared.append(&"a record".into()) {
            Err(AppendError::Journal(Error::Denied { message })) => {
                assert!(message.contains("plinth/journal"), "{message}");
            }
            outcome => panic!("{:?}", outcome.is_ok()),
        }
        members[0].store().keys.insert(shared.marker.clone(), marker);
        assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(2)));
    }

    /// Also where the end is asked for, which puts nothing.
    #[test]
    fn an_etcd_that_was_replaced_refuses_the_end() {
        let members = members([5]);
        let shared = Shared::of_test(&members);
        members[0].store().etcd_cluster = 2;
        let error = end(&shared).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { message } if message.contains("etcd was replaced")),
            "{error}"
        );
    }

    /// The other one has fewer revisions.
    #[test]
    fn revisions_are_those_of_the_member_whose_end_was_read() {
        let members = members([9, 2]);
        let shared = Shared::of_test(&members);
        let newest = shared.newest().unwrap();
        // Another thread has left it meanwhile.
        shared.client.prefer(1);
        let log = newest.log.unwrap();
        assert_eq!(shared.revision_of(Position::new(7), &log, newest.member), Ok(LOG_CREATED + 6));
    }

    /// An append under the condition of its own revisions would be made at that member alone.
    #[test]
    fn a_member_with_other_revisions_of_the_keys_is_not_the_journal() {
        let mut members = members([5, 5, 5]).into_iter().collect::<Vec<_>>();
        for key in ["plinth/journal", "plinth/log"] {
            let set = |created: i64| {
                members[0].store().keys.get_mut(key.as_bytes()).unwrap().create_revision = created;
            };
            set(9);
            let shared = Shared::of_test(&members);
            let known = shared.known().unwrap();
            assert_eq!((known.marker, known.log), (MARKER_CREATED, LOG_CREATED));
            assert_eq!(end(&shared), Ok(5));
            assert_ne!(shared.client.current(), 0);
            set(if key == "plinth/log" { LOG_CREATED } else { MARKER_CREATED });
        }
        // Those of another etcd have nothing to say of this one.
        for member in [1, 2] {
            members[member].store().etcd_cluster = 2;
            members[member].store().keys.clear();
        }
        assert_eq!(end(&Shared::of_test(&members)), Ok(5));
        // Of two it cannot be known.
        members.truncate(2);
        members[1].store().etcd_cluster = 1;
        assert_eq!(end(&Shared::of_test(&members)), Ok(5));
    }

    /// What single members have otherwise is in words that name them; of most it ends calls.
    #[test]
    fn members_with_problems_are_named() {
        let members = members([5, 5, 5]);
        let shared = Shared::of_test(&members);
        let problems =
            || -> Vec<String> { shared.problems().unwrap().iter().map(ToString::to_string).collect() };
        assert_eq!(problems(), [""; 0]);
        let damage = |member: usize| {
            let mut store = members[member].store();
            store.keys.get_mut(&shared.marker).unwrap().value = "damaged".into();
        };
        let names_first = |what: &str| {
            let found = problems();
            assert!(matches!(&found[..], [text] if text.contains(what)), "{found:?}");
            assert!(found[0].contains(members[0].address()), "{found:?}");
        };
        let set = |change: &dyn Fn(&mut KeyValue)| {
            change(members[0].store().keys.get_mut(&shared.log).unwrap());
        };
        shared.expect(Position::new(5));
        set(&|log| log.version = 4);
        names_first("lacks records");
        set(&|log| log.version = 6);
        names_first("counts records");
        set(&|log| (log.version, log.create_revision) = (5, 4));
        names_first("has another journal");
        set(&|log| log.create_revision = LOG_CREATED);
        members[0].store().etcd_cluster = 2;
        names_first("is passed over");
        members[0].store().etcd_cluster = 1;
        assert_eq!(problems(), [""; 0]);
        for member in &members {
            member.store().put("other/key", "hi".into());
        }
        let found = problems();
        assert!(
            matches!(&found[..], [text] if text.contains("\"other/key\"") && text.contains("remove it")),
            "a start would refuse it: {found:?}"
        );
        for member in &members {
            member.store().keys.remove("other/key".as_bytes());
        }
        assert_eq!(problems(), [""; 0]);
        damage(0);
        names_first("\"plinth/journal\" damaged");
        damage(1);
        assert_eq!(problems(), [""; 0]);
        assert!(matches!(end(&shared), Err(Error::Denied { .. })));
    }
}
