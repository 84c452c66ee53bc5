//! What every layer of the server shares of the Kubernetes API. It knows no kind, no storage and no connection.
//!
//! | module | subject |
//! |---|---|
//! | [`api_error`] | errors as clients see them: `metav1.Status` |
//! | [`field`] | field errors and their paths |
//! | [`conditions`] | `status.conditions` |
//! | [`latency`] | where the time of a request goes |
//! | [`metadata`] | `metav1.ObjectMeta`: access, and the rules that hold for every kind |
//! | [`request_info`] | group, version, resource, namespace, name and verb of a request |
//! | [`query`] | parameters of a request's query |
//! | [`user`] | who sends a request |
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
pub mod field;
pub mod latency;
pub mod metadata;
pub mod query;
pub mod request_info;
pub mod user;
