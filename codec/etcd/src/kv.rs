//! Keys and transactions.

use bytes::Bytes;

use super::ResponseHeader;

/// `mvccpb.KeyValue`: a key with its value and history.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Revision that created the key.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Revision that wrote the value.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Number of puts since the key was created.
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The lease that the key is attached to; zero for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// `mvccpb.Event`: a change of a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// [`Event::PUT`] or [`Event::DELETE`].
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// The key after the change; of a deletion key and mod revision only.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    /// The key before the change, if it was asked for.
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

impl Event {
    /// A key was put.
    pub const PUT: i32 = 0;
    /// A key was deleted.
    pub const DELETE: i32 = 1;
}

/// `RangeRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeRequest {
    /// First key, or the key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// End of the range; empty for one key, one zero byte for no end.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// Most keys that are returned; zero for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision that is read; zero or less for the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// [`sort_order`].
    #[prost(int32, tag = "5")]
    pub sort_order: i32,
    /// [`sort_target`].
    #[prost(int32, tag = "6")]
    pub sort_target: i32,
    /// Whether a stale answer will do. Ours never is.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Whether values are left out.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Whether only the count is returned.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    /// Lower bound of mod revisions.
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
    /// Upper bound of mod revisions.
    #[prost(int64, tag = "11")]
    pub max_mod_revision: i64,
    /// Lower bound of create revisions.
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
    /// Upper bound of create revisions.
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

/// Values of [`RangeRequest::sort_order`].
pub mod sort_order {
    /// As the keys are stored.
    pub const NONE: i32 = 0;
    /// Lowest first.
    pub const ASCEND: i32 = 1;
    /// Highest first.
    pub const DESCEND: i32 = 2;
}

/// Values of [`RangeRequest::sort_target`].
pub mod sort_target {
    /// By key, bytewise.
    pub const KEY: i32 = 0;
    /// By the number of changes since the key was created.
    pub const VERSION: i32 = 1;
    /// The create revision.
    pub const CREATE: i32 = 2;
    /// The mod revision.
    pub const MOD: i32 = 3;
    /// By value, bytewise.
    pub const VALUE: i32 = 4;
}

/// `RangeResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether there are more keys than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// Number of keys in the range, whatever the limit.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// `RangeStreamResponse`: a part of a range.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeStreamResponse {
    /// The part; the last one has the header and the count.
    #[prost(message, optional, tag = "1")]
    pub range_response: Option<RangeResponse>,
}

/// `PutRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Its new value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The lease to attach it to; zero for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// Whether the key before the change is returned.
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    /// Whether the value stays.
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    /// Whether the lease stays.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// `PutResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The key before the change, if it was asked for.
    #[prost(message, optional, tag = "2")]
    pub prev_kv: Option<KeyValue>,
}

/// `DeleteRangeRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeRequest {
    /// First key, or the key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// End of the range, as of a [`RangeRequest`].
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// Whether the deleted keys are returned.
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// `DeleteRangeResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Number of keys deleted.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
    /// The deleted keys, if they were asked for.
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// `RequestOp`: an operation of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestOp {
    #[prost(oneof = "request_op::Request", tags = "1, 2, 3, 4")]
    pub request: Option<request_op::Request>,
}

/// An operation of a transaction.
pub mod request_op {

    /// An operation of a transaction.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Request {
        #[prost(message, tag = "1")]
        Range(super::RangeRequest),
        #[prost(message, tag = "2")]
        Put(super::PutRequest),
        #[prost(message, tag = "3")]
        DeleteRange(super::DeleteRangeRequest),
        /// A nested transaction.
        #[prost(message, tag = "4")]
        Txn(super::TxnRequest),
    }
}

/// `ResponseOp`: what an operation of a transaction returned.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseOp {
    #[prost(oneof = "response_op::Response", tags = "1, 2, 3, 4")]
    pub response: Option<response_op::Response>,
}

/// What an operation of a transaction returned.
pub mod response_op {

    /// What an operation of a transaction returned.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Response {
        /// Of a read.
        #[prost(message, tag = "1")]
        Range(super::RangeResponse),
        /// Of a put.
        #[prost(message, tag = "2")]
        Put(super::PutResponse),
        /// Of a deletion.
        #[prost(message, tag = "3")]
        DeleteRange(super::DeleteRangeResponse),
        /// Of a nested transaction.
        #[prost(message, tag = "4")]
        Txn(super::TxnResponse),
    }
}

/// `Compare`: a condition of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compare {
    /// [`compare_result`].
    #[prost(int32, tag = "1")]
    pub result: i32,
    /// [`compare_target`].
    #[prost(int32, tag = "2")]
    pub target: i32,
    /// First key, or the key.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// What the keys are compared with.
    #[prost(oneof = "compare::Operand", tags = "4, 5, 6, 7, 8")]
    pub operand: Option<compare::Operand>,
    /// End of the range, as of a [`RangeRequest`].
    #[prost(bytes = "bytes", tag = "64")]
    pub range_end: Bytes,
}

/// What keys are compared with.
pub mod compare {
    use bytes::Bytes;

    /// What keys are compared with.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Operand {
        #[prost(int64, tag = "4")]
        Version(i64),
        /// The create revision; zero for an absent key.
        #[prost(int64, tag = "5")]
        CreateRevision(i64),
        /// The mod revision; zero for an absent key.
        #[prost(int64, tag = "6")]
        ModRevision(i64),
        #[prost(bytes = "bytes", tag = "7")]
        Value(Bytes),
        #[prost(int64, tag = "8")]
        Lease(i64),
    }
}

/// Values of [`Compare::result`].
pub mod compare_result {
    /// The key has that value, revision or version.
    pub const EQUAL: i32 = 0;
    /// The key's is greater.
    pub const GREATER: i32 = 1;
    /// The key's is less.
    pub const LESS: i32 = 2;
    /// The key has another one.
    pub const NOT_EQUAL: i32 = 3;
}

/// Values of [`Compare::target`].
pub mod compare_target {
    /// Changes since the key was created.
    pub const VERSION: i32 = 0;
    /// The create revision.
    pub const CREATE: i32 = 1;
    /// The mod revision.
    pub const MOD: i32 = 2;
    /// The value, bytewise.
    pub const VALUE: i32 = 3;
    /// Id of the lease; 0 for none.
    pub const LEASE: i32 = 4;
}

/// `TxnRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnRequest {
    /// The conditions, all of which must hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// What is done when they hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// What is done when one does not.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// `TxnResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether the conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// What the operations returned.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// `CompactionRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CompactionRequest {
    /// Revisions before it are removed.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Whether to answer once they are removed from the store.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}
