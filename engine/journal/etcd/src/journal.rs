//! [`EtcdJournal`]: the calls of a journal as transactions of etcd.

use std::sync::Arc;

use bytes::Bytes;
use plinth_journal::record::ClusterId;
use plinth_journal::{Error, Founding, Journal, Position, Problem, Reader, Result, TailReader};

use crate::call_error::CallError;
use crate::options::EtcdOptions;
use crate::shared::{AppendError, Shared};
use crate::tail::EtcdTail;

/// A journal in etcd. Cheap to clone: clones share their connections.
///
/// Calls block their thread: each call of etcd for one to eight seconds at most, the longer the slower etcd
/// has become, and they make a few. Where several members are asked it is at once. They must not be made on
/// an async thread.
#[derive(Clone)]
pub struct EtcdJournal(Arc<Shared>);

impl EtcdJournal {
    /// The journal of `cluster` at a place in etcd; founds it where nothing is there yet, if that is allowed.
    ///
    /// An etcd that cannot be reached now is no error: it is checked by the first call that reaches it. One
    /// member that can be used is enough.
    ///
    /// # Errors
    /// [`Error::Refused`] for options that cannot be used, an etcd that does not accept them, one that holds
    /// something else at that place, and one that holds nothing where that is not allowed. Nothing was
    /// written.
    pub fn connect(options: &EtcdOptions, cluster: ClusterId, founding: Founding) -> Result<EtcdJournal> {
        let shared = Shared::new(options, cluster, founding)?;
        match shared.known() {
            Ok(_) => return Ok(EtcdJournal(Arc::new(shared))),
            // At the start, a mistake of whoever configured it.
            Err(Error::Denied { message }) => return Err(Error::Refused { message }),
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        match shared.client.unusable() {
            // No other member could be used, and this one never can.
            Some(message) => Err(Error::Refused { message }),
            None => Ok(EtcdJournal(Arc::new(shared))),
        }
    }
}

impl EtcdJournal {
    /// A call that has no outcome where what was found at its beginning is given up before its end.
    fn of_one_journal<T>(&self, call: impl FnOnce(&Shared) -> Result<T>) -> Result<T> {
        let given_up = self.0.review.given_up();
        self.0.review.outcome(given_up, call(&self.0))
    }

    fn tail(&self, from: Position) -> Result<EtcdTail> {
        let given_up = self.0.review.given_up();
        self.of_one_journal(|shared| {
            // Whoever reads on has what comes before.
            shared.expect(Position::new(from.get() - 1));
            let watch = shared.watch_from(from)?;
            Ok(EtcdTail::new(Arc::clone(&self.0), watch, (from, given_up)))
        })
    }
}

impl Journal for EtcdJournal {
    fn append(&self, record: Bytes) -> Result<Position> {
        let limit = self.0.max_record_bytes;
        let size = record.len();
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        let given_up = self.0.review.given_up();
        let appended = self.0.append(&record).map_err(|error| match error {
            AppendError::Journal(error) => error,
            AppendError::Call(error) => match error {
                CallError::NotMade(message) | CallError::Unusable(message) => Error::Unavailable { message },
                CallError::Denied(message) => Error::Denied { message },
                CallError::Unknown(message) => Error::OutcomeUnknown { message },
                CallError::Refused(message) => Error::Refused { message },
                CallError::NoSpace(message) => Error::Full { message },
                CallError::TooLarge => Error::TooLarge { size, limit: size.saturating_sub(1) },
                CallError::Compacted => Error::OutcomeUnknown { message: "a range is compacted".to_owned() },
            },
        });
        self.0.review.outcome_of_append(given_up, appended)
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        Ok(Box::new(TailReader::new(self.tail(from.max(Position::new(1)))?)))
    }

    fn end(&self) -> Result<Position> {
        self.of_one_journal(Shared::end)
    }

    fn trim(&self, before: Position) -> Result<()> {
        self.of_one_journal(|shared| shared.trim(before))
    }

    fn members(&self) -> usize {
        self.0.client.members()
    }

    fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes
    }

    fn given_up(&self) -> u64 {
        self.0.review.given_up()
    }

    fn problems(&self) -> Result<Vec<Problem>> {
        self.of_one_journal(Shared::problems)
    }

    fn close(&self) {
        self.0.client.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scripted::ScriptedMember;

    /// The first member is of another etcd, with a copy of the journal, and the others have had nothing to
    /// say.
    fn misled() -> (Vec<ScriptedMember>, EtcdJournal, impl FnOnce(&[ScriptedMember])) {
        let members: Vec<_> = [3, 5, 5].into_iter().map(ScriptedMember::start).collect();
        members[0].store().etcd_cluster = 9;
        let keys = [1, 2].map(|member: usize| std::mem::take(&mut members[member].store().keys));
        let journal = EtcdJournal(Arc::new(Shared::of_test(&members)));
        assert_eq!((journal.end(), journal.given_up()), (Ok(Position::new(3)), 0));
        let contradict = move |members: &[ScriptedMember]| {
            members[1..].iter().zip(keys).for_each(|(member, keys)| member.store().keys = keys);
        };
        (members, journal, contradict)
    }

    /// Also by a call that is not one of whoever follows the journal.
    #[test]
    fn a_journal_that_is_given_up_is_counted_whatever_finds_it_out() {
        type Call = fn(&EtcdJournal) -> Result<()>;
        let calls: [(&str, Call); 5] = [
            ("problems", |journal| journal.problems().map(drop)),
            ("trim", |journal| journal.trim(Position::new(2))),
            ("end", |journal| journal.end().map(drop)),
            ("append", |journal| journal.append("a record".into()).map(drop)),
            ("read", |journal| journal.read(Position::new(2)).map(drop)),
        ];
        for (name, call) in calls {
            let (members, journal, contradict) = misled();
            let mut reader = journal.read(Position::new(4)).unwrap();
            contradict(&members);
            journal.0.review.make_due();
            let error = call(&journal).unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{name}: {error}");
            assert_eq!(journal.given_up(), 1, "{name}");
            assert_eq!(members[0].store().compacted, 0, "{name}");
            // Whoever follows it finds the next one, and trims nothing before.
            assert!(journal.trim(Position::new(2)).is_err());
            assert_eq!(journal.end(), Ok(Position::new(5)));
            assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })), "{name}");
            assert_eq!(journal.given_up(), 1, "{name}");
            journal.trim(Position::new(4)).unwrap();
            assert!(members.iter().any(|member| member.store().compacted > 0));
        }
        // The marker is gone.
        let members = [ScriptedMember::start(5)];
        let journal = EtcdJournal(Arc::new(Shared::of_test(&members)));
        members[0].store().keys.remove(&journal.0.marker);
        assert!(matches!(journal.trim(Position::new(2)), Err(Error::Denied { .. })));
        assert_eq!((journal.given_up(), members[0].store().compacted), (1, 0));
    }

    /// The revisions of one journal lead nowhere in another one, nor are its records expected there.
    #[test]
    fn nothing_that_was_noted_of_a_journal_outlives_it() {
        let (members, journal, contradict) = misled();
        journal.0.note(Position::new(7), 90);
        contradict(&members);
        journal.0.review.make_due();
        assert!(journal.problems().is_err());
        assert!(journal.0.recent.lock().is_none());
        // One alone answers that has the journal: too few to outvote what was noted.
        members[0].store().keys.clear();
        members[2].store().is_frozen = true;
        assert_eq!(journal.end(), Ok(Position::new(5)));
    }

    /// It was put back to an old copy, which nobody has compared yet.
    #[test]
    fn a_journal_that_has_lost_records_is_not_trimmed() {
        let members: Vec<_> = (0..3).map(|_| ScriptedMember::start(4)).collect();
        let journal = EtcdJournal(Arc::new(Shared::of_test(&members)));
        journal.0.expect(Position::new(5));
        let error = journal.trim(Position::new(2)).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable { message } if message.contains("position 5")),
            "{error}"
        );
        assert!(members.iter().all(|member| member.store().compacted == 0));
    }

    /// The reader stays where the end is asked for.
    #[test]
    fn a_member_without_space_is_not_left() {
        let members: Vec<_> = (0..3).map(|_| ScriptedMember::start(5)).collect();
        let journal = EtcdJournal(Arc::new(Shared::of_test(&members)));
        members.iter().for_each(|member| member.store().is_full = true);
        for _ in 0..3 {
            let full = journal.append("a record".into());
            assert!(
                matches!(&full, Err(Error::Full { message }) if message.contains("alarm disarm")),
                "{full:?}"
            );
            assert_eq!(journal.end(), Ok(Position::new(5)));
            assert_eq!(journal.0.client.current(), 0);
        }
        members.iter().for_each(|member| member.store().is_full = false);
        assert_eq!(journal.append("a record".into()), Ok(Position::new(6)));
    }
}
