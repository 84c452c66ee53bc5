//! JSON to the wire format of protobuf and back, by the tables of [`super::schema`] and the rules of
//! protobuf's JSON: 64-bit integers are strings, bytes are base64, values of enumerations are names, and what
//! has its default is left out.

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as BASE64};
use base64::engine::DecodePaddingMode;
use base64::Engine as _;
use bytes::Buf;
use prost::encoding::{decode_key, decode_varint, encode_key, encode_varint, WireType};
use serde_json::Value;

use super::schema::{Field, Kind, Message};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// Readers take base64 with and without padding, of both alphabets.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&STANDARD, ANY_PADDING);
const LENIENT_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, ANY_PADDING);

/// Appends the message that `value` is to `out`. Fields that the message lacks are skipped.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn encode(message: &Message, value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    let object = value.as_object().ok_or("an object is expected")?;
    for (name, value) in object {
        let Some(field) = message.fields.iter().find(|field| is_named(field, name)) else { continue };
        let failed = |reason: String| format!("invalid value for field {}: {reason}", field.name);
        match value {
            Value::Null => {}
            Value::Array(items) if field.is_repeated => {
                for item in items {
                    encode_field(field, item, out).map_err(failed)?;
                }
            }
            value if field.is_repeated => return Err(failed(format!("{value} is no array"))),
            value => encode_field(field, value, out).map_err(failed)?,
        }
    }
    Ok(())
}

/// Whether a field has this name, as in the definition or in camel case.
fn is_named(field: &Field, name: &str) -> bool {
    if field.name == name {
        return true;
    }
    let mut is_upper = false;
    let mut rest = name.chars();
    for c in field.name.chars() {
        if c == '_' {
            is_upper = true;
            continue;
        }
        let c = if std::mem::take(&mut is_upper) { c.to_ascii_uppercase() } else { c };
        if rest.next() != Some(c) {
            return false;
        }
    }
    rest.next().is_none()
}

fn encode_field(field: &Field, value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    let number = match &field.kind {
        Kind::Message(message) => {
            let mut inner = Vec::new();
            encode(message, value, &mut inner)?;
            bytes(field, &inner, out);
            return Ok(());
        }
        Kind::Text => {
            let text = value.as_str().ok_or_else(|| format!("{value} is no string"))?;
            bytes(field, text.as_bytes(), out);
            return Ok(());
        }
        Kind::Bytes => {
            let text = value.as_str().ok_or_else(|| format!("{value} is no string"))?;
            let decoded = LENIENT.decode(text).or_else(|_| LENIENT_URL.decode(text));
            bytes(field, &decoded.map_err(|error| error.to_string())?, out);
            return Ok(());
        }
        Kind::Bool => value.as_bool().map(u64::from).ok_or_else(|| format!("{value} is no boolean"))?,
        Kind::Enum(names) => match value.as_str() {
            Some(name) => names.iter().position(|known| *known == name).map(|at| at as u64),
            None => value.as_u64().filter(|number| *number <= i32::MAX.unsigned_abs().into()),
        }
        .ok_or_else(|| format!("{value} is none of {}", names.join(", ")))?,
        Kind::Long { is_signed: true } => integer(value, Value::as_i64)?.cast_unsigned(),
        Kind::Long { is_signed: false } => integer(value, Value::as_u64)?,
        Kind::Int => integer::<u32>(value, |value| value.as_u64()?.try_into().ok())?.into(),
    };
    encode_key(field.number, WireType::Varint, out);
    encode_varint(number, out);
    Ok(())
}

/// A number, or a string with one.
fn integer<T: std::str::FromStr>(
    value: &Value,
    of_number: impl Fn(&Value) -> Option<T>,
) -> Result<T, String> {
    let parsed = match value {
        Value::String(text) => text.parse().ok(),
        value => of_number(value),
    };
    parsed.ok_or_else(|| format!("{value} is no integer of this field"))
}

fn bytes(field: &Field, content: &[u8], out: &mut Vec<u8>) {
    encode_key(field.number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Appends a message as JSON. Fields that the table lacks are skipped.
///
/// # Errors
/// The message is cut, or has a field of another type: it is not one of ours then.
pub(super) fn decode(
    message: &Message,
    mut wire: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), prost::DecodeError> {
    out.push(b'{');
    let mut is_first = true;
    // The repeated field whose array is open: its items follow each other.
    let mut open = None;
    while wire.has_remaining() {
        let (number, wire_type) = decode_key(&mut wire)?;
        let varint_or_length = decode_varint(&mut wire)?;
        let content = match wire_type {
            WireType::LengthDelimited => {
                let length = usize::try_from(varint_or_length).unwrap_or(usize::MAX);
                let (content, rest) = wire.split_at_checked(length).ok_or_else(cut)?;
                wire = rest;
                content
            }
            WireType::Varint => &[],
            _ => return Err(cut()),
        };
        let Some(field) = message.fields.iter().find(|field| field.number == number) else { continue };
        if open != Some(number) {
            if open.take().is_some() {
                out.push(b']');
            }
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(field.name.as_bytes());
            out.extend_from_slice(b"\":");
            if field.is_repeated {
                open = Some(number);
                out.push(b'[');
            }
        } else {
            out.push(b',');
        }
        decode_field(&field.kind, varint_or_length, content, out)?;
    }
    if open.is_some() {
        out.push(b']');
    }
    out.push(b'}');
    Ok(())
}

/// The error of a message that ends too early. prost makes errors of messages only by decoding some.
fn cut() -> prost::DecodeError {
    match decode_varint(&mut &[0x80_u8][..]) {
        Err(error) => error,
        Ok(_) => unreachable!("a varint without its last byte"),
    }
}

fn decode_field(
    kind: &Kind,
    number: u64,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), prost::DecodeError> {
    let text = match kind {
        Kind::Message(message) => return decode(message, content, out),
        Kind::Long { is_signed: true } => format!("\"{}\"", number.cast_signed()),
        Kind::Long { is_signed: false } => format!("\"{number}\""),
        Kind::Int => number.to_string(),
        Kind::Bool => (number != 0).to_string(),
        Kind::Enum(names) => match usize::try_from(number).ok().and_then(|at| names.get(at)) {
            Some(name) => format!("\"{name}\""),
            None => number.to_string(),
        },
        Kind::Bytes => format!("\"{}\"", BASE64.encode(content)),
        Kind::Text => Value::from(String::from_utf8_lossy(content)).to_string(),
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::super::schema::{method, RANGE_REQUEST, TXN_REQUEST, TXN_RESPONSE};
    use super::*;
    use crate::wire::kv::{
        compare, response_op, KeyValue, RangeRequest, RangeResponse, ResponseOp, TxnRequest, TxnResponse,
    };

    fn request<T: prost::Message + Default>(message: &Message, value: &Value) -> Result<T, String> {
        let mut wire = Vec::new();
        encode(message, value, &mut wire)?;
        T::decode(&wire[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_are_read_in_every_form_that_protobuf_allows() {
        let expected = RangeRequest {
            key: "a?>".into(),
            limit: 7,
            sort_order: 2,
            sort_target: 3,
            keys_only: true,
            ..RangeRequest::default()
        };
        for value in [
            json!({"key": "YT8+", "limit": "7", "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": true}),
            json!({"key": "YT8-", "limit": 7, "sortOrder": 2, "sortTarget": "MOD", "keysOnly": true,
                "range_end": null, "unknown": [1]}),
        ] {
            assert_eq!(request::<RangeRequest>(&RANGE_REQUEST, &value), Ok(expected.clone()), "{value}");
        }
        for value in [
            json!([]),
            json!({"key": 1}),
            json!({"key": "*"}),
            json!({"limit": "seven"}),
            json!({"limit": 1.5}),
            json!({"sort_order": "UP"}),
            json!({"keys_only": "true"}),
            json!({"revision": "9223372036854775808"}),
        ] {
            assert!(request::<RangeRequest>(&RANGE_REQUEST, &value).is_err(), "{value}");
        }
        assert!(request::<TxnRequest>(&TXN_REQUEST, &json!({"compare": {}})).is_err());
    }

    #[test]
    fn an_operand_of_zero_is_one() {
        let value = json!({"compare": [{"key": "YQ==", "target": "CREATE", "create_revision": "0"}]});
        let txn: TxnRequest = request(&TXN_REQUEST, &value).unwrap();
        assert_eq!(txn.compare[0].operand, Some(compare::Operand::CreateRevision(0)));
    }

    #[test]
    fn responses_leave_out_defaults() {
        let kv = |key: &str| KeyValue { key: key.to_owned().into(), version: 1, ..KeyValue::default() };
        let range = RangeResponse { kvs: vec![kv("a"), kv("b")], count: 2, ..RangeResponse::default() };
        let response = TxnResponse {
            succeeded: true,
            responses: vec![ResponseOp { response: Some(response_op::Response::Range(range)) }],
            header: None,
        };
        let mut out = Vec::new();
        decode(&TXN_RESPONSE, &response.encode_to_vec(), &mut out).unwrap();
        let expected = r#"{"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"YQ==","version":"1"},{"key":"Yg==","version":"1"}],"count":"2"}}]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let wire = response.encode_to_vec();
        for length in 1..wire.len() {
            // Cut between two fields it is a shorter message.
            let _ = decode(&TXN_RESPONSE, &wire[..length], &mut Vec::new());
        }
    }

    #[test]
    fn numbers_of_fields_rise() {
        for path in ["kv/range", "kv/txn", "watch", "maintenance/status", "lease/timetolive"] {
            let method = method(path).unwrap();
            for message in [method.request, method.response] {
                assert!(message.fields.is_sorted_by(|a, b| a.number < b.number), "{path}");
            }
        }
    }
}
