//! Errors of the server's own, told to its operator: a disk that is full, a record that cannot be read, a service that does
//! not answer. The client hears of each; the log has one line a second at the most, so that no flood of requests fills a disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use plinth_api::api_error::ApiError;

/// How often the log is told.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts what is not told. The lock is held for a comparison.
#[derive(Debug, Default)]
pub struct ErrorLog {
    state: Mutex<State>,
    /// The log says that the disk hangs.
    disk_hangs: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    untold: u64,
}

impl ErrorLog {
    /// Takes note of a refused request: `what` it was, in a few words.
    pub fn note(&self, error: &ApiError, what: impl FnOnce() -> String) {
        // 504 says that the client's own time is over, or that it asks for what has not come yet.
        if error.code < 500 || error.code == 504 {
            return;
        }
        if let Some(untold) = self.turn(Instant::now()) {
            tracing::error!(code = error.code, message = %error, request = what(), untold, "a request failed");
        }
    }

    /// Takes note of a write to the store that has not returned for too long, or that there is none. Each change is logged once.
    pub fn note_disk_wait(&self, too_long: Option<Duration>) {
        match (too_long, self.disk_hangs.swap(too_long.is_some(), Ordering::Relaxed)) {
            (Some(wait), false) => tracing::error!(
                duration_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "A write to the store does not return: writes wait, and the server is not ready. Check the disk and the kernel's log"
            ),
            (None, true) => tracing::warn!("Writes to the store return again"),
            _ => {}
        }
    }

    /// How many were not told since the last one, when this one may be told.
    fn turn(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.duration_since(last) < PERIOD) {
            state.untold += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_told_and_the_others_are_counted() {
        let (errors, start) = (ErrorLog::default(), Instant::now());
        let turns = [0, 10, 999, 1000, 1001, 2500].map(|ms| errors.turn(start + Duration::from_millis(ms)));
        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn what_clients_did_wrong_is_not_told() {
        let errors = ErrorLog::default();
        for error in [ApiError::bad_request("no"), ApiError::timeout()] {
            errors.note(&error, || unreachable!("told"));
        }
        assert!(errors.state.lock().last.is_none());
        errors.note(&ApiError::internal("the disk is gone"), || "get pods".into());
        assert!(errors.state.lock().last.is_some());
    }
}
