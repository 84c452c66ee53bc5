//! File descriptors: connections leave enough of them to the store.
//!
//! A store that cannot open its next log file fails for good, so idle connections must not use up the
//! descriptors. Go's runtime raises the soft limit at start, too (`os/rlimit.go`).

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// File descriptors that are reserved for the store, backups and webhooks.
const RESERVED: u64 = 768;
/// Connections to other servers for which requests of clients may wait at a time, where the limit of open
/// files allows it.
const MAX_FORWARDED: usize = 4096;
/// Connections to webhooks: an eighth of the limit of open files, of which so many are reserved anyway. Three
/// quarters of them are for calls: a webhook may ask this server for something that it is called for itself,
/// and were there fewer calls than requests that are handled at a time, such calls could all wait for one
/// another. Idle connections have the rest, half of it those to servers of remote APIs.
const MAX_WEBHOOK_CONNECTIONS: usize = 1024;
const RESERVED_FOR_WEBHOOKS: usize = 128;

/// How many connections there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Those of clients.
    pub accepted: usize,
    /// Those to other servers on behalf of clients. One of a client may need hundreds of them: each stream of
    /// HTTP/2 its own.
    pub forwarded: usize,
    /// Those to webhooks, for calls.
    pub webhooks: usize,
    /// Those to webhooks that are kept while no call uses them, and the same for servers of remote APIs.
    pub idle: usize,
}

/// Raises the soft limit of open files to the hard one, and returns how many connections leave enough of them
/// to the store: of clients `most`, or fewer if the limit requires it, and half of a small limit. `share` is
/// the part of the process's files that one server of several has, `forwards` is whether requests are
/// forwarded to other servers.
pub fn connection_limits(most: usize, share: Option<u64>, forwards: bool) -> ConnectionLimits {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the current limit applies.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    limits_of(files.min(share.unwrap_or(u64::MAX)), most, forwards)
}

impl ConnectionLimits {
    /// Warns when there are fewer connections of clients than the `most` that are configured.
    pub fn warn_below(&self, most: usize) {
        if self.accepted < most {
            tracing::warn!(
                connections = self.accepted,
                "open file limit allows fewer connections than may be served at a time; raise it (ulimit -n, LimitNOFILE=)"
            );
        }
    }
}

/// The limits by that of open files.
fn limits_of(files: u64, most: usize, forwards: bool) -> ConnectionLimits {
    let connections = usize::try_from(files / 8).unwrap_or(usize::MAX).min(MAX_WEBHOOK_CONNECTIONS);
    let idle = connections / 8;
    let room = usize::try_from(connections_beside_the_store(files)).unwrap_or(usize::MAX);
    let room = room - connections.saturating_sub(RESERVED_FOR_WEBHOOKS).min(room);
    let accepted = most.min(if forwards { room - room / 10 } else { room });
    let forwarded = if forwards { MAX_FORWARDED.min(room - accepted) } else { 0 };
    ConnectionLimits { accepted, forwarded, webhooks: connections - 2 * idle, idle }
}

fn connections_beside_the_store(files: u64) -> u64 {
    files.saturating_sub(RESERVED).max(files / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reserved_for_the_store() {
        for (files, room) in [(0, 0), (256, 64), (1024, 256), (4096, 3328), (1 << 20, (1 << 20) - 768)] {
            assert_eq!(connections_beside_the_store(files), room, "{files}");
        }
        for (files, forwards, accepted, forwarded, webhooks, idle) in [
            (0, true, 0, 0, 0, 0),
            (256, true, 58, 6, 24, 4),
            (1024, true, 231, 25, 96, 16),
            (1024, false, 256, 0, 96, 16),
            (4096, true, 2650, 294, 384, 64),
            (20_000, true, 16_384, 1952, 768, 128),
            (1 << 20, true, 16_384, 4096, 768, 128),
            (u64::MAX, true, 16_384, 4096, 768, 128),
        ] {
            let limits = ConnectionLimits { accepted, forwarded, webhooks, idle };
            assert_eq!(limits_of(files, 16_384, forwards), limits, "{files}");
        }
    }

    #[test]
    fn a_server_has_the_share_that_it_is_given() {
        let shared = connection_limits(16_384, Some(256), true);
        assert_eq!((shared.accepted, shared.forwarded, shared.webhooks), (58, 6, 24));
    }
}
