//! Random objects of any kind, made from the schema, for property tests; and the properties of JSON and YAML.
//!
//! An object is generated from random bytes, every decision consuming the next byte, or zero at the end. So
//! fewer bytes give a smaller object, and proptest shrinks a failure by shrinking the bytes.

use std::sync::LazyLock;

use base64::prelude::{Engine, BASE64_STANDARD};
use proptest::prelude::*;
use smol_str::SmolStr;

use crate::schema::{self, Scalar, Schema, SchemaOr, Type, TypeId, GVK};
use crate::time::{format_duration, Timestamp};
use crate::value::{Map, Value};

/// A random object of a random built-in kind. Not yet normalized: it may have nulls, zero values and empty
/// lists where upstream drops them, and scalars that are not canonical.
pub(crate) fn any_object() -> impl Strategy<Value = (GVK, TypeId, Value)> {
    static KINDS: LazyLock<Vec<(GVK, TypeId)>> = LazyLock::new(|| {
        let mut kinds: Vec<_> = schema::builtin().kinds.iter().map(|(gvk, id)| (gvk.clone(), *id)).collect();
        kinds.sort();
        kinds
    });
    (0..KINDS.len(), prop::collection::vec(any::<u8>(), 0..600)).prop_map(|(kind, tape)| {
        let (gvk, id) = KINDS[kind].clone();
        let value = grow(schema::builtin(), id, &tape);
        (gvk, id, value)
    })
}

/// A value of a type, generated from random bytes.
pub(crate) fn grow(schema: &Schema, id: TypeId, tape: &[u8]) -> Value {
    let mut grower = Grower { schema, tape: tape.iter() };
    grower.value(id, 0)
}

struct Grower<'t> {
    schema: &'t Schema,
    tape: std::slice::Iter<'t, u8>,
}

impl Grower<'_> {
    fn next(&mut self) -> u8 {
        self.tape.next().copied().unwrap_or(0)
    }

    fn flip(&mut self) -> bool {
        self.next() % 2 == 1
    }

    fn wide(&mut self) -> i64 {
        let bytes: [u8; 8] = std::array::from_fn(|_| self.next());
        // Small and extreme numbers are more frequent.
        match self.next() % 4 {
            0 => i64::from(bytes[0]),
            1 => -i64::from(bytes[0]),
            2 => i64::MAX - i64::from(bytes[0]),
            _ => i64::from_le_bytes(bytes),
        }
    }

    fn count(&mut self, depth: usize) -> usize {
        usize::from(self.next()) % if depth > 6 { 1 } else { 4 }
    }

    fn value(&mut self, id: TypeId, depth: usize) -> Value {
        let schema = self.schema;
        match schema.get(id) {
            Type::Struct(s) => {
                let mut map = Map::new();
                for field in &s.fields {
                    // Few fields of each struct, so that the bytes suffice for deep ones.
                    match self.next() {
                        0 => {}
                        choice if depth > 12 || choice % 5 > 1 => {}
                        choice if choice % 31 == 0 => drop(map.insert(field.name.clone(), Value::Null)),
                        _ => {
                            let value = self.value(field.type_id, depth + 1);
                            map.insert(field.name.clone(), value);
                        }
                    }
                }
                Value::Object(map)
            }
            Type::List { element, .. } => {
                Value::Array((0..self.count(depth)).map(|_| self.value(*element, depth + 1)).collect())
            }
            Type::Map { value, .. } => {
                let count = self.count(depth);
                (0..count).map(|_| (self.text(), self.value(*value, depth + 1))).collect::<Map>().into()
            }
            Type::Scalar(scalar) => self.scalar(scalar, depth),
        }
    }

    fn scalar(&mut self, scalar: &Scalar, depth: usize) -> Value {
        match scalar {
            Scalar::Bool => Value::Bool(self.flip()),
            Scalar::Int32 => Value::Int(i64::from(self.wide() as i32)),
            Scalar::Int64 => Value::Int(self.wide()),
            Scalar::Double => Value::Float(self.wide() as f64 / f64::from(u32::from(self.next()) + 1)),
            Scalar::String { values } if !values.is_empty() && self.flip() => {
                Value::String(values[usize::from(self.next()) % values.len()].clone())
            }
            Scalar::String { .. } => Value::String(self.text()),
            Scalar::Bytes => {
                let bytes: Vec<u8> = (0..self.next() % 9).map(|_| self.next()).collect();
                BASE64_STANDARD.encode(bytes).into()
            }
            Scalar::Quantity => {
                let suffixes = ["", "m", "k", "Mi", "Gi", "e3", "n", "E"];
                let suffix = suffixes[usize::from(self.next()) % suffixes.len()];
                match self.next() % 3 {
                    0 => format!("{}{suffix}", self.next()),
                    1 => format!("-{}.{}{suffix}", self.next(), self.next()),
                    _ => format!("{}000{suffix}", self.next()),
                }
                .into()
            }
            Scalar::IntOrString if self.flip() => Value::Int(i64::from(self.wide() as i32)),
            Scalar::IntOrString => Value::String(self.text()),
            Scalar::Time => self.time().to_rfc3339().into(),
            Scalar::MicroTime => self.time().to_rfc3339_micro().into(),
            Scalar::Duration => format_duration(self.wide()).into(),
            Scalar::RawExtension | Scalar::FieldsV1 => {
                (0..self.count(depth)).map(|_| (self.text(), self.json(depth + 1))).collect::<Map>().into()
            }
            Scalar::Json | Scalar::Any => self.json(depth),
            Scalar::SchemaOr(alternative, id) => match (alternative, self.next() % 2) {
                (SchemaOr::Bool, 0) => Value::Bool(self.flip()),
                (SchemaOr::StringArray, 0) => Value::Array(vec![Value::String(self.text())]),
                (SchemaOr::Array, 0) => Value::Array(vec![self.value(*id, depth + 1)]),
                _ => self.value(*id, depth + 1),
            },
        }
    }

    fn time(&mut self) -> Timestamp {
        let seconds = self.wide().rem_euclid(253_402_300_800);
        Timestamp { seconds, nanos: (self.wide().rem_euclid(1_000_000) * 1000) as u32 }
    }

    fn json(&mut self, depth: usize) -> Value {
        match self.next() % 7 {
            _ if depth > 8 => Value::Null,
            0 => Value::Null,
            1 => Value::Bool(true),
            2 => Value::Int(self.wide()),
            // A whole number would be decoded as an integer.
            3 => Value::Float(f64::from(self.next()) + 0.5),
            4 => Value::String(self.text()),
            5 => Value::Array((0..self.count(depth)).map(|_| self.json(depth + 1)).collect()),
            _ => (0..self.count(depth)).map(|_| (self.text(), self.json(depth + 1))).collect::<Map>().into(),
        }
    }

    fn text(&mut self) -> SmolStr {
        const TEXTS: [&str; 24] = [
            "",
            "a",
            "name",
            "true",
            "no",
            "012",
            "1e3",
            "null",
            "~",
            "a: b",
            "- a",
            "#",
            "<&>",
            "a\nb",
            "a\n",
            " a ",
            "\t",
            "\"",
            "\\",
            "é",
            "😀",
            "\u{2028}",
            "\u{7}\u{0}",
            "2001-01-01",
        ];
        let choice = usize::from(self.next());
        match TEXTS.get(choice % 32) {
            Some(text) => SmolStr::new_static(text),
            None => {
                (0..choice % 40).map(|_| char::from_u32(self.wide() as u32 % 0x3000).unwrap_or('x')).collect()
            }
        }
    }
}

/// Properties of any bytes as a body of a type.
pub(crate) fn check_body(body: &[u8], schema: &Schema, id: TypeId) {
    use crate::json::{self, DecodeOptions};
    use crate::yaml;
    let options = DecodeOptions { strict: true };
    if let Ok(decoded) = json::decode(body, schema, id, &options) {
        let mut text = Vec::new();
        json::write(&decoded.value, schema, id, &mut text);
        let again = json::decode(&text, schema, id, &options).expect("what was written can be read");
        assert_eq!(again.value, decoded.value);
    }
    let parsed = json::parse(body);
    assert_eq!(parsed.is_ok(), json::parse_reporting(body).is_ok());
    drop(json::peek_type(body));
    if let Ok((tree, _)) = yaml::to_value(body) {
        let mut text = Vec::new();
        yaml::write(&tree, &mut text);
        let again = yaml::to_value(&text);
        let again = again.unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&text))).0;
        assert_eq!(json_text(&again), json_text(&tree), "{:?}", String::from_utf8_lossy(&text));
        drop(json::conform(tree, schema, id, &options));
    }
}

/// The JSON text of a tree, in which a whole double equals an integer.
fn json_text(value: &Value) -> String {
    let mut text = Vec::new();
    crate::json::write_untyped(value, &mut text);
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[cfg(test)]
mod properties {
    use super::*;
    use crate::json::{self, DecodeOptions};
    use crate::yaml;

    const STRICT: DecodeOptions = DecodeOptions { strict: true };

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn json_and_yaml_give_back_what_was_written((gvk, id, value) in any_object()) {
            let schema = schema::builtin();
            let decoded = json::conform(value, schema, id, &STRICT).unwrap();
            prop_assert_eq!(&decoded.strict, &[], "{:?}", gvk);
            let value = decoded.value;

            let again = json::conform(value.clone(), schema, id, &STRICT).unwrap().value;
            prop_assert_eq!(&again, &value, "conforming twice changes nothing");

            let mut text = Vec::new();
            json::write(&value, schema, id, &mut text);
            let read = json::decode(&text, schema, id, &STRICT).unwrap();
            prop_assert_eq!(&read.value, &value, "{}", String::from_utf8_lossy(&text));
            prop_assert_eq!(&read.strict, &[]);

            let mut pretty = Vec::new();
            json::write_pretty(&value, schema, id, &mut pretty);
            prop_assert_eq!(json::parse(&pretty).unwrap(), json::parse(&text).unwrap());

            let mut text = Vec::new();
            yaml::write(&value, &mut text);
            let (tree, repeated) = yaml::to_value(&text).unwrap();
            prop_assert_eq!(repeated, &[]);
            let read = json::conform(tree, schema, id, &STRICT).unwrap().value;
            prop_assert_eq!(&read, &value, "{}", String::from_utf8_lossy(&text));
        }
    }

    /// Damaged bodies: no panic, no endless work, and decoded values can be encoded and decoded again.
    /// `PLINTH_FUZZ_INPUTS` sets how many (a million takes minutes).
    #[test]
    fn damaged_bodies_are_read_or_refused() {
        let inputs = std::env::var("PLINTH_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000);
        let schema = schema::builtin();
        let mut kinds: Vec<_> = schema.kinds.iter().collect();
        kinds.sort();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..inputs {
            let (_, &id) = kinds[random() as usize % kinds.len()];
            let tape: Vec<u8> = (0..random() % 300).map(|_| random() as u8).collect();
            let value = json::conform(grow(schema, id, &tape), schema, id, &STRICT).unwrap().value;
            let mut body = Vec::new();
            let as_yaml = random() % 2 == 0;
            match as_yaml {
                true => yaml::write(&value, &mut body),
                false => json::write(&value, schema, id, &mut body),
            }
            for _ in 0..=random() % 4 {
                damage(&mut body, &mut random);
            }
            crate::testing::check_body(&body, schema, id);
        }
    }

    fn damage(body: &mut Vec<u8>, random: &mut impl FnMut() -> u64) {
        const PIECES: [&[u8]; 16] = [
            b"\"", b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\xff", b"null", b"- ", b"&a ", b"*a", b"\n",
            b"!!int ", b"<<: ",
        ];
        let at = random() as usize % (body.len() + 1);
        match random() % 4 {
            0 => body.truncate(at),
            1 if at < body.len() => body[at] = random() as u8,
            2 if at < body.len() => drop(body.remove(at)),
            _ => {
                let piece = PIECES[random() as usize % PIECES.len()];
                body.splice(at..at, piece.iter().copied());
            }
        }
    }
}
