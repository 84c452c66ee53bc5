//! Rate limit of batches.

use std::time::{Duration, Instant};

use super::options::Batching;
use crate::token_bucket::{TokenBucket, TokenRate};

/// One token per batch; `None` for no limit.
pub(crate) struct Throttle(Option<(TokenRate, TokenBucket)>);

impl Throttle {
    /// The limit that the flags configure.
    pub(super) fn new(batching: &Batching) -> Throttle {
        Throttle(batching.throttle.then(|| {
            let rate = TokenRate::new(f64::from(batching.qps), batching.burst);
            (rate, TokenBucket::full(&rate, Instant::now()))
        }))
    }

    /// Takes a token at that time; returns how long the batch must wait.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        self.0.as_mut().map_or(Duration::ZERO, |(rate, bucket)| bucket.reserve(rate, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_allows_a_burst_and_then_a_rate() {
        let mut throttle = Throttle::new(&Batching::SMALL);
        let start = Instant::now();
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
