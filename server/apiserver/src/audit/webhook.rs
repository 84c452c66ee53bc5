//! `--audit-webhook-config-file`: sends events to a webhook in batches (k8s.io/apiserver
//! `plugin/pkg/audit/webhook`, `plugin/pkg/audit/buffered`).
//!
//! Events are queued; the queue is bounded in number and in bytes, and events that do not fit are dropped and
//! counted. A task forms batches: a batch is complete when it is full or its first event has waited long
//! enough. Batches are sent concurrently, no faster than the throttle allows, and each is tried five times.
//! An event keeps its permits until its batch is delivered or abandoned, so that an unreachable webhook costs
//! no memory beyond the queue. In the blocking modes a request waits until its own event is delivered.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch, OwnedSemaphorePermit, Semaphore};

use super::counters::{Counters, EventLost};
use super::options::{AuditMode, Batching};
use super::throttle::Throttle;
use crate::egress::{KubeconfigError, Service};

/// Bytes of queued events.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Timeout of a call; upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a shutdown waits for queued events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Prefix and suffix of an `EventList`.
const LIST_START: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const LIST_END: &[u8] = b"]}";

/// The sending end of the queue.
pub(crate) struct AuditWebhook {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    slots: Arc<Semaphore>,
    capacity: u32,
    bytes: Arc<Semaphore>,
    /// True once all batches must be sent immediately.
    flush: watch::Sender<bool>,
    mode: AuditMode,
    sender: Arc<Sender>,
}

/// A queued event with its permits.
struct QueuedEvent {
    text: Vec<u8>,
    _slot: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// Sends batches.
struct Sender {
    service: Service,
    counters: Counters,
}

impl AuditWebhook {
    /// Its name in metrics.
    pub(super) const NAME: &'static str = "webhook";

    /// Starts the sending task for the service of a kubeconfig.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(super) fn start(
        kubeconfig: &Path,
        mode: AuditMode,
        backoff: Duration,
        batching: Batching,
        counters: Counters,
    ) -> Result<AuditWebhook, KubeconfigError> {
        let service = Service::from_kubeconfig(kubeconfig, TIMEOUT)?.with_backoff(backoff);
        let sender = Arc::new(Sender { service, counters });
        let (queue, events) = mpsc::unbounded_channel();
        let (flush, flushing) = watch::channel(false);
        tokio::spawn(send_batches(events, batching, flushing, sender.clone()));
        let capacity = u32::try_from(batching.buffer).unwrap_or(u32::MAX >> 4);
        let slots = Arc::new(Semaphore::new(capacity as usize));
        Ok(AuditWebhook {
            queue,
            slots,
            capacity,
            bytes: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            flush,
            mode,
            sender,
        })
    }

    /// Enqueues an event, if there is one; in the blocking modes delivers it instead.
    ///
    /// # Errors
    /// [`EventLost`] when the queue is full, or the event could not be delivered.
    pub(super) async fn write(&self, event: &mut Option<Vec<u8>>) -> Result<(), EventLost> {
        if let (Some(text), AuditMode::Blocking | AuditMode::BlockingStrict) = (&*event, self.mode) {
            // Boxed: the state of every request would have room for a call.
            let sent = Box::pin(self.sender.send(&[text])).await;
            *event = None;
            return sent;
        }
        event.take().map_or(Ok(()), |text| self.write_now(text))
    }

    /// Enqueues an event without waiting.
    ///
    /// # Errors
    /// [`EventLost`] when the queue is full.
    pub(crate) fn write_now(&self, text: Vec<u8>) -> Result<(), EventLost> {
        let size = u32::try_from(text.len().min(MAX_QUEUED_BYTES)).unwrap_or(u32::MAX);
        let slot = self.slots.clone().try_acquire_owned();
        let bytes = self.bytes.clone().try_acquire_many_owned(size);
        let queued = match (slot, bytes) {
            (Ok(_slot), Ok(_bytes)) => {
                self.queue.send(QueuedEvent { text, _slot, _bytes }).map_err(|_| EventLost)
            }
            _ => Err(EventLost),
        };
        if queued.is_err() {
            self.sender.counters.lost(AuditWebhook::NAME, 1);
        }
        queued
    }

    /// Whether a request is refused when its first event is lost.
    pub(crate) fn is_strict(&self) -> bool {
        self.mode == AuditMode::BlockingStrict
    }

    /// Sends queued events and waits for them, with a timeout: then all permits are available.
    pub(super) async fn drain(&self) {
        self.flush.send_replace(true);
        if tokio::time::timeout(DRAIN_TIMEOUT, self.slots.acquire_many(self.capacity)).await.is_err() {
            tracing::warn!("audit webhook was not drained in time; queued events are lost");
        }
    }
}

/// Sends batches until the last sender is gone.
async fn send_batches(
    mut queue: mpsc::UnboundedReceiver<QueuedEvent>,
    batching: Batching,
    mut flush: watch::Receiver<bool>,
    sender: Arc<Sender>,
) {
    let mut throttle = Throttle::new(&batching);
    while let Some(batch) = next_batch(&mut queue, &batching, &mut flush).await {
        tokio::time::sleep(throttle.take(Instant::now())).await;
        let sender = sender.clone();
        tokio::spawn(async move {
            let texts: Vec<&[u8]> = batch.iter().map(|event| event.text.as_slice()).collect();
            // Lost events have been counted.
            let _ = sender.send(&texts).await;
        });
    }
}

/// The next batch: full, at its maximum age, or flushed. `None` when all senders are gone.
async fn next_batch(
    queue: &mut mpsc::UnboundedReceiver<QueuedEvent>,
    batching: &Batching,
    flush: &mut watch::Receiver<bool>,
) -> Option<Vec<QueuedEvent>> {
    let first = queue.recv().await?;
    let until = tokio::time::Instant::now() + batching.max_wait;
    let mut bytes = first.text.len();
    let mut batch = vec![first];
    while batch.len() < batching.max_size && bytes < batching.max_bytes {
        let next = tokio::select! {
            biased;
            next = queue.recv() => next,
            // A dropped sender means flush, too.
            _ = flush.wait_for(|flush| *flush) => None,
            () = tokio::time::sleep_until(until) => None,
        };
        let Some(next) = next else { break };
        bytes += next.text.len();
        batch.push(next);
    }
    Some(batch)
}

impl Sender {
    /// Sends events, with retries.
    async fn send<T: AsRef<[u8]>>(&self, events: &[T]) -> Result<(), EventLost> {
        let size: usize = events.iter().map(|event| event.as_ref().len() + 1).sum();
        let mut list = Vec::with_capacity(LIST_START.len() + size + LIST_END.len());
        list.extend_from_slice(LIST_START);
        for (i, event) in events.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            list.extend_from_slice(event.as_ref());
        }
        list.extend_from_slice(LIST_END);
        // Every error is retried: no answer justifies dropping events while the service may recover.
        match self.service.post_persistently(list.into()).await {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::error!(%error, events = events.len(), "audit events could not be delivered");
                self.counters.lost(AuditWebhook::NAME, events.len());
                Err(EventLost)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(text: &str) -> QueuedEvent {
        let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        QueuedEvent { text: text.into(), _slot: permit(), _bytes: permit() }
    }

    #[tokio::test]
    async fn batches_are_full_old_or_flushed() {
        let (send, mut queue) = mpsc::unbounded_channel();
        let (flush, mut flushing) = watch::channel(false);
        for text in ["a", "b", "c", "d"] {
            send.send(waiting(text)).ok().unwrap();
        }
        let mut sizes = Vec::new();
        sizes.push(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.unwrap().len());
        // One event is left, which would wait for an hour.
        flush.send_replace(true);
        sizes.push(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.unwrap().len());
        flush.send_replace(false);
        send.send(waiting("e")).ok().unwrap();
        let impatient = Batching { max_wait: Duration::ZERO, ..Batching::SMALL };
        sizes.push(next_batch(&mut queue, &impatient, &mut flushing).await.unwrap().len());
        // A batch is also limited in bytes.
        for _ in 0..2 {
            send.send(waiting("0123456789")).ok().unwrap();
        }
        let narrow = Batching { max_bytes: 5, ..Batching::SMALL };
        sizes.push(next_batch(&mut queue, &narrow, &mut flushing).await.unwrap().len());
        assert_eq!(sizes, [3, 1, 1, 1]);
        drop(send);
        assert_eq!(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.unwrap().len(), 1);
        assert!(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.is_none());
    }
}
