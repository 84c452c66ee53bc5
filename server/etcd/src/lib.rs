//! etcd's v3 API on the storage engine: an etcd server of one member for clients that know etcd. Knows
//! nothing of Kubernetes.
//!
//! [`Server`] opens a store and serves it; [`EtcdOptions`] are its flags, by etcd's names. [`Restore`] makes
//! a store of what an etcd had. What differs from etcd is in `docs/design/0039-etcd-api.md`.
//!
//! ```
//! use clap::{Args, Command, FromArgMatches};
//! use plinth_etcd::{EtcdOptions, Server};
//!
//! let command = EtcdOptions::augment_args(Command::new("etcd"));
//! let flags = ["etcd", "--data-dir", "unused", "--listen-client-urls", "http://127.0.0.1:0"];
//! let options = EtcdOptions::from_arg_matches(&command.try_get_matches_from(flags)?)?;
//! let dir = tempfile::tempdir()?;
//! tokio::runtime::Runtime::new()?.block_on(async {
//!     let server = Server::start(&options, dir.path()).await?;
//!     println!("serving http://{}", server.addresses()[0]);
//!     // Serves until this future resolves: here at once.
//!     server.serve(async {}).await?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! From the top down: [`server`](Server) accepts connections on what `listeners` has bound, `connection`
//! serves one, `client_stream` is below it; `tls` with `cipher_suites`, `self_signed` and `revocations` is
//! what the flags about certificates ask for; `peers` checks the flags about members. `grpc` and `http` find
//! the function that answers. `permitted` asks `auth`, which has users and roles, whether the client may do
//! what it wants. Services: `kv` with `range`, `range_stream` and `txn`; `watch`; `auth_service`;
//! `lease_service` over `lease_changes` and `leases`; `concurrency` with locks and elections; `maintenance`;
//! `snapshot`. `gateway` translates calls with JSON bodies to those of gRPC and their responses back.
//! `answers` bounds what large responses take, `admission` the number of those of a connection. Below them
//! `member` is the open store with all that etcd keeps beside keys, `numbers` reads from it, `compaction`
//! compacts it in intervals, `alarms` has those that are raised, `metrics` counts, with `calls` of gRPC,
//! `timings` and the `families` of both. `keys`, `value` and `errors` translate ranges, values and errors;
//! `versions` are those of etcd; `wire` is the crate of the messages.

mod admission;
mod alarms;
mod answers;
mod auth;
mod auth_service;
mod calls;
mod cipher_suites;
mod client_stream;
mod compaction;
mod concurrency;
mod connection;
mod counted_body;
mod errors;
mod expiry;
mod families;
mod gateway;
mod grpc;
mod http;
mod keepalive;
mod keys;
mod kv;
mod lease_changes;
mod lease_service;
mod leases;
mod listeners;
mod maintenance;
mod member;
mod metrics;
mod numbers;
mod options;
mod peers;
mod permitted;
mod range;
mod range_body;
mod range_stream;
mod restore;
mod revocations;
mod self_signed;
mod server;
mod serves;
mod snapshot;
mod start_error;
mod timed_body;
mod timings;
mod tls;
mod txn;
mod value;
mod versions;
mod watch;

pub use member::STORE_MARK;
pub use options::{CompactionMode, EtcdOptions, TlsVersion};
pub use plinth_etcd_wire as wire;
pub use restore::{Restore, RestoreError, Restored};
pub use server::Server;
pub use start_error::StartError;
pub use versions::VERSION;
