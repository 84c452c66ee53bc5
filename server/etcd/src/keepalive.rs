//! [`Keepalive`]: how connections are kept.

use std::time::Duration;

/// How connections are kept (`--grpc-keepalive-*`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keepalive {
    /// How long a client has to wait between its pings.
    pub min_time: Duration,
    /// After which silence the server pings, and how long it waits for the answer; none for no pings.
    pub ping: Option<(Duration, Duration)>,
    /// Streams of a connection.
    pub streams: u32,
}
