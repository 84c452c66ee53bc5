//! Token buckets: a burst, and then a rate (golang.org/x/time `rate`, client-go `util/flowcontrol`).

use std::time::{Duration, Instant};

/// How fast a bucket is filled, and how much it holds.
#[derive(Clone, Copy, Debug)]
pub struct TokenRate {
    /// Tokens per second.
    per_second: f64,
    /// Tokens of a full bucket.
    burst: f64,
}

impl TokenRate {
    /// A rate, and a burst of at least one.
    pub fn new(per_second: f64, burst: u32) -> TokenRate {
        TokenRate { per_second: per_second.max(f64::MIN_POSITIVE), burst: f64::from(burst.max(1)) }
    }
}

/// The tokens that are left, negative for those taken in advance, and when that was so. Its rate is kept by
/// the owner, who may have many buckets of one.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    left: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn full(rate: &TokenRate, now: Instant) -> TokenBucket {
        TokenBucket { left: rate.burst, at: now }
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, rate: &TokenRate, now: Instant) -> bool {
        self.fill(rate, now);
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }

    /// Takes a token, in advance if there is none; returns how long to wait until it is there.
    pub(crate) fn reserve(&mut self, rate: &TokenRate, now: Instant) -> Duration {
        self.fill(rate, now);
        self.left -= 1.0;
        match self.left < 0.0 {
            true => Duration::try_from_secs_f64(-self.left / rate.per_second).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }

    /// Whether it is full: as good as a new one.
    pub fn is_full(&self, rate: &TokenRate, now: Instant) -> bool {
        self.filled(rate, now) >= rate.burst
    }

    /// When it was last used.
    pub fn used_at(&self) -> Instant {
        self.at
    }

    fn filled(&self, rate: &TokenRate, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + elapsed * rate.per_second).min(rate.burst)
    }

    /// Time that was counted is not counted again, in whichever order users come.
    fn fill(&mut self, rate: &TokenRate, now: Instant) {
        self.left = self.filled(rate, now);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_rate() {
        let (start, rate) = (Instant::now(), TokenRate::new(10.0, 2));
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut bucket = TokenBucket::full(&rate, start);
        assert_eq!([0; 2].map(|ms| bucket.reserve(&rate, at(ms))), [Duration::ZERO; 2]);
        for (ahead, expected) in [(1, 100), (2, 200)] {
            let wait = bucket.reserve(&rate, at(0)).as_millis();
            assert!((expected - 1..=expected + 1).contains(&wait), "{ahead}: {wait}");
        }
        assert!(!bucket.try_take(&rate, at(250)), "both are taken in advance");
        assert!(bucket.try_take(&rate, at(310)) && !bucket.try_take(&rate, at(310)));
        assert!(!bucket.is_full(&rate, at(400)) && bucket.is_full(&rate, at(1000)));
        assert_eq!([1000; 3].map(|ms| bucket.try_take(&rate, at(ms))), [true, true, false]);
    }

    #[test]
    fn time_is_counted_once() {
        let (start, rate) = (Instant::now(), TokenRate::new(1.0, 1));
        let later = start + Duration::from_secs(1);
        let mut bucket = TokenBucket::full(&rate, start);
        assert_eq!(
            [start, later, start, later].map(|at| bucket.try_take(&rate, at)),
            [true, true, false, false]
        );
        assert_eq!(bucket.used_at(), later);
    }

    #[test]
    fn a_rate_of_nothing_waits_and_divides_by_nothing() {
        let (start, rate) = (Instant::now(), TokenRate::new(0.0, 0));
        let mut bucket = TokenBucket::full(&rate, start);
        assert_eq!(bucket.reserve(&rate, start), Duration::ZERO);
        assert_eq!(bucket.reserve(&rate, start), Duration::MAX);
    }
}
