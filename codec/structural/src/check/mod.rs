//! Whether the schema in a definition is allowed.
//!
//! | module | subject | upstream |
//! |---|---|---|
//! | [`structure`] | structural schemas | `pkg/apiserver/schema/{validation,complete}.go` |
//! | [`defaults`] | whether defaults are valid and pruned | `pkg/apiserver/schema/defaulting/validation.go` |
//! | [`keywords`] | combinations of keywords | `pkg/apis/apiextensions/validation` |

pub(super) mod defaults;
pub(super) mod keywords;
pub(super) mod structure;

use plinth_codec::value::Value;

/// Whether a keyword has its zero value, which counts as unset.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(m) => m.is_empty(),
        Value::Encoded(encoded) => encoded.members().is_empty(),
        Value::Int(_) | Value::Float(_) => false,
    }
}
