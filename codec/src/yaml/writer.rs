//! YAML writer: the layout of goyaml's emitter as sigs.k8s.io/yaml drives it (block style, lines of any
//! length, lists not indented below their key).

use std::cmp::Ordering;

use smol_str::{format_smolstr, SmolStr};

use super::resolve::{is_base60, resolve, ResolvedScalar};
use crate::json;
use crate::value::{level, Map, Value};

/// Writes a tree as one document, keys in goyaml's order, a line break at the end.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    let mut writer = Writer { out };
    writer.node(value, Context { indent: 0, place: Position::Root });
    writer.end_line();
}

/// Writes one element of a list without indentation, as a top-level list: for documents that are too large
/// for one tree.
pub fn write_element(value: &Value, out: &mut Vec<u8>) {
    let mut writer = Writer { out };
    writer.push("- ");
    writer.node(value, Context { indent: 0, place: Position::Item });
    writer.end_line();
}

/// The position of a node.
#[derive(Clone, Copy)]
struct Context {
    /// Columns before the lines of the container that holds the node.
    indent: usize,
    place: Position,
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    Root,
    /// After `key:`.
    Value,
    /// After `- `, or `: ` of a key on a line of its own: a container begins on the same line.
    Item,
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn end_line(&mut self) {
        // A literal block ends with its own line break.
        if self.out.last().is_some_and(|&b| b != b'\n') {
            self.out.push(b'\n');
        }
    }

    fn begin_line(&mut self, indent: usize) {
        self.end_line();
        self.out.resize(self.out.len() + indent, b' ');
    }

    fn node(&mut self, value: &Value, context: Context) {
        let space = if context.place == Position::Value { " " } else { "" };
        if let Some(map) = value.as_object().filter(|map| !map.is_empty()) {
            let indent = match context.place {
                Position::Root => context.indent,
                Position::Value | Position::Item => context.indent + 2,
            };
            return level(|| self.mapping(map, indent, context.place == Position::Item));
        }
        match value {
            Value::Array(list) if !list.is_empty() => {
                // The list of a key is in the column of the key.
                let indent =
                    if context.place == Position::Item { context.indent + 2 } else { context.indent };
                level(|| self.sequence(list, indent, context.place == Position::Item));
            }
            scalar => {
                self.push(space);
                match scalar {
                    Value::Null => self.push("null"),
                    Value::Bool(true) => self.push("true"),
                    Value::Bool(false) => self.push("false"),
                    Value::Int(n) => self.push(&format_smolstr!("{n}")),
                    Value::Float(n) => self.push(&float(*n)),
                    Value::String(text) => self.string(text, context.indent + 2, false),
                    Value::Array(_) => self.push("[]"),
                    Value::Object(_) | Value::Encoded(_) => self.push("{}"),
                }
            }
        }
    }

    fn sequence(&mut self, list: &[Value], indent: usize, mut inline: bool) {
        for element in list {
            if !std::mem::take(&mut inline) {
                self.begin_line(indent);
            }
            self.push("- ");
            self.node(element, Context { indent, place: Position::Item });
        }
    }

    fn mapping(&mut self, map: &Map, indent: usize, mut inline: bool) {
        for (key, value) in sorted(map) {
            if !std::mem::take(&mut inline) {
                self.begin_line(indent);
            }
            if key.len() <= 128 && !has_break(key) {
                self.string(key, indent, true);
                self.push(":");
                self.node(value, Context { indent, place: Position::Value });
            } else {
                self.push("? ");
                self.string(key, indent + 2, false);
                self.begin_line(indent);
                self.push(": ");
                self.node(value, Context { indent, place: Position::Item });
            }
        }
    }

    /// A string; the lines of a literal block begin in the column `indent`.
    fn string(&mut self, text: &str, indent: usize, key: bool) {
        let shape = TextStyles::of(text);
        let plain = resolve(text) == ResolvedScalar::String && !is_base60(text);
        if text.contains('\n') {
            if shape.block && !key {
                return self.literal(text, indent);
            }
            return self.double_quoted(text);
        }
        if !plain || !shape.single_quoted && !shape.plain {
            return self.double_quoted(text);
        }
        if shape.plain {
            return self.push(text);
        }
        self.push("'");
        self.push(&text.replace('\'', "''"));
        self.push("'");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.push("|");
        if text.starts_with([' ', '\n']) {
            self.push("2");
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.push("-"),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.push("+"),
            Some(_) => {}
        }
        self.push("\n");
        let last = text.len() - usize::from(body.is_some());
        for (i, line) in text[..last].split('\n').enumerate() {
            if i > 0 {
                self.push("\n");
            }
            if !line.is_empty() {
                self.out.resize(self.out.len() + indent, b' ');
                self.push(line);
            }
        }
        if body.is_some() {
            self.push("\n");
        }
    }

    fn double_quoted(&mut self, text: &str) {
        self.push("\"");
        for c in text.chars() {
            let escape = match c {
                '\0' => "\\0",
                '\x07' => "\\a",
                '\x08' => "\\b",
                '\t' => "\\t",
                '\n' => "\\n",
                '\x0b' => "\\v",
                '\x0c' => "\\f",
                '\r' => "\\r",
                '\x1b' => "\\e",
                '"' => "\\\"",
                '\\' => "\\\\",
                '\u{85}' => "\\N",
                '\u{2028}' => "\\L",
                '\u{2029}' => "\\P",
                c if is_printable(c) => {
                    self.push(c.encode_utf8(&mut [0; 4]));
                    continue;
                }
                c => {
                    let code = c as u32;
                    self.push(&match code {
                        0..=0xff => format_smolstr!("\\x{code:02X}"),
                        0x100..=0xffff => format_smolstr!("\\u{code:04X}"),
                        _ => format_smolstr!("\\U{code:08X}"),
                    });
                    continue;
                }
            };
            self.push(escape);
        }
        self.push("\"");
    }
}

/// Characters that libyaml writes without escapes: neither tabs nor characters beyond 16 bits.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn has_break(text: &str) -> bool {
    text.chars().any(is_break)
}

/// Which styles can hold a text.
struct TextStyles {
    plain: bool,
    single_quoted: bool,
    block: bool,
}

impl TextStyles {
    fn of(text: &str) -> TextStyles {
        let mut chars = text.chars().peekable();
        let mut shape = TextStyles { plain: true, single_quoted: true, block: !text.is_empty() };
        // The empty string is always quoted.
        if text.starts_with("---") || text.starts_with("...") {
            shape.plain = false;
        }
        let (mut first, mut after_blank, mut after_space, mut after_break) = (true, true, false, false);
        while let Some(c) = chars.next() {
            let before_blank = chars.peek().is_none_or(|c| matches!(c, ' ' | '\t'));
            let indicator = match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if first =>
                {
                    true
                }
                '?' | '-' if first => before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            if indicator {
                shape.plain = false;
            }
            if !is_printable(c) && !is_break(c) || matches!(c, '\r' | '\u{85}') {
                shape = TextStyles { plain: false, single_quoted: false, block: false };
            }
            if c == ' ' {
                if first || chars.peek().is_none() {
                    shape.plain = false;
                }
                if chars.peek().is_none() {
                    shape.block = false;
                }
                if after_break {
                    shape.plain = false;
                    shape.single_quoted = false;
                }
                (after_space, after_break) = (true, false);
            } else if is_break(c) {
                shape.plain = false;
                // Readers fold a break in quotes, so libyaml's own rule for U+2028 and U+2029 is not
                // followed.
                shape.single_quoted = false;
                if after_space || c != '\n' {
                    shape.block = false;
                }
                (after_space, after_break) = (false, true);
            } else {
                (after_space, after_break) = (false, false);
            }
            after_blank = matches!(c, ' ' | '\t') || is_break(c);
            first = false;
        }
        shape
    }
}

/// A double by way of its JSON text, as upstream does: an integer in JSON is one in YAML.
fn float(n: f64) -> SmolStr {
    let mut text = Vec::new();
    json::write_number(n, &mut text);
    let text = std::str::from_utf8(&text).unwrap_or_default();
    match resolve(text) {
        ResolvedScalar::Float(n) => go_general(n, false),
        _ => SmolStr::new(text),
    }
}

/// A number as Go's `strconv.FormatFloat(n, 'g', -1, …)` prints it; `single` for 32 bits of precision.
pub(super) fn go_general(n: f64, single: bool) -> SmolStr {
    if n == 0.0 {
        return SmolStr::new_static(if n.is_sign_negative() { "-0" } else { "0" });
    }
    let scientific = if single { format_smolstr!("{:e}", n as f32) } else { format_smolstr!("{n:e}") };
    let Some((digits, power)) = scientific.split_once('e') else { return scientific };
    let power: i32 = power.parse().unwrap_or_default();
    if !(-4..6).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format_smolstr!("{digits}e{sign}{:02}", power.abs());
    }
    match single {
        true => format_smolstr!("{}", n as f32),
        false => format_smolstr!("{n}"),
    }
}

/// The members in goyaml's order of keys, where digits count as numbers.
fn sorted(map: &Map) -> Vec<(&SmolStr, &Value)> {
    let members: Vec<_> = map.iter().collect();
    if members.is_sorted_by(|a, b| !less(b.0, a.0)) {
        return members;
    }
    merge_sort(members)
}

/// Goyaml's order is not total, on which the standard library's sort may panic.
fn merge_sort<'m>(members: Vec<(&'m SmolStr, &'m Value)>) -> Vec<(&'m SmolStr, &'m Value)> {
    if members.len() < 2 {
        return members;
    }
    let right = merge_sort(members[members.len() / 2..].to_vec());
    let left = merge_sort(members[..members.len() / 2].to_vec());
    let mut merged = Vec::with_capacity(members.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let from_right = less(r.0, l.0);
        merged.extend(if from_right { right.next() } else { left.next() });
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

fn less(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len() < b.len() };
    let (x, y) = (a[i], b[i]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, y_is_letter) => return y_is_letter,
    }
    let (mut x_number, mut y_number) = (0i64, 0i64);
    if x == '0' || y == '0' {
        // Zeros inside of a number count, leading ones do not.
        let before = a[..i].iter().rev().take_while(|c| c.is_numeric());
        if before.into_iter().any(|&c| c != '0') {
            (x_number, y_number) = (1, 1);
        }
    }
    let read = |chars: &[char], number: &mut i64| {
        let digits = chars.iter().take_while(|c| c.is_numeric());
        digits.fold(0, |count, &c| {
            *number = number.wrapping_mul(10).wrapping_add(i64::from(c as u32) - i64::from(b'0'));
            count + 1
        })
    };
    let (x_digits, y_digits) = (read(&a[i..], &mut x_number), read(&b[i..], &mut y_number));
    match x_number.cmp(&y_number).then(x_digits.cmp(&y_digits)) {
        Ordering::Equal => x < y,
        order => order == Ordering::Less,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_natural_order() {
        let mut keys = ["b", "a10", "a2", "a", "B", "a/b", "a.b", "1", "10", "2", "a-1", "a01", "_x"];
        keys.sort_by(|a, b| if less(a, b) { Ordering::Less } else { Ordering::Greater });
        assert_eq!(keys, ["_x", "1", "2", "10", "B", "a", "a-1", "a.b", "a/b", "a01", "a2", "a10", "b"]);
    }

    #[test]
    fn numbers_print_as_go_prints_them() {
        for (n, text) in [
            (0.5, "0.5"),
            (1.5, "1.5"),
            (123_456.5, "123456.5"),
            (1_234_567.5, "1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e21, "1e+21"),
            (1e20, "1e+20"),
            (1e6, "1e+06"),
            (100_000.0, "100000"),
        ] {
            assert_eq!(go_general(n, false), text);
        }
        // By way of JSON, whole numbers are integers.
        assert_eq!(float(1e6), "1000000");
        assert_eq!(float(1e21), "1e+21");
    }
}
