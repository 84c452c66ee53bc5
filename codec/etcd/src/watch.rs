//! Watches.

use bytes::Bytes;

use super::kv::Event;
use super::{Empty, ResponseHeader};

/// `WatchRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchRequest {
    #[prost(oneof = "watch_request::Request", tags = "1, 2, 3")]
    pub request: Option<watch_request::Request>,
}

/// A request on a watch stream.
pub mod watch_request {

    /// A request on a watch stream.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Request {
        /// Begin a watch.
        #[prost(message, tag = "1")]
        Create(super::WatchCreateRequest),
        /// End one.
        #[prost(message, tag = "2")]
        Cancel(super::WatchCancelRequest),
        /// Report the revision up to which all watches of the stream are complete.
        #[prost(message, tag = "3")]
        Progress(super::Empty),
    }
}

/// `WatchCreateRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchCreateRequest {
    /// First key, or the key; empty for the lowest.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// End of the range, as of a range request.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// First revision that is delivered; zero for the next one.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Whether progress is reported while there are no events.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// [`WatchCreateRequest::NO_PUT`], [`WatchCreateRequest::NO_DELETE`].
    #[prost(int32, repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// Whether events have the key before the change.
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    /// The id of the watch; zero for any.
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
    /// Whether large responses are split.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

impl WatchCreateRequest {
    /// Filter: no puts.
    pub const NO_PUT: i32 = 0;
    /// Filter: no deletions.
    pub const NO_DELETE: i32 = 1;
}

/// `WatchCancelRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// `WatchResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The watch; -1 for all of the stream.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// Whether it answers a request to create one.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// Whether the watch has ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The compacted revision, where the watch ended because of it.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why the watch has ended.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Whether the rest follows in the next response.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}
