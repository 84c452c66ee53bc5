//! What names clusters, replicas and their states in records.

use std::fmt;
use std::str::FromStr;

/// The cluster that a record belongs to. Chosen at random when the cluster is founded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClusterId(pub [u8; 16]);

/// A replica's hash of everything that it has applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 16]);

/// A replica of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u16);

/// One life of a replica, from one start to the next. Not zero. Its upper 24 bits count the sessions of the
/// replica, so that an older one is known from a newer one; the others are random, so that two processes of
/// one replica that start at once, after the same session, differ. To a journal only equality matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session(pub u64);

/// The random bits of a session.
const RANDOM_BITS: u32 = 40;

impl Session {
    /// A session after `previous`, with these random bits; the first one without.
    pub fn after(previous: Option<Session>, random: u64) -> Session {
        let count = previous.map_or(0, |previous| previous.count()).saturating_add(1);
        Session(count.min(u64::MAX >> RANDOM_BITS) << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1))
    }

    /// Whether this one can be of a history in which `other`, of the same replica, is earlier.
    pub fn follows(self, other: Session) -> bool {
        self.count() > other.count()
    }

    fn count(self) -> u64 {
        self.0 >> RANDOM_BITS
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

/// Not the text of a [`ClusterId`]: that has 32 digits, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a cluster")]
pub struct MalformedClusterId;

impl FromStr for ClusterId {
    type Err = MalformedClusterId;

    fn from_str(text: &str) -> Result<ClusterId, MalformedClusterId> {
        let number = u128::from_str_radix(text, 16).map_err(|_| MalformedClusterId)?;
        let cluster = ClusterId(number.to_be_bytes());
        // One encoding.
        match cluster.to_string() == text {
            true => Ok(cluster),
            false => Err(MalformedClusterId),
        }
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_replica_are_ordered_and_differ() {
        let first = Session::after(None, u64::MAX);
        assert_eq!(first.0, 0x0000_01ff_ffff_ffff);
        let [second, of_another_process] = [0, 1].map(|random| Session::after(Some(first), random));
        assert_eq!(second.0, 0x0000_0200_0000_0000);
        assert_ne!(second, of_another_process);
        assert!(second.follows(first) && !first.follows(second));
        assert!(!second.follows(of_another_process) && !of_another_process.follows(second));
        // Programs before this order chose all bits at random.
        let random = Session(0xdead_beef_dead_beef);
        assert!(Session::after(Some(random), 0).follows(random));
        let last = Session(u64::MAX);
        assert!(!Session::after(Some(last), 0).follows(last));
    }

    #[test]
    fn the_id_of_a_cluster_has_one_text() {
        let cluster = ClusterId([0xab; 16]);
        assert_eq!(cluster.to_string().parse(), Ok(cluster));
        assert_eq!("0".repeat(32).parse(), Ok(ClusterId::default()));
        let text = cluster.to_string();
        for other in
            ["", "0", &text[1..], &format!("0{text}"), &text.to_uppercase(), &format!("+{}", &text[1..])]
        {
            assert_eq!(other.parse::<ClusterId>(), Err(MalformedClusterId), "{other}");
        }
    }
}
