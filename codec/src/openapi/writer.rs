//! A streaming JSON writer, so that a document of a megabyte needs no tree of ten.

use crate::json;
use crate::value::Value;

/// A growing JSON text. Commas and colons are inserted automatically.
#[derive(Debug, Default)]
pub(super) struct JsonWriter {
    out: Vec<u8>,
    /// Whether the next value in the list or object needs a comma.
    comma: bool,
}

impl JsonWriter {
    pub(super) fn new() -> JsonWriter {
        JsonWriter::default()
    }

    /// The finished text.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    fn before_value(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
    }

    /// An object; `members` writes keys and values in turn.
    pub(super) fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.nest(b'{', b'}', members);
    }

    /// A list; `elements` writes its values.
    pub(super) fn array(&mut self, elements: impl FnOnce(&mut Self)) {
        self.nest(b'[', b']', elements);
    }

    fn nest(&mut self, open: u8, close: u8, content: impl FnOnce(&mut Self)) {
        self.before_value();
        self.out.push(open);
        self.comma = false;
        content(self);
        self.out.push(close);
        self.comma = true;
    }

    /// A key, to be followed by its value: `w.key("type").string("object")`.
    pub(super) fn key(&mut self, key: &str) -> &mut Self {
        self.before_value();
        json::write_minimal_string(key, &mut self.out);
        self.out.push(b':');
        self.comma = false;
        self
    }

    pub(super) fn string(&mut self, text: &str) {
        self.before_value();
        json::write_minimal_string(text, &mut self.out);
        self.comma = true;
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.literal(if value { "true" } else { "false" });
    }

    pub(super) fn int(&mut self, value: i64) {
        self.literal(&value.to_string());
    }

    /// A list of strings.
    pub(super) fn strings<S: AsRef<str>>(&mut self, items: impl IntoIterator<Item = S>) {
        self.array(|w| items.into_iter().for_each(|item| w.string(item.as_ref())));
    }

    /// A whole tree.
    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.literal("null"),
            Value::Bool(b) => self.bool(*b),
            Value::Int(n) => self.int(*n),
            // Trees hold no NaN and no infinity, which alone have no JSON form.
            Value::Float(f) => self.literal(&serde_json::to_string(f).unwrap_or_default()),
            Value::String(s) => self.string(s),
            Value::Array(items) => self.array(|w| items.iter().for_each(|item| w.value(item))),
            Value::Object(map) => self.object(|w| {
                for (key, member) in map.iter() {
                    w.key(key).value(member);
                }
            }),
            Value::Encoded(encoded) => self.literal(encoded.text()),
        }
    }

    fn literal(&mut self, text: &str) {
        self.before_value();
        self.out.extend_from_slice(text.as_bytes());
        self.comma = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_escapes_parse_back() {
        let mut w = JsonWriter::new();
        w.object(|w| {
            w.key("empty").object(|_| {});
            w.key("list").array(|w| {
                w.int(-1);
                w.array(|_| {});
                w.bool(true);
                w.value(&Value::Float(1.5));
            });
            w.key("quo\"te").string("a\\b\n\u{1}é\u{7f}");
            w.key("strings").strings(["x", ""]);
        });
        let parsed: serde_json::Value = serde_json::from_slice(&w.into_bytes()).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!({
                "empty": {}, "list": [-1, [], true, 1.5], "quo\"te": "a\\b\n\u{1}é\u{7f}", "strings": ["x", ""],
            })
        );
    }
}
