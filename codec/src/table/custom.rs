//! Columns of custom resources: `additionalPrinterColumns`, with a JSONPath each.
//!
//! Of JSONPath (`k8s.io/client-go/util/jsonpath`) the subset that selects one value: keys (`.a`, `['a.b']`,
//! with `\.` for a dot in a key), indices and slices, wildcards, and filters that compare a path with a
//! literal (`[?(@.type=="Ready")]`). Only the first result is used, as in upstream. A column whose path uses
//! anything else is empty.

use super::age::Now;
use super::cell::Cell;
use crate::Value;

/// How a column formats its value: the `type` of its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
    Unknown,
}

/// A column of a custom resource.
pub(super) struct CustomColumn {
    kind: Kind,
    /// `None` when the path cannot be used.
    path: Option<Vec<JsonPathStep>>,
}

#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Key(String),
    Wildcard,
    /// Start, exclusive end, and step; negative counts from the end.
    Slice(Option<i64>, Option<i64>, i64),
    Filter(Vec<JsonPathStep>, Comparison),
}

#[derive(Clone, Debug, PartialEq)]
enum Comparison {
    Exists,
    Equal(Value),
    NotEqual(Value),
    Ordered(std::cmp::Ordering, bool, f64),
}

impl CustomColumn {
    pub(super) fn new(kind: &str, json_path: &str) -> CustomColumn {
        let kind = match kind {
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "date" => Kind::Date,
            _ => Kind::Unknown,
        };
        let path = Parser { rest: json_path }.steps();
        CustomColumn { kind, path }
    }

    /// The path that it reads: the leading keys, with everything below.
    pub(super) fn reads(&self) -> Option<String> {
        let steps = self.path.as_ref()?;
        let keys = steps.iter().map_while(|step| match step {
            // A dot within a key would be taken for a separator, so stop at the map that has the key.
            JsonPathStep::Key(key) if !key.contains(['.', '#', '[']) => Some(key.as_str()),
            _ => None,
        });
        Some(keys.collect::<Vec<_>>().join("."))
    }

    pub(super) fn cell<'a>(&self, object: &'a Value, now: Now) -> Cell<'a> {
        let found = self.path.as_ref().and_then(|path| first(object, path));
        match (self.kind, found) {
            (_, None) => Cell::Null,
            // Go prints a nil result like this.
            (Kind::Text, Some(Value::Null)) => "<no value>".into(),
            (Kind::Text, Some(value @ (Value::Array(_) | Value::Object(_)))) => {
                let mut json = Vec::new();
                super::json::value(value, &mut json);
                String::from_utf8(json).map_or(Cell::Null, Cell::from)
            }
            (Kind::Text, Some(value)) => Cell::Text(value.scalar_text()),
            (Kind::Integer, Some(Value::Int(n))) => Cell::Int(*n),
            (Kind::Integer, Some(Value::Float(n))) => Cell::Int(*n as i64),
            (Kind::Number, Some(Value::Int(n))) => Cell::Float(*n as f64),
            (Kind::Number, Some(Value::Float(n))) => Cell::Float(*n),
            (Kind::Boolean, Some(Value::Bool(b))) => Cell::Bool(*b),
            (Kind::Date, Some(Value::String(text))) => match text.as_str() {
                "null" => "<unknown>".into(),
                timestamp => now.age(timestamp).into(),
            },
            _ => Cell::Null,
        }
    }
}

/// The first result of a path.
fn first<'a>(value: &'a Value, path: &[JsonPathStep]) -> Option<&'a Value> {
    let Some((step, rest)) = path.split_first() else { return Some(value) };
    match (step, value) {
        (JsonPathStep::Key(key), _) => first(value.get(key)?, rest),
        (JsonPathStep::Wildcard, Value::Array(items)) => items.iter().find_map(|item| first(item, rest)),
        (JsonPathStep::Wildcard, Value::Object(map)) => map.values().find_map(|v| first(v, rest)),
        (JsonPathStep::Slice(from, to, by), Value::Array(items)) => {
            let length = items.len() as i64;
            let place = |i: i64| if i < 0 { i.saturating_add(length) } else { i };
            let from = place(from.unwrap_or(0)).max(0);
            let to = place(to.unwrap_or(length)).min(length);
            let mut i = from;
            while i < to {
                if let Some(found) = first(&items[i as usize], rest) {
                    return Some(found);
                }
                i = i.saturating_add(*by);
            }
            None
        }
        (JsonPathStep::Filter(path, comparison), Value::Array(items)) => {
            items.iter().filter(|item| comparison.holds(first(item, path))).find_map(|item| first(item, rest))
        }
        _ => None,
    }
}

impl Comparison {
    fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return false };
        let number = |v: &Value| match v {
            Value::Int(n) => Some(*n as f64),
            Value::Float(n) => Some(*n),
            _ => None,
        };
        let equal = |literal: &Value| match (number(value), number(literal)) {
            (Some(a), Some(b)) => a == b,
            _ => value == literal,
        };
        match self {
            Comparison::Exists => true,
            Comparison::Equal(literal) => equal(literal),
            Comparison::NotEqual(literal) => !equal(literal),
            Comparison::Ordered(wanted, or_equal, literal) => number(value)
                .and_then(|n| n.partial_cmp(literal))
                .is_some_and(|o| o == *wanted || (*or_equal && o.is_eq())),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, end: impl FnMut(char) -> bool) -> &'a str {
        let (before, after) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = after;
        before
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// A whole path; `None` when it is not supported.
    fn steps(mut self) -> Option<Vec<JsonPathStep>> {
        let steps = self.path()?;
        self.rest.trim().is_empty().then_some(steps)
    }

    /// Steps up to the first token that is not a step.
    fn path(&mut self) -> Option<Vec<JsonPathStep>> {
        let mut steps = Vec::new();
        loop {
            if self.rest.starts_with("..") {
                return None;
            } else if self.take(".") {
                match self.key() {
                    key if key.is_empty() => {}
                    key if key == "*" => steps.push(JsonPathStep::Wildcard),
                    key => steps.push(JsonPathStep::Key(key)),
                }
            } else if self.take("[") {
                steps.push(self.bracket()?);
            } else {
                return Some(steps);
            }
        }
    }

    /// A key, with `\` before characters that would end it.
    fn key(&mut self) -> String {
        let mut key = String::new();
        loop {
            let ends = |c: char| c.is_whitespace() || "\\.[]()=!<>|,{}\"'".contains(c);
            key.push_str(self.until(ends));
            if !self.take("\\") {
                return key;
            }
            let escaped = self.rest.chars().next();
            key.extend(escaped);
            self.rest = &self.rest[escaped.map_or(0, char::len_utf8)..];
        }
    }

    /// The content of brackets, including the closing one.
    fn bracket(&mut self) -> Option<JsonPathStep> {
        self.space();
        let step = if self.take("?(") {
            self.filter()?
        } else if self.take("*") {
            JsonPathStep::Wildcard
        } else if let Some(quoted) = self.quoted() {
            JsonPathStep::Key(quoted?)
        } else {
            let inside = self.until(|c| c == ']');
            let parts: Vec<&str> = inside.split(':').map(str::trim).collect();
            let number = |text: &str| match text {
                "" => Some(None),
                text => text.parse::<i64>().ok().map(Some),
            };
            match parts[..] {
                [index] => {
                    let index = number(index)??;
                    // For the last element the end is open.
                    JsonPathStep::Slice(Some(index), Some(index + 1).filter(|end| *end != 0), 1)
                }
                [from, to] => JsonPathStep::Slice(number(from)?, number(to)?, 1),
                [from, to, by] => {
                    JsonPathStep::Slice(number(from)?, number(to)?, number(by)?.unwrap_or(1).max(1))
                }
                _ => return None,
            }
        };
        self.space();
        self.take("]").then_some(step)
    }

    /// A quoted string; `None` when there is no quote, `Some(None)` when it is unterminated.
    fn quoted(&mut self) -> Option<Option<String>> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        let mut chars = self.rest[1..].chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => text.extend(chars.next()),
                c if c == quote => {
                    self.rest = chars.as_str();
                    return Some(Some(text));
                }
                c => text.push(c),
            }
        }
        Some(None)
    }

    /// A filter after `?(`, including the closing parenthesis.
    fn filter(&mut self) -> Option<JsonPathStep> {
        self.space();
        if !self.take("@") {
            return None;
        }
        let path = self.path()?;
        self.space();
        use std::cmp::Ordering::{Greater, Less};
        let comparison = if self.rest.starts_with(')') {
            Comparison::Exists
        } else {
            let operators = ["==", "!=", "<=", ">=", "<", ">"];
            let operator = operators.into_iter().find(|operator| self.take(operator))?;
            self.space();
            let literal = self.literal()?;
            let number = match &literal {
                Value::Int(n) => Some(*n as f64),
                Value::Float(n) => Some(*n),
                _ => None,
            };
            match operator {
                "==" => Comparison::Equal(literal),
                "!=" => Comparison::NotEqual(literal),
                "<=" => Comparison::Ordered(Less, true, number?),
                ">=" => Comparison::Ordered(Greater, true, number?),
                "<" => Comparison::Ordered(Less, false, number?),
                _ => Comparison::Ordered(Greater, false, number?),
            }
        };
        self.space();
        self.take(")").then_some(JsonPathStep::Filter(path, comparison))
    }

    fn literal(&mut self) -> Option<Value> {
        if let Some(quoted) = self.quoted() {
            return quoted.map(Value::from);
        }
        match self.until(|c| c == ')' || c.is_whitespace()) {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            text => match text.parse::<i64>() {
                Ok(n) => Some(n.into()),
                Err(_) => text.parse().ok().map(Value::Float),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;
    use std::time::{Duration, SystemTime};

    #[test]
    fn columns() {
        let condition = |kind: &str, status: &str| tree!({ "type": kind, "status": status, "n": 3i64 });
        let object = tree!({
            "metadata": tree!({ "creationTimestamp": "1970-01-01T00:00:00Z", "labels": tree!({ "a.b/c": "d" }) }),
            "spec": tree!({
                "color": "red",
                "size": 7i64,
                "ratio": Value::Float(0.5),
                "on": true,
                "none": Value::Null,
                "list": tree!(["x", "y", "z"]),
                "map": tree!({ "k": 1i64 }),
            }),
            "status": tree!({ "conditions": tree!([condition("Synced", "False"), condition("Ready", "True")]) }),
        });
        let now = Now::from(SystemTime::UNIX_EPOCH + Duration::from_secs(300));
        let text = |t: &'static str| Cell::from(t);
        let cases: &[(&str, &str, Cell<'_>)] = &[
            ("string", ".spec.color", text("red")),
            ("string", ".spec['color']", text("red")),
            ("string", ".spec.size", text("7")),
            ("string", ".spec.ratio", text("0.5")),
            ("string", ".spec.on", text("true")),
            ("string", ".spec.none", text("<no value>")),
            ("string", ".spec.absent.deeper", Cell::Null),
            ("string", ".spec.list", text(r#"["x","y","z"]"#)),
            ("string", ".spec.map", text(r#"{"k":1}"#)),
            ("string", ".spec.list[0]", text("x")),
            ("string", ".spec.list[-1]", text("z")),
            ("string", ".spec.list[3]", Cell::Null),
            ("string", ".spec.list[1:]", text("y")),
            ("string", ".spec.list[-2:-1]", text("y")),
            ("string", ".spec.list[*]", text("x")),
            ("string", ".spec.map.*", text("1")),
            ("string", r".metadata.labels.a\.b/c", text("d")),
            ("string", ".metadata.labels['a.b/c']", text("d")),
            ("string", r#".status.conditions[?(@.type=="Ready")].status"#, text("True")),
            ("string", ".status.conditions[?(@.type == 'Ready')].status", text("True")),
            ("string", ".status.conditions[?(@.type!='Synced')].type", text("Ready")),
            ("string", ".status.conditions[?(@.n>=3)].type", text("Synced")),
            ("string", ".status.conditions[?(@.n<3)].type", Cell::Null),
            ("string", ".status.conditions[?(@.status)].type", text("Synced")),
            ("string", ".status.conditions[*].type", text("Synced")),
            ("integer", ".spec.size", Cell::Int(7)),
            ("integer", ".spec.ratio", Cell::Int(0)),
            ("integer", ".spec.color", Cell::Null),
            ("number", ".spec.size", Cell::Float(7.0)),
            ("number", ".spec.ratio", Cell::Float(0.5)),
            ("boolean", ".spec.on", Cell::Bool(true)),
            ("boolean", ".spec.size", Cell::Null),
            ("date", ".metadata.creationTimestamp", text("5m")),
            ("date", ".spec.color", text("<invalid>")),
            // Not supported, or malformed.
            ("string", "..color", Cell::Null),
            ("string", ".spec.list[", Cell::Null),
            ("string", ".spec.list[x]", Cell::Null),
            ("string", ".spec['color", Cell::Null),
            ("string", ".status.conditions[?(@.type==)].status", Cell::Null),
            ("string", ".status.conditions[?(@.type=='a' && @.n==3)].status", Cell::Null),
        ];
        for (kind, path, expected) in cases {
            let column = CustomColumn::new(kind, path);
            assert_eq!(&column.cell(&object, now), expected, "{kind} {path}");
        }
    }

    #[test]
    fn reads_no_more_than_the_leading_keys() {
        let reads = |path| CustomColumn::new("string", path).reads();
        assert_eq!(reads(".spec.color").as_deref(), Some("spec.color"));
        assert_eq!(reads(".status.conditions[?(@.a==1)].b").as_deref(), Some("status.conditions"));
        assert_eq!(reads(".metadata.labels['a.b']").as_deref(), Some("metadata.labels"));
        assert_eq!(reads("..a"), None);
    }
}
