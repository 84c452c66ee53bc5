//! Conversion between the four encodings: the library side of `plinth convert`.
//!
//! Objects of built-in kinds are brought into canonical form, as a server would hold them; others are not
//! changed. The items of a `List` of version v1, as kubectl prints and reads it, are each treated as an
//! object of its own.
//!
//! Values taken from etcd are protobuf with its magic number, or JSON or CBOR for custom resources; the line
//! break that `etcdctl --print-value-only` appends to a value is removed.
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

use crate::error::{DecodeError, StrictError, MAX_STRICT_ERRORS};
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
    /// A `List` as an item of another.
    #[error("a List cannot be an item of a List")]
    NestedList,
    /// An item of a `List` that cannot be read.
    #[error("items[{index}]: {source}")]
    Item {
        /// Where it is in the list.
        index: usize,
        /// The error of the item alone.
        source: Box<ConvertError>,
    },
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
    /// The types of the items of a `List`, in their order; empty for other kinds.
    pub items: Vec<ItemType>,
}

/// The type of an item of a `List`.
#[derive(Clone, Debug)]
pub struct ItemType {
    /// As [`Object::gvk`].
    pub gvk: Option<GVK>,
    /// As [`Object::id`].
    pub id: Option<TypeId>,
}

/// Whether a kind is the list of objects of any kind.
pub fn is_list(gvk: &GVK) -> bool {
    gvk.group.is_empty() && gvk.version == "v1" && gvk.kind == "List"
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
        Format::Protobuf => None,
        Format::Cbor => Some(Decoded { value: cbor::decode(input)?, strict: Vec::new() }),
        Format::Json if options.strict => Some(json::parse_reporting(input)?),
        Format::Json => Some(Decoded { value: json::parse(input)?, strict: Vec::new() }),
        Format::Yaml => {
            let (value, strict) = yaml::to_value(input)?;
            Some(Decoded { value, strict })
        }
    };
    let (object, strict) = match decoded {
        Some(decoded) => typed(decoded, schema, options)?,
        None => {
            let envelope = protobuf::decode(input)?;
            let (gvk, id) = envelope.resolve(schema)?;
            let tree = protobuf::decode_object(envelope.raw, Some(&gvk), schema, id)?;
            (Object { gvk: Some(gvk), id: Some(id), tree, items: Vec::new() }, Vec::new())
        }
    };
    match object.gvk.as_ref().is_some_and(is_list) {
        true => typed_items(object, strict, schema, options),
        false => Ok((object, strict)),
    }
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
    Ok((Object { gvk, id, tree, items: Vec::new() }, strict))
}

/// Decodes each item of a `List` by the type that it names.
fn typed_items(
    mut list: Object,
    mut strict: Vec<StrictError>,
    schema: &Schema,
    options: &DecodeOptions,
) -> Result<(Object, Vec<StrictError>), ConvertError> {
    let Some(Value::Array(items)) = list.tree.get_mut("items") else {
        return Ok((list, strict));
    };
    for (index, item) in items.iter_mut().enumerate() {
        let decoded = Decoded { value: std::mem::take(item), strict: Vec::new() };
        let failed = |source| ConvertError::Item { index, source: Box::new(source) };
        let (object, errors) = typed(decoded, schema, options).map_err(failed)?;
        if object.gvk.as_ref().is_some_and(is_list) {
            return Err(failed(ConvertError::NestedList));
        }
        let room = MAX_STRICT_ERRORS.saturating_sub(strict.len());
        strict.extend(errors.into_iter().take(room).map(|error| error.below(&format!("items[{index}]"))));
        *item = object.tree;
        list.items.push(ItemType { gvk: object.gvk, id: object.id });
    }
    Ok((list, strict))
}

/// A `List`: its metadata, and its items with their types.
fn list_parts(list: &Object) -> (Option<&Value>, impl ExactSizeIterator<Item = (&Value, Option<TypeId>)>) {
    let items = list.tree.get("items").and_then(Value::as_array).unwrap_or_default();
    (list.tree.get("metadata"), items.iter().zip(list.items.iter().map(|item| item.id)))
}

fn write_list_json(list: &Object, schema: &Schema, out: &mut Vec<u8>) {
    let (metadata, items) = list_parts(list);
    out.extend_from_slice(br#"{"kind":"List","apiVersion":"v1","metadata":"#);
    json::write_untyped(metadata.unwrap_or(&Value::Null), out);
    out.extend_from_slice(br#","items":["#);
    for (index, (item, id)) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match id {
            Some(id) => json::write(item, schema, id, out),
            None => json::write_untyped(item, out),
        }
    }
    out.extend_from_slice(b"]}");
}

fn write_list_cbor(list: &Object, gvk: &GVK, schema: &Schema, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let (metadata, items) = list_parts(list);
    let mut encoded = Vec::new();
    cbor::encode_bare(metadata.unwrap_or(&Value::Null), None, &mut encoded)?;
    let frame = cbor::CborListFrame::new(gvk, &encoded, items.len() as u64);
    out.extend_from_slice(frame.head());
    for (item, id) in items {
        cbor::encode_bare(item, id.map(|id| (schema, id)), out)?;
    }
    out.extend_from_slice(frame.tail());
    Ok(())
}

/// Appends an object in an encoding. JSON ends with a line break, as YAML does.
pub fn write(object: &Object, to: Format, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let schema = schema::builtin();
    match (to, &object.gvk, object.id) {
        (Format::Json, Some(gvk), _) if is_list(gvk) => {
            write_list_json(object, schema, out);
            out.push(b'\n');
        }
        (Format::Cbor, Some(gvk), _) if is_list(gvk) => write_list_cbor(object, gvk, schema, out)?,
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
    fn items_of_a_list_are_objects_of_their_own() {
        let list = br#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"k":"AQI="}},
            {"kind":"Thing","apiVersion":"example.com/v1","spec":{"b":1}},
            {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":null}}]}"#;
        let json = to(list, Format::Json);
        assert_eq!(
            String::from_utf8(json.clone()).unwrap(),
            concat!(
                r#"{"kind":"List","apiVersion":"v1","metadata":{},"items":["#,
                r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"k":"AQI="}},"#,
                r#"{"apiVersion":"example.com/v1","kind":"Thing","spec":{"b":1}},"#,
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":null},"status":{}}]}"#,
                "\n"
            )
        );
        let cbor = to(list, Format::Cbor);
        assert!(cbor.windows(3).any(|bytes| bytes == b"\x42\x01\x02"), "data are bytes: {cbor:?}");
        for from in FORMATS {
            assert_eq!(to(&to(list, from), Format::Json), json, "{from:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_item_is_reported_with_its_index() {
        let reported = |items: &str| {
            let list = format!(r#"{{"apiVersion":"v1","kind":"List","more":1,"items":{items}}}"#);
            read_reporting(list.as_bytes())
                .map(|(object, errors)| {
                    (object.items.len(), errors.iter().map(ToString::to_string).collect::<Vec<_>>())
                })
                .map_err(|error| error.to_string())
        };
        let good = r#"{"kind":"ConfigMap","apiVersion":"v1"}"#;
        let bad = r#"{"kind":"Pod","apiVersion":"v1","spec":{"bogus":1}}"#;
        let (more, bogus) = (r#"unknown field "more""#.to_owned(), r#"unknown field "items[1].spec.bogus""#);
        assert_eq!(reported(&format!("[{good},{bad}]")), Ok((2, vec![more.clone(), bogus.to_owned()])));
        assert_eq!(reported("null"), Ok((0, vec![more])));
        assert!(reported("{}").unwrap_err().contains("List.items"));
        let error = reported(&format!("[{good},{}]", bad.replace(r#"{"bogus":1}"#, "3"))).unwrap_err();
        assert!(error.starts_with("items[1]: "), "{error}");
        let nested = r#"[{"kind":"List","apiVersion":"v1","items":[]}]"#;
        assert_eq!(reported(nested), Err("items[0]: a List cannot be an item of a List".to_owned()));
        let many = vec![bad; 2 * MAX_STRICT_ERRORS].join(",");
        assert_eq!(reported(&format!("[{many}]")).unwrap().1.len(), MAX_STRICT_ERRORS);
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
