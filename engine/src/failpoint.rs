//! Failpoints: named points at which tests make the engine fail. Compiled out without the feature
//! `failpoints`.

/// Evaluates the named failpoint, which may kill the process, panic, or return an error from the surrounding
/// function.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        crate::failpoint::pass($name)?;
    };
}
pub(crate) use failpoint;

#[cfg(feature = "failpoints")]
mod active {
    use std::collections::HashMap;

    use parking_lot::Mutex;

    use crate::error::{Error, Result};

    /// The action of a failpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Action {
        /// The process is killed as by `kill -9`.
        Kill,
        /// The operation fails as if the disk were full.
        OutOfSpace,
        /// The operation fails in a way that leaves its outcome unknown.
        Fail,
        /// The thread panics.
        Panic,
    }

    static POINTS: Mutex<Option<HashMap<String, (u64, Action)>>> = Mutex::new(None);

    /// Sets `action` for the `nth` time (counted from 1) the failpoint is passed, and every time after that.
    pub fn set(name: &str, nth: u64, action: Action) {
        POINTS.lock().get_or_insert_default().insert(name.to_owned(), (nth, action));
    }

    /// Clears a failpoint.
    pub fn clear_point(name: &str) {
        if let Some(points) = POINTS.lock().as_mut() {
            points.remove(name);
        }
    }

    pub(crate) fn pass(name: &str) -> Result<()> {
        let action = {
            let mut points = POINTS.lock();
            let Some((left, action)) = points.as_mut().and_then(|points| points.get_mut(name)) else {
                return Ok(());
            };
            *left = left.saturating_sub(1);
            if *left > 0 {
                return Ok(());
            }
            *action
        };
        match action {
            Action::Kill => {
                // SIGKILL and not abort: no handler, no core, no flushing of anything.
                let _ =
                    std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
                std::process::abort()
            }
            Action::OutOfSpace => Err(Error::OutOfSpace { message: format!("failpoint {name}") }),
            Action::Fail => Err(Error::OutcomeUnknown { message: format!("failpoint {name}") }),
            Action::Panic => panic!("failpoint {name}"),
        }
    }
}

#[cfg(feature = "failpoints")]
pub(crate) use active::pass;
#[cfg(feature = "failpoints")]
pub use active::{clear_point, set, Action};
