//! Text in quotes, as Go writes it: errors quote what they are about.

/// Go's `%q` of a list of texts: `["a" "b"]`.
pub fn quoted_list<T: AsRef<str>>(list: &[T]) -> String {
    let texts: Vec<String> = list.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

/// Text as Go's `strconv.Quote` writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() || (c.is_whitespace() && c != ' ') || c == '\u{feff}' => match c as u32 {
                n if n < 0x10000 => out.push_str(&format!("\\u{n:04x}")),
                n => out.push_str(&format!("\\U{n:08x}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
