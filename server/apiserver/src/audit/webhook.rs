//! `--audit-webhook-config-file`: events go to a service elsewhere, many at a time
//! (k8s.io/apiserver `plugin/pkg/audit/webhook`, `plugin/pkg/audit/buffered`).
//!
//! Events wait in a queue that is bounded in number and in bytes; what does not fit is dropped and counted. One task makes
//! batches of them: a batch is full, or its first event has waited for long enough. Batches are sent beside each other, no
//! faster than the throttle allows, and each is tried five times. An event keeps its place in the queue until its batch is
//! delivered or given up, so that a service that is away costs no more memory than the queue. In the blocking modes a
//! request waits until its own event is delivered.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, watch, OwnedSemaphorePermit, Semaphore};

use super::options::{AuditMode, Batching};
use super::sinks::{Counters, Lost};
use super::throttle::Throttle;
use crate::outward::service::{Service, ServiceError};
use crate::outward::KubeconfigError;

/// Bytes of events that may wait.
const QUEUE: usize = 32 << 20;
/// How long one call may take; upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a batch is tried. Each pause is half as long again as the one before.
const ATTEMPTS: u32 = 5;
/// How long a server that stops waits for its events to be delivered.
const DRAIN: Duration = Duration::from_secs(5);
/// Around the items of an `EventList`.
const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const TAIL: &[u8] = b"]}";

/// The end of the queue that requests have.
pub struct Webhook {
    queue: mpsc::UnboundedSender<Waiting>,
    places: Arc<Semaphore>,
    all_places: u32,
    room: Arc<Semaphore>,
    /// True once everything is to be sent at once.
    flush: watch::Sender<bool>,
    mode: AuditMode,
    sender: Arc<Sender>,
}

/// An event and what it takes of the queue.
struct Waiting {
    text: Vec<u8>,
    _place: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// Delivers batches.
struct Sender {
    service: Service,
    pause: Duration,
    counters: Counters,
}

impl Webhook {
    /// Its name in metrics.
    pub const NAME: &'static str = "webhook";

    /// The service of a kubeconfig; starts the task that sends.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn start(
        kubeconfig: &Path,
        mode: AuditMode,
        pause: Duration,
        batching: Batching,
        counters: Counters,
    ) -> Result<Webhook, KubeconfigError> {
        let service = Service::from_kubeconfig(kubeconfig, TIMEOUT)?;
        let sender = Arc::new(Sender { service, pause, counters });
        let (queue, waiting) = mpsc::unbounded_channel();
        let (flush, flushing) = watch::channel(false);
        tokio::spawn(send_batches(waiting, batching, flushing, sender.clone()));
        let all_places = u32::try_from(batching.buffer).unwrap_or(u32::MAX >> 4);
        let places = Arc::new(Semaphore::new(all_places as usize));
        Ok(Webhook { queue, places, all_places, room: Arc::new(Semaphore::new(QUEUE)), flush, mode, sender })
    }

    /// Takes an event, if there is one; in the blocking modes waits until it is delivered before.
    ///
    /// # Errors
    /// [`Lost`] when there is no room, or it could not be delivered.
    pub async fn write(&self, event: &mut Option<Vec<u8>>) -> Result<(), Lost> {
        if let (Some(text), AuditMode::Blocking | AuditMode::BlockingStrict) = (&*event, self.mode) {
            // On the heap: a request has no room for a call in its state.
            let sent = Box::pin(self.sender.send(&[text])).await;
            *event = None;
            return sent;
        }
        event.take().map_or(Ok(()), |text| self.write_now(text))
    }

    /// Puts an event into the queue.
    ///
    /// # Errors
    /// [`Lost`] when there is no room.
    pub fn write_now(&self, text: Vec<u8>) -> Result<(), Lost> {
        let size = u32::try_from(text.len().min(QUEUE)).unwrap_or(u32::MAX);
        let place = self.places.clone().try_acquire_owned();
        let room = self.room.clone().try_acquire_many_owned(size);
        let handed = match (place, room) {
            (Ok(_place), Ok(_room)) => self.queue.send(Waiting { text, _place, _room }).map_err(|_| Lost),
            _ => Err(Lost),
        };
        if handed.is_err() {
            self.sender.counters.lost(Webhook::NAME, 1);
        }
        handed
    }

    /// Whether a request is refused when its first event is lost.
    pub fn is_strict(&self) -> bool {
        self.mode == AuditMode::BlockingStrict
    }

    /// Sends what waits, and waits for that for a while: then all places are free.
    pub async fn drain(&self) {
        self.flush.send_replace(true);
        if tokio::time::timeout(DRAIN, self.places.acquire_many(self.all_places)).await.is_err() {
            tracing::warn!("some audit events were not delivered in time");
        }
    }
}

/// Sends batches until the last one who could write has gone.
async fn send_batches(
    mut queue: mpsc::UnboundedReceiver<Waiting>,
    batching: Batching,
    mut flush: watch::Receiver<bool>,
    sender: Arc<Sender>,
) {
    let mut throttle = Throttle::new(&batching);
    while let Some(batch) = next_batch(&mut queue, &batching, &mut flush).await {
        tokio::time::sleep(throttle.take(Instant::now())).await;
        let sender = sender.clone();
        tokio::spawn(async move {
            let texts: Vec<&[u8]> = batch.iter().map(|waiting| waiting.text.as_slice()).collect();
            // What is lost has been counted.
            let _ = sender.send(&texts).await;
        });
    }
}

/// The next batch: full, or as old as it may get, or asked for. `None` when nothing can come any more.
async fn next_batch(
    queue: &mut mpsc::UnboundedReceiver<Waiting>,
    batching: &Batching,
    flush: &mut watch::Receiver<bool>,
) -> Option<Vec<Waiting>> {
    let first = queue.recv().await?;
    let until = tokio::time::Instant::now() + batching.max_wait;
    let mut bytes = first.text.len();
    let mut batch = vec![first];
    while batch.len() < batching.max_size && bytes < batching.max_bytes {
        let next = tokio::select! {
            biased;
            next = queue.recv() => next,
            // The sender's end means the same.
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
    /// Delivers events, whatever it takes within the bounds.
    async fn send<T: AsRef<[u8]>>(&self, events: &[T]) -> Result<(), Lost> {
        let size: usize = events.iter().map(|event| event.as_ref().len() + 1).sum();
        let mut list = Vec::with_capacity(HEAD.len() + size + TAIL.len());
        list.extend_from_slice(HEAD);
        for (i, event) in events.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            list.extend_from_slice(event.as_ref());
        }
        list.extend_from_slice(TAIL);
        match self.post(list.into()).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(%error, events = events.len(), "audit events could not be delivered");
                self.counters.lost(Webhook::NAME, events.len());
                Err(Lost)
            }
        }
    }

    /// Every error is worth another try: no answer justifies to drop events while the service may come back.
    async fn post(&self, list: Bytes) -> Result<(), ServiceError> {
        let mut pause = self.pause;
        for _ in 1..ATTEMPTS {
            if self.service.post(list.clone()).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
        self.service.post(list).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(text: &str) -> Waiting {
        let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Waiting { text: text.into(), _place: permit(), _room: permit() }
    }

    #[tokio::test]
    async fn batches_are_full_old_or_asked_for() {
        let (send, mut queue) = mpsc::unbounded_channel();
        let (flush, mut flushing) = watch::channel(false);
        for text in ["a", "b", "c", "d"] {
            send.send(waiting(text)).ok().unwrap();
        }
        let mut sizes = Vec::new();
        sizes.push(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.unwrap().len());
        // One is left, which would wait for an hour.
        flush.send_replace(true);
        sizes.push(next_batch(&mut queue, &Batching::SMALL, &mut flushing).await.unwrap().len());
        flush.send_replace(false);
        send.send(waiting("e")).ok().unwrap();
        let impatient = Batching { max_wait: Duration::ZERO, ..Batching::SMALL };
        sizes.push(next_batch(&mut queue, &impatient, &mut flushing).await.unwrap().len());
        // Bytes fill one as well.
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
