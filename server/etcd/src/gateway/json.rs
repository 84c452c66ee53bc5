//! JSON to the wire format of protobuf and back, by the tables of [`super::schema`] and the rules of
//! protobuf's JSON: 64-bit integers are strings, bytes are base64, values of enumerations are names, and what
//! has its default is left out.

use std::borrow::Cow;
use std::fmt;

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD as BASE64};
use base64::engine::DecodePaddingMode;
use base64::Engine as _;
use bytes::Buf;
use prost::encoding::{decode_key, decode_varint, encode_key, encode_varint, WireType};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::schema::{Field, Kind, Message};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// Readers take base64 with and without padding, of both alphabets.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&STANDARD, ANY_PADDING);
const LENIENT_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, ANY_PADDING);

/// Reads a message and appends it to `out`, without a tree of values in between. Fields that the message
/// lacks are skipped; a field twice, and two of which one excludes the other, are errors.
pub(super) struct Encoder<'a> {
    pub message: &'static Message,
    pub out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Encoder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Encoder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut seen, mut groups) = (Vec::new(), Vec::new());
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            let Some(field) = self.message.fields.iter().find(|field| is_named(field, &name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&field.number) {
                return Err(A::Error::custom(format_args!("duplicate field {name:?}")));
            }
            seen.push(field.number);
            let is_set = map.next_value_seed(FieldEncoder { field, is_item: false, out: self.out })?;
            if let Some(group) = field.one_of.filter(|_| is_set) {
                if groups.contains(&group) {
                    let text = format_args!("error parsing {name:?}, oneof {group} is already set");
                    return Err(A::Error::custom(text));
                }
                groups.push(group);
            }
        }
        Ok(())
    }
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

/// Reads the value of a field, or an item of it; returns whether there is one.
struct FieldEncoder<'a> {
    field: &'static Field,
    is_item: bool,
    out: &'a mut Vec<u8>,
}

impl FieldEncoder<'_> {
    fn invalid<E: Error>(&self, reason: impl fmt::Display) -> E {
        E::custom(format_args!("invalid value for field {}: {reason}", self.field.name))
    }

    /// Appends a value that is no array, no object and no null.
    fn scalar<E: Error>(self, value: &Value) -> Result<bool, E> {
        if self.field.is_repeated && !self.is_item {
            return Err(self.invalid(format_args!("{value} is no array")));
        }
        let text = || value.as_str().ok_or_else(|| format!("{value} is no string"));
        let number = match &self.field.kind {
            Kind::Message(_) => Err("an object is expected".to_owned()),
            Kind::Text => match text() {
                Ok(text) => return Ok(bytes(self.field, text.as_bytes(), self.out)),
                Err(reason) => Err(reason),
            },
            Kind::Bytes => {
                let decoded = text().and_then(|text| {
                    let decoded = LENIENT.decode(text).or_else(|_| LENIENT_URL.decode(text));
                    decoded.map_err(|error| error.to_string())
                });
                match decoded {
                    Ok(decoded) => return Ok(bytes(self.field, &decoded, self.out)),
                    Err(reason) => Err(reason),
                }
            }
            Kind::Bool => value.as_bool().map(u64::from).ok_or_else(|| format!("{value} is no boolean")),
            Kind::Enum(names) => match value.as_str() {
                Some(name) => match names.iter().position(|known| *known == name) {
                    Some(at) => Ok(at as u64),
                    // grpc-gateway discards it, as it does an unknown field.
                    None => return Ok(false),
                },
                None => integer::<i32>(value, |value| value.as_i64()?.try_into().ok())
                    .map(|number| i64::from(number).cast_unsigned()),
            },
            Kind::Long { is_signed: true } => integer(value, Value::as_i64).map(i64::cast_unsigned),
            Kind::Long { is_signed: false } => integer(value, Value::as_u64),
            Kind::Int => integer::<u32>(value, |value| value.as_u64()?.try_into().ok()).map(u64::from),
        };
        let number = number.map_err(|reason| self.invalid(reason))?;
        encode_key(self.field.number, WireType::Varint, self.out);
        encode_varint(number, self.out);
        Ok(true)
    }
}

impl<'de> DeserializeSeed<'de> for FieldEncoder<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldEncoder<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value for field {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        match self.is_item {
            true => Err(self.invalid("null is no item")),
            false => Ok(false),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<bool, E> {
        self.scalar(&value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let FieldEncoder { field, is_item, out } = self;
        if !field.is_repeated || is_item {
            return Err(FieldEncoder { field, is_item, out }.invalid("an array is not expected"));
        }
        while items.next_element_seed(FieldEncoder { field, is_item: true, out: &mut *out })?.is_some() {}
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        let Kind::Message(message) = &self.field.kind else {
            return Err(self.invalid("an object is not expected"));
        };
        if self.field.is_repeated && !self.is_item {
            return Err(self.invalid("an object is no array"));
        }
        let mut inner = Vec::new();
        Encoder { message, out: &mut inner }.visit_map(map)?;
        Ok(bytes(self.field, &inner, self.out))
    }
}

/// Largest integer up to which a floating-point number has every one.
const MAX_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A number, or a string with one. An integer may be written as `1.0` or `1e3`.
fn integer<T: std::str::FromStr>(
    value: &Value,
    of_number: impl Fn(&Value) -> Option<T>,
) -> Result<T, String> {
    let of_float = |float: f64| match float.fract() == 0.0 && float.abs() <= MAX_FLOAT {
        true => format!("{float:.0}").parse().ok(),
        false => None,
    };
    let parsed = match value {
        Value::String(text) => text.parse().ok().or_else(|| of_float(text.parse().ok()?)),
        value => of_number(value).or_else(|| of_float(value.as_f64()?)),
    };
    parsed.ok_or_else(|| format!("{value} is no integer of this field"))
}

/// Appends a field with these bytes; true, since it is one.
fn bytes(field: &Field, content: &[u8], out: &mut Vec<u8>) -> bool {
    encode_key(field.number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
    true
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
        compare, request_op, response_op, KeyValue, RangeRequest, RangeResponse, ResponseOp, TxnRequest,
        TxnResponse,
    };

    fn read<T: prost::Message + Default>(message: &'static Message, text: &str) -> Result<T, String> {
        let mut wire = Vec::new();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = Encoder { message, out: &mut wire }.deserialize(&mut deserializer);
        read.map_err(|error| error.to_string())?;
        T::decode(&wire[..]).map_err(|error| error.to_string())
    }

    fn request<T: prost::Message + Default>(message: &'static Message, value: &Value) -> Result<T, String> {
        read(message, &value.to_string())
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
            json!({"key": "YT8+", "limit": 7.0, "sort_order": 2, "sort_target": "MOD", "keys_only": true}),
            json!({"key": "YT8+", "limit": "0.7e1", "sort_order": 2, "sort_target": "MOD", "keys_only": true}),
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
            json!({"limit": "inf"}),
            json!({"limit": 1e300}),
            json!({"sort_order": true}),
            json!({"sort_order": 2147483648_u32}),
            json!({"keys_only": "true"}),
            json!({"revision": "9223372036854775808"}),
        ] {
            assert!(request::<RangeRequest>(&RANGE_REQUEST, &value).is_err(), "{value}");
        }
        assert!(request::<TxnRequest>(&TXN_REQUEST, &json!({"compare": {}})).is_err());
    }

    #[test]
    fn what_is_there_twice_is_refused() {
        let error = |text| read::<TxnRequest>(&TXN_REQUEST, text).unwrap_err();
        for (text, expected) in [
            (r#"{"compare": [], "compare": []}"#, r#"duplicate field "compare" at line 1"#),
            (r#"{"success": [{"request_put": {"key": "YQ==", "key": "Yg=="}}]}"#, r#"duplicate field "key""#),
            (r#"{"success": [{"request_put": {}, "requestPut": {}}]}"#, r#"duplicate field "requestPut""#),
            (
                r#"{"failure": [{"request_put": {}, "request_range": {}}]}"#,
                r#"error parsing "request_range", oneof etcdserverpb.RequestOp.request is already set"#,
            ),
            (
                r#"{"compare": [{"version": 0, "key": "YQ==", "createRevision": "0"}]}"#,
                r#"error parsing "createRevision", oneof etcdserverpb.Compare.target_union is already set"#,
            ),
        ] {
            let found = error(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
        // What is null is not set, and of what is unknown nothing is.
        let text =
            r#"{"success": [{"request_range": null, "request_put": {}, "x": 1, "x": {"x": 1, "x": 2}}]}"#;
        let read: TxnRequest = read(&TXN_REQUEST, text).unwrap();
        assert!(matches!(read.success[0].request, Some(request_op::Request::Put(_))));
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
