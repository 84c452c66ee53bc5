//! The member, its cluster of one, and the upkeep of its store.

use bytes::Bytes;

use super::ResponseHeader;

/// `StatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Version of etcd that the API is that of.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Bytes of the store.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Number of changes.
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    /// Number of the start.
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    /// Number of changes.
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    /// Texts of the alarms that are on.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Bytes of the store.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    /// No member is a learner: this is false.
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
    /// Version of the storage.
    #[prost(string, tag = "11")]
    pub storage_version: String,
    /// Bytes that the store may have.
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
    /// No downgrade.
    #[prost(message, optional, tag = "13")]
    pub downgrade_info: Option<DowngradeInfo>,
}

/// `DowngradeInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DowngradeInfo {
    /// Nothing is ever downgraded: this is false.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    /// Empty, as there is no downgrade.
    #[prost(string, tag = "2")]
    pub target_version: String,
}

/// `AlarmRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmRequest {
    /// [`alarm_action`].
    #[prost(int32, tag = "1")]
    pub action: i32,
    /// The member that it is raised for; any.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// [`alarm`].
    #[prost(int32, tag = "3")]
    pub alarm: i32,
}

/// Values of [`AlarmRequest::action`].
pub mod alarm_action {
    /// List alarms.
    pub const GET: i32 = 0;
    /// Raise one.
    pub const ACTIVATE: i32 = 1;
    /// Disarm one.
    pub const DEACTIVATE: i32 = 2;
}

/// Types of alarms.
pub mod alarm {
    /// All of them, in a request.
    pub const NONE: i32 = 0;
    /// The store has reached its quota.
    pub const NOSPACE: i32 = 1;
    /// The store is damaged.
    pub const CORRUPT: i32 = 2;
}

/// `AlarmMember`: an alarm.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// [`alarm`].
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

/// `AlarmResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

/// `HashResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HashResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Hash of the keys.
    #[prost(uint32, tag = "2")]
    pub hash: u32,
}

/// `HashKVRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HashKvRequest {
    /// The revision; zero for the newest.
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// `HashKVResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HashKvResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Hash of the keys.
    #[prost(uint32, tag = "2")]
    pub hash: u32,
    /// The compacted revision.
    #[prost(int64, tag = "3")]
    pub compact_revision: i64,
    /// The revision that the hash is of.
    #[prost(int64, tag = "4")]
    pub hash_revision: i64,
}

/// `SnapshotResponse`: a part of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Bytes that follow.
    #[prost(uint64, tag = "2")]
    pub remaining_bytes: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub blob: Bytes,
    /// Version of the storage.
    #[prost(string, tag = "4")]
    pub version: String,
}

/// `MoveLeaderRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MoveLeaderRequest {
    #[prost(uint64, tag = "1")]
    pub target_id: u64,
}

/// `DowngradeRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DowngradeRequest {
    /// [`downgrade_action`].
    #[prost(int32, tag = "1")]
    pub action: i32,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Values of [`DowngradeRequest::action`].
pub mod downgrade_action {
    /// Check whether the cluster can be downgraded.
    pub const VALIDATE: i32 = 0;
    /// Begin a downgrade.
    pub const ENABLE: i32 = 1;
    /// End what has begun.
    pub const CANCEL: i32 = 2;
}

/// `DowngradeResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DowngradeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `Member`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Member {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// Where other members would reach it.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// No member is a learner: this is false.
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// `MemberAddRequest` without its flag, `MemberRemoveRequest`, `MemberPromoteRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// `MemberListResponse`, `MemberRemoveResponse`, `MemberPromoteResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MembersResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckResponse {
    /// 1: serving.
    #[prost(int32, tag = "1")]
    pub status: i32,
}
