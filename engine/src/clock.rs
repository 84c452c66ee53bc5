//! The engine's time, by which deadlines and the age of history are measured.
//!
//! The clock of a machine jumps: it is set wrong and corrected, by a person, by NTP after a start without
//! a battery, by a host that restores a virtual machine. Measured with it, a jump forward expires keys early,
//! and one back keeps them, and history, for as long as the jump was long. So the engine's time advances
//! with the monotonic clock. It starts at the machine's time, but never before the newest time that is
//! stored, and follows the machine's time by a bounded correction: what is an hour by the monotonic clock
//! is between 57 and 63 minutes of the engine's.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Where an engine reads the time. Set with [`crate::Options::clock`] in tests; the default is the system's.
pub trait Clock: Debug + Send + Sync {
    /// Time since any fixed moment; never goes back and does not jump.
    fn monotonic(&self) -> Duration;
    /// Time since 1970 by the machine's clock; may jump either way.
    fn wall(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    pub(crate) fn start() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }
}

/// How often the machine's clock is read.
const STEP: Duration = Duration::from_secs(1);
/// The correction is at most this part of the time that has passed.
const CORRECTION: u32 = 20;

/// The engine's time. It never goes back.
#[derive(Debug)]
pub(crate) struct Timeline {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The latest moment that was looked at, by the monotonic clock; the engine's time then; and the
    /// machine's, as far as it was read.
    anchor: Duration,
    at: Duration,
    wall: Duration,
    /// When the machine's clock was read, by the monotonic clock.
    read: Duration,
}

impl State {
    /// Moves on to the present. Corrections are part of the rate, not steps: replicas that go by each other's
    /// time ([`Timeline::reach`]) would undo a step of one that the others have not made yet.
    fn advance(&mut self, clock: &dyn Clock) {
        let now = clock.monotonic();
        let elapsed = now.saturating_sub(self.anchor);
        if now.saturating_sub(self.read) >= STEP {
            self.wall = clock.wall();
            self.read = now;
        } else {
            self.wall = self.wall.saturating_add(elapsed);
        }
        let (uncorrected, correction) = (self.at.saturating_add(elapsed), elapsed / CORRECTION);
        self.at = if self.wall > uncorrected {
            self.wall.min(uncorrected.saturating_add(correction))
        } else {
            self.wall.max(uncorrected.saturating_sub(correction))
        };
        self.anchor = self.anchor.max(now);
    }
}

impl Timeline {
    /// Starts at the machine's time, or at `newest_ms` (milliseconds since 1970) if that is later: deadlines
    /// that were set before the start count from there.
    pub(crate) fn start(clock: Arc<dyn Clock>, newest_ms: u64) -> Timeline {
        let (wall, anchor) = (clock.wall(), clock.monotonic());
        let at = wall.max(Duration::from_millis(newest_ms));
        Timeline { clock, state: Mutex::new(State { anchor, at, wall, read: anchor }) }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        let mut state = self.state.lock();
        // The clock is read under the lock: a later reading never meets an earlier anchor.
        state.advance(&*self.clock);
        state.at.as_millis().try_into().unwrap_or(u64::MAX)
    }

    /// Goes on from `time_ms` (milliseconds since 1970), the time of a commit, if that is later: a replica
    /// whose clock is ahead has set deadlines by it, and may be gone when they pass. Returns how far that is
    /// ahead.
    pub(crate) fn reach(&self, time_ms: u64) -> Duration {
        let mut state = self.state.lock();
        state.advance(&*self.clock);
        let time = Duration::from_millis(time_ms);
        let ahead = time.saturating_sub(state.at);
        state.at = state.at.max(time);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds by the monotonic and by the machine's clock.
    #[derive(Debug, Default)]
    struct Fake(Mutex<(u64, u64)>);

    impl Fake {
        fn advance(&self, seconds: u64) {
            let mut clocks = self.0.lock();
            clocks.0 += seconds;
            clocks.1 += seconds;
        }

        fn set(&self, wall: u64) {
            self.0.lock().1 = wall;
        }
    }

    impl Clock for Fake {
        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.lock().0)
        }
        fn wall(&self) -> Duration {
            Duration::from_secs(self.0.lock().1)
        }
    }

    const HOUR: u64 = 3600;

    fn start(wall: u64, newest: u64) -> (Arc<Fake>, Timeline) {
        let clock = Arc::new(Fake::default());
        clock.set(wall);
        let timeline = Timeline::start(Arc::clone(&clock) as Arc<dyn Clock>, newest * 1000);
        (clock, timeline)
    }

    /// An hour by the monotonic clock in steps of a minute; how long it was by the engine's, in seconds.
    fn hour(clock: &Fake, timeline: &Timeline) -> u64 {
        let before = timeline.now_ms();
        let mut last = before;
        for _ in 0..60 {
            clock.advance(60);
            let now = timeline.now_ms();
            assert!(now >= last, "goes back");
            last = now;
        }
        (last - before) / 1000
    }

    #[test]
    fn a_clock_that_runs_right_is_followed() {
        let (clock, timeline) = start(1_000_000, 0);
        assert_eq!(timeline.now_ms(), 1_000_000_000);
        assert_eq!(hour(&clock, &timeline), HOUR);
        assert_eq!(timeline.now_ms(), (1_000_000 + HOUR) * 1000);
    }

    #[test]
    fn a_jump_either_way_changes_an_hour_by_three_minutes_at_most() {
        let year = 365 * 24 * HOUR;
        let (clock, timeline) = start(2 * year, 0);
        clock.set(3 * year);
        assert_eq!(hour(&clock, &timeline), HOUR + 180);
        clock.set(year);
        assert_eq!(hour(&clock, &timeline), HOUR - 180);
    }

    #[test]
    fn a_small_error_is_corrected_and_then_no_more() {
        let (clock, timeline) = start(1_000_000, 0);
        clock.set(1_000_100);
        assert_eq!(hour(&clock, &timeline), HOUR + 100);
        assert_eq!(hour(&clock, &timeline), HOUR);
        clock.set(clock.wall().as_secs() - 50);
        assert_eq!(hour(&clock, &timeline), HOUR - 50);
    }

    #[test]
    fn time_goes_on_from_the_newest_that_is_stored() {
        let (clock, timeline) = start(1_000, 5_000_000);
        assert_eq!(timeline.now_ms(), 5_000_000_000);
        assert_eq!(hour(&clock, &timeline), HOUR - 180);
    }
    #[test]
    fn time_goes_on_from_that_of_another_replica() {
        let year = 365 * 24 * HOUR;
        let (clock, timeline) = start(year, 0);
        assert_eq!(timeline.reach((year - HOUR) * 1000), Duration::ZERO);
        assert_eq!(timeline.now_ms(), year * 1000);
        assert_eq!(timeline.reach((year + HOUR) * 1000), Duration::from_secs(HOUR));
        assert_eq!(timeline.now_ms(), (year + HOUR) * 1000);
        assert_eq!(hour(&clock, &timeline), HOUR - 180);
    }

    #[test]
    fn replicas_that_go_by_each_others_time_come_back_to_the_machines() {
        let (clock, one) = start(1_000_000, 0);
        let other = Timeline::start(Arc::clone(&clock) as Arc<dyn Clock>, 1_000_100_000);
        // They read the clock at different times, and commit in turn.
        for _ in 0..HOUR {
            clock.advance(1);
            other.reach(one.now_ms());
            clock.advance(1);
            one.reach(other.now_ms());
        }
        assert_eq!(one.now_ms(), 1_000_000_000 + 2 * HOUR * 1000);
        assert_eq!(other.now_ms(), one.now_ms());
    }
}
