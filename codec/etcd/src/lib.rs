//! The messages of etcd's API, by hand: names, numbers and types of the fields are those of etcd's
//! `api/etcdserverpb/rpc.proto`, `api/mvccpb/kv.proto`, `api/authpb/auth.proto`, and of `v3lock.proto` and
//! `v3election.proto` of its server.
//!
//! `kv` has keys and transactions, `watch` watches, `lease` leases, `maintenance` the rest of what a member
//! does, `auth` the requests about users and roles, `concurrency` locks and elections. `plinth etcd` serves
//! them; a journal in etcd and an import from one send them, by `call`.
//!
//! Keys and values are parts of the buffer that was decoded, not copies. A field that a message here lacks is
//! skipped when it is decoded. Nothing bounds the size of a message: the transport does.
//!
//! ```
//! use plinth_etcd_wire::kv::RangeRequest;
//! use prost::Message as _;
//!
//! # fn main() -> Result<(), prost::DecodeError> {
//! let request = RangeRequest { key: "a".into(), limit: 1, ..RangeRequest::default() };
//! assert_eq!(request.encode_to_vec(), [0x0a, 1, b'a', 0x18, 1]);
//! assert_eq!(RangeRequest::decode(&request.encode_to_vec()[..])?, request);
//! # Ok(())
//! # }
//! ```

#![allow(missing_docs)] // fields whose names say it; etcd's `rpc.proto` has the rest

pub mod auth;
pub mod call;
pub mod concurrency;
pub mod kv;
pub mod lease;
pub mod maintenance;
pub mod watch;

/// `etcdserverpb.ResponseHeader`: begins every response.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ResponseHeader {
    /// The cluster that answered.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The member that answered.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The revision of the store when the request was applied.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// Number of the member's start.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A message without fields, or one of which no field is read.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// A response that consists of its header.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}
