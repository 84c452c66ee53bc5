//! Parsing header fields that are lists of media ranges with parameters (RFC 9110, sections 5.6 and 12.4).

/// Splits a header at a separator outside of quoted strings. One pass, no allocation.
fn split_outside_quotes(header: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(header);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        for (i, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if byte == separator && !quoted => {
                    rest = Some(&text[i + 1..]);
                    return Some(&text[..i]);
                }
                _ => {}
            }
        }
        rest = None;
        Some(text)
    })
}

/// The members of a comma-separated list, trimmed, without empty ones.
pub(super) fn list(header: &str) -> impl Iterator<Item = &str> {
    split_outside_quotes(header, b',').map(trim).filter(|item| !item.is_empty())
}

/// The value before the first `;`, and the parameters after it.
pub(super) fn with_parameters(item: &str) -> (&str, impl Iterator<Item = &str>) {
    let mut parts = split_outside_quotes(item, b';');
    (trim(parts.next().unwrap_or_default()), parts.map(trim))
}

/// A parameter as name and value, unquoted. `None` for anything without a value.
pub(super) fn parameter(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let value = trim(value);
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    (!value.is_empty()).then(|| (trim(name), value))
}

/// A media range as type and subtype; `*` alone is `*/*`. `None` for anything else.
pub(super) fn range(text: &str) -> Option<(&str, &str)> {
    match text.split_once('/') {
        None if text == "*" => Some(("*", "*")),
        Some((kind, subtype)) if !subtype.is_empty() && !subtype.contains('/') => {
            Some((trim(kind), trim(subtype)))
        }
        _ => None,
    }
}

/// A weight in thousandths, as RFC 9110 has it: 0 to 1 with at most three decimals. Anything else has the
/// least weight without being refused, as upstream.
pub(super) fn weight(text: &str) -> u16 {
    const LEAST: u16 = 1;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits_only = decimals.bytes().all(|b| b.is_ascii_digit()) && decimals.len() <= 3;
    match (whole, digits_only) {
        ("1", true) => 1000,
        ("0", true) => {
            decimals.bytes().chain(*b"000").take(3).fold(0, |sum, b| sum * 10 + u16::from(b - b'0'))
        }
        _ => LEAST,
    }
}

pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}
