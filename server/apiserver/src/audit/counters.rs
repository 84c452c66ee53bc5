//! Metrics of the audit log, under upstream's names, and the error that they count.

use prometheus::{IntCounter, IntCounterVec, Opts};

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
    pub fn new(registry: &prometheus::Registry) -> Result<Counters, prometheus::Error> {
        let events = IntCounter::new("apiserver_audit_event_total", "Audit events.")?;
        let opts = Opts::new("apiserver_audit_error_total", "Audit events that were lost.");
        let errors = IntCounterVec::new(opts, &["plugin"])?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Counters { events, errors })
    }

    /// Counts an event.
    pub fn recorded(&self) {
        self.events.inc();
    }

    /// Counts lost events of a sink.
    pub fn lost(&self, sink: &str, events: usize) {
        self.errors.with_label_values(&[sink]).inc_by(events as u64);
    }

    /// Number of events that a sink has lost.
    #[cfg(test)]
    pub fn lost_by(&self, sink: &str) -> u64 {
        self.errors.with_label_values(&[sink]).get()
    }
}
