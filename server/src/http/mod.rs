//! Connections: TLS, HTTP/1.1 and HTTP/2, and a clean end.

pub mod body;
pub mod chunks;
pub mod coalesce;
pub mod compression;
pub mod connections;
pub mod descriptors;
pub mod heads;
mod idle_frames;
pub mod options;
pub mod pull;
pub mod request_body;
pub mod serving;
pub mod tls;
pub mod turns;
pub mod upgrade;
