//! Custom resources: what CustomResourceDefinitions add to the API, served by the same verb handlers as built-in kinds.
//!
//! | module | subject |
//! |---|---|
//! | [`definition`] | what a definition says |
//! | [`naming`], [`approval`] | which names it gets; groups of the community |
//! | [`controller`] | the life of definitions: names, conditions, rows of the registry, deletion |
//! | [`rows`] | the rows that it makes, one per served version |
//! | [`schema`] | the schema of a version, compiled when needed |
//! | [`object`] | from bodies to stored objects, and from one version to another |
//! | [`present`] | from stored objects to what is served |
//! | [`validate`] | whether an object is valid |
//! | [`webhook`] | conversion between versions by a server outside |
//!
//! A request for a custom resource takes the same path as any other; where built-in kinds have a typed schema, the row
//! has a [`rows::CustomVersion`] ([`crate::registry::ResourceType::custom`]) that handlers ask instead.

pub mod approval;
pub mod controller;
pub mod definition;
pub mod naming;
pub mod object;
pub mod present;
pub mod rows;
pub mod schema;
pub mod validate;
pub mod webhook;

pub use rows::CustomVersion;
