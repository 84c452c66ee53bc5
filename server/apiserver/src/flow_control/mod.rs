//! API priority and fairness: limits, queues or refuses concurrent requests.
//!
//! A FlowSchema classifies requests and divides them into flows (`classify`); its PriorityLevelConfiguration
//! has a share of the server's seats (`allocation`) and queues (`queues`), of which each flow uses a few
//! (`shuffle`), so that a flow with many requests fills its own queues and leaves the others. A controller
//! reconciles the objects and applies changes. With `--enable-priority-and-fairness=false` there are the two
//! limits of `in_flight`.
//!
//! A request costs a read lock to clone the configuration's `Arc`, a few string comparisons,
//! and two short critical sections of its level's mutex; requests of the exempt level take only the first
//! lock.

mod allocation;
pub mod bootstrap;
mod classify;
pub mod config;
mod demand;
mod dump;
mod in_flight;
mod level;
mod metrics;
pub mod options;
mod queues;
mod retry;
mod shuffle;
mod waiting;
mod width;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HeaderMap, HeaderName, HeaderValue, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Response, StatusCode};
use parking_lot::RwLock;

use crate::metrics::RequestFilter;
use plinth_api::{ApiError, Query, Route, Verb, MASTERS_GROUP};
use plinth_http::Body;

pub use classify::RequestDigest;
pub use config::{FlowSchema, Levels};
pub use in_flight::InFlight;
#[cfg(test)]
pub(crate) use metrics::FlowMetrics;
pub use options::FlowControlOptions;
pub use width::CollectionSizes;

use level::{Arrived, LateBody, Occupied};
use queues::Rejected;
use waiting::RequestDump;

/// Maximum time in queue, whatever the request timeout is; upstream's.
const MAX_WAIT: Duration = Duration::from_secs(60);

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Admits, queues or refuses requests. Each part has its own lock.
pub struct FlowControl {
    mode: Mode,
    /// Timeout of requests that are not long-running.
    pub request_timeout: Duration,
    /// Sizes of collections.
    pub sizes: CollectionSizes,
}

enum Mode {
    Plain(InFlight),
    /// The lock is held to clone or replace the `Arc`.
    Fair(RwLock<Arc<config::Config>>),
}

/// The seats of an executing request; released on drop.
#[derive(Default)]
pub struct Seat(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Unlimited,
    InFlight(#[allow(dead_code)] tokio::sync::OwnedSemaphorePermit),
    Level {
        schema: Arc<FlowSchema>,
        occupied: Option<Occupied>,
        seats: i64,
        since: Instant,
        is_watch: bool,
    },
}

/// A refused request: 429.
#[derive(Debug)]
pub struct Refused {
    /// Value of Retry-After, in seconds.
    pub retry_after: u32,
}

impl FlowControl {
    /// Sets up flow control. The levels are for the controller; `None` when priority and fairness is
    /// disabled.
    ///
    /// # Errors
    /// When a metric is already registered; a programming error.
    pub fn new(
        options: &FlowControlOptions,
        registry: &prometheus::Registry,
    ) -> Result<(FlowControl, Option<Levels>), prometheus::Error> {
        let (read_only, mutating) = (options.max_requests_inflight, options.max_mutating_requests_inflight);
        let seats = read_only.saturating_add(mutating);
        let (mode, levels) = match options.enable_priority_and_fairness && seats > 0 {
            false => (Mode::Plain(InFlight::new(read_only, mutating)), None),
            true => {
                let mut levels = Levels::new(seats, metrics::FlowMetrics::new(registry)?);
                let config = levels.apply_objects(&[], &[]).0;
                (Mode::Fair(RwLock::new(Arc::new(config))), Some(levels))
            }
        };
        let (request_timeout, sizes) = (options.request_timeout, CollectionSizes::default());
        Ok((FlowControl { mode, request_timeout, sizes }, levels))
    }

    /// The timeout of a request: its `timeout` parameter, at most the server's limit.
    ///
    /// # Errors
    /// 400 when the parameter is not a duration (k8s.io/apiserver
    /// `pkg/endpoints/filters/request_deadline.go`).
    pub fn limit(&self, query: Option<&str>) -> Result<Duration, ApiError> {
        let given = query.and_then(|query| plinth_api::query_parameter(query, "timeout"));
        let Some(text) = given.filter(|text| !text.is_empty()) else {
            return Ok(self.request_timeout);
        };
        let nanos = plinth_codec::time::parse_duration(&text).map_err(|_| {
            let what = format!("time: invalid duration {:?}", &*text);
            ApiError::bad_request(format!("invalid timeout specified in the request URL - {what}"))
        })?;
        let given = u64::try_from(nanos).ok().filter(|n| *n > 0).map(Duration::from_nanos);
        Ok(given.map_or(self.request_timeout, |given| given.min(self.request_timeout)))
    }

    /// Whether requests are queued by priority and fairness.
    pub(crate) fn has_priority_and_fairness(&self) -> bool {
        matches!(self.mode, Mode::Fair(_))
    }

    /// The step of a request that this is, for its metric.
    pub(crate) fn filter(&self) -> RequestFilter {
        if self.has_priority_and_fairness() {
            RequestFilter::PriorityAndFairness
        } else {
            RequestFilter::MaxInFlight
        }
    }

    /// Levels, queues or waiting requests as a table; `None` when there is none of this name, or no priority
    /// and fairness.
    pub fn dump(&self, name: &str, with_details: bool) -> Option<String> {
        let Mode::Fair(config) = &self.mode else { return None };
        let config = config.read().clone();
        dump::table(&config, name, with_details)
    }

    /// Replaces the configuration.
    pub fn set_config(&self, config: config::Config) {
        if let Mode::Fair(current) = &self.mode {
            *current.write() = Arc::new(config);
        }
    }

    /// Acquires seats for a request, waiting if its level has queues. `flow_schema` is set to the request's
    /// schema in any case. Without a query that can be parsed, it is one seat: the answer will be an error.
    ///
    /// # Errors
    /// [`Refused`] when there is no space.
    pub async fn admit(
        &self,
        digest: &RequestDigest<'_>,
        route: &Route,
        query: Option<&Query>,
        mutating: bool,
        flow_schema: &mut Option<Arc<FlowSchema>>,
    ) -> Result<Seat, Refused> {
        let is_watch = digest.verb() == Some(Verb::Watch);
        match &self.mode {
            _ if is_long_running(route) && !is_watch => Ok(Seat::default()),
            Mode::Plain(_) if is_watch => Ok(Seat::default()),
            Mode::Plain(limits) => match limits.enter(mutating) {
                Ok(permit) => Ok(Seat(permit.map_or(Inner::Unlimited, Inner::InFlight))),
                // Upstream's rule: administrators always get an answer.
                Err(_) if digest.user.is_in(MASTERS_GROUP) => Ok(Seat::default()),
                Err(_) => Err(Refused { retry_after: 1 }),
            },
            Mode::Fair(current) => {
                let config = current.read().clone();
                let Some(schema) = config.classify(digest) else { return Ok(Seat::default()) };
                *flow_schema = Some(schema.clone());
                self.seat_on(schema, digest, route, query).await
            }
        }
    }

    async fn seat_on(
        &self,
        schema: &Arc<FlowSchema>,
        digest: &RequestDigest<'_>,
        route: &Route,
        query: Option<&Query>,
    ) -> Result<Seat, Refused> {
        let (level, metrics) = (&schema.level, &schema.metrics);
        let (mut hash, mut seats) = (0, 1);
        if !level.is_exempt() {
            hash = shuffle::hash_flow(&schema.name, schema.distinguisher.of(digest));
            if let (Route::Resource(info), Some(query)) = (route, query) {
                seats = self.sizes.seats(info, query, level.max_seats());
            }
            metrics.estimated_seats.observe(f64::from(seats));
        }
        let dump = || RequestDump {
            schema: schema.name.clone(),
            flow: schema.distinguisher.of(digest).to_owned(),
            arrived: SystemTime::now(),
            user: digest.user.name.clone(),
            verb: digest.verb().map_or("", Verb::as_str),
            route: route.clone(),
        };
        let occupied = match level.arrive(hash, seats, dump) {
            Ok(Arrived::Served(occupied)) => Ok(occupied),
            Ok(Arrived::Waits(waiter)) => {
                metrics.queue_length.observe(waiter.length as f64);
                let mut counted = WaitGuard::count(schema, i64::from(seats));
                let limit = (self.request_timeout / 4).min(MAX_WAIT);
                let outcome = waiter.wait(limit).await;
                counted.is_over = true;
                let waited = counted.since.elapsed().as_secs_f64();
                match outcome.is_ok() {
                    true => metrics.waited_served.observe(waited),
                    false => metrics.waited_refused.observe(waited),
                }
                outcome
            }
            Err(why) => Err(why),
        };
        match occupied {
            Ok(occupied) => {
                let is_watch = digest.verb() == Some(Verb::Watch);
                Ok(Seat::take(schema, occupied, i64::from(seats), is_watch))
            }
            Err(why) => Err(refuse(schema, why)),
        }
    }
}

fn refuse(schema: &FlowSchema, why: Rejected) -> Refused {
    schema.metrics.rejected(schema.level.name(), &schema.name, why);
    Refused { retry_after: schema.level.retry.refused_now() }
}

/// Counts a queued request while it lives.
struct WaitGuard<'a> {
    schema: &'a FlowSchema,
    seats: i64,
    since: Instant,
    /// Whether it was served or refused.
    is_over: bool,
}

impl<'a> WaitGuard<'a> {
    fn count(schema: &'a FlowSchema, seats: i64) -> WaitGuard<'a> {
        schema.metrics.waiting.inc();
        schema.metrics.waiting_seats.add(seats);
        WaitGuard { schema, seats, since: Instant::now(), is_over: false }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.schema.metrics.waiting.dec();
        self.schema.metrics.waiting_seats.sub(self.seats);
        if !self.is_over {
            let schema = self.schema;
            schema.metrics.rejected(schema.level.name(), &schema.name, Rejected::Cancelled);
        }
    }
}

impl Seat {
    /// Whether its level is exempt from limits.
    pub fn is_exempt(&self) -> bool {
        matches!(&self.0, Inner::Level { schema, .. } if schema.level.is_exempt())
    }

    fn take(schema: &Arc<FlowSchema>, occupied: Occupied, seats: i64, is_watch: bool) -> Seat {
        let metrics = &schema.metrics;
        metrics.dispatched.inc();
        metrics.executing.inc();
        metrics.executing_seats.add(seats);
        let schema = schema.clone();
        Seat(Inner::Level { schema, occupied: Some(occupied), seats, since: Instant::now(), is_watch })
    }
}

impl Seat {
    /// Called when the request's body is late; the guard is held until it has arrived.
    ///
    /// # Errors
    /// [`Refused`] when too many requests of its level wait for theirs.
    pub(crate) fn wait_for_body(&self) -> Result<Option<LateBody<'_>>, Refused> {
        match &self.0 {
            Inner::Level { schema, occupied: Some(occupied), .. } => {
                schema.level.wait_for_body(occupied).map(Some).map_err(|why| refuse(schema, why))
            }
            _ => Ok(None),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Inner::Level { schema, occupied, seats, since, is_watch } = &mut self.0 else { return };
        schema.metrics.executing.dec();
        schema.metrics.executing_seats.sub(*seats);
        let execution = match is_watch {
            true => &schema.metrics.execution_of_watches,
            false => &schema.metrics.execution,
        };
        execution.observe(since.elapsed().as_secs_f64());
        if let Some(occupied) = occupied.take() {
            schema.level.finish(occupied);
        }
    }
}

/// Adds the schema and level of a request to the response headers: their UIDs, because the names may be
/// confidential.
pub(crate) fn add_headers(flow_schema: &FlowSchema, headers: &mut HeaderMap) {
    headers.insert(SCHEMA_HEADER, flow_schema.uid.clone());
    headers.insert(LEVEL_HEADER, flow_schema.level_uid.clone());
}

impl Refused {
    /// The response, in plain text as upstream's; client-go evaluates code and header only.
    pub fn response(&self) -> Response<Body> {
        let mut response =
            Response::new(Body::from(b"Too many requests, please try again later.\n".to_vec()));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(hyper::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after));
        response
    }
}

/// Whether a request is long-running, so that the request timeout does not apply (upstream's
/// `BasicLongRunningRequestCheck` with kube-apiserver's verbs and subresources).
pub(crate) fn is_long_running(route: &Route) -> bool {
    match route {
        Route::Resource(info) => {
            matches!(info.verb, Verb::Watch | Verb::Proxy)
                || matches!(info.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
        }
        Route::NonResource(_) => false,
    }
}

#[cfg(test)]
mod tests;
