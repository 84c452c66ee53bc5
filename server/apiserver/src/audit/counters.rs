//! Metrics of the audit log, under upstream's names, and the error that they count.

use prometheus::{IntCounter, IntCounterVec};

use crate::metrics::families::Families;

/// An event was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventLost;

/// Counters with upstream's names. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Counters {
    events: IntCounter,
    errors: IntCounterVec,
}

impl Counters {
    /// Registers the counters.
    ///
    /// # Errors
    /// When a name is already registered.
    pub(crate) fn new(registry: &prometheus::Registry) -> Result<Counters, prometheus::Error> {
        let families = Families(registry);
        let events = families.counter("apiserver_audit_event_total", "Audit events.")?;
        let lost = "Audit events that were lost.";
        Ok(Counters { events, errors: families.counters("apiserver_audit_error_total", lost, &["plugin"])? })
    }

    /// Counts an event.
    pub(crate) fn recorded(&self) {
        self.events.inc();
    }

    /// Counts lost events of a sink.
    pub(crate) fn lost(&self, sink: &str, events: usize) {
        self.errors.with_label_values(&[sink]).inc_by(events as u64);
    }

    /// Number of events that a sink has lost.
    #[cfg(test)]
    pub(crate) fn lost_by(&self, sink: &str) -> u64 {
        self.errors.with_label_values(&[sink]).get()
    }
}
