//! Connections: TLS, HTTP/1.1 and HTTP/2, and graceful shutdown. Knows no resource; of users the name
//! that fair queuing is by ([`fair_queuing`]), of the API the errors that end a body
//! (`plinth_api::api_error`).
//!
//! ```
//! use hyper::body::Body as _;
//! use plinth_http::body::Body;
//!
//! let body = Body::from(b"ok".to_vec());
//! assert_eq!(body.size_hint().exact(), Some(2));
//! assert!(Body::empty().is_end_stream());
//! ```

pub mod body;
pub mod chunks;
pub mod coalesce;
pub mod compression;
pub mod connections;
pub mod descriptors;
pub mod detach;
pub mod fair_queuing;
pub mod header_limits;
mod idle_frames;
pub mod options;
pub mod paced_response;
pub mod request_body;
pub mod serving;
pub mod tls;
pub mod upgrade;
