//! Control of the maintenance thread: what others schedule, and wait for.

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Control of the maintenance thread, shared with the threads that schedule its tasks.
#[derive(Default)]
pub(crate) struct MaintenanceControl {
    pub state: Mutex<State>,
    /// Something is scheduled, or the thread is to stop.
    pub changed: Condvar,
    /// Everything below the floor is swept, or that failed.
    pub swept: Condvar,
}

/// What is scheduled, and how far the thread is.
#[derive(Default)]
pub(crate) struct State {
    pub stop: bool,
    /// Earliest deadline that was set since the thread checked last.
    pub deadline_ms: Option<u64>,
    /// The floor was raised.
    pub sweep: bool,
    pub sweeping: bool,
    pub last_failure: Option<Error>,
}

impl MaintenanceControl {
    /// Schedules expiry for a new deadline; `u64::MAX` stands for none.
    pub(crate) fn deadline_set(&self, deadline_ms: u64) {
        if deadline_ms == u64::MAX {
            return;
        }
        let mut state = self.state.lock();
        if state.deadline_ms.is_none_or(|earliest| deadline_ms < earliest) {
            state.deadline_ms = Some(deadline_ms);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Schedules a sweep, since the floor was raised.
    pub(crate) fn sweep(&self) {
        self.state.lock().sweep = true;
        self.changed.notify_one();
    }

    /// Waits until everything below the floor is swept.
    pub(crate) fn wait_swept(&self) -> Result<()> {
        let mut state = self.state.lock();
        while (state.sweep || state.sweeping) && !state.stop {
            self.swept.wait(&mut state);
            if let Some(error) = state.last_failure.take() {
                return Err(error);
            }
        }
        if state.stop {
            return Err(Error::Closed);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
        self.swept.notify_all();
    }
}
