//! Translation of Go's regular expression syntax to that of the crate `regex`.

use std::fmt::Write;

use super::error::{error, RegexpError};

/// Maximum nesting of groups, as in Go.
const MAX_NESTING: usize = 1000;
/// The largest count of a repetition, nested ones multiplied, as in Go.
const MAX_REPEAT: u32 = 1000;

/// Translates a pattern to the syntax of the crate.
pub(super) fn translate(pattern: &str) -> Result<String, RegexpError> {
    let mut reader = Reader {
        rest: pattern,
        out: String::with_capacity(pattern.len() + 16),
        repeats: None,
        groups: Vec::new(),
        most: 1,
    };
    reader.read(pattern)?;
    match reader.groups.is_empty() {
        true => Ok(reader.out),
        false => Err(error("missing closing )", pattern)),
    }
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    /// The maximum repetition within the last expression; `None` when there is nothing to be repeated.
    repeats: Option<u32>,
    /// For each open group, the maximum repetition before it in the enclosing group.
    groups: Vec<u32>,
    /// The maximum repetition in the current group.
    most: u32,
}

impl<'a> Reader<'a> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        c
    }

    /// The input consumed since `before`.
    fn since(&self, before: &'a str) -> &'a str {
        &before[..before.len() - self.rest.len()]
    }

    fn literal(&mut self, c: char) {
        let mut buffer = [0; 4];
        self.out.push_str(&regex::escape(c.encode_utf8(&mut buffer)));
        self.repeats = Some(1);
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.repeats = Some(1);
    }

    fn read(&mut self, whole: &'a str) -> Result<(), RegexpError> {
        // The start of the last repetition, if nothing followed it.
        let mut repeated: Option<&'a str> = None;
        while let Some(c) = self.rest.chars().next() {
            let before = self.rest;
            let last = repeated.take();
            match c {
                '(' => self.open(whole)?,
                ')' => {
                    let Some(outer) = self.groups.pop() else {
                        return Err(error("unexpected )", whole));
                    };
                    self.next();
                    self.out.push(')');
                    self.repeats = Some(self.most);
                    self.most = self.most.max(outer);
                }
                '|' => {
                    self.next();
                    self.out.push('|');
                    self.repeats = None;
                }
                '^' | '$' | '.' => {
                    self.next();
                    self.atom(c.encode_utf8(&mut [0; 4]));
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.next();
                    repeated = Some(self.repetition(before, last, c.encode_utf8(&mut [0; 4]), 1)?);
                }
                '{' => match self.counts()? {
                    Some((text, most)) => repeated = Some(self.repetition(before, last, &text, most)?),
                    None => {
                        self.next();
                        self.literal('{');
                    }
                },
                '\\' => self.backslash()?,
                c => {
                    self.next();
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    /// A repetition that was read since `before`, after another one that began at `last`.
    fn repetition(
        &mut self,
        before: &'a str,
        last: Option<&'a str>,
        text: &str,
        most: u32,
    ) -> Result<&'a str, RegexpError> {
        let operator = self.since(before);
        let lazy = self.take("?");
        if let Some(last) = last {
            return Err(error("invalid nested repetition operator", self.since(last)));
        }
        let Some(within) = self.repeats else {
            return Err(error("missing argument to repetition operator", operator));
        };
        let product = within.saturating_mul(most.max(1));
        if most > 1 && product > MAX_REPEAT {
            return Err(error("invalid repeat count", operator));
        }
        self.out.push_str(text);
        if lazy {
            self.out.push('?');
        }
        self.repeats = Some(product);
        self.most = self.most.max(product);
        Ok(before)
    }

    /// `{2}`, `{2,}` or `{2,3}`, in the other syntax and with the largest number; `None` for anything else,
    /// which is literal.
    fn counts(&mut self) -> Result<Option<(String, u32)>, RegexpError> {
        let before = self.rest;
        let number = |text: &str| -> Option<u32> {
            let canonical = text == "0" || !text.starts_with('0');
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            (canonical && digits).then(|| text.parse().unwrap_or(u32::MAX))
        };
        let Some((inside, rest)) = before[1..].split_once('}') else { return Ok(None) };
        let (low, high) = match inside.split_once(',') {
            None => (number(inside), number(inside)),
            Some((low, "")) => (number(low), number(low)),
            Some((low, high)) => (number(low), number(high)),
        };
        let (Some(low), Some(high)) = (low, high) else { return Ok(None) };
        self.rest = rest;
        if low > MAX_REPEAT || high > MAX_REPEAT || low > high {
            return Err(error("invalid repeat count", self.since(before)));
        }
        Ok(Some((format!("{{{inside}}}"), high)))
    }

    fn open(&mut self, whole: &'a str) -> Result<(), RegexpError> {
        let before = self.rest;
        self.next();
        if self.rest.starts_with("?P<") || self.rest.starts_with("?<") {
            let name = self.rest.split_once('<').map_or("", |(_, name)| name);
            let Some((name, rest)) = name.split_once('>') else {
                return Err(error("invalid named capture", before));
            };
            self.rest = rest;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(error("invalid named capture", self.since(before)));
            }
            // Group names make no difference to a match.
            self.out.push('(');
        } else if self.take("?") {
            if !self.flags(before)? {
                return Ok(());
            }
        } else {
            self.out.push('(');
        }
        if self.groups.len() >= MAX_NESTING {
            return Err(error("expression nests too deeply", whole));
        }
        self.groups.push(std::mem::replace(&mut self.most, 1));
        self.repeats = None;
        Ok(())
    }

    /// Flags after `(?`; returns whether they open a group.
    fn flags(&mut self, before: &'a str) -> Result<bool, RegexpError> {
        const WHAT: &str = "invalid or unsupported Perl syntax";
        let (mut on, mut off, mut negative, mut any) = (String::new(), String::new(), false, false);
        loop {
            match self.next() {
                Some(c @ ('i' | 'm' | 's' | 'U')) => {
                    any = true;
                    let flags = if negative { &mut off } else { &mut on };
                    if !flags.contains(c) {
                        flags.push(c);
                    }
                }
                Some('-') if !negative => (negative, any) = (true, false),
                Some(end @ (':' | ')')) if any || !negative => {
                    on.retain(|c| !off.contains(c));
                    let minus = if off.is_empty() { "" } else { "-" };
                    match (end, on.is_empty() && off.is_empty()) {
                        (':', _) => {
                            let _ = write!(self.out, "(?{on}{minus}{off}:");
                        }
                        (_, false) => {
                            let _ = write!(self.out, "(?{on}{minus}{off})");
                        }
                        _ => {}
                    }
                    return Ok(end == ':');
                }
                _ => return Err(error(WHAT, self.since(before))),
            }
        }
    }

    /// A backslash outside of a class.
    fn backslash(&mut self) -> Result<(), RegexpError> {
        let before = self.rest;
        let mut chars = before.chars();
        chars.next();
        let after = chars.clone();
        match chars.next() {
            Some('A') => self.atom(r"\A"),
            Some('z') => self.atom(r"\z"),
            Some('b') => self.atom(r"(?-u:\b)"),
            Some('B') => self.atom(r"(?-u:\B)"),
            Some('Q') => {
                let (quoted, rest) = match chars.as_str().split_once("\\E") {
                    Some(parts) => parts,
                    None => (chars.as_str(), ""),
                };
                quoted.chars().for_each(|c| self.literal(c));
                self.rest = rest;
                return Ok(());
            }
            Some('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'p' | 'P') => {
                let class = self.named_class()?;
                self.atom(&class);
                return Ok(());
            }
            _ => {
                drop(after);
                let c = self.escape()?;
                self.literal(c);
                return Ok(());
            }
        }
        self.rest = chars.as_str();
        Ok(())
    }

    /// `\d` and its like, and `\p`: valid inside and outside of a class.
    fn named_class(&mut self) -> Result<String, RegexpError> {
        let before = self.rest;
        self.next();
        let c = self.next();
        let ascii = match c {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => r"[\t\n\f\r ]",
            Some('S') => r"[^\t\n\f\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            _ => "",
        };
        if !ascii.is_empty() {
            return Ok(ascii.to_owned());
        }
        let name = match self.take("{") {
            true => match self.rest.split_once('}') {
                Some((name, rest)) => {
                    self.rest = rest;
                    name
                }
                None => return Err(error("invalid character class range", before)),
            },
            false => {
                let start = self.rest;
                self.next();
                self.since(start)
            }
        };
        let (negated, name) = match name.strip_prefix('^') {
            Some(name) => (c == Some('p'), name),
            None => (c == Some('P'), name),
        };
        // The crate accepts more than Go's names: expressions and script extensions are refused.
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(error("invalid character class range", self.since(before)));
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// An escaped character, inside or outside of a class.
    fn escape(&mut self) -> Result<char, RegexpError> {
        let before = self.rest;
        self.next();
        let Some(c) = self.next() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        let value = match c {
            'a' => Some(0x07),
            'f' => Some(0x0c),
            'n' => Some(0x0a),
            'r' => Some(0x0d),
            't' => Some(0x09),
            'v' => Some(0x0b),
            // A single digit other than zero would be a backreference, which RE2 does not have.
            '1'..='7' if !self.rest.starts_with(|c| matches!(c, '0'..='7')) => None,
            '0'..='7' => {
                let mut value = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
                    self.next();
                    value = value * 8 + digit;
                }
                Some(value)
            }
            'x' if self.take("{") => {
                let digits: String = self.rest.chars().take_while(char::is_ascii_hexdigit).take(8).collect();
                self.rest = &self.rest[digits.len()..];
                match self.take("}") {
                    true => u32::from_str_radix(&digits, 16).ok(),
                    false => None,
                }
            }
            'x' => match self.rest.get(..2).and_then(|two| u32::from_str_radix(two, 16).ok()) {
                Some(value) => {
                    self.rest = &self.rest[2..];
                    Some(value)
                }
                None => None,
            },
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c.into()),
            _ => None,
        };
        value.and_then(char::from_u32).ok_or_else(|| error("invalid escape sequence", self.since(before)))
    }

    fn class(&mut self) -> Result<(), RegexpError> {
        const RANGE: &str = "invalid character class range";
        let before = self.rest;
        self.next();
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            if self.rest.is_empty() {
                return Err(error("missing closing ]", before));
            }
            if !first && self.take("]") {
                break;
            }
            first = false;
            if let Some(inside) = self.rest.strip_prefix("[:") {
                if let Some((name, rest)) = inside.split_once(":]") {
                    const NAMES: &[&str] = &[
                        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
                        "punct", "space", "upper", "word", "xdigit",
                    ];
                    let at = self.rest;
                    self.rest = rest;
                    if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                        return Err(error(RANGE, self.since(at)));
                    }
                    let _ = write!(self.out, "[:{name}:]");
                    continue;
                }
            }
            if self.rest.starts_with('\\')
                && self.rest[1..].starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p', 'P'])
            {
                let class = self.named_class()?;
                self.out.push_str(&class);
                continue;
            }
            let at = self.rest;
            let low = self.class_char(before)?;
            let mut high = low;
            if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest[1..].starts_with(']') {
                self.next();
                high = self.class_char(before)?;
                if high < low {
                    return Err(error(RANGE, self.since(at)));
                }
            }
            let _ = match low == high {
                true => write!(self.out, "\\x{{{:x}}}", u32::from(low)),
                false => write!(self.out, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high)),
            };
        }
        self.out.push(']');
        self.repeats = Some(1);
        Ok(())
    }

    fn class_char(&mut self, class: &'a str) -> Result<char, RegexpError> {
        match self.rest.starts_with('\\') {
            true => self.escape(),
            false => self.next().ok_or_else(|| error("missing closing ]", class)),
        }
    }
}
