//! The path of a request through the server. It names no kind: what varies per kind is in `plinth_kinds`.
//!
//! A request flows one way; [`pipeline`] reads top to bottom:
//!
//! | step | module |
//! |---|---|
//! | connections are accepted | [`listener`] on `plinth_http` |
//! | group, version, resource, verb | `plinth_api::request_info`, `plinth_api::query` |
//! | who asks | [`authn`] |
//! | whether there is room for it now | [`flow_control`] |
//! | whether they may | [`authz`] |
//! | what is recorded of it | [`audit`] |
//! | the verb | [`handlers`], with [`ownership`], [`selection`], [`allocation`], [`custom_resources`] |
//! | what is filled in and refused around an object | [`context::Admission`], which the program gives |
//! | calls to services elsewhere | [`outward`] |
//! | objects over the engine | `plinth_storage`, by the rows of `plinth_registry` |
//! | what goes out | [`representation`], `plinth_api::api_error` |
//!
//! [`context`] is what a request has and what all requests share. [`endpoints`] and [`published`] answer the paths that are no resource.
//! Modules import those that stand above them in the table of `docs/architecture.md`, never the other way round.
//!
//! ```
//! use plinth_apiserver::authz::ResourceTarget;
//!
//! // What an authorizer is asked about.
//! let target = ResourceTarget { version: "v1", resource: "pods", namespace: "default", ..ResourceTarget::default() };
//! assert_eq!((target.group, target.subresource), ("", ""));
//! ```

pub mod audit;
pub mod authn;
pub mod authz;
pub mod context;
pub mod custom_resources;
pub mod endpoints;
pub mod error_log;
pub mod flags;
pub mod flow_control;
pub mod handlers;
pub mod heavy;
pub mod kind_handlers;
pub mod listener;
pub mod metrics;
pub mod outward;
pub mod ownership;
pub mod pipeline;
pub mod private_files;
pub mod published;
pub mod recovery;
pub mod reload;
pub mod representation;
pub mod selection;
pub mod service_ranges;
