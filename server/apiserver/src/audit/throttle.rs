//! Rate limit of batches (client-go `util/flowcontrol`, a token bucket).

use std::time::{Duration, Instant};

use super::options::Batching;

/// A token bucket with one token per batch.
pub(crate) struct Throttle {
    /// Batches per second; `None` for no limit.
    rate: Option<f64>,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Throttle {
    /// The limit that the flags configure.
    pub fn new(batching: &Batching) -> Throttle {
        let burst = f64::from(batching.burst.max(1));
        let rate = batching.throttle.then(|| f64::from(batching.qps).max(f64::MIN_POSITIVE));
        Throttle { rate, burst, tokens: burst, filled: Instant::now() }
    }

    /// Takes a token at that time; returns how long the batch must wait.
    pub fn take(&mut self, now: Instant) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate).min(self.burst) - 1.0;
        self.filled = now;
        match self.tokens < 0.0 {
            true => Duration::try_from_secs_f64(-self.tokens / rate).unwrap_or(Duration::MAX),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_allows_a_burst_and_then_a_rate() {
        let start = Instant::now();
        let mut throttle = Throttle { filled: start, ..Throttle::new(&Batching::SMALL) };
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(throttle.take(at(0)), Duration::ZERO);
        assert_eq!(throttle.take(at(0)), Duration::ZERO);
        let third = throttle.take(at(0));
        assert!((99..=101).contains(&third.as_millis()), "{third:?}");
        // After a second the bucket is full again.
        assert_eq!(throttle.take(at(1100)), Duration::ZERO);
        assert_eq!(throttle.take(at(1100)), Duration::ZERO);
        assert!(!throttle.take(at(1100)).is_zero());
        let mut free = Throttle::new(&Batching { throttle: false, ..Batching::SMALL });
        assert!((0..1000).all(|_| free.take(at(0)).is_zero()));
    }
}
