//! The sinks of events: log file and webhook.

use std::time::SystemTime;

use parking_lot::Mutex;

use super::counters::{Counters, EventLost};
use super::event::{Event, EventFormat};
use super::log::Log;
use super::options::Truncate;
use super::policy::AuditStage;
use super::webhook::AuditWebhook;

/// The configured sinks. Immutable.
pub(super) struct Sinks {
    /// The log file.
    pub log: Option<(Log, EventFormat, Truncate)>,
    /// The webhook, and how its events are cut.
    pub webhook: Option<(AuditWebhook, Truncate)>,
    /// Metrics of both sinks.
    pub counters: Counters,
}

/// An event encoded for each sink, until it has been enqueued.
struct SinkEvents {
    log: Option<Vec<u8>>,
    webhook: Option<Vec<u8>>,
}

/// Events that are being enqueued. If the request is dropped meanwhile, they are enqueued without waiting.
struct Undelivered<'a> {
    sinks: &'a Sinks,
    texts: SinkEvents,
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        self.sinks.enqueue(&mut self.texts);
    }
}

impl Sinks {
    /// Encodes the event of a stage, unless the policy omits it.
    fn texts(&self, event: &Mutex<Event>, stage: AuditStage) -> Option<SinkEvents> {
        let event = event.lock();
        if event.config.omit_stages.has(stage) {
            return None;
        }
        self.counters.recorded();
        let now = SystemTime::now();
        let text = |form: EventFormat, truncate: &Truncate, sink: &str| {
            let text = event.text(form, stage, now, truncate.largest());
            if text.is_none() {
                // Too large even without its objects.
                self.counters.lost(sink, 1);
            }
            text
        };
        Some(SinkEvents {
            log: self.log.as_ref().and_then(|(_, form, truncate)| text(*form, truncate, Log::NAME)),
            webhook: self
                .webhook
                .as_ref()
                .and_then(|(_, truncate)| text(EventFormat::Item, truncate, AuditWebhook::NAME)),
        })
    }

    /// Enqueues an event; waits for space or delivery, depending on the sink's mode.
    ///
    /// # Errors
    /// [`EventLost`] when a sink in strict mode has lost it.
    pub(super) async fn write(&self, event: &Mutex<Event>, stage: AuditStage) -> Result<(), EventLost> {
        let Some(texts) = self.texts(event, stage) else { return Ok(()) };
        let mut undelivered = Undelivered { sinks: self, texts };
        let texts = &mut undelivered.texts;
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

    /// Enqueues an event of a request of the server's own, which waits for space in the log, but for no
    /// webhook: that may be served by what it is needed for.
    pub(crate) async fn write_own(&self, event: &Mutex<Event>, stage: AuditStage) {
        let Some(texts) = self.texts(event, stage) else { return };
        let mut undelivered = Undelivered { sinks: self, texts };
        if let Some((log, ..)) = &self.log {
            // The log counts what it loses.
            let _ = log.write(&mut undelivered.texts.log).await;
        }
    }

    /// Enqueues an event without waiting, as at the end of a body. Sinks count what they lose.
    pub(crate) fn write_now(&self, event: &Mutex<Event>, stage: AuditStage) {
        if let Some(mut texts) = self.texts(event, stage) {
            self.enqueue(&mut texts);
        }
    }

    fn enqueue(&self, texts: &mut SinkEvents) {
        if let (Some((log, ..)), Some(text)) = (&self.log, texts.log.take()) {
            let _ = log.write_now(text);
        }
        if let (Some((webhook, _)), Some(text)) = (&self.webhook, texts.webhook.take()) {
            let _ = webhook.write_now(text);
        }
    }

    /// Waits until all events are written and delivered, with a timeout.
    pub(super) async fn drain(&self) {
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
