//! Who is right when replicas differ: what the hashes in the records of others say about this replica.
//!
//! Hashes are chained: a replica whose hash is equal at a position has had equal hashes at all positions
//! before. So each record is an opinion about everything that its proposer has applied, up to the position
//! that it names: of one that agreed before the position of a difference it is not known which side it is on.
//! This replica goes on where more agree with it than differ, itself included, and stops as soon as more
//! differ than agree, even if all agree of whom that is not known yet. Where neither is so it stops when that
//! does not change in time. Each replica that finds a difference proposes an
//! empty transaction, whose record has its own hash: so that all learn of it, the one that is wrong, too.
//!
//! To go on and to stop are both safe for the log: what a record does is judged by each replica's own state,
//! whatever its proposer's was. A replica stops so that no wrong state is served.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plinth_journal::record::ReplicaId;
use plinth_journal::Position;

use crate::health::Failure;

/// What the newest comparable record of a replica shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opinion {
    /// Its hash was equal at this position.
    Agrees(Position),
    /// Its hash was another one, at this position for the first time.
    Differs(Position),
}

/// A replica that has proposed nothing for so long has no opinion: it is gone. One that runs renews its
/// record every few seconds. Those that were wrong, stopped and returned as others do not add up over time.
const GONE: Duration = Duration::from_secs(60);

/// The opinions of the others. See the module.
pub(crate) struct Agreement {
    own: ReplicaId,
    /// How long a difference may stay undecided.
    timeout: Duration,
    /// By replica, with the time of its newest record. That of this one is from an earlier process.
    opinions: BTreeMap<ReplicaId, (Opinion, Instant)>,
    undecided: Option<Undecided>,
}

/// A difference of which it is not known who is right.
struct Undecided {
    failure: Failure,
    since: Instant,
}

/// What the opinions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    Open,
}

impl Agreement {
    pub(crate) fn new(own: ReplicaId, timeout: Duration) -> Agreement {
        Agreement { own, timeout, opinions: BTreeMap::new(), undecided: None }
    }

    /// The record of `replica` has the hash of this one at `position`.
    pub(crate) fn agrees(&mut self, replica: ReplicaId, position: Position) {
        self.agrees_at(replica, position, Instant::now());
    }

    fn agrees_at(&mut self, replica: ReplicaId, position: Position, now: Instant) {
        self.forget_gone(now);
        let newest = match self.opinions.get(&replica) {
            // A record that arrived late, from before it differed.
            Some((Opinion::Differs(first), _)) if position < *first => return,
            Some((Opinion::Agrees(newest), _)) => position.max(*newest),
            _ => position,
        };
        self.opinions.insert(replica, (Opinion::Agrees(newest), now));
        if self.undecided.is_some() && self.verdict() == Verdict::Right {
            self.undecided = None;
        }
    }

    /// The record of `replica` has another hash at `position`. Returns whether it is the first of its records
    /// that has: then this replica is to propose something, so that the others learn of its hash.
    ///
    /// # Errors
    /// `failure`, where this replica is the one that is wrong.
    pub(crate) fn differs(
        &mut self,
        replica: ReplicaId,
        position: Position,
        failure: Failure,
    ) -> Result<bool, Failure> {
        self.differs_at(replica, position, failure, Instant::now())
    }

    fn differs_at(
        &mut self,
        replica: ReplicaId,
        position: Position,
        failure: Failure,
        now: Instant,
    ) -> Result<bool, Failure> {
        self.forget_gone(now);
        let first = match self.opinions.get(&replica) {
            Some((Opinion::Differs(first), _)) => Some(*first),
            // A record that arrived late, of a store that it had before the one that agrees.
            Some((Opinion::Agrees(newest), _)) if position <= *newest => return Ok(false),
            _ => None,
        };
        let is_new = first.is_none();
        self.opinions.insert(replica, (Opinion::Differs(first.unwrap_or(position)), now));
        match self.verdict() {
            Verdict::Wrong => return Err(failure),
            Verdict::Right => self.undecided = None,
            Verdict::Open if self.undecided.is_none() => {
                self.undecided = Some(Undecided { failure, since: now });
            }
            Verdict::Open => {}
        }
        Ok(is_new)
    }

    /// # Errors
    /// The difference that was not decided in time.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.undecided {
            Some(undecided) if undecided.since.elapsed() >= self.timeout => Err(undecided.failure.clone()),
            _ => Ok(()),
        }
    }

    fn forget_gone(&mut self, now: Instant) {
        self.opinions.retain(|_, (_, newest)| now.saturating_duration_since(*newest) < GONE);
    }

    fn verdict(&self) -> Verdict {
        let differing = self.opinions.values().filter_map(|(opinion, _)| match opinion {
            Opinion::Differs(position) => Some(*position),
            Opinion::Agrees(_) => None,
        });
        let (against, since) = (differing.clone().count(), differing.max().unwrap_or(Position::ZERO));
        // Who agreed at an earlier position only may have differed since, and may not have.
        let (mut agreeing, mut unknown) = (1, 0);
        for (replica, (opinion, _)) in &self.opinions {
            match opinion {
                Opinion::Agrees(_) if *replica == self.own => {}
                Opinion::Agrees(position) if *position >= since => agreeing += 1,
                Opinion::Agrees(_) => unknown += 1,
                Opinion::Differs(_) => {}
            }
        }
        if against < agreeing {
            Verdict::Right
        } else if against > agreeing + unknown {
            Verdict::Wrong
        } else {
            Verdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use plinth_journal::record::Hash;

    use super::*;

    const OWN: ReplicaId = ReplicaId(1);

    fn agreement() -> Agreement {
        Agreement::new(OWN, Duration::ZERO)
    }

    /// Whether it goes on; whether the others are to learn of it.
    fn differ(agreement: &mut Agreement, replica: u16, position: u64) -> Option<bool> {
        let (replica, position) = (ReplicaId(replica), Position::new(position));
        let (ours, theirs) = (Hash([1; 16]), Hash([2; 16]));
        let failure = Failure::Diverged { position, replica, ours, theirs };
        agreement.differs(replica, position, failure).ok()
    }

    #[test]
    fn one_that_differs_is_outvoted() {
        let mut agreement = agreement();
        agreement.agrees(ReplicaId(2), Position::new(3));
        assert_eq!(differ(&mut agreement, 3, 5), Some(true), "the record of 2 at 3 shows nothing of 5");
        assert!(agreement.check().is_err(), "nobody has answered");
        agreement.agrees(ReplicaId(2), Position::new(5));
        assert!(agreement.check().is_ok());
        // It goes on proposing.
        assert_eq!(differ(&mut agreement, 3, 9), Some(false));
        assert!(agreement.check().is_ok());
    }

    /// Two of five come to states of their own at once, and the others have written no record since.
    #[test]
    fn those_that_agreed_before_are_waited_for() {
        let mut agreement = agreement();
        for replica in [2, 3] {
            agreement.agrees(ReplicaId(replica), Position::new(9));
        }
        assert_eq!(differ(&mut agreement, 4, 10), Some(true));
        assert_eq!(differ(&mut agreement, 5, 11), Some(true), "2 and 3 may agree");
        assert!(agreement.check().is_err(), "nobody has answered");
        agreement.agrees(ReplicaId(2), Position::new(11));
        assert!(agreement.check().is_err());
        agreement.agrees(ReplicaId(3), Position::new(11));
        assert!(agreement.check().is_ok());
    }

    #[test]
    fn records_that_come_late_change_no_opinion() {
        let mut agreement = agreement();
        agreement.agrees(ReplicaId(2), Position::new(3));
        assert_eq!(differ(&mut agreement, 2, 10), Some(true));
        agreement.agrees(ReplicaId(2), Position::new(4));
        assert_eq!(differ(&mut agreement, 2, 11), Some(false), "it differs still");
        agreement.agrees(ReplicaId(3), Position::new(12));
        assert!(agreement.check().is_ok());
        agreement.agrees(ReplicaId(3), Position::new(2));
        assert_eq!(differ(&mut agreement, 3, 12), Some(false), "of a store that was replaced");
        assert_eq!(differ(&mut agreement, 4, 11), Some(true), "two against two");
    }

    #[test]
    fn who_is_alone_is_wrong() {
        let mut agreement = agreement();
        assert_eq!(differ(&mut agreement, 2, 5), Some(true));
        assert_eq!(differ(&mut agreement, 2, 6), Some(false), "one replica is one opinion");
        assert_eq!(differ(&mut agreement, 3, 6), None);
    }

    #[test]
    fn those_that_were_wrong_and_are_gone_do_not_add_up() {
        let mut agreement = agreement();
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        for n in 0..5u16 {
            let now = start + minute * u32::from(n);
            let position = Position::new(10 + u64::from(n));
            agreement.agrees_at(ReplicaId(2), position, now);
            let replica = ReplicaId(100 + n);
            let (ours, theirs) = (Hash([1; 16]), Hash([2; 16]));
            let failure = Failure::Diverged { position, replica, ours, theirs };
            assert_eq!(
                agreement.differs_at(replica, position, failure, now).ok(),
                Some(true),
                "the one of {n}"
            );
            agreement.agrees_at(ReplicaId(2), position, now);
            assert!(agreement.check().is_ok());
        }
    }

    #[test]
    fn two_of_two_and_two_of_four_do_not_decide() {
        let mut two = agreement();
        differ(&mut two, 2, 5);
        assert!(two.check().is_err());
        let mut four = agreement();
        four.agrees(ReplicaId(2), Position::new(9));
        assert_eq!(differ(&mut four, 3, 8), Some(true));
        assert_eq!(differ(&mut four, 4, 9), Some(true));
        assert!(four.check().is_err());
        // The fifth.
        four.agrees(ReplicaId(5), Position::new(10));
        assert!(four.check().is_ok());
    }

    #[test]
    fn a_majority_that_comes_later_counts() {
        let mut agreement = agreement();
        agreement.agrees(ReplicaId(2), Position::new(9));
        assert_eq!(differ(&mut agreement, 3, 8), Some(true));
        assert_eq!(differ(&mut agreement, 4, 9), Some(true));
        assert_eq!(differ(&mut agreement, 5, 9), None);
    }

    #[test]
    fn records_of_an_earlier_process_count_and_this_one_counts_once() {
        let mut agreement = agreement();
        assert_eq!(differ(&mut agreement, OWN.0, 5), Some(true), "it had a damaged store then");
        agreement.agrees(OWN, Position::new(8));
        assert!(agreement.check().is_ok());
        assert_eq!(differ(&mut agreement, 2, 8), Some(true));
    }
}
