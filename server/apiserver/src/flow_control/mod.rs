//! How many requests are served at once, who waits, and who is refused: API priority and fairness.
//!
//! A FlowSchema says which requests belong together and which flows they are (`classify`); its
//! PriorityLevelConfiguration has a share of the server's seats (`allocation`) and queues (`queues`), in which each
//! flow has a few places of its own (`shuffle`), so that one noisy client fills its own queues and nobody else's.
//! A controller keeps the objects and what follows from them. With `--enable-priority-and-fairness=false` there are the
//! two plain limits of `in_flight`.
//!
//! A request costs a look at the configuration (a read lock for the time of copying an `Arc`), a few comparisons of
//! strings, and two short turns of its level's mutex; requests of the exempt level take no lock but the first.

mod allocation;
pub mod bootstrap;
mod classify;
pub mod config;
mod demand;
mod in_flight;
mod level;
mod metrics;
pub mod options;
mod queues;
mod retry;
mod shuffle;
mod width;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName, HeaderValue, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Response, StatusCode};
use parking_lot::RwLock;

use plinth_api::api_error::ApiError;
use plinth_api::request_info::{Route, Verb};
use plinth_http::body::Body;

pub use classify::Digest;
pub use config::{Levels, Schema};
pub use in_flight::InFlight;
pub use options::FlowControlOptions;
pub use width::Sizes;

use level::{Arrived, Late, Occupied};
use queues::Rejected;

/// The longest that a request waits for its turn, whatever the request timeout is; upstream's.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Decides whether a request is served now, later or not at all. Each part locks for itself.
pub struct FlowControl {
    mode: Mode,
    /// How long a request may take that does not run long by its nature.
    pub request_timeout: Duration,
    /// How large collections are.
    pub sizes: Sizes,
}

enum Mode {
    Plain(InFlight),
    /// The lock is held to copy the `Arc`, or to put another one there.
    Fair(RwLock<Arc<config::Config>>),
}

/// A request's place among those that are served; given back when it is dropped.
#[derive(Default)]
pub struct Seat(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Unlimited,
    Place(#[allow(dead_code)] tokio::sync::OwnedSemaphorePermit),
    Level {
        schema: Arc<Schema>,
        occupied: Option<Occupied>,
        seats: i64,
        since: Instant,
    },
}

/// A request that is not served: 429.
#[derive(Debug)]
pub struct Refused {
    /// Seconds after which the client should come again.
    pub retry_after: u32,
}

impl FlowControl {
    /// Flow control by these options. The levels are for the controller that keeps them; there are none where priority and fairness is
    /// switched off.
    ///
    /// # Errors
    /// When a metric's name is taken; a programming error.
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
                let config = levels.digest(&[], &[]).0;
                (Mode::Fair(RwLock::new(Arc::new(config))), Some(levels))
            }
        };
        let (request_timeout, sizes) = (options.request_timeout, Sizes::default());
        Ok((FlowControl { mode, request_timeout, sizes }, levels))
    }

    /// How long a request may take: as long as its `timeout` parameter says, at most the server's limit.
    ///
    /// # Errors
    /// 400 when the parameter is no duration (k8s.io/apiserver `pkg/endpoints/filters/request_deadline.go`).
    pub fn limit(&self, query: Option<&str>) -> Result<Duration, ApiError> {
        let Some(query) = query.filter(|q| q.contains("timeout=")) else { return Ok(self.request_timeout) };
        let given = plinth_api::query::parameter(query, "timeout");
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

    /// Requests are judged by that configuration from now on.
    pub fn put_in_place(&self, config: config::Config) {
        if let Mode::Fair(current) = &self.mode {
            *current.write() = Arc::new(config);
        }
    }

    /// A seat for a request, waited for where its level has queues. `class` becomes the schema of the request, whatever
    /// comes of it.
    ///
    /// # Errors
    /// [`Refused`] when there is no room.
    pub async fn admit(
        &self,
        digest: &Digest<'_>,
        route: &Route,
        query: Option<&str>,
        mutating: bool,
        class: &mut Option<Arc<Schema>>,
    ) -> Result<Seat, Refused> {
        let is_watch = digest.verb() == Some(Verb::Watch);
        match &self.mode {
            _ if runs_long(route) && !is_watch => Ok(Seat::default()),
            Mode::Plain(_) if is_watch => Ok(Seat::default()),
            Mode::Plain(limits) => match limits.enter(mutating) {
                Ok(place) => Ok(Seat(place.map_or(Inner::Unlimited, Inner::Place))),
                // Upstream's rule: an administrator must always get an answer.
                Err(_) if digest.user.is_in("system:masters") => Ok(Seat::default()),
                Err(_) => Err(Refused { retry_after: 1 }),
            },
            Mode::Fair(current) => {
                let config = current.read().clone();
                let Some(schema) = config.classify(digest) else { return Ok(Seat::default()) };
                *class = Some(schema.clone());
                self.seat_on(schema, digest, route, query).await
            }
        }
    }

    async fn seat_on(
        &self,
        schema: &Arc<Schema>,
        digest: &Digest<'_>,
        route: &Route,
        query: Option<&str>,
    ) -> Result<Seat, Refused> {
        let (level, metrics) = (&schema.level, &schema.metrics);
        let (mut hash, mut seats) = (0, 1);
        if !level.is_exempt() {
            hash = shuffle::hash_flow(&schema.name, schema.distinguisher.of(digest));
            if let Route::Resource(info) = route {
                seats = self.sizes.seats(info, query, level.widest());
            }
            metrics.estimated_seats.observe(f64::from(seats));
        }
        let occupied = match level.arrive(hash, seats) {
            Ok(Arrived::Served(occupied)) => Ok(occupied),
            Ok(Arrived::Waits(waiter)) => {
                metrics.queue_length.observe(waiter.length as f64);
                let counted = Waiting::count(schema, i64::from(seats));
                let limit = (self.request_timeout / 4).min(LONGEST_WAIT);
                let outcome = waiter.wait(limit).await;
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
            Ok(occupied) => Ok(Seat::take(schema, occupied, i64::from(seats))),
            Err(why) => Err(refuse(schema, why)),
        }
    }
}

fn refuse(schema: &Schema, why: Rejected) -> Refused {
    schema.metrics.rejected(schema.level.name(), &schema.name, why);
    Refused { retry_after: schema.level.retry.refused_now() }
}

/// Counts a waiting request for as long as it lives.
struct Waiting<'a> {
    schema: &'a Schema,
    seats: i64,
    since: Instant,
}

impl<'a> Waiting<'a> {
    fn count(schema: &'a Schema, seats: i64) -> Waiting<'a> {
        schema.metrics.waiting.inc();
        schema.metrics.waiting_seats.add(seats);
        Waiting { schema, seats, since: Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.schema.metrics.waiting.dec();
        self.schema.metrics.waiting_seats.sub(self.seats);
    }
}

impl Seat {
    /// Whether it belongs to a level whose requests are served whatever happens.
    pub fn is_exempt(&self) -> bool {
        matches!(&self.0, Inner::Level { schema, .. } if schema.level.is_exempt())
    }

    fn take(schema: &Arc<Schema>, occupied: Occupied, seats: i64) -> Seat {
        let metrics = &schema.metrics;
        metrics.dispatched.inc();
        metrics.executing.inc();
        metrics.executing_seats.add(seats);
        let schema = schema.clone();
        Seat(Inner::Level { schema, occupied: Some(occupied), seats, since: Instant::now() })
    }
}

impl Seat {
    /// The request's body is late: to be held until it is there.
    ///
    /// # Errors
    /// [`Refused`] when too many of its level wait for theirs.
    pub fn wait_for_body(&self) -> Result<Option<Late<'_>>, Refused> {
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
        let Inner::Level { schema, occupied, seats, since } = &mut self.0 else { return };
        schema.metrics.executing.dec();
        schema.metrics.executing_seats.sub(*seats);
        schema.metrics.execution.observe(since.elapsed().as_secs_f64());
        if let Some(occupied) = occupied.take() {
            schema.level.finish(occupied);
        }
    }
}

/// Says in an answer's head which schema and level the request belonged to: by UID, because names tell clients what an
/// administrator thinks of them.
pub fn mark(class: &Schema, headers: &mut HeaderMap) {
    headers.insert(SCHEMA_HEADER, class.uid.clone());
    headers.insert(LEVEL_HEADER, class.level_uid.clone());
}

impl Refused {
    /// The answer, in plain text as upstream's; client-go goes by code and header.
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

/// Whether a request lasts by its nature, so that the request timeout does not hold for it (upstream's
/// `BasicLongRunningRequestCheck` with kube-apiserver's verbs and subresources).
pub fn runs_long(route: &Route) -> bool {
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
