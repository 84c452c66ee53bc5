//! Logs requests that fail with a server error: a full disk, an unreadable record, an unreachable webhook. At
//! most one line a second is written, so that a flood of failing requests cannot fill a disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use plinth_api::ApiError;

/// Shortest interval between two lines.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts suppressed lines. The lock is held for a comparison.
#[derive(Debug, Default)]
pub struct ErrorLog {
    state: Mutex<State>,
    /// Whether the log's last word on the disk is that it hangs.
    disk_hangs: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    suppressed: u64,
}

impl ErrorLog {
    /// Records a failed request; `what` is its label.
    pub fn note(&self, error: &ApiError, what: impl FnOnce() -> String) {
        // 504 is the client's own timeout, or a revision that does not exist yet.
        if error.code < 500 || error.code == 504 {
            return;
        }
        if let Some(suppressed) = self.try_log(Instant::now()) {
            tracing::error!(
                code = error.code,
                error = %error,
                request = what(),
                suppressed,
                "request failed"
            );
        }
    }

    /// Records a write to the store that has not returned for too long, or `None` when writes return. Each
    /// change is logged once.
    pub(crate) fn note_disk_wait(&self, too_long: Option<Duration>) {
        match (too_long, self.disk_hangs.swap(too_long.is_some(), Ordering::Relaxed)) {
            (Some(wait), false) => tracing::error!(
                duration_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "write to the store does not return: writes wait, and the server is not ready; check the \
                    disk and the kernel's log"
            ),
            (None, true) => tracing::warn!("writes to the store complete again"),
            _ => {}
        }
    }

    /// The number of suppressed lines since the last one, or `None` when this one is suppressed.
    fn try_log(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.duration_since(last) < PERIOD) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_the_others_are_counted() {
        let (errors, start) = (ErrorLog::default(), Instant::now());
        let logged =
            [0, 10, 999, 1000, 1001, 2500].map(|ms| errors.try_log(start + Duration::from_millis(ms)));
        assert_eq!(logged, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn client_errors_are_not_logged() {
        let errors = ErrorLog::default();
        for error in [ApiError::bad_request("no"), ApiError::timeout()] {
            errors.note(&error, || unreachable!("a second line within the period"));
        }
        assert!(errors.state.lock().last.is_none());
        errors.note(&ApiError::internal("the disk is gone"), || "get pods".into());
        assert!(errors.state.lock().last.is_some());
    }
}
