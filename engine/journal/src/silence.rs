//! [`Silence`]: a journal whose members stand still is not looked for by one caller after the other.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// A look for the journal that took as long and failed is repeated after as long.
const PAUSE: Duration = Duration::from_secs(1);

/// The last look for a journal, where it took long and failed.
#[derive(Debug, Default)]
pub struct Silence(Mutex<Option<(Instant, Error)>>);

impl Silence {
    /// Looks for the journal, unless nobody has answered just now: a start makes several calls, and so does
    /// each thread of a replica, one after the other. Who waits for another one's look has waited enough.
    ///
    /// # Errors
    /// Those of the look, or of the last one.
    pub fn look<T>(&self, look: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut silence = self.0.lock();
        if let Some((_, error)) = silence.as_ref().filter(|(failed, _)| failed.elapsed() < PAUSE) {
            return Err(error.clone());
        }
        let started = Instant::now();
        let found = look();
        *silence = match &found {
            Err(error) if error.is_transient() && started.elapsed() >= PAUSE => {
                Some((Instant::now(), error.clone()))
            }
            _ => None,
        };
        found
    }

    /// The error of a look that took long, if that was the last one.
    pub fn error(&self) -> Option<Error> {
        self.0.lock().as_ref().map(|(_, error)| error.clone())
    }

    /// Takes a look for one that failed just now, however slow this machine is, until [`Silence::end`]. For
    /// tests.
    #[doc(hidden)]
    pub fn prolong(&self) {
        if let Some((failed, _)) = &mut *self.0.lock() {
            *failed = Instant::now() + Duration::from_secs(3600);
        }
    }

    /// Makes the next look one that is made.
    #[doc(hidden)]
    pub fn end(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_took_long_and_failed_is_not_repeated_at_once() {
        let silence = Silence::default();
        let failed = |time: Duration, error: Error| {
            let look = || {
                let started = Instant::now();
                while started.elapsed() < time {
                    std::thread::park_timeout(time);
                }
                Err::<(), _>(error)
            };
            silence.look(look).unwrap_err()
        };
        let away = Error::Unavailable { message: "nobody answers".to_owned() };
        let refused = Error::Refused { message: "of another cluster".to_owned() };
        failed(Duration::ZERO, away.clone());
        assert_eq!(silence.look(|| Ok(1)), Ok(1), "whoever answers may answer otherwise");
        failed(PAUSE, away.clone());
        silence.prolong();
        assert_eq!(silence.look(|| Ok(1)), Err(away.clone()));
        assert_eq!(silence.error(), Some(away));
        silence.end();
        assert_eq!(silence.look(|| Ok(1)), Ok(1));
        failed(PAUSE, refused);
        assert_eq!(silence.error(), None, "it has answered");
    }
}
