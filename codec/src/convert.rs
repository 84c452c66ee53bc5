//! Conversion between the four encodings: the library side of `plinth convert`.
//!
//! Objects of built-in kinds are brought into canonical form, as a server would hold them; others are not
//! changed. Values taken from etcd are protobuf with its magic number, or JSON or CBOR for custom resources;
//! the line break that `etcdctl --print-value-only` appends to a value is removed.
//!
//! ```
//! use plinth_codec::convert::{convert, detect, Format};
//!
//! let yaml = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  k: v\n";
//! let mut protobuf = Vec::new();
//! convert(yaml, Format::Protobuf, &mut protobuf).unwrap();
//! assert_eq!(detect(&protobuf), Format::Protobuf);
//! let mut json = Vec::new();
//! convert(&protobuf, Format::Json, &mut json).unwrap();
//! assert_eq!(json, b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{},\"data\":{\"k\":\"v\"}}\n");
//! ```

use std::str::FromStr;

use crate::error::{DecodeError, StrictError};
use crate::json::{DecodeOptions, Decoded};
use crate::schema::{self, Schema, TypeId, GVK};
use crate::value::Value;
use crate::{cbor, json, protobuf, yaml};

/// An encoding of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON (RFC 8259).
    Json,
    /// YAML 1.1.
    Yaml,
    /// Kubernetes protobuf, with the envelope.
    Protobuf,
    /// CBOR, self-described.
    Cbor,
}

impl FromStr for Format {
    type Err = ConvertError;

    fn from_str(name: &str) -> Result<Format, ConvertError> {
        Ok(match name {
            "json" => Format::Json,
            "yaml" => Format::Yaml,
            "protobuf" => Format::Protobuf,
            "cbor" => Format::Cbor,
            other => return Err(ConvertError::Format(other.into())),
        })
    }
}

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// An unknown format.
    #[error("unknown format {0:?}: expected json, yaml, protobuf or cbor")]
    Format(String),
    /// Nothing to read.
    #[error("the input is empty")]
    Empty,
    /// A value that kube-apiserver encrypted at rest.
    #[error("the value is encrypted at rest ({0}); only the server that wrote it can read it")]
    Encrypted(String),
    /// Malformed JSON or YAML, or a value of a wrong type.
    #[error(transparent)]
    Text(#[from] DecodeError),
    /// Malformed protobuf, or a kind that is not built in.
    #[error(transparent)]
    Protobuf(#[from] protobuf::ProtobufError),
    /// Malformed CBOR.
    #[error(transparent)]
    Cbor(#[from] cbor::CborError),
    /// An object that the target encoding cannot hold.
    #[error(transparent)]
    Encode(#[from] protobuf::EncodeError),
    /// Protobuf holds built-in kinds only.
    #[error("{0} has no protobuf form: it is not a built-in kind")]
    NotBuiltIn(String),
}

/// A decoded object.
#[derive(Clone, Debug)]
pub struct Object {
    /// The object's own type; `None` if it names no kind or version.
    pub gvk: Option<GVK>,
    /// The type of a built-in kind.
    pub id: Option<TypeId>,
    /// The object, canonical if its kind is built in.
    pub tree: Value,
}

/// The encoding of an input: the magic numbers of protobuf and CBOR, a brace for JSON, YAML otherwise.
pub fn detect(input: &[u8]) -> Format {
    if input.starts_with(protobuf::MAGIC) {
        return Format::Protobuf;
    }
    if input.starts_with(cbor::SELF_DESCRIBED) {
        return Format::Cbor;
    }
    match input.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{') => Format::Json,
        _ => Format::Yaml,
    }
}

/// Reads an object in any encoding.
pub fn read(input: &[u8]) -> Result<Object, ConvertError> {
    read_with(input, &DecodeOptions::default()).map(|(object, _)| object)
}

/// As [`read`], and reports fields that the type of a built-in kind lacks, and those that are there twice:
/// the object is without the former. Protobuf has numbers of fields only, of which none is reported.
pub fn read_reporting(input: &[u8]) -> Result<(Object, Vec<StrictError>), ConvertError> {
    read_with(input, &DecodeOptions { strict: true })
}

fn read_with(input: &[u8], options: &DecodeOptions) -> Result<(Object, Vec<StrictError>), ConvertError> {
    if input.iter().all(u8::is_ascii_whitespace) {
        return Err(ConvertError::Empty);
    }
    if let Some(rest) = input.strip_prefix(b"k8s:enc:") {
        let provider = rest.split(|&b| b == b':').next().unwrap_or_default();
        return Err(ConvertError::Encrypted(String::from_utf8_lossy(provider).into_owned()));
    }
    let format = detect(input);
    let object = read_as(input, format, options);
    match (format, input.strip_suffix(b"\n")) {
        (Format::Protobuf | Format::Cbor, Some(value)) if object.is_err() => {
            read_as(value, format, options).or(object)
        }
        _ => object,
    }
}

fn read_as(
    input: &[u8],
    format: Format,
    options: &DecodeOptions,
) -> Result<(Object, Vec<StrictError>), ConvertError> {
    let schema = schema::builtin();
    let decoded = match format {
        Format::Protobuf => {
            let envelope = protobuf::decode(input)?;
            let (gvk, id) = envelope.resolve(schema)?;
            let tree = protobuf::decode_object(envelope.raw, Some(&gvk), schema, id)?;
            return Ok((Object { gvk: Some(gvk), id: Some(id), tree }, Vec::new()));
        }
        Format::Cbor => Decoded { value: cbor::decode(input)?, strict: Vec::new() },
        Format::Json if options.strict => json::parse_reporting(input)?,
        Format::Json => Decoded { value: json::parse(input)?, strict: Vec::new() },
        Format::Yaml => {
            let (value, strict) = yaml::to_value(input)?;
            Decoded { value, strict }
        }
    };
    typed(decoded, schema, options)
}

/// Decodes a tree by the type that it names, if there is one.
fn typed(
    decoded: Decoded,
    schema: &Schema,
    options: &DecodeOptions,
) -> Result<(Object, Vec<StrictError>), ConvertError> {
    let Decoded { value: tree, mut strict } = decoded;
    let text = |key| tree.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let gvk = text("apiVersion").zip(text("kind")).map(|(api_version, kind)| {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        GVK::new(group, version, kind)
    });
    let id = gvk.as_ref().and_then(|gvk| schema.kind(gvk));
    let tree = match id {
        Some(id) => {
            let decoded = json::conform(tree, schema, id, options)?;
            strict.extend(decoded.strict);
            decoded.value
        }
        None => tree,
    };
    Ok((Object { gvk, id, tree }, strict))
}

/// Appends an object in an encoding. JSON ends with a line break, as YAML does.
pub fn write(object: &Object, to: Format, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let schema = schema::builtin();
    match (to, &object.gvk, object.id) {
        (Format::Json, _, id) => {
            match id {
                Some(id) => json::write(&object.tree, schema, id, out),
                None => json::write_untyped(&object.tree, out),
            }
            out.push(b'\n');
        }
        (Format::Yaml, _, _) => yaml::write(&object.tree, out),
        (Format::Protobuf, Some(gvk), Some(id)) => protobuf::encode(&object.tree, gvk, schema, id, out)?,
        (Format::Protobuf, Some(gvk), None) => {
            return Err(ConvertError::NotBuiltIn(format!("{}, Kind={}", gvk.api_version(), gvk.kind)));
        }
        (Format::Protobuf, None, _) => {
            return Err(ConvertError::NotBuiltIn("an object without a kind".into()))
        }
        (Format::Cbor, _, id) => cbor::encode(&object.tree, id.map(|id| (schema, id)), out)?,
    }
    Ok(())
}

/// Reads an object in any encoding and appends it in another.
pub fn convert(input: &[u8], to: Format, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    write(&read(input)?, to, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Format; 4] = [Format::Json, Format::Yaml, Format::Protobuf, Format::Cbor];

    fn to(input: &[u8], format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        convert(input, format, &mut out).unwrap();
        out
    }

    #[test]
    fn every_encoding_leads_to_every_other() {
        let secret = br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","labels":{"yes":"no"}},"data":{"k":"AQI="}}"#;
        for from in FORMATS {
            let start = to(secret, from);
            assert_eq!(detect(&start), from);
            for format in FORMATS {
                assert_eq!(to(&start, format), to(secret, format), "{from:?} to {format:?}");
            }
        }
    }

    #[test]
    fn custom_resources_have_no_protobuf() {
        let custom = b"kind: Thing\napiVersion: example.com/v1\nspec:\n  b: 1.5\n  a: [1, null]\n";
        for format in [Format::Json, Format::Yaml, Format::Cbor] {
            assert_eq!(to(&to(custom, format), Format::Yaml), to(custom, Format::Yaml));
        }
        let error = convert(custom, Format::Protobuf, &mut Vec::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "example.com/v1, Kind=Thing has no protobuf form: it is not a built-in kind"
        );
        assert!(convert(b"{\"a\":1}", Format::Protobuf, &mut Vec::new()).is_err());
        assert_eq!(to(b"{\"a\":1}", Format::Json), b"{\"a\":1}\n");
    }

    #[test]
    fn values_from_etcd() {
        let mut value = to(b"kind: Namespace\napiVersion: v1\nmetadata: {name: a}\n", Format::Protobuf);
        let expected = to(&value, Format::Json);
        value.push(b'\n');
        assert_eq!(to(&value, Format::Json), expected);
        let error = read(b"k8s:enc:aescbc:v1:key1:\x01\x02").unwrap_err();
        assert!(error.to_string().contains("(aescbc)"), "{error}");
        assert!(matches!(read(b" \n"), Err(ConvertError::Empty)));
        assert!(read(b"k8s\0\x0a\n").is_err());
    }

    #[test]
    fn names_of_formats() {
        assert_eq!("cbor".parse::<Format>().unwrap(), Format::Cbor);
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("json, yaml, protobuf or cbor"));
    }
}
