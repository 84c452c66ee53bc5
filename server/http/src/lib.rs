//! Connections: TLS, HTTP/1.1 and HTTP/2, and graceful shutdown; metrics of the process. Knows no resource;
//! of users the name that fair queuing is by (`fair_queuing`), of the API the errors that end a body
//! (`plinth_api::ApiError`).
//!
//! ```
//! use hyper::body::Body as _;
//! use plinth_http::Body;
//!
//! let body = Body::from(b"ok".to_vec());
//! assert_eq!(body.size_hint().exact(), Some(2));
//! assert!(Body::empty().is_end_stream());
//! ```

#![cfg_attr(not(test), warn(unreachable_pub))]

mod body;
mod chunks;
mod coalesce;
mod compression;
mod connections;
mod counted_body;
mod descriptors;
mod detach;
mod fair_queuing;
mod frames;
mod header_limits;
mod idle_frames;
mod memory_limit;
mod options;
mod paced_response;
mod process_metrics;
mod request_body;
mod serving;
mod shared_by_key;
mod sockets;
mod tls;
mod unread_answers;
mod upgrade;

pub use body::{Body, BodyError, BodyObserver, ChunkStream, ObservedBody, ProducedBody};
pub use chunks::{chunk_channel, ChunkReceiver, ChunkSender, StreamThread, StreamThreads, TooSlow};
pub use coalesce::{coalesce_writes, drive_connection, Coalesced, Flusher};
pub use compression::{compress_response, set_compression_headers, Gzip};
pub use connections::{client_network, ConnectionSlot, Connections};
pub use descriptors::{connection_limits, ConnectionLimits};
pub use detach::{mark_must_complete, DetachOnDrop};
pub use fair_queuing::{FairScheduler, ScheduledConnection, ScheduledTask, StreamExecutor};
pub use frames::{FrameHeader, FrameHeaders, PREFACE};
pub use header_limits::{LargeHeaderSlots, ReadPhase, MOST_HEADER_LINES};
pub use options::HttpOptions;
pub use paced_response::{
    AbortedResponse, ClientPresence, NextPiece, PacedReader, PieceProducer, ProducerPool, RemoteWaits,
    TooManyRemoteWaits, MAX_REMOTE_WAITS,
};
pub use process_metrics::{process_start_seconds, write_process_metrics};
pub use request_body::{wrap_request_body, RequestBody, UnreadBody};
pub use serving::{Certificates, NamedCertificate, TlsOptions, TlsVersion};
pub use sockets::{prepare_outgoing_socket, prepare_socket};
pub use tls::{limit_cipher_suites, server_config, ServingCertificate, TlsError};
pub use unread_answers::{
    BegunRequest, ConnectionUnread, CountedAnswer, HeldBytes, UnbegunRequest, UnreadAnswers, UnreadStream,
    UserUnread,
};
pub use upgrade::{wants_websocket, Upgrade, UpgradeHold};
