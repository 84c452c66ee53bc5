//! The section of one plugin in the file of `--admission-control-config-file`.

use plinth_api::{decode_config_tree, ConfigKind, Strictness};
use plinth_codec::Value;
use serde::de::DeserializeOwned;

/// Decodes a plugin's section.
///
/// # Errors
/// What does not fit into the type, with the path of the field.
pub(super) fn decode_section<T: DeserializeOwned>(part: &Value, kind: ConfigKind) -> Result<T, String> {
    decode_config_tree(part, kind, Strictness::Strict).map_err(|error| error.to_string())
}
