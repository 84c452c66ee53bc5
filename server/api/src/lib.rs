//! The parts of the Kubernetes API that all layers of the server share. No kinds, no connections, and of the
//! storage only what becomes of an error of the engine ([`api_error`]).
//!
//! | module | subject |
//! |---|---|
//! | [`api_error`] | errors as clients see them: `metav1.Status` |
//! | [`config_file`] | strict decoding of configuration files |
//! | [`field`] | field errors and their paths |
//! | [`conditions`] | `status.conditions` |
//! | [`latency`] | latency of a request by layer |
//! | [`metadata`] | `metav1.ObjectMeta`: access, and the rules that hold for every kind |
//! | [`request_info`] | group, version, resource, namespace, name and verb of a request |
//! | [`query`] | parameters of a request's query |
//! | [`user`] | the user of a request |
//!
//! ```
//! use plinth_api::api_error::{ApiError, Reason};
//!
//! let error = ApiError::not_found("apps", "deployments", "web");
//! assert_eq!((error.code, error.reason), (404, Reason::NotFound));
//! assert_eq!(error.message, "deployments.apps \"web\" not found");
//! ```

pub mod api_error;
pub mod conditions;
pub mod config_file;
pub mod field;
pub mod latency;
pub mod metadata;
pub mod query;
pub mod request_info;
pub mod user;
