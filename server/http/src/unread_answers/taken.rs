//! What the socket of a connection took: how fast its client reads, and whether it takes answers back unread.

use std::time::{Duration, Instant};

/// The time over which it is measured how fast answers are read: what was read so long ago counts for a half.
const MEASURED: Duration = Duration::from_secs(2);
/// After so long without an answer it is measured from the beginning.
const IDLE: Duration = MEASURED.saturating_mul(4);
/// What may be between a body and the socket: the buffers of a connection.
const BUFFERS: usize = 256 << 10;

/// What the socket of one connection took.
#[derive(Debug)]
pub(super) struct Taken {
    /// Since when it is measured.
    since: Instant,
    lately: Lately,
    /// Bytes that the socket took, of chunks that count still.
    ahead: usize,
    /// Bytes of chunks that are gone, and that the socket did not take.
    missing: usize,
}

impl Default for Taken {
    fn default() -> Taken {
        let since = Instant::now();
        Taken { since, lately: Lately { bytes: 0.0, at: since }, ahead: 0, missing: 0 }
    }
}

impl Taken {
    /// The socket took so many bytes, while so many of chunks count.
    pub(super) fn add(&mut self, now: Instant, bytes: usize, counted: usize) {
        if now.saturating_duration_since(self.lately.at) > IDLE {
            (self.since, self.lately) = (now, Lately { bytes: 0.0, at: now });
        }
        self.lately.add(now, bytes as f64);
        let found = bytes.min(self.missing);
        self.missing -= found;
        self.ahead = (self.ahead + bytes - found).min(counted);
    }

    /// Chunks of so many bytes are gone. Returns whether, with others before, more is gone than was read.
    pub(super) fn are_gone(&mut self, bytes: usize) -> bool {
        let taken = bytes.min(self.ahead);
        self.ahead -= taken;
        self.missing += bytes - taken;
        let are_unread = self.missing > BUFFERS;
        if are_unread {
            self.missing = 0;
        }
        are_unread
    }

    pub(super) fn lately(&self) -> Lately {
        self.lately
    }

    /// Whether there is nothing older that could tell how fast its client reads.
    pub(super) fn is_new(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < MEASURED
    }

    /// Bytes that are read in a second.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        // As much as a byte per second since then would count now.
        let counted = 1.0 - halved(now.saturating_duration_since(self.since));
        match counted > 0.0 {
            true => self.lately.rate(now) / counted,
            false => 0.0,
        }
    }
}

/// Bytes that were taken until a moment; older ones count less.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lately {
    bytes: f64,
    at: Instant,
}

impl Lately {
    fn at(&self, now: Instant) -> f64 {
        self.bytes * halved(now.saturating_duration_since(self.at))
    }

    fn add(&mut self, now: Instant, bytes: f64) {
        *self = Lately { bytes: self.at(now) + bytes, at: now };
    }

    /// With what another one has.
    pub(super) fn with(mut self, other: Lately, now: Instant) -> Lately {
        self.add(now, other.at(now));
        self
    }

    /// Bytes in a second, where all that time was measured.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        self.at(now) / (MEASURED.as_secs_f64() / std::f64::consts::LN_2)
    }
}

/// What is left after a time of what counts for a half after [`MEASURED`].
fn halved(time: Duration) -> f64 {
    (-time.div_duration_f64(MEASURED)).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 4 << 20;

    #[test]
    fn what_the_socket_took_is_read() {
        let mut taken = Taken::default();
        let now = taken.since;
        // Before they are gone, and after, as long as buffers may have them.
        for _ in 0..10 {
            taken.add(now, LONG, LONG);
            assert!(!taken.are_gone(LONG));
            assert!(!taken.are_gone(BUFFERS));
            taken.add(now, BUFFERS, 0);
        }
        // What was taken when nothing counted is no credit.
        taken.add(now, LONG, 0);
        assert!(!taken.are_gone(BUFFERS) && taken.are_gone(1));
        assert!(!taken.are_gone(BUFFERS));
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut taken = Taken::default();
        let start = taken.since;
        assert_eq!(taken.rate(start), 0.0);
        for tenth in 1..=100 {
            taken.add(start + Duration::from_millis(100) * tenth, 1 << 20, 0);
            let rate = taken.rate(start + Duration::from_millis(100) * tenth) / f64::from(10 << 20);
            assert!((0.9..1.2).contains(&rate), "{rate} after {tenth}");
        }
        assert!(taken.rate(start + Duration::from_secs(20)) < f64::from(1 << 20));
        let now = start + Duration::from_secs(10);
        assert!(!taken.is_new(now));
        let twice = taken.lately().with(taken.lately(), now);
        assert!((twice.rate(now) / taken.lately().rate(now) - 2.0).abs() < 0.01);
        // What it read long ago does not count.
        let again = now + Duration::from_secs(60);
        taken.add(again, 1 << 20, 0);
        let rate = taken.rate(again + Duration::from_millis(100)) / f64::from(10 << 20);
        assert!(taken.is_new(again) && (0.9..1.2).contains(&rate), "{rate}");
    }
}
