//! The group-commit delay: whether a group that could be written waits for the callers that were just
//! answered.
//!
//! Callers that wait for their answer before they send the next transaction settle into two halves: while one
//! half's group is synced, the other half fills the next, so every sync commits only half of them. A group
//! that waits a fraction of a sync for the half that was just answered collects nearly all.

use std::time::{Duration, Instant};

/// A group waits at most this fraction of the last synced write.
const DELAY_FRACTION: u32 = 8;
/// The longest delay, for slow disks.
const MAX_DELAY: Duration = Duration::from_millis(2);
/// Groups written without a delay after one that was in vain: doubled each time, up to this.
const MAX_SKIPPED: u32 = 64;

/// State of the delay. Part of the commit queue's state, under its lock.
#[derive(Debug, Default)]
pub(crate) struct GroupDelay {
    last: Option<LastGroup>,
    /// Groups left to write without a delay.
    skip: u32,
    /// Groups written without a delay after the last one that was in vain.
    skipped: u32,
}

/// The group that was written last.
#[derive(Debug)]
struct LastGroup {
    /// Callers that were answered.
    answered: usize,
    /// Callers in the open group when it completed; set by the first call of `wait` after that.
    at_start: Option<usize>,
    /// Duration of its synced write.
    took: Duration,
    /// None while its callers are being answered: the syncer could not take another group anyway.
    until: Option<Instant>,
}

/// What to do with the open group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Write it now.
    No,
    /// Keep it open until then, or until it has grown.
    Until(Instant),
    /// Keep it open until all callers of the last group are answered, or until it has grown.
    UntilAnswered,
}

impl GroupDelay {
    /// A group was written; `answered` callers are about to be notified. Its synced write lasted `took`.
    pub(crate) fn written(&mut self, answered: usize, took: Duration) {
        self.last = None;
        if self.skip > 0 {
            self.skip -= 1;
        } else if answered > 1 {
            self.last = Some(LastGroup { answered, at_start: None, took, until: None });
        }
    }

    /// All callers of the group that was written last have been notified.
    pub(crate) fn answered(&mut self, now: Instant) {
        if let Some(last) = &mut self.last {
            last.until = Some(now + (last.took / DELAY_FRACTION).min(MAX_DELAY));
        }
    }

    /// Whether the open group of `size` callers should be delayed.
    pub(crate) fn wait(&mut self, size: usize, now: Instant) -> Wait {
        let Some(last) = &mut self.last else { return Wait::No };
        let at_start = *last.at_start.get_or_insert(size);
        // The last few callers are not worth the wait.
        let wanted = (last.answered + at_start) * 7 / 8;
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
        // Some callers returned: the delay is worth it. Nearly none: back off.
        if size <= at_start + quarter(wanted, at_start) {
            self.skipped = (self.skipped * 2).clamp(1, MAX_SKIPPED);
            self.skip = self.skipped;
        }
        Wait::No
    }
}

/// A quarter of the callers that were waited for.
fn quarter(wanted: usize, at_start: usize) -> usize {
    wanted.saturating_sub(at_start) / 4
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
        assert_eq!(group_delay.wait(1, start), Wait::Until(start + MAX_DELAY));
    }
}
