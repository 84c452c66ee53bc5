//! Text in quotes, as Go writes it: errors quote what they are about.

/// Go's `%q` of a list of texts: `["a" "b"]`.
pub fn quoted_list<T: AsRef<str>>(list: &[T]) -> String {
    let texts: Vec<String> = list.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

/// What Go's quoted text has for a character with an escape of its own.
pub fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        _ => return None,
    })
}

/// As Go's `unicode.IsPrint`, but for unassigned characters: no control, format or private characters, no
/// space but `' '`.
pub fn is_printable(c: char) -> bool {
    let is_hidden = matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}' | '\u{f0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_hidden)
}

/// Text as Go's `strconv.Quote` writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if let Some(escape) = short_escape(c) {
            out.push_str(escape);
            continue;
        }
        match c {
            c if (c as u32) < 0x20 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if !is_printable(c) => match c as u32 {
                n if n < 0x10000 => out.push_str(&format!("\\u{n:04x}")),
                n => out.push_str(&format!("\\U{n:08x}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
