//! Options of a connection: its query, decoded as the kind of options that the subresource has.
//!
//! Upstream: k8s.io/apimachinery `pkg/runtime/conversion.go` and `pkg/apis/meta/v1/conversion.go`, which the
//! conversions of kubernetes `pkg/apis/core/v1` call field by field.

use std::borrow::Cow;

use plinth_codec::schema::{self, Field, Scalar, Type, GVK};
use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use plinth_api::{parse_boolean, parse_integer, query_parameters, ApiError};

/// The options of that kind in a query. Parameters that the kind does not have are ignored.
///
/// # Errors
/// 400 for a value that is not of its field's type.
pub(super) fn decode(kind: &GVK, query: &str) -> Result<Value, ApiError> {
    let schema = schema::builtin();
    let Some(structure) = schema.kind(kind).and_then(|id| schema.structure(id)) else {
        return Err(ApiError::internal(format!("no kind {} is registered", kind.kind)));
    };
    let mut options = structure.empty();
    options.insert("kind", kind.kind.as_str());
    options.insert("apiVersion", kind.api_version().as_str());
    for field in structure.fields.iter().filter(|field| !matches!(&*field.name, "kind" | "apiVersion")) {
        let given = query_parameters(query).filter(|(name, _)| *name == field.name.as_str());
        let given: Vec<Cow<'_, str>> = given.map(|(_, value)| value).collect();
        if let Some(value) = decode_field(schema, field, &given)? {
            options.insert(field.name.clone(), value);
        }
    }
    Ok(Value::Object(options))
}

/// Whether a flag is set.
pub(super) fn is_set(options: &Value, key: &str) -> bool {
    options.get(key).and_then(Value::as_bool) == Some(true)
}

/// The value of a field; `None` where it is not written. Of several values a scalar takes the first.
fn decode_field(
    schema: &schema::Schema,
    field: &Field,
    given: &[Cow<'_, str>],
) -> Result<Option<Value>, ApiError> {
    let Some(first) = given.first() else { return Ok(None) };
    let value = match schema.get(field.type_id) {
        Type::Scalar(Scalar::Bool) => Value::from(parse_boolean(first)),
        Type::Scalar(Scalar::Int64) => Value::from(parse_integer(first)?),
        Type::Scalar(Scalar::String { .. }) => Value::from(&**first),
        Type::Scalar(Scalar::Time) => Value::from(parse_time(first)?.to_rfc3339().as_str()),
        Type::List { element, .. } => match schema.get(*element) {
            Type::Scalar(Scalar::Int32) => Value::from(parse_numbers(given)?),
            _ => Value::from(given.iter().map(|value| Value::from(&**value)).collect::<Vec<_>>()),
        },
        _ => return Ok(None),
    };
    let is_zero = value.as_bool() == Some(false) || value.as_str() == Some("");
    Ok(Some(value).filter(|_| field.pointer || !is_zero))
}

/// A time; an empty one and `null`, which old clients send, are Go's zero time.
fn parse_time(text: &str) -> Result<Timestamp, ApiError> {
    match text {
        "" | "null" => Ok(Timestamp::ZERO),
        text => Timestamp::parse(text).map_err(|error| ApiError::bad_request(error.to_string())),
    }
}

/// Lists of numbers, which are ports, separated by commas.
fn parse_numbers(given: &[Cow<'_, str>]) -> Result<Vec<Value>, ApiError> {
    let numbers = given.iter().flat_map(|list| list.split(','));
    numbers
        .map(|text| {
            use std::num::IntErrorKind::PosOverflow;
            // Go takes no sign here.
            let parsed = match text.starts_with('+') {
                true => "".parse::<u16>(),
                false => text.parse(),
            };
            parsed.map(|number| Value::from(i64::from(number))).map_err(|error| {
                let why = if *error.kind() == PosOverflow { "value out of range" } else { "invalid syntax" };
                let what = format!("cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}");
                ApiError::bad_request(what)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn options_are_those_of_their_kind() {
        const QUERY: &str =
            "stdin=true&stdout=0&tty=&container=&container=b&command=sh&command=-c&ports=80,443\
                             &ports=22&tailLines=5&path=x&sinceTime=2026-01-02T04:04:05.6%2B01:00&follow=1";
        // kind, what is decoded besides kind and version
        let rows = [
            ("PodExecOptions", r#"{"command":["sh","-c"],"stdin":true,"tty":true}"#),
            ("PodAttachOptions", r#"{"stdin":true,"tty":true}"#),
            ("PodPortForwardOptions", r#"{"ports":[80,443,22]}"#),
            ("PodProxyOptions", r#"{"path":"x"}"#),
            ("ServiceProxyOptions", r#"{"path":"x"}"#),
            ("NodeProxyOptions", r#"{"path":"x"}"#),
            ("PodLogOptions", r#"{"follow":true,"sinceTime":"2026-01-02T03:04:05Z","tailLines":5}"#),
        ];
        for (kind, expected) in rows {
            let gvk = GVK::new("", "v1", kind);
            let mut expected = json::parse(expected.as_bytes()).unwrap();
            if let Some(map) = expected.as_object_mut() {
                map.insert("kind", kind);
                map.insert("apiVersion", "v1");
            }
            assert_eq!(decode(&gvk, QUERY).unwrap(), expected, "{kind}");
        }
        let none = decode(&GVK::new("", "v1", "PodExecOptions"), "").unwrap();
        assert_eq!(none.get("command"), Some(&Value::Null));
    }

    #[test]
    fn values_of_other_types_are_refused() {
        let rows = [
            ("PodLogOptions", "tailLines=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
            (
                "PodLogOptions",
                "sinceTime=x",
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
            (
                "PodPortForwardOptions",
                "ports=80,",
                r#"cannot convert to []int32: strconv.ParseUint: parsing "": invalid syntax"#,
            ),
            (
                "PodPortForwardOptions",
                "ports=65536",
                r#"cannot convert to []int32: strconv.ParseUint: parsing "65536": value out of range"#,
            ),
        ];
        for (kind, query, message) in rows {
            let error = decode(&GVK::new("", "v1", kind), query).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (400, message), "{query}");
        }
        // Another kind's parameters are not looked at.
        assert!(decode(&GVK::new("", "v1", "NodeProxyOptions"), "tailLines=x&ports=y").is_ok());
    }
}
