//! The parts of the Kubernetes API that all layers of the server share. No kinds, no connections, and of the
//! storage only what becomes of an error of the engine (`api_error`).
//!
//! | module | subject |
//! |---|---|
//! | `api_error` | errors as clients see them: `metav1.Status` |
//! | `config_file` | strict decoding of configuration files |
//! | `field` | field errors and their paths |
//! | `conditions` | `status.conditions` |
//! | `latency` | latency of a request by layer |
//! | `metadata` | `metav1.ObjectMeta`: access, and the rules that hold for every kind |
//! | `request_info` | group, version, resource, namespace, name and verb of a request |
//! | `query` | parameters of a request's query |
//! | `user` | the user of a request |
//!
//! ```
//! use plinth_api::{ApiError, Reason};
//!
//! let error = ApiError::not_found("apps", "deployments", "web");
//! assert_eq!((error.code, error.reason), (404, Reason::NotFound));
//! assert_eq!(error.message, "deployments.apps \"web\" not found");
//! ```

#![cfg_attr(not(test), warn(unreachable_pub))]

mod api_error;
mod conditions;
mod config_file;
mod field;
mod latency;
mod metadata;
mod query;
mod request_info;
mod user;

pub use api_error::{success_status, ApiError, Cause, Details, Reason, MOST_ERRORS};
pub use conditions::{
    find_condition, is_condition_true, new_condition, put_condition, set_condition, set_observed_condition,
};
pub use config_file::{
    decode_config, decode_config_part, decode_config_tree, parse_config, read_config, ConfigDecodeError,
    ConfigFileError, ConfigKind, Strictness,
};
pub use field::{shown_value, FieldPath, ParentPath};
pub use latency::{record_latencies, record_step, timed, traceparent, Latencies, Layer, Step};
pub use metadata::{
    annotation_errors, dedup_owners, finalizer_errors, finalizers, generated_suffix, is_deleting,
    is_standard_or_qualified_finalizer, label_errors, metadata_mut, metadata_text, nameless_error,
    owner_errors, prepare_metadata_update, resource_version, timestamp_now, validate_metadata_update,
    wipe_system_fields, Moment, FINALIZER_FOREGROUND, FINALIZER_ORPHAN, GENERATED_PREFIX_MAX,
};
pub use query::{
    parse_boolean, parse_integer, query_may_have, query_parameter, query_parameters, OptionsOf, Query,
};
pub use request_info::{parse_route, unescape_path, PathError, RequestInfo, Route, Verb};
pub use user::{
    service_account_groups, service_account_name, split_service_account, User, UserFields, ANONYMOUS_USER,
    AUTHENTICATED_GROUP, CREDENTIAL_ID_KEY, MASTERS_GROUP, NODES_GROUP, NODE_USER_PREFIX, SERVER_USER,
    SERVICE_ACCOUNTS_GROUP, UNAUTHENTICATED_GROUP,
};
