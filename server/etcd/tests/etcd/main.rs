//! The server through its socket: a real listener, a gRPC client, a store in a temporary directory.

mod alarms;
mod bench;
mod concurrency;
mod connections;
mod gateway;
mod keys;
mod leases;
mod limits;
mod metrics;
mod model;
mod random;
mod real;
mod service;
mod snapshots;
mod support;
mod tls;
mod tokens;
mod users;
mod watches;
