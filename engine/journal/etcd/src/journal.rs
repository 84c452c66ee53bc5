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
/// has become, and they make a few. They must not be made on an async thread.
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

impl Journal for EtcdJournal {
    fn append(&self, record: Bytes) -> Result<Position> {
        let limit = self.0.max_record_bytes;
        let size = record.len();
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        self.0.append(&record).map_err(|error| match error {
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
        })
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        let from = from.max(Position::new(1));
        // Whoever reads on has what comes before.
        self.0.expect(Position::new(from.get() - 1));
        let watch = self.0.watch_from(from)?;
        Ok(Box::new(TailReader::new(EtcdTail::new(Arc::clone(&self.0), watch, from))))
    }

    fn end(&self) -> Result<Position> {
        self.0.end()
    }

    fn trim(&self, before: Position) -> Result<()> {
        self.0.trim(before)
    }

    fn members(&self) -> usize {
        self.0.client.members()
    }

    fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes
    }

    fn problems(&self) -> Result<Vec<Problem>> {
        self.0.problems()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::ScriptedMember;

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
