//! File descriptors: connections leave enough of them to the store.
//!
//! A store that cannot open its next log file fails for good, so idle connections must not use up the
//! descriptors. Go's runtime raises the soft limit at start, too (`os/rlimit.go`).

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// File descriptors that are reserved for the store, backups, webhooks and proxies.
const RESERVED: u64 = 768;

/// Raises the soft limit of open files to the hard one, and returns the maximum number of connections:
/// `most`, or fewer if the limit requires it, and half of a small limit.
pub fn max_connections(most: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the current limit applies.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(files) = getrlimit(Resource::Nofile).current else { return most };
    let room = connections_beside_the_store(files);
    let bounded = usize::try_from(room).unwrap_or(most).min(most);
    if bounded < most {
        tracing::warn!(
            open_files = files,
            connections = bounded,
            "open file limit allows fewer connections than may be served at a time; raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    bounded
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
    }
}
