//! The most recent commits, in memory, bounded in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::feed::event::Commit;
use crate::revision::Revision;

/// Consecutive commits up to the newest. Owned by the hub, behind its lock.
pub(crate) struct Ring {
    commits: VecDeque<Arc<Commit>>,
    /// Revision of the newest commit, also when the ring is empty.
    last: Revision,
    bytes: usize,
    limit: usize,
}

impl Ring {
    pub(crate) fn new(last: Revision, limit: usize) -> Ring {
        Ring { commits: VecDeque::new(), last, bytes: 0, limit }
    }

    /// Adds the next commit. The newest one stays even when it alone is over the limit.
    pub(crate) fn push(&mut self, commit: Arc<Commit>) {
        debug_assert!(commit.revision > self.last);
        self.last = commit.revision;
        self.bytes += commit.size;
        self.commits.push_back(commit);
        while self.bytes > self.limit && self.commits.len() > 1 {
            if let Some(oldest) = self.commits.pop_front() {
                self.bytes -= oldest.size;
            }
        }
    }

    /// Newest revision.
    pub(crate) fn last(&self) -> Revision {
        self.last
    }

    /// The ring holds every commit after this revision.
    pub(crate) fn complete_from(&self) -> Revision {
        self.commits.front().map_or(self.last, |commit| commit.revision.previous())
    }

    /// The commits after `after`, oldest first; none when the ring does not reach back that far.
    pub(crate) fn since(&self, after: Revision) -> Option<impl Iterator<Item = &Arc<Commit>>> {
        if after < self.complete_from() {
            return None;
        }
        let start = self.commits.partition_point(|commit| commit.revision <= after);
        Some(self.commits.range(start..))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(revision: u64, size: usize) -> Arc<Commit> {
        Arc::new(Commit { revision: Revision::new(revision), events: Vec::new(), size })
    }

    fn since(ring: &Ring, after: u64) -> Option<Vec<u64>> {
        Some(ring.since(Revision::new(after))?.map(|commit| commit.revision.get()).collect())
    }

    #[test]
    fn holds_what_fits_and_knows_where_it_starts() {
        let mut ring = Ring::new(Revision::new(4), 30);
        assert_eq!(since(&ring, 4), Some(vec![]));
        assert_eq!(since(&ring, 3), None);
        for revision in 5..=8 {
            ring.push(commit(revision, 10));
        }
        assert_eq!(ring.complete_from(), Revision::new(5));
        assert_eq!(since(&ring, 5), Some(vec![6, 7, 8]));
        assert_eq!(since(&ring, 7), Some(vec![8]));
        assert_eq!(since(&ring, 8), Some(vec![]));
        assert_eq!(since(&ring, 4), None);
        ring.push(commit(9, 1000));
        assert_eq!(since(&ring, 8), Some(vec![9]));
        assert_eq!(since(&ring, 7), None);
    }
}
