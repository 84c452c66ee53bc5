//! Connections: TLS, HTTP/1.1 and HTTP/2, and a clean end.

pub mod body;
pub mod chunks;
mod coalesce;
pub mod compression;
mod connection;
mod connections;
mod descriptors;
mod heads;
mod idle_frames;
mod listener;
pub mod options;
pub mod pull;
pub mod request_body;
pub mod serving;
pub mod tls;
pub mod turns;
pub mod upgrade;

pub use listener::{bind, serve, BindError};
