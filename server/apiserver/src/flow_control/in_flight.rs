//! Limits on concurrent mutating and non-mutating requests.
//!
//! Upstream: k8s.io/apiserver `pkg/server/filters/maxinflight.go`.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Two limits without queues: requests above them are refused.
#[derive(Debug)]
pub struct InFlight {
    read_only: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
}

impl InFlight {
    /// Limits on concurrent requests; 0 for none.
    pub fn new(read_only: u32, mutating: u32) -> InFlight {
        let limit = |most: u32| {
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
            (most > 0).then(|| Arc::new(Semaphore::new(most)))
        };
        InFlight { read_only: limit(read_only), mutating: limit(mutating) }
    }

    /// A permit, held during the request; `Err` when the limit is reached, `Ok(None)` without a limit.
    pub fn enter(&self, mutating: bool) -> Result<Option<OwnedSemaphorePermit>, Full> {
        match if mutating { &self.mutating } else { &self.read_only } {
            None => Ok(None),
            Some(semaphore) => semaphore.clone().try_acquire_owned().map(Some).map_err(|_| Full),
        }
    }
}

/// The limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_apart_and_come_back() {
        let limits = InFlight::new(2, 1);
        let first = limits.enter(false).unwrap();
        let _second = limits.enter(false).unwrap();
        assert_eq!(limits.enter(false).unwrap_err(), Full);
        let _write = limits.enter(true).unwrap();
        assert_eq!(limits.enter(true).unwrap_err(), Full);
        drop(first);
        assert!(limits.enter(false).unwrap().is_some());
        assert!(InFlight::new(0, 1).enter(false).unwrap().is_none());
    }
}
