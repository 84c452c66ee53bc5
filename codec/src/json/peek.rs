//! The type of the object in a body, without reading all of it.

use smol_str::SmolStr;

use super::source::{Source, Token};
use super::text::Reader;
use crate::error::{DecodeError, TypeError};
use crate::Value;

/// `apiVersion` and `kind` of a body, each empty where it is absent or `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// `v1`, `apps/v1`.
    pub api_version: SmolStr,
    /// `Pod`
    pub kind: SmolStr,
}

/// The Go type into which upstream reads both.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A value of a wrong type: the body itself, or the field of that name.
#[cold]
fn wrong(found: &str, field: &str) -> DecodeError {
    let expected = if field.is_empty() { TYPE_META } else { "string" };
    DecodeError::Type(Box::new(TypeError {
        found: found.to_owned(),
        structure: String::new(),
        path: field.to_owned(),
        expected: expected.into(),
    }))
}

/// As [`peek_type`], of a tree, with upstream's errors for a missing type.
///
/// # Errors
/// A value that is not an object, or a type that is not a string.
pub fn check_type(tree: &Value) -> Result<(), DecodeError> {
    if tree.as_object().is_none() {
        return Err(wrong(tree.type_name(), ""));
    }
    for key in ["apiVersion", "kind"] {
        match tree.get(key) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return Err(wrong(other.type_name(), key)),
        }
    }
    Ok(())
}

/// Finds the type of the object in a body. Stops when both are known, so later syntax errors are left to the
/// decoder.
pub fn peek_type(body: &[u8]) -> Result<TypeMeta, DecodeError> {
    let mut reader = Reader::new(body);
    let mut found = TypeMeta::default();
    match reader.token()? {
        Token::Object => {}
        Token::Null => return Ok(found),
        other => return Err(wrong(name(&other), "")),
    }
    let (mut first, mut wanted) = (true, 2);
    while wanted > 0 {
        let Some(key) = reader.key(first)? else { break };
        first = false;
        let value = reader.token()?;
        let field = match key.as_ref() {
            "apiVersion" => &mut found.api_version,
            "kind" => &mut found.kind,
            _ => {
                reader.skip_rest(&value)?;
                continue;
            }
        };
        match value {
            Token::String(text) => *field = text.into(),
            Token::Null => {}
            other => return Err(wrong(name(&other), key.as_ref())),
        }
        wanted -= 1;
    }
    Ok(found)
}

pub(super) fn name<T>(token: &Token<'_, T>) -> &'static str {
    match token {
        Token::Null => "null",
        Token::Bool(_) => "bool",
        Token::Number(_) => "number",
        Token::String(_) => "string",
        Token::Array => "array",
        Token::Object => "object",
    }
}
