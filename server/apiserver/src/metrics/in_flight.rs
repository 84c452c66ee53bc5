//! Requests that are served at once: the maximum in the last second, as upstream reports it, since the value
//! at the moment of a scrape shows little.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use prometheus::{IntGauge, Registry};

use super::families::Families;

/// The gauges by kind of request.
pub(super) struct InFlightMetrics {
    begun: Instant,
    read_only: Watermark,
    mutating: Watermark,
}

/// The current number, and its maximum in this second and in the one before. Two requests that meet at the
/// turn of a second may lose a maximum between them.
struct Watermark {
    gauge: IntGauge,
    now: AtomicI64,
    second: AtomicU64,
    peak: AtomicI64,
    last_peak: AtomicI64,
}

impl Watermark {
    fn new(gauge: IntGauge) -> Watermark {
        Watermark {
            gauge,
            now: AtomicI64::new(0),
            second: AtomicU64::new(0),
            peak: AtomicI64::new(0),
            last_peak: AtomicI64::new(0),
        }
    }

    fn enter(&self, second: u64) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.begin_second(second, now - 1);
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// Begins another second, with the number that holds since the last change.
    fn begin_second(&self, second: u64, now: i64) {
        let before = self.second.load(Ordering::Relaxed);
        if before == second
            || self.second.compare_exchange(before, second, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let peak = self.peak.swap(now, Ordering::Relaxed);
        self.last_peak.store(if second == before + 1 { peak } else { now }, Ordering::Relaxed);
    }

    fn refresh(&self, second: u64) {
        self.begin_second(second, self.now.load(Ordering::Relaxed));
        let (last, this) = (self.last_peak.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed));
        self.gauge.set(last.max(this));
    }
}

/// Counts a request while it lives.
pub struct InFlightGuard<'a>(&'a Watermark);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlightMetrics {
    pub(super) fn new(registry: &Registry) -> Result<InFlightMetrics, prometheus::Error> {
        let gauges = Families(registry).gauges(
            "apiserver_current_inflight_requests",
            "Maximum number of requests served at once in the last second, by kind.",
            &["request_kind"],
        )?;
        Ok(InFlightMetrics {
            begun: Instant::now(),
            read_only: Watermark::new(gauges.with_label_values(&["readOnly"])),
            mutating: Watermark::new(gauges.with_label_values(&["mutating"])),
        })
    }

    pub(super) fn enter(&self, mutating: bool, at: Instant) -> InFlightGuard<'_> {
        let watermark = if mutating { &self.mutating } else { &self.read_only };
        watermark.enter(at.saturating_duration_since(self.begun).as_secs());
        InFlightGuard(watermark)
    }

    /// Sets the gauges, before they are read.
    pub(super) fn refresh(&self) {
        let second = self.begun.elapsed().as_secs();
        self.read_only.refresh(second);
        self.mutating.refresh(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_of_the_last_second_is_reported() {
        let watermark = Watermark::new(IntGauge::new("x", "x").unwrap());
        let reported = |second| {
            watermark.refresh(second);
            watermark.gauge.get()
        };
        for _ in 0..3 {
            watermark.enter(7);
        }
        let guards: Vec<InFlightGuard<'_>> = (0..2).map(|_| InFlightGuard(&watermark)).collect();
        drop(guards);
        assert_eq!(reported(7), 3, "in this second");
        assert_eq!(reported(8), 3, "in the second before");
        assert_eq!(reported(9), 1, "one still runs");
        drop(InFlightGuard(&watermark));
        assert_eq!((reported(9), reported(10), reported(11)), (1, 1, 0));
    }
}
