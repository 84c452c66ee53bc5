//! Egress: clients of webhooks, OIDC issuers, kubelets and other API servers.
//!
//! | module | subject |
//! |---|---|
//! | [`connection`] | DNS, TCP, TLS, HTTP/1.1 |
//! | `happy_eyeballs` | which of a host's addresses is connected to |
//! | [`proxy`] | proxies from the environment |
//! | [`tls`] | which servers a client trusts, and its own certificate |
//! | `tls_error` | errors of TLS in Go's words |
//! | [`client`] | requests to one service over pooled connections |
//! | `http2` | connections of HTTP/2, where the service of a client chooses it |
//! | `client_connection` | the connections of such a client, of either protocol |
//! | `client_cache` | clients by what their TLS settings and connections depend on |
//! | `pool` | idle connections |
//! | [`resolver`] | addresses of Services |
//! | [`remote`] | requests to the API servers of remote APIs |
//! | `slots` | how many requests wait for other servers at a time, and whose |
//! | [`forward`] | a request of a client and its response on the way to another server and back |
//! | [`kubeconfig`] | server, authorities and credentials of a kubeconfig's current context, or all its users |
//! | [`kubelets`] | flags and TLS settings for kubelets |
//! | `review` | reads what webhooks answer as the kind that was asked for |
//! | [`service`] | posts JSON documents to the service of a kubeconfig |
//! | `answer_cache` | what such a service answered, for a time |
//! | [`webhook`] | webhooks described by an API object (`clientConfig`) |
//! | [`webhook_credentials`] | the credentials of a kubeconfig for admission webhooks, by their hosts |
//!
//! Time, size of an answer and the number of idle connections are bounded. Redirects are not followed: they
//! would let a service choose the server that is contacted.

mod answer_cache;
pub mod client;
mod client_cache;
mod client_connection;
pub mod connection;
pub mod forward;
mod happy_eyeballs;
mod http2;
pub mod kubeconfig;
pub mod kubelets;
mod pool;
pub mod proxy;
pub mod remote;
pub mod resolver;
mod review;
pub mod service;
mod slots;
pub mod tls;
mod tls_error;
pub mod webhook;
pub mod webhook_credentials;

pub use answer_cache::AnswerCache;
pub use kubeconfig::KubeconfigError;
pub use review::{conform_review, decode_review, ReviewError};
pub use service::Service;
pub use slots::{SharedSlots, Slot, Slots};
pub use webhook::Webhooks;
