//! Configuration files: one strict decoder into plain structs.
//!
//! As upstream's strict decoding (k8s.io/apimachinery `runtime/serializer/json`): unknown and duplicate
//! fields are errors, as are values of another type; `null` is an empty value. Structs derive `Deserialize`
//! with `#[serde(default)]` and say nothing of strictness; which fields there are is known from them. Errors
//! name the field by its path and never contain a value, which may be a key.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use plinth_codec::{yaml, Map, Value};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Why a configuration cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ConfigDecodeError {
    /// It is neither YAML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// It is of another kind or version.
    #[error("no kind {kind:?} is registered for version {version:?}; expected {expected}")]
    Kind {
        kind: String,
        version: String,
        /// The expected kind and versions.
        expected: String,
    },
    /// A field is unknown or occurs twice.
    #[error("strict decoding error: {0}")]
    Strict(String),
    /// A field has a value of another type.
    #[error("{0}")]
    Invalid(String),
}

impl ConfigDecodeError {
    /// The same, with the file that it is about.
    pub fn of_file(self, path: &Path) -> ConfigFileError {
        ConfigFileError::Decode { path: path.to_owned(), source: self }
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// It cannot be decoded.
    #[error("{path}: {source}")]
    Decode {
        path: PathBuf,
        /// The error, with its field.
        source: ConfigDecodeError,
    },
}

/// What becomes of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// They are errors.
    Strict,
    /// They are ignored; the last of duplicate fields counts.
    Lenient,
}

/// The kind of a configuration and its versions, as in `apiVersion`.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKind {
    /// `kind`.
    pub kind: &'static str,
    /// Supported values of `apiVersion`.
    pub versions: &'static [&'static str],
}

/// Reads and decodes a file.
///
/// # Errors
/// [`ConfigFileError`].
pub fn read_config<T: DeserializeOwned>(path: &Path, kind: ConfigKind) -> Result<T, ConfigFileError> {
    let text =
        std::fs::read(path).map_err(|source| ConfigFileError::Read { path: path.to_owned(), source })?;
    decode_config(&text, kind).map_err(|error| error.of_file(path))
}

/// Decodes a configuration in YAML or JSON, strictly.
///
/// # Errors
/// [`ConfigDecodeError`].
pub fn decode_config<T: DeserializeOwned>(text: &[u8], kind: ConfigKind) -> Result<T, ConfigDecodeError> {
    decode_config_tree(&parse_config(text, Strictness::Strict)?, kind, Strictness::Strict)
}

/// Parses a document without decoding it.
///
/// # Errors
/// When it is neither YAML nor JSON, or, if strict, has duplicate fields.
pub fn parse_config(text: &[u8], strictness: Strictness) -> Result<Value, ConfigDecodeError> {
    let (tree, duplicates) =
        yaml::to_value(text).map_err(|error| ConfigDecodeError::Syntax(error.to_string()))?;
    match duplicates.first().filter(|_| strictness == Strictness::Strict) {
        Some(error) => Err(ConfigDecodeError::Strict(error.to_string())),
        None => Ok(tree),
    }
}

/// Decodes a parsed document of a kind.
///
/// # Errors
/// [`ConfigDecodeError`].
pub fn decode_config_tree<T: DeserializeOwned>(
    tree: &Value,
    kind: ConfigKind,
    strictness: Strictness,
) -> Result<T, ConfigDecodeError> {
    let text = |key: &str| tree.str_at(&[key]).unwrap_or_default();
    if text("kind") != kind.kind || !kind.versions.contains(&text("apiVersion")) {
        return Err(ConfigDecodeError::Kind {
            kind: text("kind").to_owned(),
            version: text("apiVersion").to_owned(),
            expected: format!("{} of {}", kind.kind, kind.versions.join(" or ")),
        });
    }
    let members = tree.as_object().into_iter().flat_map(Map::iter);
    let members = members.filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion"));
    let members: Map = members.map(|(key, value)| (key.clone(), value.clone())).collect();
    decode_config_part(&Value::Object(members), strictness)
}

/// Decodes a document, or a part of one, that has neither kind nor version.
///
/// # Errors
/// [`ConfigDecodeError::Strict`] and [`ConfigDecodeError::Invalid`].
pub fn decode_config_part<T: DeserializeOwned>(
    tree: &Value,
    strictness: Strictness,
) -> Result<T, ConfigDecodeError> {
    T::deserialize(Reader { value: tree, strictness }).map_err(|error| {
        let FieldError { path, kind } = error;
        match kind {
            Kind::Unknown => ConfigDecodeError::Strict(format!("unknown field {path:?}")),
            Kind::Invalid(what) if path.is_empty() => ConfigDecodeError::Invalid(what),
            Kind::Invalid(what) => ConfigDecodeError::Invalid(format!("{path}: {what}")),
        }
    })
}

/// An error at a field.
#[derive(Debug)]
struct FieldError {
    path: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unknown,
    Invalid(String),
}

impl FieldError {
    fn invalid(what: impl Into<String>) -> FieldError {
        FieldError { path: String::new(), kind: Kind::Invalid(what.into()) }
    }

    /// The same, seen from the parent of the field or item.
    fn within(mut self, parent: &str) -> FieldError {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{parent}{dot}{}", self.path);
        self
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Unknown => write!(f, "unknown field {:?}", self.path),
            Kind::Invalid(what) => write!(f, "{}: {what}", self.path),
        }
    }
}

impl std::error::Error for FieldError {}

impl de::Error for FieldError {
    fn custom<T: Display>(what: T) -> FieldError {
        FieldError::invalid(format!("Invalid value: {what}"))
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> FieldError {
        FieldError::invalid(format!("Invalid value: must be {expected}"))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> FieldError {
        FieldError::invalid(format!("Invalid value: must be {expected}"))
    }

    fn missing_field(field: &'static str) -> FieldError {
        FieldError::invalid("Required value").within(field)
    }
}

/// Reads a value of the tree.
#[derive(Clone, Copy)]
struct Reader<'v> {
    value: &'v Value,
    strictness: Strictness,
}

impl<'v> Reader<'v> {
    fn members(self) -> Result<Option<&'v Map>, FieldError> {
        match self.value {
            Value::Null => Ok(None),
            Value::Object(members) => Ok(Some(members)),
            _ => Err(FieldError::invalid("Invalid value: must be an object")),
        }
    }

    fn of(self, value: &'v Value) -> Reader<'v> {
        Reader { value, ..self }
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
            // Not in a tree that was parsed.
            Value::Encoded(_) => Err(FieldError::invalid("Invalid value: must not be encoded")),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(FieldError::invalid("Invalid value: must be true or false")),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.value {
            Value::Null => visitor.visit_i64(0),
            Value::Int(value) => visitor.visit_i64(*value),
            _ => Err(FieldError::invalid("Invalid value: must be an integer")),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_i64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.value {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(FieldError::invalid("Invalid value: must be a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let items = match self.value {
            Value::Null => &[],
            Value::Array(items) => items.as_slice(),
            _ => return Err(FieldError::invalid("Invalid value: must be a list")),
        };
        visitor.visit_seq(Items { reader: self, items, place: 0 })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let members = self.members()?.into_iter().flat_map(Map::iter).collect::<Vec<_>>().into_iter();
        visitor.visit_map(Members { reader: self, members: members.into_iter(), next: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let mut members = Vec::new();
        for (key, value) in self.members()?.into_iter().flat_map(Map::iter) {
            match fields.contains(&key.as_str()) {
                true => members.push((key, value)),
                false if self.strictness == Strictness::Lenient => {}
                false => return Err(FieldError { path: key.to_string(), kind: Kind::Unknown }),
            }
        }
        visitor.visit_map(Members { reader: self, members: members.into_iter(), next: None })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

/// The items of a list.
struct Items<'v> {
    reader: Reader<'v>,
    items: &'v [Value],
    place: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, FieldError> {
        let Some(item) = self.items.get(self.place) else { return Ok(None) };
        let read = seed.deserialize(self.reader.of(item));
        let read = read.map_err(|error| error.within(&format!("[{}]", self.place)));
        self.place += 1;
        read.map(Some)
    }
}

/// The members of a struct or map.
struct Members<'v> {
    reader: Reader<'v>,
    /// Those still to be read.
    members: std::vec::IntoIter<(&'v smol_str::SmolStr, &'v Value)>,
    next: Option<(&'v str, &'v Value)>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldError> {
        let Some((key, value)) = self.members.next() else { return Ok(None) };
        self.next = Some((key, value));
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FieldError> {
        let Some((key, value)) = self.next.take() else { return Err(FieldError::invalid("no value")) };
        seed.deserialize(self.reader.of(value)).map_err(|error| error.within(key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Config {
        some_text: String,
        count: i32,
        enabled: bool,
        maybe: Option<Inner>,
        list: Vec<Inner>,
        map: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        key: String,
    }

    const KIND: ConfigKind = ConfigKind { kind: "Config", versions: &["x/v1", "x/v1beta1"] };

    fn decoded(members: &str) -> Result<Config, String> {
        let text = format!("apiVersion: x/v1\nkind: Config\n{members}");
        decode_config(text.as_bytes(), KIND).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_becomes_a_struct() {
        let text = "someText: a\ncount: 3\nenabled: true\nmaybe: {key: b}\nlist: [{key: c}, {}]\nmap: {d: e}";
        let inner = |key: &str| Inner { key: key.to_owned() };
        let expected = Config {
            some_text: "a".into(),
            count: 3,
            enabled: true,
            maybe: Some(inner("b")),
            list: vec![inner("c"), inner("")],
            map: [("d".to_owned(), "e".to_owned())].into(),
        };
        assert_eq!(decoded(text), Ok(expected));
        let nulls = "someText: null\ncount: null\nenabled: null\nmaybe: null\nlist: null\nmap: null";
        assert_eq!(decoded(nulls), Ok(Config::default()));
        assert_eq!(decoded(""), Ok(Config::default()));
    }

    #[test]
    fn errors_by_table() {
        let rows = [
            ("sometext: a", "strict decoding error: unknown field \"sometext\""),
            ("list: [{}, {kez: a}]", "strict decoding error: unknown field \"list[1].kez\""),
            ("enabled: true\nenabled: false", "strict decoding error: "),
            ("someText: 3", "someText: Invalid value: must be a string"),
            ("count: a", "count: Invalid value: must be an integer"),
            ("count: 3000000000", "count: Invalid value: must be i32"),
            ("enabled: 'true'", "enabled: Invalid value: must be true or false"),
            ("maybe: []", "maybe: Invalid value: must be an object"),
            ("list: {}", "list: Invalid value: must be a list"),
            ("list: [{key: [secret]}]", "list[0].key: Invalid value: must be a string"),
            ("map: {a: 1}", "map.a: Invalid value: must be a string"),
        ];
        for (members, expected) in rows {
            let error = decoded(members).unwrap_err();
            assert!(error.contains(expected), "{members}: {error:?} has no {expected:?}");
        }
        let other = decode_config::<Config>(b"kind: Pod\napiVersion: v1", KIND).unwrap_err().to_string();
        let expected =
            r#"no kind "Pod" is registered for version "v1"; expected Config of x/v1 or x/v1beta1"#;
        assert_eq!(other, expected);
    }

    #[test]
    fn lenient_decoding_ignores_unknown_and_duplicate_fields_but_no_wrong_types() {
        let lenient = |text: &str| {
            let tree = parse_config(text.as_bytes(), Strictness::Lenient).unwrap();
            decode_config_part::<Config>(&tree, Strictness::Lenient)
        };
        let config = lenient("count: 1\ncount: 2\nmore: {}\nmaybe: {key: a, more: b}").unwrap();
        assert_eq!((config.count, config.maybe), (2, Some(Inner { key: "a".into() })));
        assert!(lenient("count: a").is_err());
    }
}
