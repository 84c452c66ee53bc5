//! Messages of etcd that its files have and its API does not.

/// `leasepb.Lease`: the value of a lease in a member's file.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Lease {
    /// Identifies the lease in keys that are attached to it.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The time to live that was granted, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    /// What was left of it at the last checkpoint, in seconds; zero for none.
    #[prost(int64, tag = "3")]
    pub remaining_ttl: i64,
}
