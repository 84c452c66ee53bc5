//! What a tree is made of.

use std::sync::{Arc, OnceLock};

use smol_str::SmolStr;

/// A node of an object tree.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// JSON `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// Any other number; never NaN or infinite.
    Float(f64),
    /// Text. Bytes are base64 text in the tree, as in JSON.
    String(SmolStr),
    /// Items in order.
    Array(Vec<Value>),
    /// A struct or map.
    Object(Map),
    /// An object as JSON text; the methods make no difference. Occurs only below `metadata.managedFields`.
    Encoded(Encoded),
}

/// The members of an object, sorted by key, each key once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    pub(super) members: Vec<(SmolStr, Value)>,
}

/// An object as JSON text. Cloning it copies a pointer; equal text is equal without being read.
#[derive(Clone)]
pub struct Encoded(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) text: Box<str>,
    /// Parsed on first use.
    pub(super) members: OnceLock<Map>,
    /// The parser, which is above these modules.
    pub(super) parse: fn(&str) -> Map,
}
