//! Clocks that a test sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use plinth_engine::Clock;

/// Seconds by the monotonic and by the machine's clock.
#[derive(Debug)]
pub(crate) struct Clocks {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl Clocks {
    pub(crate) fn at(wall: u64) -> Arc<Clocks> {
        Arc::new(Clocks { monotonic: AtomicU64::new(0), wall: AtomicU64::new(wall) })
    }

    /// Advances both clocks.
    pub(crate) fn pass(&self, seconds: u64) {
        self.monotonic.fetch_add(seconds, Ordering::SeqCst);
        self.wall.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Sets the machine's clock.
    pub(crate) fn set(&self, wall: u64) {
        self.wall.store(wall, Ordering::SeqCst);
    }
}

impl Clock for Clocks {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.monotonic.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(self.wall.load(Ordering::SeqCst))
    }
}
