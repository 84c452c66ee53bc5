//! How JSON becomes messages: what a table of members defines, and the walk that follows it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::Value;

use crate::protobuf::push_varint;

/// A message whose maps are large, so that their values become trees one at a time: a tree of the whole
/// document would be ten times its size.
pub(super) fn outer(of: &MessageTable, json: &RawValue) -> Result<Vec<u8>, serde_json::Error> {
    let members: BTreeMap<Cow<str>, &RawValue> = serde_json::from_str(json.get())?;
    let mut out = Vec::new();
    for (name, number, form) in of.members {
        let Some(member) = members.get(*name) else {
            continue;
        };
        match *form {
            MemberForm::One(of) => put(&mut out, *number, &outer(of, member)?),
            MemberForm::Map(inner, make) => {
                let values: BTreeMap<Cow<str>, &RawValue> = serde_json::from_str(member.get())?;
                let mut pairs = Vec::new();
                for (name, value) in values {
                    if let Some(bytes) = make(&serde_json::from_str(value.get())?) {
                        put(&mut pairs, inner, &pair(&name, &bytes));
                    }
                }
                put(&mut out, *number, &pairs);
            }
            form => write(&mut out, *number, form, &serde_json::from_str(member.get())?),
        }
    }
    Ok(out)
}

/// How a JSON object becomes a message.
pub(super) struct MessageTable {
    /// Members by JSON name.
    pub(super) members: &'static [(&'static str, u32, MemberForm)],
    /// Where members whose names begin with `x-` go: `repeated NamedAny`.
    pub(super) extensions: u32,
}

/// How a member's value is written.
#[derive(Clone, Copy)]
pub(super) enum MemberForm {
    /// `string`.
    Text,
    /// `repeated string`.
    Texts,
    /// `bool`.
    Bool,
    /// `int64`.
    Int,
    /// `double`.
    Number,
    /// `Any`: the value as YAML text.
    Any,
    /// `repeated Any`.
    Anys,
    One(&'static MessageTable),
    /// A message for each element.
    Each(&'static MessageTable),
    /// A message with a repeated message at the given number, one for each member: its name at 1, its value
    /// at 2.
    Map(u32, Make),
    /// Encoded by the function; omitted when that returns nothing.
    Other(Make),
    /// The same for each element.
    Others(Make),
}

/// Writes the content of a message.
pub(super) type Make = fn(&Value) -> Option<Vec<u8>>;

pub(super) fn message(of: &MessageTable, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let Value::Object(members) = value else {
        return out;
    };
    for (name, number, form) in of.members {
        if let Some(member) = members.get(*name) {
            write(&mut out, *number, *form, member);
        }
    }
    for (name, value) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
        put(&mut out, of.extensions, &pair(name, &any(value)));
    }
    out
}

fn write(out: &mut Vec<u8>, number: u32, form: MemberForm, value: &Value) {
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    match form {
        // The empty string, false and zero are omitted.
        MemberForm::Text => match value.as_str() {
            None | Some("") => {}
            Some(text) => put(out, number, text.as_bytes()),
        },
        MemberForm::Texts => {
            elements.iter().filter_map(Value::as_str).for_each(|text| put(out, number, text.as_bytes()));
        }
        MemberForm::Bool => {
            if value.as_bool() == Some(true) {
                put_number(out, number, 1);
            }
        }
        MemberForm::Int => match value.as_i64() {
            None | Some(0) => {}
            Some(n) => put_number(out, number, n as u64),
        },
        MemberForm::Number => match value.as_f64() {
            None => {}
            Some(0.0) => {}
            Some(n) => {
                push_varint(out, u64::from(number) << 3 | 1);
                out.extend_from_slice(&n.to_le_bytes());
            }
        },
        MemberForm::Any => put(out, number, &any(value)),
        MemberForm::Anys => elements.iter().for_each(|element| put(out, number, &any(element))),
        MemberForm::One(of) => put(out, number, &message(of, value)),
        MemberForm::Each(of) => elements.iter().for_each(|element| put(out, number, &message(of, element))),
        MemberForm::Map(inner, make) => {
            let mut pairs = Vec::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                if let Some(bytes) = make(value) {
                    put(&mut pairs, inner, &pair(name, &bytes));
                }
            }
            put(out, number, &pairs);
        }
        MemberForm::Other(make) => {
            if let Some(bytes) = make(value) {
                put(out, number, &bytes);
            }
        }
        MemberForm::Others(make) => {
            elements.iter().filter_map(make).for_each(|bytes| put(out, number, &bytes));
        }
    }
}

/// A `Named…`: name and value.
pub(super) fn pair(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 12);
    put(&mut out, 1, name.as_bytes());
    put(&mut out, 2, value);
    out
}

/// An `Any` with the value as YAML, of which JSON is a part.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 2, format!("{value}\n").as_bytes());
    out
}

/// A message with one message in it: the usual form of a choice.
pub(super) fn only(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 6);
    put(&mut out, number, bytes);
    out
}

pub(super) fn put(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    push_varint(out, u64::from(number) << 3 | 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    push_varint(out, u64::from(number) << 3);
    push_varint(out, value);
}

/// Whether a value is a reference, `{"$ref": …}`.
pub(super) fn is_reference(value: &Value) -> bool {
    value.get("$ref").is_some()
}

pub(super) static EXTERNAL_DOCS: MessageTable = MessageTable {
    members: &[("description", 1, MemberForm::Text), ("url", 2, MemberForm::Text)],
    extensions: 3,
};
