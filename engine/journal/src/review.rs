//! [`Review`]: whether the members that had nothing to say of a journal when it was found agree with those
//! that had.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

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
/// have agreed.
#[derive(Debug, Default)]
pub struct Review(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_agreed: bool,
    /// When the members were asked last.
    asked: Option<Instant>,
}

impl Review {
    /// Notes that a journal was found, and whether most members have agreed.
    pub fn found(&self, is_agreed: bool) {
        *self.0.lock() = State { is_agreed, asked: Some(Instant::now()) };
    }

    /// Whether most members have agreed.
    pub fn is_agreed(&self) -> bool {
        self.0.lock().is_agreed
    }

    /// Asks the members where that is due, which `ask` does; it may have nobody to ask for.
    ///
    /// # Errors
    /// What members say that have another journal, in words: it is to be found again.
    pub fn check(&self, ask: impl FnOnce() -> Option<Opinion>) -> Result<(), String> {
        {
            let mut state = self.0.lock();
            if state.is_agreed || state.asked.is_some_and(|last| last.elapsed() < INTERVAL) {
                return Ok(());
            }
            // Others go on meanwhile.
            state.asked = Some(Instant::now());
        }
        match ask() {
            Some(Opinion::Outvoted(message) | Opinion::Undecided(message)) => Err(message),
            Some(Opinion::Agreed) => {
                self.0.lock().is_agreed = true;
                Ok(())
            }
            Some(Opinion::Uncontested) | None => Ok(()),
        }
    }

    /// Makes the next check ask, as if the time for it had come.
    pub fn make_due(&self) {
        self.0.lock().asked = None;
    }
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
