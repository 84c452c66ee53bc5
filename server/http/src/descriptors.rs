//! Open files: connections leave enough of them to the store.
//!
//! A store that cannot open its next log fails for good, so idle connections must not take the last descriptors. Go's runtime
//! raises the soft limit at start, too (`os/rlimit.go`).

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Descriptors that are kept for the store, backups, webhooks and proxies.
const KEPT: u64 = 768;

/// Raises the process's soft limit of open files to the hard one, and gives the most connections that leave enough to others: `most`
/// at most, and half of a limit that is small.
pub fn connections(most: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, the present one counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(files) = getrlimit(Resource::Nofile).current else { return most };
    let room = beside_the_store(files);
    let bounded = usize::try_from(room).unwrap_or(most).min(most);
    if bounded < most {
        tracing::warn!(
            open_files = files,
            connections = bounded,
            "the limit of open files allows fewer connections than --max-connections; raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    bounded
}

fn beside_the_store(files: u64) -> u64 {
    files.saturating_sub(KEPT).max(files / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_keeps_its_files() {
        for (files, room) in [(0, 0), (256, 64), (1024, 256), (4096, 3328), (1 << 20, (1 << 20) - 768)] {
            assert_eq!(beside_the_store(files), room, "{files}");
        }
    }
}
