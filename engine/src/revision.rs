//! The one number that orders everything.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// Position in the history of the store: the first committed transaction has revision 1, each later
/// one exactly one more. Zero means "before anything".
///
/// There is no arithmetic on revisions except [`Revision::next`] and [`Revision::previous`], and a leap where revisions may have been
/// given out that nobody remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first transaction.
    pub const ZERO: Revision = Revision(0);

    /// Revisions that are left out above the highest one known where more may have been given out: after a backup was made, since
    /// the watermark was written, within a write-ahead log of which nothing is left.
    pub(crate) const MARGIN: u64 = 1 << 24;

    /// No store and no archive holds a higher one: clients have signed numbers of 64 bits. At a billion commits a second it is
    /// 292 years away.
    pub(crate) const HIGHEST: Revision = Revision(i64::MAX as u64);

    /// An archive that ends beyond it is not restored, so that a restored store can go on: it is half of the way.
    pub(crate) const HIGHEST_RESTORED: Revision = Revision(1 << 62);

    /// The revision with this number.
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision after this one. The last representable revision is its own successor; none that is stored
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

    /// A revision above all that can have been given out when this one was the highest known. It depends on the time as well: two
    /// stores that are made of one, one after the other, do not give out the same revisions, unless the first commits more than once a
    /// microsecond in between. Where the revisions are ahead of the time (a clock was, once), chance tells the two stores apart.
    #[must_use]
    pub(crate) fn beyond(self, now: SystemTime) -> Revision {
        let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let micros = u64::try_from(micros).unwrap_or(u64::MAX).min(Revision::HIGHEST_RESTORED.0);
        let least = self.0.saturating_add(Revision::MARGIN);
        if micros > least {
            return Revision(micros);
        }
        // A hasher has keys of its own by chance; within some hours in microseconds.
        let chance = RandomState::new().build_hasher().finish() % (1 << 34);
        Revision(least.saturating_add(chance).min(Revision::HIGHEST.0))
    }

    /// Whether a store can hold it.
    pub(crate) fn is_plausible(self) -> bool {
        self <= Revision::HIGHEST
    }

    /// Neither a missing revision nor the start: something was committed at it.
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

/// Which state of the store a read shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest state that is durable when the read starts.
    Latest,
    /// Exactly the state after this revision was committed.
    Exact(Revision),
}
