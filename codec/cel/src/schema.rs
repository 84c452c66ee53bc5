//! The schema interface of the compiler: one node of a structural schema as a trait, so that rules do not
//! depend on the schema's representation.

use plinth_codec::value::Value;

/// One node of a structural schema: a handle that is cheap to copy, such as a reference or an index into an
/// arena.
pub trait SchemaNode: Copy {
    /// `type`: `object`, `array`, `string`, `boolean`, `integer`, `number`; empty when absent.
    fn schema_type(&self) -> &str;
    /// `format`; empty when absent.
    fn format(&self) -> &str;
    /// `x-kubernetes-int-or-string`.
    fn int_or_string(&self) -> bool;
    /// `x-kubernetes-embedded-resource`.
    fn embedded_resource(&self) -> bool;
    /// `items`.
    fn items(&self) -> Option<Self>;
    /// `additionalProperties`, when it is a schema.
    fn additional_properties(&self) -> Option<Self>;
    /// The members of `properties`, in any order.
    fn properties(&self) -> impl Iterator<Item = (&str, Self)>;
    /// A member of `properties`.
    fn property(&self, name: &str) -> Option<Self>;
    /// Whether `required` names the property.
    fn is_required(&self, name: &str) -> bool;
    /// Whether there is a `default`.
    fn has_default(&self) -> bool;
    /// `enum`; empty when absent.
    fn enum_values(&self) -> &[Value];
    /// `maxLength`, in code points.
    fn max_length(&self) -> Option<i64>;
    /// `maxItems`.
    fn max_items(&self) -> Option<i64>;
    /// `maxProperties`.
    fn max_properties(&self) -> Option<i64>;
    /// `x-kubernetes-list-type`: `atomic`, `set`, `map`; empty when absent.
    fn list_type(&self) -> &str;
    /// `x-kubernetes-list-map-keys`.
    fn list_map_keys(&self) -> impl Iterator<Item = &str>;
}

/// How often data of a child of this node can occur, when data of this node can occur `cardinality` times;
/// `None` is unbounded. `1` is the cardinality of the root.
pub fn child_cardinality<S: SchemaNode>(schema: S, cardinality: Option<u64>) -> Option<u64> {
    let factor = match schema.schema_type() {
        "object" if schema.additional_properties().is_some() => schema.max_properties(),
        "array" => schema.max_items(),
        _ => Some(1),
    };
    // No data can meet a negative bound; upstream treats it as 0.
    let factor = u64::try_from(factor?.max(0)).unwrap_or(0);
    Some(cardinality?.saturating_mul(factor))
}

/// Reads a `fieldPath` or `jsonPath` (`.spec.a`, `.spec['a.b']`) against the schema that it starts at.
/// Returns the path as errors show it, without a leading dot, and the schema at its end.
pub(crate) fn field_path<S: SchemaNode>(
    text: &str,
    schema: S,
    allow_brackets: bool,
) -> Result<(String, S), String> {
    let mut node = schema;
    let mut path = String::new();
    let mut rest = text;
    while let Some(token) = next_token(&mut rest) {
        let name = match token {
            "." => next_token(&mut rest).ok_or("unexpected end of JSON path")?.to_owned(),
            "[" if !allow_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = next_token(&mut rest).ok_or("unexpected end of JSON path")?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|s| s.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(inner).map_err(|e| format!("invalid string literal: {e}"))?;
                match next_token(&mut rest).ok_or("unexpected end of JSON path")? {
                    "]" => name,
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let no_field = || "does not refer to a valid field".to_owned();
        if node.properties().next().is_some() {
            node = node.property(&name).ok_or_else(no_field)?;
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&name);
        } else {
            node = node.additional_properties().ok_or_else(no_field)?;
            path.push_str(&format!("[{name}]"));
        }
    }
    Ok((path, node))
}

/// A delimiter, a quoted string with its quotes, or the text before the next delimiter.
fn next_token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let bytes = rest.as_bytes();
    let end = match bytes.first()? {
        b'.' | b'[' | b']' => 1,
        b'\'' => (1..bytes.len()).find(|&i| bytes[i] == b'\'' && bytes[i - 1] != b'\\').map(|i| i + 1)?,
        _ => bytes.iter().position(|b| matches!(b, b'.' | b'[' | b']')).unwrap_or(bytes.len()),
    };
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some('\'') => '\'',
            Some('\\') => '\\',
            Some(other) => return Err(format!("invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(out)
}

/// A schema as the object tree of its JSON.
#[derive(Clone, Copy, Debug)]
pub struct JsonSchema<'a>(pub &'a Value);

impl<'a> JsonSchema<'a> {
    fn text(&self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn is(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool) == Some(true)
    }

    fn list(&self, key: &str) -> &'a [Value] {
        self.0.list_at(&[key])
    }

    fn bound(&self, key: &str) -> Option<i64> {
        match self.0.get(key)? {
            Value::Int(n) => Some(*n),
            Value::Float(n) => Some(*n as i64),
            _ => None,
        }
    }

    fn node(&self, key: &str) -> Option<JsonSchema<'a>> {
        self.0.get(key).filter(|v| v.as_object().is_some()).map(JsonSchema)
    }
}

impl SchemaNode for JsonSchema<'_> {
    fn schema_type(&self) -> &str {
        self.text("type")
    }

    fn format(&self) -> &str {
        self.text("format")
    }

    fn int_or_string(&self) -> bool {
        self.is("x-kubernetes-int-or-string")
    }

    fn embedded_resource(&self) -> bool {
        self.is("x-kubernetes-embedded-resource")
    }

    fn items(&self) -> Option<Self> {
        self.node("items")
    }

    fn additional_properties(&self) -> Option<Self> {
        self.node("additionalProperties")
    }

    fn properties(&self) -> impl Iterator<Item = (&str, Self)> {
        let members = self.0.get("properties").and_then(Value::as_object);
        members.into_iter().flat_map(|m| m.iter()).map(|(name, schema)| (name.as_str(), JsonSchema(schema)))
    }

    fn property(&self, name: &str) -> Option<Self> {
        self.node("properties")?.node(name)
    }

    fn is_required(&self, name: &str) -> bool {
        self.list("required").iter().any(|required| required.as_str() == Some(name))
    }

    fn has_default(&self) -> bool {
        self.0.get("default").is_some()
    }

    fn enum_values(&self) -> &[Value] {
        self.list("enum")
    }

    fn max_length(&self) -> Option<i64> {
        self.bound("maxLength")
    }

    fn max_items(&self) -> Option<i64> {
        self.bound("maxItems")
    }

    fn max_properties(&self) -> Option<i64> {
        self.bound("maxProperties")
    }

    fn list_type(&self) -> &str {
        self.text("x-kubernetes-list-type")
    }

    fn list_map_keys(&self) -> impl Iterator<Item = &str> {
        self.list("x-kubernetes-list-map-keys").iter().filter_map(Value::as_str)
    }
}
