//! How many requests are served at once, who waits, and who is refused.

mod in_flight;
pub mod options;

use std::time::Duration;

use crate::authn::User;
use crate::request_info::{Route, Verb};
use crate::status::ApiError;

pub use in_flight::InFlight;
pub use options::FlowControlOptions;

/// Decides whether a request is served now, later or not at all. Each part locks for itself.
pub struct FlowControl {
    in_flight: InFlight,
    /// How long a request may take that does not run long by its nature.
    pub request_timeout: Duration,
}

/// A request's place among those that are served; given back when it is dropped.
pub struct Seat {
    _place: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl FlowControl {
    /// Flow control by these options.
    pub fn new(options: &FlowControlOptions) -> FlowControl {
        FlowControl {
            in_flight: InFlight::new(options.max_requests_inflight, options.max_mutating_requests_inflight),
            request_timeout: options.request_timeout,
        }
    }

    /// A seat for a request, waited for where the configuration says so.
    ///
    /// # Errors
    /// 429 with `Retry-After`.
    pub async fn admit(&self, user: &User, route: &Route, mutating: bool) -> Result<Seat, ApiError> {
        if runs_long(route) {
            return Ok(Seat { _place: None });
        }
        match self.in_flight.enter(mutating) {
            Ok(place) => Ok(Seat { _place: place }),
            // Upstream's rule: an administrator must always get an answer.
            Err(_) if user.is_in("system:masters") => Ok(Seat { _place: None }),
            Err(_) => Err(ApiError::too_many_requests(1)),
        }
    }
}

/// Whether a request lasts by its nature, so that neither limits on those under way nor the request timeout hold for
/// it (`--` upstream's `BasicLongRunningRequestCheck` with kube-apiserver's verbs and subresources).
pub fn runs_long(route: &Route) -> bool {
    match route {
        Route::Resource(info) => {
            info.verb == Verb::Watch
                || matches!(info.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
        }
        Route::NonResource => false,
    }
}
