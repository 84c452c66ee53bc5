//! Retry-After advice for refused clients: the more were refused recently, the longer.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/dropped_requests_tracker.go`: doubled while many are
//! refused, one second less when few are.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;

/// Maximum advice, in seconds.
const MAX_SECONDS: u64 = 32;

/// The advice of a level. The lock is taken only when a request is refused.
#[derive(Debug)]
pub struct RetryAfter {
    /// Start of the monotonic seconds.
    start: Instant,
    state: Mutex<AdviceState>,
}

#[derive(Debug)]
struct AdviceState {
    /// Seconds, and the number of refusals in each.
    past: VecDeque<(u64, u64)>,
    second: u64,
    refused: u64,
    advice: u64,
    raised: u64,
}

impl Default for RetryAfter {
    fn default() -> RetryAfter {
        let state = AdviceState { past: VecDeque::new(), second: 0, refused: 0, advice: 1, raised: 0 };
        RetryAfter { start: Instant::now(), state: Mutex::new(state) }
    }
}

impl RetryAfter {
    /// Counts a refusal; returns the advice in seconds.
    pub(crate) fn refused_now(&self) -> u32 {
        self.refused(self.start.elapsed().as_secs())
    }

    /// Counts a refusal in that second; returns the advice in seconds.
    fn refused(&self, second: u64) -> u32 {
        let mut state = self.state.lock();
        if second == state.second {
            state.refused += 1;
        } else {
            let last = (state.second, state.refused);
            state.past.push_back(last);
            (state.second, state.refused) = (second, 1);
            state.advise(second);
        }
        u32::try_from(state.advice).unwrap_or(u32::MAX)
    }
}

impl AdviceState {
    fn advise(&mut self, now: u64) {
        let horizon = (2 * self.advice).min(MAX_SECONDS);
        while self.past.front().is_some_and(|(second, _)| now.saturating_sub(*second) > horizon) {
            self.past.pop_front();
        }
        let recent = |(second, _): &&(u64, u64)| now.saturating_sub(*second) <= self.advice;
        let refused: u64 = self.past.iter().filter(recent).map(|(_, count)| count).sum();
        if now.saturating_sub(self.raised) >= self.advice && refused >= 3 * self.advice {
            self.advice = (2 * self.advice).min(MAX_SECONDS);
            self.raised = now;
        } else if refused < self.advice && self.advice > 1 {
            self.advice -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_grows_under_a_flood_and_shrinks_after_it() {
        let retry = RetryAfter::default();
        assert_eq!(retry.refused(100), 1);
        let mut last = 0;
        for second in 101..300 {
            for _ in 0..200 {
                last = retry.refused(second);
            }
        }
        assert_eq!(u64::from(last), MAX_SECONDS);
        for second in (400..5000).step_by(100) {
            last = retry.refused(second);
        }
        assert_eq!(last, 1);
    }
}
