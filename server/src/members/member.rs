//! A replica as it records itself.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A replica as it last recorded itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Number of the replica.
    pub id: u16,
    /// Where clients reach it.
    pub address: SocketAddr,
    /// Version of its program.
    pub version: String,
    /// The newest version of records that its program reads.
    #[serde(default = "first_version")]
    pub record_version: u8,
    /// The position of the journal up to which it has everything on disk.
    pub position: u64,
    /// Newest revision of its store.
    pub revision: u64,
    /// The position up to which it had applied the journal, and its hash there: equal on all replicas.
    pub applied: u64,
    /// See `applied`.
    pub hash: String,
    /// When it was recorded, in milliseconds since 1970.
    pub renewed_ms: u64,
    /// It has stopped by itself, and has not started since.
    #[serde(default)]
    pub stopped: bool,
    /// Its flags that act on all replicas.
    #[serde(default)]
    pub flags: SharedFlags,
    /// Its hash at the position that replicas are compared at, since somebody has asked for that.
    #[serde(default)]
    pub compared: Option<ComparedHash>,
}

/// The hash of a replica at a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedHash {
    /// Where the replicas are compared.
    pub position: u64,
    /// The hash, or none where the replica does not know it: it has started, or taken a checkpoint, since.
    pub hash: Option<String>,
}

/// Flags that act on all replicas, as texts, and have to be the same on each. None of programs that do not
/// record theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SharedFlags {
    /// `--history-retention`: the shortest one decides what is compacted.
    pub history_retention: Option<String>,
    /// `--service-node-port-range`: each gives ports of its own.
    pub service_node_port_range: Option<String>,
}

/// A flag that another replica has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlagDifference {
    /// The other one.
    pub replica: u16,
    /// Name of the flag.
    pub flag: &'static str,
    /// Its value here.
    pub own: String,
    /// Its value there.
    pub other: String,
}

impl SharedFlags {
    /// The flags that a replica has otherwise than these are.
    pub fn differences<'a>(&'a self, other: &'a Member) -> impl Iterator<Item = FlagDifference> + 'a {
        let theirs = &other.flags;
        let flags = [
            ("--history-retention", &self.history_retention, &theirs.history_retention),
            ("--service-node-port-range", &self.service_node_port_range, &theirs.service_node_port_range),
        ];
        flags.into_iter().filter_map(|(flag, own, theirs)| {
            let (own, theirs) = (own.clone()?, theirs.clone()?);
            let is_other = own != theirs;
            is_other.then_some(FlagDifference { replica: other.id, flag, own, other: theirs })
        })
    }
}

/// That of programs that did not record theirs.
fn first_version() -> u8 {
    1
}

impl Member {
    /// Time since it was recorded.
    pub fn age_now(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.renewed_ms))
    }
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::member;
    use super::*;

    #[test]
    fn flags_that_differ_are_named() {
        let flags = |retention: &str, ports: &str| SharedFlags {
            history_retention: Some(retention.to_owned()),
            service_node_port_range: Some(ports.to_owned()),
        };
        let other = Member { flags: flags("10s", "30000-32767"), ..member(2, 1, 0) };
        let differing = |own: SharedFlags| -> Vec<(u16, &'static str, String, String)> {
            let all = own.differences(&other);
            all.map(|found| (found.replica, found.flag, found.own, found.other)).collect()
        };
        assert_eq!(differing(flags("10s", "30000-32767")), []);
        assert_eq!(
            differing(flags("300s", "20000-20100")),
            [
                (2, "--history-retention", "300s".to_owned(), "10s".to_owned()),
                (2, "--service-node-port-range", "20000-20100".to_owned(), "30000-32767".to_owned()),
            ]
        );
        // A program that does not record its flags.
        let mut text = serde_json::to_value(&other).unwrap();
        text.as_object_mut().unwrap().remove("flags");
        let silent: Member = serde_json::from_value(text).unwrap();
        assert_eq!(flags("1s", "1-2").differences(&silent).count(), 0);
    }
}
