//! Leases.

use bytes::Bytes;

use super::ResponseHeader;

/// `LeaseGrantRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseGrantRequest {
    /// Time to live in seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// The id; zero for any.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// `LeaseGrantResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live in seconds, as it was granted.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Not used.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// `LeaseRevokeRequest`, `LeaseKeepAliveRequest`, `LeaseStatus`: a lease.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `LeaseKeepAliveResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live in seconds; zero for a lease that does not exist.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// `LeaseTimeToLiveRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Whether the attached keys are returned.
    #[prost(bool, tag = "2")]
    pub keys: bool,
}

/// `LeaseTimeToLiveResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds that are left; -1 for a lease that does not exist.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Time to live in seconds, as it was granted.
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
    /// The attached keys, if they were asked for.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub keys: Vec<Bytes>,
}

/// `LeaseLeasesResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseLeasesResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub leases: Vec<LeaseRequest>,
}

/// `leasepb.Lease`: the value of a lease in a member's file.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lease {
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
