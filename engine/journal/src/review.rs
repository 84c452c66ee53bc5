//! [`Review`]: whether the members that had nothing to say of a journal when it was found agree with those
//! that had.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Where too few members had answered when the journal was found, they are asked again so often.
const INTERVAL: Duration = Duration::from_secs(10);

/// What the other members say of the journal that one has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    /// Most members have the same.
    Agreed,
    /// Too few have answered, and none has it otherwise.
    Uncontested,
    /// Most have it otherwise, in words.
    Outvoted(String),
    /// Some have it otherwise, and too few answer to tell who is right, in words.
    Undecided(String),
}

impl Opinion {
    /// The opinion of `members` of which so many have the journal, and so many the same other one.
    pub fn of(
        members: usize,
        (agreeing, differing): (usize, usize),
        outvoted: impl FnOnce() -> String,
        undecided: impl FnOnce() -> Option<String>,
    ) -> Opinion {
        let is_most = |count: usize| count * 2 > members;
        if is_most(agreeing) {
            return Opinion::Agreed;
        }
        if is_most(differing) {
            return Opinion::Outvoted(outvoted());
        }
        undecided().map_or(Opinion::Uncontested, Opinion::Undecided)
    }
}

/// The opinions on the journal that was found. A journal that is taken as no other member has it otherwise
/// may be a copy of the right one, whose members did not answer at that time: they are asked again until most
/// have agreed. Counts how often what was found was given up, for whatever reason.
#[derive(Debug, Default)]
pub struct Review {
    state: Mutex<State>,
    given_up: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    is_agreed: bool,
    /// When the members were asked last.
    asked: Option<Instant>,
}

impl Review {
    /// Notes that a journal was found, and whether most members have agreed.
    pub fn found(&self, is_agreed: bool) {
        *self.state.lock() = State { is_agreed, asked: Some(Instant::now()) };
    }

    /// Whether most members have agreed.
    pub fn is_agreed(&self) -> bool {
        self.state.lock().is_agreed
    }

    /// Asks the members where that is due, which `ask` does; it may have nobody to ask for.
    ///
    /// # Errors
    /// What members say that have another journal, in words: it is to be found again.
    pub fn check(&self, ask: impl FnOnce() -> Option<Opinion>) -> Result<(), String> {
        let given_up = self.given_up();
        {
            let mut state = self.state.lock();
            if state.is_agreed || state.asked.is_some_and(|last| last.elapsed() < INTERVAL) {
                return Ok(());
            }
            // Others go on meanwhile.
            state.asked = Some(Instant::now());
        }
        match ask() {
            Some(Opinion::Outvoted(message) | Opinion::Undecided(message)) => Err(message),
            Some(Opinion::Agreed) => {
                // Of the journal that was asked about, which may have been given up meanwhile.
                let mut state = self.state.lock();
                state.is_agreed |= self.given_up() == given_up;
                Ok(())
            }
            Some(Opinion::Uncontested) | None => Ok(()),
        }
    }

    /// How often what was found was given up: [`Journal::given_up`](crate::Journal::given_up).
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Acquire)
    }

    /// Counts that what was found is given up. To be called before anybody can find another one, by whoever
    /// keeps them from that.
    pub fn give_up(&self) {
        self.given_up.fetch_add(1, Ordering::AcqRel);
    }

    /// The outcome of a call that reads and began after the journal was given up so often. What another one
    /// has answered that is given up by now, or the next one in the middle of the call, is no outcome.
    ///
    /// # Errors
    /// Those of the call, and [`Error::Unavailable`] in the place of an answer, and of an error that is for
    /// good.
    pub fn outcome<T>(&self, given_up: u64, outcome: Result<T>) -> Result<T> {
        outcome_of_call(self.given_up() != given_up, outcome)
    }

    /// The same for an append: one that was answered may be in either journal, one that was refused is in
    /// none.
    ///
    /// # Errors
    /// Those of the append, and [`Error::OutcomeUnknown`] in the place of a position.
    pub fn outcome_of_append<T>(&self, given_up: u64, outcome: Result<T>) -> Result<T> {
        outcome_of_append(self.given_up() != given_up, outcome)
    }

    /// Makes the next check ask, as if the time for it had come.
    pub fn make_due(&self) {
        self.state.lock().asked = None;
    }
}

fn outcome_of_call<T>(is_given_up: bool, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error) if error.is_transient() => Err(error),
        _ if is_given_up => {
            let message = "what was taken for the journal was given up during the call".to_owned();
            Err(Error::Unavailable { message })
        }
        outcome => outcome,
    }
}

/// The outcome of an append where what was taken for the journal at its beginning may have been given up:
/// [`Review::outcome_of_append`] for a caller that has counted that itself, from before the call began.
///
/// # Errors
/// As there.
pub fn outcome_of_append<T>(is_given_up: bool, outcome: Result<T>) -> Result<T> {
    let is_made = outcome.is_ok();
    outcome_of_call(is_given_up, outcome).map_err(|error| match error {
        Error::Unavailable { message } if is_made => Error::OutcomeUnknown { message },
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_vote_until_most_agree() {
        let review = Review::default();
        let never = || panic!("asked");
        review.found(false);
        assert_eq!(review.check(never), Ok(()), "they were asked just now");
        for opinion in [None, Some(Opinion::Uncontested)] {
            review.make_due();
            assert_eq!(review.check(|| opinion), Ok(()));
            assert!(!review.is_agreed());
        }
        for contradiction in [Opinion::Outvoted, Opinion::Undecided] {
            review.make_due();
            assert_eq!(review.check(|| Some(contradiction("another".to_owned()))), Err("another".to_owned()));
        }
        review.make_due();
        assert_eq!(review.check(|| Some(Opinion::Agreed)), Ok(()));
        review.make_due();
        assert_eq!(review.check(never), Ok(()));
    }

    #[test]
    fn a_call_has_no_outcome_of_a_journal_that_was_given_up_meanwhile() {
        let review = Review::default();
        let refused = || Err::<(), _>(Error::Refused { message: "it was deleted".to_owned() });
        let denied = || Err::<(), _>(Error::Denied { message: "no right".to_owned() });
        let before = review.given_up();
        assert_eq!(review.outcome(before, Ok(1)), Ok(1));
        assert_eq!(review.outcome(before, refused()), refused());
        review.give_up();
        assert!(matches!(review.outcome(before, Ok(1)), Err(Error::Unavailable { .. })));
        assert!(matches!(review.outcome(before, refused()), Err(Error::Unavailable { .. })));
        assert_eq!(review.outcome(before, denied()), denied(), "it says what to do");
        assert!(matches!(review.outcome_of_append(before, Ok(1)), Err(Error::OutcomeUnknown { .. })));
        let too_large = Err::<(), _>(Error::TooLarge { size: 2, limit: 1 });
        assert!(matches!(review.outcome_of_append(before, too_large), Err(Error::Unavailable { .. })));
        assert_eq!(review.outcome(review.given_up(), Ok(1)), Ok(1));
    }

    /// The members were asked about the one before.
    #[test]
    fn an_agreement_is_that_on_the_journal_found_before() {
        let review = Review::default();
        review.found(false);
        review.make_due();
        let opinion = || {
            review.give_up();
            review.found(false);
            Some(Opinion::Agreed)
        };
        assert_eq!(review.check(opinion), Ok(()));
        assert!(!review.is_agreed());
    }

    #[test]
    fn most_members_decide() {
        let of = |members, counts, is_contested: bool| {
            let undecided = || is_contested.then(|| "undecided".to_owned());
            Opinion::of(members, counts, || "outvoted".to_owned(), undecided)
        };
        assert_eq!(of(3, (2, 1), true), Opinion::Agreed);
        assert_eq!(of(3, (1, 2), true), Opinion::Outvoted("outvoted".to_owned()));
        assert_eq!(of(2, (1, 1), true), Opinion::Undecided("undecided".to_owned()));
        assert_eq!(of(3, (1, 1), false), Opinion::Uncontested);
        assert_eq!(of(1, (1, 0), false), Opinion::Agreed);
    }
}
