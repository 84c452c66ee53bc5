//! [`Revision`]: the position in the global order of commits.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// Position in the history of the store: the first committed transaction has revision 1, each later
/// one exactly one more. Zero means "before anything".
///
/// There is no arithmetic on revisions except [`Revision::next`] and [`Revision::previous`], and
/// `beyond` where an unknown number of revisions may have been assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first transaction.
    pub const ZERO: Revision = Revision(0);

    /// Revisions that are skipped above the highest one known where more may have been assigned: after a
    /// backup was taken, since the watermark was written, within a lost write-ahead log.
    pub(crate) const MARGIN: u64 = 1 << 24;

    /// No store and no archive holds a higher one: clients use signed 64-bit numbers. At a billion commits a
    /// second it is reached after 292 years.
    pub(crate) const HIGHEST: Revision = Revision(i64::MAX as u64);

    /// An archive with a higher revision is not restored, so that the restored store has revisions left: half
    /// of the range.
    pub(crate) const HIGHEST_RESTORED: Revision = Revision(1 << 62);

    /// The revision with this number.
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// As a number; 0 is before the first commit.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision after this one. The last representable revision is its own successor; no stored revision
    /// comes near it.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0.saturating_add(1))
    }

    /// The revision before this one; zero stays zero.
    #[must_use]
    pub const fn previous(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }

    /// A revision above all that can have been assigned when this one was the highest known. It depends on
    /// the time as well, so that two stores restored from one archive, one after the other, do not assign the
    /// same revisions, unless the first commits more than once a microsecond in between. If revisions are
    /// ahead of the time (because a clock was, once), a random part distinguishes the stores.
    #[must_use]
    pub(crate) fn beyond(self, now: SystemTime) -> Revision {
        let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let micros = u64::try_from(micros).unwrap_or(u64::MAX).min(Revision::HIGHEST_RESTORED.0);
        let least = self.0.saturating_add(Revision::MARGIN);
        if micros > least {
            return Revision(micros);
        }
        // The keys of a hasher are random; the range is some hours in microseconds.
        let chance = RandomState::new().build_hasher().finish() % (1 << 34);
        Revision(least.saturating_add(chance).min(Revision::HIGHEST.0))
    }

    /// Whether it is within the range that a store can hold.
    pub(crate) fn is_plausible(self) -> bool {
        self <= Revision::HIGHEST
    }

    /// Whether it is not zero.
    pub const fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Revision {
    fn from(number: u64) -> Revision {
        Revision(number)
    }
}

impl From<Revision> for u64 {
    fn from(revision: Revision) -> u64 {
        revision.0
    }
}

/// The state of the store that a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest state that is durable when the read starts.
    Latest,
    /// Exactly the state after this revision was committed.
    Exact(Revision),
}
