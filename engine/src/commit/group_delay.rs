//! Whether a group that could be written waits a moment for the callers who were just answered.
//!
//! Callers that wait for their answer before they ask again settle into two halves: while one half's
//! group is synced, the other half fills the next, and every sync pays for half of them only. A group
//! that waits a fraction of a sync for the half that was just answered gets nearly all.

use std::time::{Duration, Instant};

/// A group waits at most this part of the last synced write.
const PART: u32 = 8;
/// The longest wait, for disks that take their time.
const LONGEST: Duration = Duration::from_millis(2);
/// Groups that go without a wait after one that was in vain: doubled each time, up to this.
const MOST_SKIPPED: u32 = 64;

/// What is known of the callers. Lies in the queue, under its lock.
#[derive(Debug, Default)]
pub(crate) struct GroupDelay {
    last: Option<Last>,
    /// Groups left that go without a wait.
    skip: u32,
    /// Groups that went without one after the last wait in vain.
    skipped: u32,
}

/// The group that was written last.
#[derive(Debug)]
struct Last {
    /// Callers that got an answer.
    answered: usize,
    /// Callers in the open group when it was done; known at the first look after it.
    met: Option<usize>,
    /// How long its synced write lasted.
    took: Duration,
    /// None while its callers are being answered: the syncer could not take another group anyway.
    until: Option<Instant>,
}

/// What to do with the open group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It goes now.
    No,
    /// It stays until then, or until it is larger.
    Until(Instant),
    /// It stays until all callers of the last one are answered, or until it is larger.
    UntilAnswered,
}

impl GroupDelay {
    /// A group was written; `answered` callers are about to be told. Its synced write lasted `took`.
    pub(crate) fn written(&mut self, answered: usize, took: Duration) {
        self.last = None;
        if self.skip > 0 {
            self.skip -= 1;
        } else if answered > 1 {
            self.last = Some(Last { answered, met: None, took, until: None });
        }
    }

    /// All callers of the group that was written last have their answers.
    pub(crate) fn answered(&mut self, now: Instant) {
        if let Some(last) = &mut self.last {
            last.until = Some(now + (last.took / PART).min(LONGEST));
        }
    }

    /// Whether the open group of `size` callers should wait for more.
    pub(crate) fn wait(&mut self, size: usize, now: Instant) -> Wait {
        let Some(last) = &mut self.last else { return Wait::No };
        let met = *last.met.get_or_insert(size);
        // The last stragglers are not worth the wait.
        let wanted = (last.answered + met) * 7 / 8;
        if size >= wanted.max(1) {
            self.last = None;
            self.skipped = 0;
            return Wait::No;
        }
        match last.until {
            None => return Wait::UntilAnswered,
            Some(until) if now < until => return Wait::Until(until),
            Some(_) => self.last = None,
        }
        // Some callers came back: worth it. Nearly none: these do not come back at once.
        if size <= met + quarter(wanted, met) {
            self.skipped = (self.skipped * 2).clamp(1, MOST_SKIPPED);
            self.skip = self.skipped;
        }
        Wait::No
    }
}

/// A quarter of those who were waited for.
fn quarter(wanted: usize, met: usize) -> usize {
    wanted.saturating_sub(met) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(800);

    fn after(group_delay: &mut GroupDelay, answered: usize, took: Duration, now: Instant) {
        group_delay.written(answered, took);
        group_delay.answered(now);
    }

    #[test]
    fn two_halves_become_one_group() {
        let (mut group_delay, start) = (GroupDelay::default(), Instant::now());
        group_delay.written(50, SYNC);
        assert_eq!(group_delay.wait(50, start), Wait::UntilAnswered);
        group_delay.answered(start);
        let until = Wait::Until(start + SYNC / 8);
        assert_eq!(group_delay.wait(50, start), until);
        assert_eq!(group_delay.wait(80, start + SYNC / 16), until);
        assert_eq!(group_delay.wait(88, start + SYNC / 16), Wait::No, "nearly all are there");
        after(&mut group_delay, 88, SYNC, start);
        assert_ne!(group_delay.wait(12, start), Wait::No);
        assert_eq!(group_delay.wait(90, start), Wait::No);
    }

    #[test]
    fn one_writer_never_waits() {
        let (mut group_delay, start) = (GroupDelay::default(), Instant::now());
        group_delay.written(1, SYNC);
        assert_eq!(group_delay.wait(1, start), Wait::No);
    }

    #[test]
    fn who_does_not_come_back_is_waited_for_less_and_less() {
        let (mut group_delay, start) = (GroupDelay::default(), Instant::now());
        let mut waits = 0;
        for _ in 0..1000 {
            after(&mut group_delay, 10, SYNC, start);
            if let Wait::Until(until) = group_delay.wait(1, start) {
                waits += 1;
                assert_eq!(group_delay.wait(1, until), Wait::No);
            }
        }
        assert!((10..=25).contains(&waits), "{waits}");
    }

    #[test]
    fn a_slow_disk_does_not_make_it_long() {
        let (mut group_delay, start) = (GroupDelay::default(), Instant::now());
        after(&mut group_delay, 10, Duration::from_secs(1), start);
        assert_eq!(group_delay.wait(1, start), Wait::Until(start + LONGEST));
    }
}
