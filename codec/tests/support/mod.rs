//! Random objects of any kind, made from the schema.
#![allow(dead_code)]

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::schema::{Omit, Scalar, Schema, SchemaOr, Type, TypeId};
use plinth_codec::{Map, Value};

/// A small generator of pseudo-random numbers (xorshift64*): the same seed gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Any seed will do.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn text(&mut self) -> Value {
        const TEXTS: [&str; 12] = [
            "",
            "a",
            "web-0",
            "kube-system",
            "é",
            "\u{1f600}",
            "<&>",
            "a\"b\\c",
            "line\nbreak\t",
            "\u{2028}",
            "\u{0}\u{1f}",
            "twenty-four bytes of text",
        ];
        (*self.pick(&TEXTS)).into()
    }

    fn number(&mut self) -> i64 {
        *self.pick(&[0, 1, -1, 80, 127, 128, 16_384, i32::MAX as i64, i32::MIN as i64])
    }
}

/// An object of that type as upstream would hold it: about a third of the fields set, with nulls, zero
/// values, and empty lists among them.
pub(crate) fn object(random: &mut Random, schema: &Schema, id: TypeId) -> Value {
    let raw = value(random, schema, id, 0);
    json::conform(raw, schema, id, &DecodeOptions::default()).expect("an object that fits its schema").value
}

fn value(random: &mut Random, schema: &Schema, id: TypeId, depth: usize) -> Value {
    match schema.get(id) {
        Type::Scalar(scalar) => self::scalar(random, schema, scalar, depth),
        Type::Struct(structure) => {
            let mut members = Map::new();
            for field in &structure.fields {
                // Sparser with depth, so that trees stay small.
                if random.one_in(2 + depth) && field.omit != Omit::Never || random.one_in(3 + depth) {
                    let null = random.one_in(12);
                    let value =
                        if null { Value::Null } else { value(random, schema, field.type_id, depth + 1) };
                    members.insert(field.name.clone(), value);
                }
            }
            // Types that hold a null scalar have nowhere to put it in protobuf; objects name their own kind.
            members.remove("kind");
            members.remove("apiVersion");
            Value::Object(members)
        }
        Type::List { element, .. } => {
            let len = random.below(4);
            Value::Array((0..len).map(|_| value(random, schema, *element, depth + 1)).collect())
        }
        Type::Map { value: inner, .. } => {
            let mut members = Map::new();
            for _ in 0..random.below(4) {
                let Value::String(key) = random.text() else { continue };
                members.insert(key, value(random, schema, *inner, depth + 1));
            }
            Value::Object(members)
        }
    }
}

fn scalar(random: &mut Random, schema: &Schema, scalar: &Scalar, depth: usize) -> Value {
    match scalar {
        Scalar::Bool => random.one_in(2).into(),
        Scalar::Int32 => random.number().into(),
        Scalar::Int64 => (*random.pick(&[0, 1, -1, 300, i64::MAX, i64::MIN, 1 << 53])).into(),
        Scalar::Double => Value::Float(*random.pick(&[0.0, 1.0, -2.5, 1e-7, 1e21, 1e300, 0.1])),
        Scalar::String { .. } => random.text(),
        Scalar::Bytes => (*random.pick(&["", "AA==", "AQID", "//79/A=="])).into(),
        Scalar::Quantity => (*random.pick(&["0", "1", "500m", "1Gi", "1e3", "100n", "0.1", "-3Ki"])).into(),
        Scalar::IntOrString => match random.one_in(2) {
            true => random.number().into(),
            false => random.text(),
        },
        Scalar::Time => {
            (*random.pick(&["1970-01-01T00:00:00Z", "2026-11-21T20:00:00Z", "0001-01-01T00:00:01Z"])).into()
        }
        Scalar::MicroTime => {
            (*random.pick(&["1969-12-31T23:59:59.999999Z", "2026-11-21T20:00:00.000001Z"])).into()
        }
        Scalar::Duration => (*random.pick(&["0s", "1h0m0s", "-1.5s", "300ms"])).into(),
        Scalar::RawExtension => {
            let mut members = Map::new();
            members.insert("apiVersion", "example.com/v1");
            members.insert("kind", "Thing");
            members.insert("spec", any(random, 3));
            Value::Object(members)
        }
        Scalar::Json => any(random, 3),
        Scalar::FieldsV1 => {
            let mut members = Map::new();
            members.insert("f:metadata", Value::object());
            Value::Object(members)
        }
        Scalar::SchemaOr(or, id) => match (or, random.one_in(2) && depth < 12) {
            (SchemaOr::Bool, false) => random.one_in(2).into(),
            (SchemaOr::StringArray, false) => Value::Array(vec![random.text()]),
            (_, _) if depth > 12 => Value::Null,
            (SchemaOr::Array, false) => Value::Array(vec![value(random, schema, *id, depth + 2)]),
            (_, true) => value(random, schema, *id, depth + 2),
        },
        Scalar::Any => any(random, 3),
    }
}

/// Any JSON.
fn any(random: &mut Random, levels: usize) -> Value {
    match random.below(if levels == 0 { 5 } else { 7 }) {
        0 => random.number().into(),
        1 => Value::Float(*random.pick(&[1.5, -0.25, 1e30])),
        2 => random.one_in(2).into(),
        3 | 4 => random.text(),
        5 => Value::Array((0..random.below(3)).map(|_| any(random, levels - 1)).collect()),
        _ => {
            let mut members = Map::new();
            for _ in 0..random.below(3) {
                let Value::String(key) = random.text() else { continue };
                members.insert(key, any(random, levels - 1));
            }
            Value::Object(members)
        }
    }
}
