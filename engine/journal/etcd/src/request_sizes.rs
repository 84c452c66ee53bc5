//! Which members take requests of which size: each has a limit of its own (`--max-request-bytes`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::Client;

/// A member that has not answered is not asked for so long where others have.
const SILENT: Duration = Duration::from_secs(10);

/// The members in the order in which a record is offered to them.
pub(crate) struct InTurn {
    pub members: Vec<usize>,
    /// One of them has not taken a record of this size.
    pub is_large: bool,
}

impl Client {
    /// The members in turn; those last that have not answered, or taken as much, where there is one that has
    /// not taken it.
    pub(crate) fn in_turn_for(&self, size: usize) -> InTurn {
        let takes_less = |member: usize| self.members[member].too_large.load(Ordering::Relaxed) <= size;
        let mut members: Vec<usize> = self.in_turn().collect();
        let is_large = members.iter().any(|member| takes_less(*member));
        if is_large {
            members.sort_by_key(|member| (self.is_silent(*member), takes_less(*member)));
        }
        InTurn { members, is_large }
    }

    /// Whether a member has not answered lately.
    pub(crate) fn is_silent(&self, member: usize) -> bool {
        self.members[member].silent.lock().is_some_and(|since| since.elapsed() < SILENT)
    }

    /// Notes that a record was too large for a member.
    pub(crate) fn takes_less(&self, member: usize, size: usize) {
        self.members[member].too_large.fetch_min(size, Ordering::Relaxed);
    }

    /// Notes that a member has taken a record.
    pub(crate) fn takes(&self, member: usize, size: usize) {
        let too_large = &self.members[member].too_large;
        if too_large.load(Ordering::Relaxed) <= size {
            too_large.store(usize::MAX, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plinth_journal::Position;

    use crate::call_error::CallError;
    use crate::scripted::ScriptedMember;
    use crate::shared::{AppendError, Shared};

    const LARGE: usize = 100;

    fn append(shared: &Shared) -> Result<Position, &'static str> {
        shared.append(&Bytes::from(vec![0; LARGE])).map_err(|error| match error {
            AppendError::Call(CallError::TooLarge) => "too large",
            AppendError::Call(CallError::NotMade(_)) => "not made",
            AppendError::Call(CallError::Unknown(_)) => "unknown",
            _ => "another error",
        })
    }

    fn members(limits: [usize; 3]) -> Vec<ScriptedMember> {
        let start = |limit| {
            let member = ScriptedMember::start(5);
            member.store().largest = limit;
            member
        };
        limits.into_iter().map(start).collect()
    }

    /// The limit of one member is lower.
    #[test]
    fn a_record_that_one_member_does_not_take_goes_to_another() {
        let members = members([LARGE / 2, LARGE, LARGE / 2]);
        let shared = Shared::of_test(&members);
        for expected in 6..9 {
            shared.client.prefer(0);
            assert_eq!(append(&shared), Ok(Position::new(expected)));
        }
        assert_eq!(members[0].store().refused, 1, "it is not sent there again");
        // Others go where they went.
        shared.client.prefer(0);
        assert_eq!(shared.append(&"a record".into()).ok(), Some(Position::new(6)));
        // Its limit was raised, and the other one's lowered.
        members[0].store().largest = LARGE;
        members[1].store().largest = 1;
        assert_eq!(append(&shared), Ok(Position::new(7)));
    }

    #[test]
    fn a_record_is_too_large_where_all_that_answer_say_so() {
        let mut members = members([LARGE / 2, LARGE, LARGE / 2]);
        let shared = Shared::of_test(&members);
        assert_eq!(append(&shared), Ok(Position::new(6)));
        // That which takes it goes away, and a call may be on its connection still.
        let certain = || (0..20).map(|_| append(&shared)).find(|outcome| *outcome != Err("unknown"));
        members.remove(1);
        assert_eq!(certain(), Some(Err("too large")));
        for current in [0, 1, 2] {
            shared.client.prefer(current);
            assert_eq!(append(&shared), Err("too large"));
        }
        members.clear();
        assert_eq!(certain(), Some(Err("not made")));
    }

    /// What it has been sent may be there.
    #[test]
    fn a_frozen_member_is_not_waited_for_where_others_refuse_the_size() {
        let members = members([LARGE, LARGE / 2, LARGE / 2]);
        let shared = Shared::of_test(&members);
        members[0].store().is_frozen = true;
        assert_eq!(append(&shared), Err("unknown"));
        for current in [1, 2, 0] {
            shared.client.prefer(current);
            assert_eq!(append(&shared), Err("too large"));
        }
        members[0].store().is_frozen = false;
        *shared.client.members[0].silent.lock() = None;
        assert!(append(&shared).is_ok());
    }
}
