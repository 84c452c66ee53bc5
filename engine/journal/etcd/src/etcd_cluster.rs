//! Which etcd cluster the journal is in. Members of another one are not used: their revisions are others.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plinth_etcd_wire::ResponseHeader;

use crate::call_error::CallError;
use crate::client::Client;

/// Where most members are another etcd cluster's, one of the right cluster has answered within so long, or
/// etcd was replaced.
const GONE: Duration = Duration::from_secs(10);

impl Client {
    /// The etcd cluster that a member has answered for last.
    pub(crate) fn etcd_cluster(&self, member: usize) -> u64 {
        self.members[member].etcd_cluster.load(Ordering::Relaxed)
    }

    /// Takes the etcd cluster of a member, which has answered, for that of the journal.
    pub(crate) fn trust(&self, member: usize) {
        let (found, order) = (self.etcd_cluster(member), Ordering::Relaxed);
        if self.etcd_cluster.compare_exchange(0, found, order, order).is_ok() {
            // Another etcd that was asked before may be at a later term than this one will be for long.
            self.term.store(0, order);
        }
    }

    /// Takes no etcd cluster for that of the journal until it is found again.
    pub(crate) fn trust_none(&self) {
        self.etcd_cluster.store(0, Ordering::Relaxed);
        *self.heard.lock() = None;
    }

    /// Whether a member has answered for the journal's etcd cluster last.
    pub(crate) fn is_trusted(&self, member: usize) -> bool {
        self.etcd_cluster(member) == self.etcd_cluster.load(Ordering::Relaxed)
    }

    /// Records what the header of an answer reports, and refuses one of another etcd cluster: only that
    /// member as long as others may be of the right one, which a minority does not make up that has not
    /// answered lately.
    pub(crate) fn note(&self, member: usize, header: Option<&ResponseHeader>) -> Result<(), CallError> {
        header.map_or(Ok(()), |header| self.note_at(member, header, Instant::now()))
    }

    fn note_at(&self, member: usize, header: &ResponseHeader, now: Instant) -> Result<(), CallError> {
        let (found, answered) = (header.cluster_id, &self.members[member]);
        answered.etcd_cluster.store(found, Ordering::Relaxed);
        let right = self.etcd_cluster.load(Ordering::Relaxed);
        if found == right || right == 0 {
            *answered.other.lock() = None;
            self.term.fetch_max(header.raft_term, Ordering::Relaxed);
            *self.heard.lock() = Some(now);
            return Ok(());
        }
        *answered.other.lock() = Some(now);
        let text =
            format!("{} is of the etcd cluster {found:x}, and the journal is in {right:x}", answered.address);
        self.leave(member);
        // What a member was before the right cluster answered means nothing: it may be of that one again.
        let heard = *self.heard.lock();
        let is_since = |at: Instant| heard.is_none_or(|heard| at > heard);
        let others = self.members.iter().filter(|member| member.other.lock().is_some_and(is_since)).count();
        let is_gone = heard.is_none_or(|heard| now.saturating_duration_since(heard) >= GONE);
        let members = self.members.len();
        match others == members || (others * 2 > members && is_gone) {
            true => Err(CallError::Refused(format!("{text}: etcd was replaced"))),
            false => Err(CallError::Unusable(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::EtcdOptions;

    /// An append is given up where the leader of a later term has followed.
    #[test]
    fn the_terms_of_another_etcd_are_not_those_of_the_journal() {
        let options = EtcdOptions::parse("etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/p").unwrap();
        let client = Client::new(&options).unwrap();
        let hear = |member: usize, cluster_id: u64, raft_term: u64| {
            let header = ResponseHeader { cluster_id, raft_term, ..ResponseHeader::default() };
            let _ = client.note(member, Some(&header));
            client.term.load(Ordering::Relaxed)
        };
        for _ in 0..2 {
            assert_eq!(hear(0, 8, 100), 100, "it is not known which one is right");
            hear(1, 7, 5);
            client.trust(1);
            assert_eq!(hear(1, 7, 5), 5);
            assert_eq!(hear(0, 8, 100), 5);
            client.trust(1);
            assert_eq!(hear(2, 7, 5), 5);
            client.trust_none();
        }
    }

    /// Members that were emptied or put to a wrong place one after the other, and are of the cluster again,
    /// do not add up; those of one moment do.
    #[test]
    fn etcd_was_replaced_where_most_members_are_of_another_cluster_at_once() {
        const RIGHT: u64 = 7;
        let options = EtcdOptions::parse("etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/p").unwrap();
        let client = Client::new(&options).unwrap();
        let start = Instant::now();
        // After so many seconds a member answers from a cluster: whether it is used, and whether that is all.
        for (seconds, member, cluster, outcome) in [
            (0, 0, RIGHT, "used"),
            (1, 1, 8, "left"),
            (2, 0, RIGHT, "used"),
            // The other one was of the right cluster meanwhile, without having been asked.
            (3600, 2, 9, "left"),
            (3601, 0, RIGHT, "used"),
            (3602, 1, 8, "left"),
            (3603, 2, 8, "left"),
            // It may stand still for a moment.
            (3610, 1, 8, "left"),
            (3611, 1, 8, "replaced"),
            (3612, 0, RIGHT, "used"),
            (3613, 1, 8, "left"),
            (3614, 2, 8, "left"),
            (3615, 0, 8, "replaced"),
        ] {
            let header = ResponseHeader { cluster_id: cluster, ..ResponseHeader::default() };
            let noted = match client.note_at(member, &header, start + Duration::from_secs(seconds)) {
                Ok(()) => "used",
                Err(CallError::Unusable(_)) => "left",
                Err(CallError::Refused(_)) => "replaced",
                Err(error) => panic!("{error}"),
            };
            assert_eq!(noted, outcome, "after {seconds} s");
            client.trust(member);
        }
    }
}
