//! The server through its socket: a real listener, a gRPC client, a store in a temporary directory.

mod keys;
mod leases;
mod limits;
mod model;
mod random;
mod real;
mod service;
mod support;
mod watches;
