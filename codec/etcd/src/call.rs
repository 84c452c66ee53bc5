//! How a client calls a member: what a journal in etcd and an import from one have in common. When to give
//! up, and which member to ask next, is theirs.

use http::uri::PathAndQuery;
use prost::Message;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::watch::{WatchRequest, WatchResponse};

/// Largest message that is taken: etcd cuts watch responses to the size of its largest request.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Longest text of [`describe`], in bytes.
const MAX_TEXT: usize = 512;

/// Paths of the calls: service and method of etcd's `rpc.proto`.
pub mod path {
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
    pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

async fn grpc(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

/// One request and its response. Has no deadline.
///
/// # Errors
/// What the member answers, or why it was not reached.
pub async fn unary<Q, A>(channel: Channel, path: &'static str, request: Request<Q>) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = grpc(channel).await?;
    let path = PathAndQuery::from_static(path);
    Ok(grpc.unary(request, path, ProstCodec::<Q, A>::default()).await?.into_inner())
}

/// Opens a stream of watches, which the member ends when it has no leader. Has no deadline. `requests` must
/// not end: etcd takes that for the end of the watches.
///
/// # Errors
/// As [`unary`].
pub async fn watch(
    channel: Channel,
    requests: impl Stream<Item = WatchRequest> + Send + 'static,
    token: Option<AsciiMetadataValue>,
) -> Result<Streaming<WatchResponse>, Status> {
    let mut request = Request::new(requests);
    request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
    authorize(&mut request, token);
    let mut grpc = grpc(channel).await?;
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    Ok(grpc.streaming(request, PathAndQuery::from_static(path::WATCH), codec).await?.into_inner())
}

/// Adds the token that etcd gave for user and password, if there is one.
pub fn authorize<T>(request: &mut Request<T>, token: Option<AsciiMetadataValue>) {
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
}

/// The text of an error with its causes, of a status its message with them.
pub fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}
