//! Calls to services elsewhere: webhooks, issuers of tokens, kubelets, other API servers.
//!
//! | module | subject |
//! |---|---|
//! | [`connection`] | name, TCP, TLS, HTTP/1.1 |
//! | [`tls`] | whom a client trusts and who it says that it is |
//! | [`client`] | a request and its whole answer; connections are kept and used again |
//! | [`kubeconfig`] | server, authorities and credentials of a kubeconfig's current context |
//! | [`kubelets`] | how kubelets are reached |
//! | [`service`] | the service of a kubeconfig: a JSON document there, one back |
//! | [`webhook`] | webhooks that an object of the API describes (`clientConfig`) |
//!
//! Everything is bounded: time, size of an answer, connections that are kept. No redirect is followed: it would let a
//! service choose whom this server speaks to.

pub mod client;
pub mod connection;
pub mod kubeconfig;
pub mod kubelets;
pub mod service;
pub mod tls;
pub mod webhook;

pub use kubeconfig::KubeconfigError;
pub use service::Service;
pub use webhook::Webhooks;
