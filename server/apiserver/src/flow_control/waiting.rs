//! What is known of a request that waits, for `dump_requests`.

use std::time::SystemTime;

use plinth_api::Route;

/// A waiting request.
#[derive(Clone, Debug)]
pub struct RequestDump {
    /// Its flow schema.
    pub schema: String,
    /// What distinguishes its flow.
    pub flow: String,
    /// When it arrived.
    pub arrived: SystemTime,
    /// Name of the user who sent it.
    pub user: String,
    /// As flow control matches it.
    pub verb: &'static str,
    /// What it is for.
    pub route: Route,
}

#[cfg(test)]
impl RequestDump {
    pub(super) fn example() -> RequestDump {
        RequestDump {
            schema: "test".into(),
            flow: String::new(),
            arrived: SystemTime::UNIX_EPOCH,
            user: "test".into(),
            verb: "get",
            route: Route::NonResource("/test".into()),
        }
    }
}
