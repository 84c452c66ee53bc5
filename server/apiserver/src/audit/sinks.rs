//! Where events go: the log file, a service elsewhere, both.

use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, Opts};

use super::event::{Event, Form};
use super::log::Log;
use super::options::Truncate;
use super::policy::Stage;
use super::webhook::Webhook;

/// The event could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// What is counted, under upstream's names. Cheap to clone.
#[derive(Clone)]
pub struct Counters {
    events: IntCounter,
    errors: IntCounterVec,
}

impl Counters {
    /// Counters in a registry.
    ///
    /// # Errors
    /// When the registry has some of these names.
    pub fn new(registry: &prometheus::Registry) -> Result<Counters, prometheus::Error> {
        let events = IntCounter::new("apiserver_audit_event_total", "Audit events.")?;
        let opts = Opts::new("apiserver_audit_error_total", "Audit events that were lost.");
        let errors = IntCounterVec::new(opts, &["plugin"])?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Counters { events, errors })
    }

    /// Counts events that a sink lost.
    pub fn lost(&self, sink: &str, events: usize) {
        self.errors.with_label_values(&[sink]).inc_by(events as u64);
    }

    /// How many a sink has lost.
    #[cfg(test)]
    pub fn lost_by(&self, sink: &str) -> u64 {
        self.errors.with_label_values(&[sink]).get()
    }
}

/// The sinks that there are, each with the form in which it wants events. Immutable.
pub struct Sinks {
    /// The log file.
    pub log: Option<(Log, Form, Truncate)>,
    /// The service.
    pub webhook: Option<(Webhook, Truncate)>,
    /// What is counted.
    pub counters: Counters,
}

/// An event as each sink wants it, until it has been handed over.
struct Texts {
    log: Option<Vec<u8>>,
    webhook: Option<Vec<u8>>,
}

/// What waits to be handed over. Whose client leaves meanwhile waits no longer, and hands it over all the same.
struct Waiting<'a> {
    sinks: &'a Sinks,
    texts: Texts,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.sinks.put(&mut self.texts);
    }
}

impl Sinks {
    /// The texts for a stage, unless the policy leaves it out.
    fn texts(&self, event: &Mutex<Event>, stage: Stage) -> Option<Texts> {
        let event = event.lock();
        if event.depth.omit_stages.has(stage) {
            return None;
        }
        self.counters.events.inc();
        let now = SystemTime::now();
        let text = |form: Form, truncate: &Truncate, sink: &str| {
            let text = event.text(form, stage, now, truncate.largest());
            if text.is_none() {
                // Too large without its objects, too.
                self.counters.lost(sink, 1);
            }
            text
        };
        Some(Texts {
            log: self.log.as_ref().and_then(|(_, form, truncate)| text(*form, truncate, Log::NAME)),
            webhook: self
                .webhook
                .as_ref()
                .and_then(|(_, truncate)| text(Form::Item, truncate, Webhook::NAME)),
        })
    }

    /// Hands an event over; waits for room, or until it is delivered, where a sink's mode says so.
    ///
    /// # Errors
    /// [`Lost`] when a sink of which the mode is strict has lost it.
    pub async fn write(&self, event: &Mutex<Event>, stage: Stage) -> Result<(), Lost> {
        let Some(texts) = self.texts(event, stage) else { return Ok(()) };
        let mut waiting = Waiting { sinks: self, texts };
        let texts = &mut waiting.texts;
        let mut outcome = Ok(());
        if let Some((log, ..)) = &self.log {
            let written = log.write(&mut texts.log).await;
            if log.is_strict() {
                outcome = written;
            }
        }
        if let Some((webhook, _)) = &self.webhook {
            let written = webhook.write(&mut texts.webhook).await;
            if webhook.is_strict() {
                outcome = outcome.and(written);
            }
        }
        outcome
    }

    /// Hands an event over from where nothing can be waited for, as at the end of a body. A sink counts what it loses.
    pub fn write_now(&self, event: &Mutex<Event>, stage: Stage) {
        if let Some(mut texts) = self.texts(event, stage) {
            self.put(&mut texts);
        }
    }

    fn put(&self, texts: &mut Texts) {
        if let (Some((log, ..)), Some(text)) = (&self.log, texts.log.take()) {
            let _ = log.write_now(text);
        }
        if let (Some((webhook, _)), Some(text)) = (&self.webhook, texts.webhook.take()) {
            let _ = webhook.write_now(text);
        }
    }

    /// Waits until everything so far is written or sent, for a while at the most.
    pub async fn drain(&self) {
        let log = async {
            if let Some((log, ..)) = &self.log {
                log.drain().await;
            }
        };
        let webhook = async {
            if let Some((webhook, _)) = &self.webhook {
                webhook.drain().await;
            }
        };
        tokio::join!(log, webhook);
    }
}
