//! [`Needs`]: from which position on the journal is needed, as far as this process has seen.
//!
//! How long another replica has been away is measured by this process' monotonic clock, from when it last saw
//! the other's record change. Neither what another machine's clock showed, nor the engine's time, by which
//! keys expire, decides: a clock that jumps would let the journal be trimmed of what a replica that runs
//! needs. A process that has just started has seen nothing yet, and keeps the journal for everybody.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::member::Member;

/// The journal is kept for a replica that is away for up to this long, and for one that has taken a
/// checkpoint and has not started yet. After that it needs a checkpoint, or another one.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(600);

/// What is known of who needs the journal.
#[derive(Default)]
pub(super) struct Needs {
    members: BTreeMap<u16, Seen<Member>>,
    /// Positions that are kept for checkpoints, by name.
    kept: BTreeMap<String, Seen<KeptPosition>>,
}

/// A state, and since when it has been seen.
struct Seen<T> {
    state: T,
    since: Instant,
}

#[derive(Clone, Copy)]
struct KeptPosition {
    position: u64,
    /// Whether the key is there still.
    is_there: bool,
}

impl Needs {
    /// Notes what the store holds at `now`.
    pub(super) fn see(&mut self, members: &[Member], kept: &[(String, u64)], now: Instant) {
        self.members.retain(|id, _| members.iter().any(|member| member.id == *id));
        for member in members {
            if self.members.get(&member.id).is_none_or(|seen| seen.state != *member) {
                self.members.insert(member.id, Seen { state: member.clone(), since: now });
            }
        }
        for seen in self.kept.values_mut() {
            seen.state.is_there = false;
        }
        for (name, position) in kept {
            let state = KeptPosition { position: *position, is_there: true };
            let seen = self.kept.entry(name.clone()).or_insert(Seen { state, since: now });
            if seen.state.position != *position {
                seen.since = now;
            }
            seen.state = state;
        }
        // By the engine's time it may be over too early.
        self.kept.retain(|_, seen| seen.state.is_there || is_recent(seen.since, now));
    }

    /// The first position that some replica may still need: of those that are up, of those that were seen
    /// lately, and of those that begin with a checkpoint.
    pub(super) fn before(&self, live: &[Member], now: Instant) -> Option<u64> {
        let counts = |seen: &&Seen<Member>| {
            is_recent(seen.since, now) || live.iter().any(|live| live.id == seen.state.id)
        };
        let needed = self.members.values().filter(counts).map(|seen| seen.state.position).min()?;
        // The record that was applied last stays, too: a replica that starts compares it.
        Some(self.kept.values().map(|seen| seen.state.position).fold(needed, u64::min))
    }
}

/// The first position that some replica may need whose record is in the store, however long it is away: while
/// nothing can be written, who is up does not show.
pub(super) fn before_all(members: &[Member], kept: &[(String, u64)]) -> Option<u64> {
    let needed = members.iter().map(|member| member.position).min()?;
    Some(kept.iter().map(|(_, position)| *position).fold(needed, u64::min))
}

fn is_recent(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < KEPT_FOR
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::member;
    use super::*;

    fn named(kept: &[u64]) -> Vec<(String, u64)> {
        kept.iter().map(|position| (format!("checkpoint of {position}"), *position)).collect()
    }

    #[test]
    fn the_journal_is_kept_for_replicas_that_are_up_or_were_lately() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut needs = Needs::default();
        needs.see(&[], &named(&[7]), start);
        assert_eq!(needs.before(&[], start), None);
        let mut needs = Needs::default();
        let (ahead, gone) = (member(1, 90, 1), member(4, 7, 1));
        needs.see(&[ahead.clone(), gone.clone()], &[], start);
        // A process that has just started does not know for how long it is away.
        assert_eq!(needs.before(&[], start), Some(7));
        let ahead = member(1, 95, 2);
        needs.see(&[ahead.clone(), gone.clone()], &[], at(599));
        assert_eq!(needs.before(&[], at(599)), Some(7));
        needs.see(&[ahead.clone(), gone.clone()], &[], at(600));
        assert_eq!(needs.before(&[], at(600)), Some(95));
        assert_eq!(needs.before(std::slice::from_ref(&gone), at(600)), Some(7), "it is up");
        assert_eq!(before_all(&[ahead.clone(), gone.clone()], &[]), Some(7));
        // It was back for a moment.
        needs.see(&[ahead.clone(), member(4, 9, 2)], &[], at(700));
        assert_eq!(needs.before(&[], at(700)), Some(9));
        needs.see(&[ahead], &[], at(701));
        assert_eq!(needs.before(&[], at(701)), Some(95), "it was removed");
    }

    /// Whatever the clocks of others show, and whether they jump.
    #[test]
    fn clocks_of_other_machines_decide_nothing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut needs = Needs::default();
        let year_ms = 365 * 24 * 3600 * 1000;
        for (round, clock_ms) in [5 * year_ms, 0, 9 * year_ms, 3].into_iter().enumerate() {
            let (own, other) = (member(1, 90, year_ms), member(2, 40 + round as u64, clock_ms));
            needs.see(&[own, other], &[], at(5 * round as u64));
            // Not even where its key has expired, as all have after a jump.
            assert_eq!(needs.before(&[], at(5 * round as u64)), Some(40 + round as u64));
        }
    }

    #[test]
    fn what_is_kept_for_a_checkpoint_does_not_end_with_a_jump() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let own = |ms| member(1, 90, ms);
        let mut needs = Needs::default();
        needs.see(&[own(1)], &named(&[60, 20]), start);
        assert_eq!(needs.before(&[], start), Some(20));
        // Its key has expired after some seconds.
        needs.see(&[own(2)], &named(&[60]), at(10));
        assert_eq!(needs.before(&[], at(10)), Some(20));
        needs.see(&[own(3)], &named(&[60]), at(599));
        assert_eq!(needs.before(&[], at(599)), Some(20));
        needs.see(&[own(4)], &named(&[60]), at(600));
        assert_eq!(needs.before(&[], at(600)), Some(60), "the other one is there still");
        assert_eq!(before_all(&[own(4)], &named(&[60])), Some(60));
    }
}
