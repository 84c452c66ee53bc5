//! YAML reader.

use std::collections::HashSet;

use smol_str::{format_smolstr, SmolStr};

use super::nodes::{compose, yaml_error, Document, Kind, Node, NodeId};
use super::resolve::{resolve, ResolvedScalar};
use super::writer::go_general;
use crate::base64_text;
use crate::error::{quoted, DecodeError, StrictError, MAX_STRICT_ERRORS};
use crate::json;
use crate::value::{level, Map, Value, MAX_DEPTH};

/// Reads a body of one YAML document as upstream does on its way to JSON. The second result reports duplicate
/// keys (the last one counts); there is at most one such error, which names them all, as in upstream.
///
/// JSON is read by the JSON reader, which is ten times as fast and allows more levels of flow style. An empty
/// body is `null`. Aliases may make at most 99% of a document (less of a very large one), as in goyaml.
pub fn to_value(body: &[u8]) -> Result<(Value, Vec<StrictError>), DecodeError> {
    // White space that may precede a flow mapping; a tab may not.
    if body.iter().find(|byte| !matches!(byte, b' ' | b'\n' | b'\r')) == Some(&b'{') {
        if let Ok(decoded) = json::parse_reporting(body) {
            if decoded.strict.is_empty() {
                return Ok((decoded.value, Vec::new()));
            }
        }
    }
    let text = check_characters(body)?;
    let document = compose(text)?;
    let Some(root) = document.root else { return Ok((Value::Null, Vec::new())) };
    let mut reader = Reader {
        document: &document,
        following: Vec::new(),
        depth: 0,
        decoded: 0,
        aliased: 0,
        repeated: Vec::new(),
    };
    let value = reader.value(root)?;
    let strict = match reader.repeated.is_empty() {
        true => Vec::new(),
        false => vec![StrictError::Yaml(format_smolstr!(
            "yaml: unmarshal errors:\n  {}",
            reader.repeated.join("\n  ")
        ))],
    };
    Ok((value, strict))
}

/// The body as text, if YAML allows all characters in it.
fn check_characters(body: &[u8]) -> Result<&str, DecodeError> {
    let text = std::str::from_utf8(body).map_err(|error| match body.get(error.valid_up_to()) {
        _ if error.error_len().is_none() => yaml_error("incomplete UTF-8 octet sequence"),
        Some(0xc2..=0xf4) => yaml_error("invalid trailing UTF-8 octet"),
        _ => yaml_error("invalid leading UTF-8 octet"),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => true,
        c => c >= '\u{a0}' && !matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    match text.chars().all(allowed) {
        true => Ok(text),
        false => Err(yaml_error("control characters are not allowed")),
    }
}

struct Reader<'d, 'a> {
    document: &'d Document<'a>,
    /// The aliases that are being followed, innermost last.
    following: Vec<NodeId>,
    depth: usize,
    /// Number of nodes read, and how many of them through an alias.
    decoded: u64,
    aliased: u64,
    repeated: Vec<SmolStr>,
}

/// A mapping while it is read; merges may occur between its keys.
#[derive(Default)]
struct Members {
    list: Vec<(SmolStr, Value)>,
    /// The keys so far, as goyaml's errors show them: `"1"` and `1` are two.
    seen: HashSet<String>,
}

impl<'d, 'a> Reader<'d, 'a> {
    fn node(&self, id: NodeId) -> &'d Node<'a> {
        &self.document.nodes[id]
    }

    /// Counts a node; refuses documents that consist mostly of aliases.
    fn count(&mut self) -> Result<(), DecodeError> {
        const FEW: u64 = 400_000;
        const MANY: u64 = 4_000_000;
        self.decoded += 1;
        self.aliased += u64::from(!self.following.is_empty());
        if self.aliased <= 100 || self.decoded <= 1000 {
            return Ok(());
        }
        // 99% of a small document, 10% of a large one, linear in between.
        let beyond = self.decoded.clamp(FEW, MANY) - FEW;
        let allowed = 0.99 - 0.89 * (beyond as f64 / (MANY - FEW) as f64);
        match self.aliased as f64 / self.decoded as f64 > allowed {
            true => Err(yaml_error("document contains excessive aliasing")),
            false => Ok(()),
        }
    }

    fn value(&mut self, id: NodeId) -> Result<Value, DecodeError> {
        self.count()?;
        let node = self.node(id);
        match &node.kind {
            Kind::Scalar { text, plain } => scalar(node, text, *plain),
            Kind::Alias(target) => self.follow(id, |reader| reader.value(*target)),
            Kind::Sequence(children) => self.deeper(|reader| {
                let elements = children.iter().map(|&child| reader.value(child));
                Ok(Value::Array(elements.collect::<Result<_, _>>()?))
            }),
            Kind::Mapping(children) => self.deeper(|reader| {
                let mut members = Members::default();
                reader.mapping(children, &mut members)?;
                Ok(Value::Object(Map::from_members(members.list).0))
            }),
        }
    }

    fn deeper<R>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<R, DecodeError>,
    ) -> Result<R, DecodeError> {
        // Aliases of aliases make a tree deeper than its text.
        if self.depth == MAX_DEPTH {
            return Err(yaml_error(format_args!("exceeded max depth of {MAX_DEPTH}")));
        }
        self.depth += 1;
        let result = level(|| read(self));
        self.depth -= 1;
        result
    }

    fn follow<R>(
        &mut self,
        alias: NodeId,
        read: impl FnOnce(&mut Self) -> Result<R, DecodeError>,
    ) -> Result<R, DecodeError> {
        // Each level of aliases is a recursion of its own, even without a container in between.
        if self.following.contains(&alias) {
            return Err(yaml_error("anchor value contains itself"));
        }
        self.following.push(alias);
        let result = self.deeper(read);
        self.following.pop();
        result
    }

    fn mapping(&mut self, children: &'d [NodeId], members: &mut Members) -> Result<(), DecodeError> {
        for pair in children.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if self.is_merge(key) {
                self.merge(value, members)?;
                continue;
            }
            let (key, shown) = self.key(key)?;
            if let Some(again) = members.seen.replace(shown) {
                self.note_repeated(&again, self.node(value).line);
            }
            let value = self.value(value)?;
            members.list.push((key, value));
        }
        Ok(())
    }

    fn note_repeated(&mut self, key: &str, line: usize) {
        if self.repeated.len() < MAX_STRICT_ERRORS {
            self.repeated.push(format_smolstr!("line {line}: key {key} already set in map"));
        }
    }

    fn is_merge(&self, key: NodeId) -> bool {
        let node = self.node(key);
        match &node.kind {
            Kind::Scalar { text, plain } => {
                text == "<<" && (*plain && node.tag.is_none() || node.tag.as_deref() == Some("!!merge"))
            }
            _ => false,
        }
    }

    /// Merges a mapping, an alias of one, or a list of those. As in goyaml, merged keys replace those before
    /// the `<<`.
    fn merge(&mut self, id: NodeId, members: &mut Members) -> Result<(), DecodeError> {
        let sources = match &self.node(id).kind {
            // Of several sources the earlier ones take precedence, so they are applied last.
            Kind::Sequence(children) => children.iter().rev().copied().collect(),
            _ => vec![id],
        };
        for source in sources {
            self.count()?;
            match &self.node(source).kind {
                Kind::Mapping(children) => self.deeper(|reader| reader.mapping(children, members))?,
                Kind::Alias(target) => {
                    let Kind::Mapping(children) = &self.node(*target).kind else { return Err(wants_map()) };
                    self.follow(source, |reader| {
                        reader.count()?;
                        reader.mapping(children, members)
                    })?;
                }
                _ => return Err(wants_map()),
            }
        }
        Ok(())
    }

    /// A key as the string that JSON needs, and as goyaml's errors show it.
    fn key(&mut self, id: NodeId) -> Result<(SmolStr, String), DecodeError> {
        self.count()?;
        let mut node = self.node(id);
        // The target of an alias comes before it, so this ends.
        while let Kind::Alias(target) = node.kind {
            node = self.node(target);
        }
        let Kind::Scalar { text, plain } = &node.kind else {
            return Err(yaml_error("invalid map key: a map or list"));
        };
        let key = match scalar(node, text, *plain)? {
            Value::String(text) => {
                let shown = quoted(&text);
                return Ok((text, shown));
            }
            Value::Bool(b) => SmolStr::new_static(if b { "true" } else { "false" }),
            Value::Int(n) => format_smolstr!("{n}"),
            Value::Float(_) if matches!(resolve(text), ResolvedScalar::Big(_)) => {
                return Err(unsupported_key("uint64"))
            }
            Value::Float(n) => go_general(n, true),
            _ => return Err(unsupported_key("%!s(<nil>)")),
        };
        let shown = key.to_string();
        Ok((key, shown))
    }
}

fn wants_map() -> DecodeError {
    yaml_error("map merge requires map or sequence of maps as the value")
}

fn unsupported_key(go_type: &str) -> DecodeError {
    DecodeError::Yaml { message: format!("unsupported map key of type: {go_type}").into() }
}

/// The value of a scalar, by its tag or, without one, its text.
fn scalar(node: &Node<'_>, text: &str, plain: bool) -> Result<Value, DecodeError> {
    let cannot =
        |found: &str, wanted: &str| yaml_error(format_args!("cannot decode {found} `{text}` as a {wanted}"));
    let Some(tag) = node.tag.as_deref() else {
        return match plain {
            true => meaning(resolve(text), text),
            false => Ok(Value::String(SmolStr::new(text))),
        };
    };
    match tag {
        "!!str" => Ok(Value::String(SmolStr::new(text))),
        "!!binary" => {
            let bytes = base64_text::decode(&text.replace(' ', ""));
            let bytes = bytes.map_err(|_| yaml_error("!!binary value contains invalid base64 data"))?;
            Ok(Value::String(String::from_utf8_lossy(&bytes).into()))
        }
        "!!null" | "!!bool" | "!!int" | "!!float" | "!!timestamp" => match (tag, resolve(text)) {
            ("!!float", ResolvedScalar::Int(n)) => Ok(Value::Float(n as f64)),
            (_, found) if found.tag() == tag => meaning(found, text),
            (_, found) => Err(cannot(found.tag(), tag)),
        },
        // Application tags are ignored.
        _ => Ok(Value::String(SmolStr::new(text))),
    }
}

fn meaning(resolved: ResolvedScalar, text: &str) -> Result<Value, DecodeError> {
    Ok(match resolved {
        ResolvedScalar::Null => Value::Null,
        ResolvedScalar::Bool(b) => Value::Bool(b),
        ResolvedScalar::Int(n) => Value::Int(n),
        ResolvedScalar::Big(n) => Value::Float(n as f64),
        ResolvedScalar::Float(n) if n.is_finite() => Value::Float(n),
        ResolvedScalar::Float(n) => {
            let shown = if n.is_nan() {
                "NaN"
            } else if n > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            return Err(DecodeError::Yaml { message: format!("json: unsupported value: {shown}").into() });
        }
        ResolvedScalar::Timestamp | ResolvedScalar::String => Value::String(SmolStr::new(text)),
    })
}
