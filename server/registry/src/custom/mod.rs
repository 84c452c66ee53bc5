//! CustomResourceDefinitions, and the registry rows that they define.
//!
//! | module | subject |
//! |---|---|
//! | [`definition`] | a definition |
//! | [`naming`], [`approval`] | its accepted names; protected groups |
//! | [`rows`] | its rows, one per served version |
//! | [`schema`] | the schema of a version, compiled when needed |
//! | [`validate`] | validation of objects |

pub(crate) mod approval;
pub(crate) mod definition;
pub(crate) mod naming;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod validate;
