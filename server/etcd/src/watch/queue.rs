//! The responses of a watch stream that wait for the client: few, and few bytes.

use std::sync::Arc;

use futures_util::Stream;
use prometheus::IntGauge;
use tokio::sync::{mpsc, OwnedSemaphorePermit, Semaphore};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::StreamExt as _;
use tonic::Status;

use crate::wire::watch::WatchResponse;

/// Responses that wait at a time.
const RESPONSES: usize = 16;
/// Bytes of keys and values that they have together; a larger response waits alone.
const BYTES: usize = 4 << 20;

struct Queued {
    response: Result<WatchResponse, Status>,
    _room: Option<OwnedSemaphorePermit>,
    _pending: Pending,
}

/// Events that wait, in the gauge that counts those of all streams.
struct Pending(IntGauge, i64);

impl Pending {
    fn new(gauge: &IntGauge, response: &Result<WatchResponse, Status>) -> Pending {
        let events = response.as_ref().map_or(0, |response| response.events.len());
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        gauge.add(events);
        Pending(gauge.clone(), events)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}

/// Where a stream puts its responses.
#[derive(Clone)]
pub(super) struct Queue {
    out: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    pending: IntGauge,
}

/// The client has left.
pub(super) struct Left;

/// A queue, and what the client reads. Its events are counted in `pending` while they wait.
pub(super) fn queue(
    pending: IntGauge,
) -> (Queue, impl Stream<Item = Result<WatchResponse, Status>> + Send + 'static) {
    let (out, queued) = mpsc::channel(RESPONSES);
    let queue = Queue { out, room: Arc::new(Semaphore::new(BYTES)), pending };
    (queue, ReceiverStream::new(queued).map(|queued: Queued| queued.response))
}

/// Bytes of the keys and values of a response.
fn size(response: &WatchResponse) -> usize {
    let states = response.events.iter().flat_map(|event| event.kv.iter().chain(&event.prev_kv));
    states.map(|kv| kv.key.len() + kv.value.len()).sum()
}

impl Queue {
    /// Puts a response into the queue once there is room for it.
    pub(super) async fn send(&self, response: Result<WatchResponse, Status>) -> Result<(), Left> {
        let pending = Pending::new(&self.pending, &response);
        let bytes = response.as_ref().map_or(0, size).min(BYTES);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = match bytes {
            0 => None,
            // What the client has left behind is dropped with the queue, which makes room.
            bytes => Some(Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| Left)?),
        };
        self.out.send(Queued { response, _room: room, _pending: pending }).await.map_err(|_| Left)
    }

    /// Puts the last response into the queue, if there is room.
    pub(super) fn end(&self, status: Status) {
        // A client that does not read finds the end of the stream only.
        let response = Err(status);
        let pending = Pending::new(&self.pending, &response);
        let _ = self.out.try_send(Queued { response, _room: None, _pending: pending });
    }

    /// Resolves when the client has left.
    pub(super) async fn closed(&self) {
        self.out.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use plinth_etcd_wire::kv::{Event, KeyValue};

    use super::*;

    fn response(bytes: usize) -> Result<WatchResponse, Status> {
        let kv = KeyValue { value: vec![0; bytes].into(), ..KeyValue::default() };
        let event = Event { kv: Some(kv), ..Event::default() };
        Ok(WatchResponse { events: vec![event], ..WatchResponse::default() })
    }

    #[tokio::test]
    async fn few_bytes_wait_for_a_client() {
        let gauge = IntGauge::new("pending", "events").unwrap();
        let (queue, responses) = queue(gauge.clone());
        let mut responses = Box::pin(responses);
        assert!(queue.send(response(2 * BYTES)).now_or_never().is_some());
        assert!(queue.send(response(0)).now_or_never().is_some());
        let mut second = Box::pin(queue.send(response(1)));
        assert!((&mut second).now_or_never().is_none());
        assert!(responses.next().await.unwrap().is_ok());
        assert!(second.await.is_ok());
        let mut third = Box::pin(queue.send(response(BYTES)));
        assert!((&mut third).now_or_never().is_none());
        assert_eq!(gauge.get(), 3, "two that wait, and one that waits for room");
        drop(responses);
        assert!(third.await.is_err());
        assert_eq!(gauge.get(), 0);
    }
}
