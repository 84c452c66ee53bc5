//! A writer that keeps to a rate, so that what is written takes a bounded share of a machine that also
//! serves.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How far what was written may be ahead of the rate. Shorter pauses cost more than they spare.
const AHEAD: Duration = Duration::from_millis(10);

/// Bytes per second, and how far they have come.
struct Pace {
    bytes_per_second: u64,
    /// When what was written so far is due.
    due: Instant,
}

impl Pace {
    fn new(bytes_per_second: u64, now: Instant) -> Pace {
        Pace { bytes_per_second: bytes_per_second.max(1), due: now }
    }

    /// Notes that `bytes` were written at `now`; returns how long to pause. Time in which nothing was written
    /// is not made up for.
    fn wrote(&mut self, bytes: u64, now: Instant) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let lasts = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let begins = self.due.max(now);
        self.due = begins.checked_add(lasts).unwrap_or(begins);
        let ahead = self.due.saturating_duration_since(now);
        if ahead < AHEAD {
            return Duration::ZERO;
        }
        ahead
    }
}

/// Writes to `inner`, and pauses the thread as the rate demands.
pub(super) struct Paced<W> {
    inner: W,
    pace: Option<Pace>,
}

impl<W: Write> Paced<W> {
    /// Without a rate until [`Paced::set_rate`].
    pub(super) fn new(inner: W) -> Paced<W> {
        Paced { inner, pace: None }
    }

    /// Keeps to so many bytes per second from now on.
    pub(super) fn set_rate(&mut self, bytes_per_second: u64) {
        self.pace = Some(Pace::new(bytes_per_second, Instant::now()));
    }
}

impl<W: Write> Write for Paced<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        if let Some(pace) = &mut self.pace {
            let pause = pace.wrote(count as u64, Instant::now());
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_to_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(1 << 20, start);
        // A megabyte in pieces of 8 KiB that are taken at once, but for the pauses.
        let (mut now, mut pauses) = (start, 0);
        for _ in 0..128 {
            let pause = pace.wrote(8 << 10, now);
            now += pause;
            pauses += u32::from(!pause.is_zero());
        }
        let took = now - start;
        assert!(took <= Duration::from_secs(1) && took + AHEAD > Duration::from_secs(1), "{took:?}");
        assert!(pauses > 10 && pauses <= 100, "{pauses}");
        // A receiver that was slow for a minute gets no burst afterwards.
        now += Duration::from_secs(60);
        assert_eq!(pace.wrote(1 << 20, now), Duration::from_secs(1));
        // One that is slower than the rate is not paused.
        for _ in 0..100 {
            now += Duration::from_secs(2);
            assert_eq!(pace.wrote(8 << 10, now), Duration::ZERO);
        }
        // Nothing overflows.
        assert!(Pace::new(0, now).wrote(u64::MAX, now) > Duration::from_secs(1));
    }

    #[test]
    fn what_is_written_arrives() {
        let mut paced = Paced::new(Vec::new());
        paced.write_all(b"at once, ").unwrap();
        paced.set_rate(1000);
        paced.write_all(b"and later").unwrap();
        paced.flush().unwrap();
        assert_eq!(paced.inner, b"at once, and later");
    }
}
