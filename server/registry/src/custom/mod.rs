//! CustomResourceDefinitions and their versions.
//!
//! | module | subject |
//! |---|---|
//! | [`definition`] | a definition |
//! | [`naming`], [`approval`] | its accepted names; protected groups |
//! | [`version`] | what a custom resource has in one version |
//! | [`schema`] | the schema of a version, compiled when needed |

pub(crate) mod approval;
pub(crate) mod definition;
pub(crate) mod naming;
pub(crate) mod schema;
pub(crate) mod version;
