//! The three patches that change part of an object: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386)
//! and the strategic merge patch of Kubernetes.
//!
//! | module | content type |
//! |---|---|
//! | [`json`] | `application/json-patch+json` |
//! | [`merge`] | `application/merge-patch+json` |
//! | [`strategic`] | `application/strategic-merge-patch+json` (built-in kinds only) |
//!
//! [`goprint`] has what their messages print as Go does.
//!
//! All three work on [`Value`](crate::Value) and take the patch as a decoded tree: syntax, depth and
//! duplicate keys are checked by the decoder. They are implemented here rather than taken from a crate, since
//! clients depend on the quirks of the libraries that kube-apiserver uses (evanphx/json-patch v4 and
//! apimachinery's `strategicpatch`), and since a crate would require a second tree type and a copy of every
//! object. Where those libraries crash on odd input, these return an error.
//!
//! Each takes time proportional to the sizes of object and patch (times a logarithm); operations that could
//! cost more (thousands of insertions at the front of a long list) are bounded.
//!
//! ```
//! use plinth_codec::{patch, tree, Value};
//!
//! let live = tree!({ "data": tree!({ "a": "1", "b": "2" }) });
//! let patch = tree!({ "data": tree!({ "a": Value::Null, "c": "3" }) });
//! let merged = patch::merge_patch(live, patch).unwrap();
//! assert_eq!(merged, tree!({ "data": tree!({ "b": "2", "c": "3" }) }));
//! ```

pub mod goprint;
pub mod json;
pub mod merge;
pub mod strategic;
#[cfg(test)]
pub(crate) mod testkit;

pub use json::{check_json_patch, json_patch, json_patch_unknown_fields};
pub use merge::{check_merge_patch, merge_patch};
pub use strategic::{restore, strategic_merge};

/// Why a patch was refused, with upstream's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The document is not a patch of its type.
    #[error("{0}")]
    Malformed(String),
    /// More operations than `json::MAX_OPERATIONS`.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {got}")]
    TooManyOperations {
        /// How many are allowed.
        limit: usize,
        /// How many there were.
        got: usize,
    },
    /// A `test` operation of a JSON Patch that does not hold.
    #[error("{0}")]
    TestFailed(String),
    /// A well-formed patch that cannot be applied to this object.
    #[error("{0}")]
    NotApplicable(String),
    /// A strategic merge patch that does not fit the types: a missing merge key, an unknown directive.
    /// Upstream treats it as an internal error.
    #[error("{0}")]
    Unmergeable(String),
}

impl PatchError {
    /// Upstream's HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            PatchError::Malformed(_) => 400,
            PatchError::TooManyOperations { .. } => 413,
            PatchError::NotApplicable(_) | PatchError::TestFailed(_) => 422,
            PatchError::Unmergeable(_) => 500,
        }
    }
}
