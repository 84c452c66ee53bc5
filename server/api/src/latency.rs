//! Latency of a slow request by layer, as annotations of its audit event under upstream's names
//! (k8s.io/apiserver `pkg/endpoints/request/webhook_duration.go`, written by
//! `pkg/endpoints/filters/audit.go`).
//!
//! Any step reports its time with [`timed`]; outside of the task of a request that is audited or traced that
//! has no effect. Of a traced request each step is kept, and services that it calls get its trace.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_codec::time::format_duration;

/// Requests that take longer get the annotations; upstream's.
pub(crate) const THRESHOLD: Duration = Duration::from_millis(500);
/// Steps of a traced request that are kept; those of a long stream are not.
const MAX_STEPS: usize = 64;
/// The total time.
const TOTAL: &str = "apiserver.latency.k8s.io/total";

/// A layer of the server in which requests spend time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Finding who sends the request.
    Authentication,
    /// Checking whether that user may act as another one, and who that is.
    Impersonation,
    /// The wait for a seat of priority and fairness.
    QueueWait,
    /// Checking whether the user may do that.
    Authorization,
    /// All mutating webhooks, called one after the other.
    MutatingWebhooks,
    /// Validating webhooks, called concurrently: the slowest.
    ValidatingWebhooks,
    /// The storage; upstream's annotation names etcd.
    Storage,
    /// Sending a streamed response.
    ResponseWrite,
}

const NAMES: [(&str, Layer); 8] = [
    ("apiserver.latency.k8s.io/authentication", Layer::Authentication),
    ("apiserver.latency.k8s.io/impersonation", Layer::Impersonation),
    ("apiserver.latency.k8s.io/apf-queue-wait", Layer::QueueWait),
    ("apiserver.latency.k8s.io/authorization", Layer::Authorization),
    ("apiserver.latency.k8s.io/mutating-webhook", Layer::MutatingWebhooks),
    ("apiserver.latency.k8s.io/validating-webhook", Layer::ValidatingWebhooks),
    ("apiserver.latency.k8s.io/etcd", Layer::Storage),
    ("apiserver.latency.k8s.io/response-write", Layer::ResponseWrite),
];

tokio::task_local! {
    static CURRENT: Arc<Latencies>;
}

/// A step of a traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it was.
    pub layer: Layer,
    /// When it began.
    pub begun: Instant,
    /// How long it took.
    pub took: Duration,
}

/// What is known of a traced request beside its sums.
#[derive(Debug)]
struct Trace {
    traceparent: String,
    steps: Mutex<Vec<Step>>,
}

/// Nanoseconds that a request has spent in each layer; of a traced one its steps, too. Steps of one request
/// run in one task or several; the lock is held to push one.
#[derive(Debug, Default)]
pub struct Latencies {
    sums: [AtomicU64; NAMES.len()],
    trace: OnceLock<Trace>,
}

impl Latencies {
    fn of(&self, layer: Layer) -> Option<&AtomicU64> {
        NAMES.iter().position(|(_, named)| *named == layer).and_then(|place| self.sums.get(place))
    }

    /// Keeps steps from now on, and sends services the value of the header `traceparent`.
    pub fn trace(&self, traceparent: String) {
        // A request has one trace.
        let _ = self.trace.set(Trace { traceparent, steps: Mutex::default() });
    }

    /// The steps of a traced request.
    pub fn steps(&self) -> Vec<Step> {
        self.trace.get().map(|trace| trace.steps.lock().clone()).unwrap_or_default()
    }

    /// Adds a step that has just ended; for [`Layer::ValidatingWebhooks`] the maximum is kept.
    pub fn add(&self, layer: Layer, time: Duration) {
        if let Some(trace) = self.trace.get() {
            let mut steps = trace.steps.lock();
            if let Some(begun) = Instant::now().checked_sub(time).filter(|_| steps.len() < MAX_STEPS) {
                steps.push(Step { layer, begun, took: time });
            }
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1);
        let Some(slot) = self.of(layer) else { return };
        match layer {
            Layer::ValidatingWebhooks => slot.fetch_max(nanos, Ordering::Relaxed),
            _ => slot.fetch_add(nanos, Ordering::Relaxed),
        };
    }

    /// The annotations of a request that has taken `total`; none below `THRESHOLD`.
    pub fn annotations(&self, total: Duration) -> Vec<(&'static str, String)> {
        if total <= THRESHOLD {
            return Vec::new();
        }
        let text = |nanos: u64| format_duration(i64::try_from(nanos).unwrap_or(i64::MAX)).to_string();
        let total = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        let layers =
            NAMES.iter().zip(&self.sums).map(|((name, _), nanos)| (*name, nanos.load(Ordering::Relaxed)));
        let spent = layers.filter(|(_, nanos)| *nanos > 0).map(|(name, nanos)| (name, text(nanos)));
        spent.chain([(TOTAL, text(total))]).collect()
    }
}

/// Runs a request whose steps report to `latencies`.
pub async fn record_latencies<F: Future>(latencies: Arc<Latencies>, request: F) -> F::Output {
    CURRENT.scope(latencies, request).await
}

/// Runs a step and records its duration; does not read the clock outside of audited requests.
pub async fn timed<F: Future>(layer: Layer, step: F) -> F::Output {
    let begun = CURRENT.try_with(|_| Instant::now());
    let outcome = step.await;
    if let Ok(begun) = begun {
        record_step(layer, begun.elapsed());
    }
    outcome
}

/// The header `traceparent` for services that the request of this task calls; `None` where it is not traced.
pub fn traceparent() -> Option<String> {
    let current = |latencies: &Arc<Latencies>| latencies.trace.get().map(|trace| trace.traceparent.clone());
    CURRENT.try_with(current).ok().flatten()
}

/// Records the duration of a step.
pub fn record_step(layer: Layer, time: Duration) {
    // Fails outside of an audited request, where latencies are not recorded.
    let _ = CURRENT.try_with(|latencies| latencies.add(layer, time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_have_annotations_per_layer() {
        let latencies = Latencies::default();
        latencies.add(Layer::Storage, Duration::from_millis(200));
        latencies.add(Layer::Storage, Duration::from_micros(1500));
        latencies.add(Layer::ValidatingWebhooks, Duration::from_millis(300));
        latencies.add(Layer::ValidatingWebhooks, Duration::from_millis(100));
        assert_eq!(latencies.annotations(THRESHOLD), []);
        let annotations = latencies.annotations(Duration::from_millis(1250));
        let expected = [
            ("apiserver.latency.k8s.io/validating-webhook", "300ms"),
            ("apiserver.latency.k8s.io/etcd", "201.5ms"),
            ("apiserver.latency.k8s.io/total", "1.25s"),
        ];
        assert_eq!(annotations, expected.map(|(name, text)| (name, text.to_owned())));
    }

    #[tokio::test]
    async fn steps_note_their_time_in_requests_that_are_recorded() {
        let latencies = Arc::<Latencies>::default();
        let step = || timed(Layer::Storage, tokio::time::sleep(Duration::from_millis(2)));
        step().await;
        assert_eq!(latencies.of(Layer::Storage).unwrap().load(Ordering::Relaxed), 0);
        record_latencies(latencies.clone(), step()).await;
        assert!(latencies.of(Layer::Storage).unwrap().load(Ordering::Relaxed) >= 2_000_000);
        assert_eq!(latencies.steps(), []);
    }

    #[tokio::test]
    async fn steps_of_a_traced_request_are_kept_up_to_a_number() {
        let latencies = Arc::<Latencies>::default();
        assert_eq!(record_latencies(latencies.clone(), async { traceparent() }).await, None);
        latencies.trace("00-1-2-01".to_owned());
        assert_eq!(traceparent(), None, "of another task");
        let steps = async {
            assert_eq!(traceparent().as_deref(), Some("00-1-2-01"));
            for _ in 0..2 * MAX_STEPS {
                timed(Layer::Storage, async {}).await;
            }
        };
        record_latencies(latencies.clone(), steps).await;
        let steps = latencies.steps();
        assert_eq!(steps.len(), MAX_STEPS);
        assert!(steps.iter().all(|step| step.layer == Layer::Storage));
        assert!(steps.windows(2).all(|two| two[0].begun <= two[1].begun));
    }
}
