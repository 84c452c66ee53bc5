//! Locks and elections: etcd's `v3lockpb` and `v3electionpb`.

use bytes::Bytes;

use super::kv::KeyValue;
use super::ResponseHeader;

/// `LockRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LockRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The lock is held until this lease ends; zero for one of its own.
    #[prost(int64, tag = "2")]
    pub lease: i64,
}

/// `LockResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LockResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The key that exists while the lock is held.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
}

/// `UnlockRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnlockRequest {
    /// The key of the [`LockResponse`].
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

/// `CampaignRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CampaignRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The candidate leads until this lease ends; zero for one of its own.
    #[prost(int64, tag = "2")]
    pub lease: i64,
    /// What the leader proclaims.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
}

/// `CampaignResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CampaignResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, optional, tag = "2")]
    pub leader: Option<LeaderKey>,
}

/// `LeaderKey`: who leads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaderKey {
    /// Name of the election.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The key that exists while it leads.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// The create revision of the key.
    #[prost(int64, tag = "3")]
    pub rev: i64,
    #[prost(int64, tag = "4")]
    pub lease: i64,
}

/// `LeaderRequest`: the request of `Leader` and of `Observe`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaderRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
}

/// `LeaderResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaderResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The leader's key, with what it proclaims.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// `ResignRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResignRequest {
    #[prost(message, optional, tag = "1")]
    pub leader: Option<LeaderKey>,
}

/// `ProclaimRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProclaimRequest {
    #[prost(message, optional, tag = "1")]
    pub leader: Option<LeaderKey>,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}
