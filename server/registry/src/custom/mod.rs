//! CustomResourceDefinitions, and the registry rows that they define.
//!
//! | module | subject |
//! |---|---|
//! | [`definition`] | a definition |
//! | [`naming`], [`approval`] | its accepted names; protected groups |
//! | [`rows`] | its rows, one per served version |
//! | [`schema`] | the schema of a version, compiled when needed |
//! | [`validate`] | validation of objects |

pub mod approval;
pub mod definition;
pub mod naming;
pub mod rows;
pub mod schema;
pub mod validate;

pub use rows::CustomVersion;
