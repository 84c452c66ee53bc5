//! The generic API server: everything a request passes through. What is specific to a kind is in
//! `plinth_kinds`, and the path names none; what some kinds need of the store or the authorizers is a table
//! beside it, [`kind_handlers`].
//!
//! A request flows in one direction; [`pipeline`] reads top to bottom:
//!
//! | step | module |
//! |---|---|
//! | connections | [`listener`] on `plinth_http` |
//! | group, version, resource, verb | `plinth_api::RequestInfo`, `plinth_api::Query` |
//! | authentication | [`authn`] |
//! | audit | [`audit`] |
//! | impersonation | [`authn::impersonation`] |
//! | priority and fairness | [`flow_control`], [`large_requests`] |
//! | authorization | [`authz`] |
//! | requests for what other API servers serve | [`remote_apis`] |
//! | verb | [`handlers`], with [`managed_fields`], [`selection`], [`kind_handlers`], [`custom_resources`] |
//! | admission, within a write | [`context::Admission`], implemented by the program |
//! | calls to other services | [`egress`] |
//! | stored objects | [`stored_objects`] on `plinth_storage`, by the rows of `plinth_registry` |
//! | encoding of responses | [`representation`], `plinth_api::ApiError` |
//!
//! [`context`] holds the state of a request and what all requests share. [`endpoints`] and [`documents`]
//! serve non-resource paths. A module imports only those listed before it in
//! `tests/harness/module_graph/mod.rs` of the repository.
//!
//! ```
//! use plinth_apiserver::authz::ResourceTarget;
//!
//! // The target of an authorization check.
//! let pods = ResourceTarget { version: "v1", resource: "pods", ..ResourceTarget::default() };
//! let target = ResourceTarget { namespace: "default", ..pods };
//! assert_eq!((target.group, target.subresource), ("", ""));
//! ```

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of tests"))]

pub mod audit;
pub mod authn;
pub mod authz;
pub mod catch_panic;
pub mod context;
pub mod custom_resources;
pub mod documents;
pub mod egress;
pub mod endpoints;
pub mod error_log;
pub mod feature_gates;
pub mod flags;
pub mod flow_control;
pub mod handlers;
pub mod kind_handlers;
pub mod large_requests;
pub mod listener;
pub mod managed_fields;
pub mod metrics;
pub mod pipeline;
pub mod private_files;
pub mod reload;
pub mod remote_apis;
pub mod representation;
pub mod request_log;
pub mod selection;
mod served_resource;
pub mod stored_objects;
pub mod token_bucket;
pub mod traces;
mod websocket;
