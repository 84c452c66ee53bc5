//! What CustomResourceDefinitions say, and the rows of the registry that they make.
//!
//! | module | subject |
//! |---|---|
//! | [`definition`] | what a definition says |
//! | [`naming`], [`approval`] | which names it gets; groups of the community |
//! | [`rows`] | the rows that it makes, one per served version |
//! | [`schema`] | the schema of a version, compiled when needed |
//! | [`validate`] | whether an object is valid |

pub mod approval;
pub mod definition;
pub mod naming;
pub mod rows;
pub mod schema;
pub mod validate;

pub use rows::CustomVersion;
