//! Formats of codes: digits, letters and checksums.

use plinth_codec::regexp;

/// Twelve bytes as hexadecimal digits.
pub(super) fn is_object_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Base64 with padding; not empty.
pub(super) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    text.len() >= 4
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'\\'))
}

/// Three or six hexadecimal digits, with or without `#`.
pub(super) fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `rgb(0, 10, 255)`
pub(super) fn is_rgb_color(text: &str) -> bool {
    let inside = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')'));
    let Some(inside) = inside else { return false };
    let parts: Vec<&str> = inside
        .split(',')
        .map(|p| p.trim_matches(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')))
        .collect();
    let in_range = |part: &&str| {
        let canonical = part.len() == 1 || !part.starts_with('0');
        let digits = (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        canonical && digits && part.parse::<u16>().is_ok_and(|n| n <= 255)
    };
    parts.len() == 3 && parts.iter().all(in_range)
}

/// `111-22-3333`, with dashes or spaces.
pub(super) fn is_social_security_number(text: &str) -> bool {
    text.len() == 11
        && text.bytes().enumerate().all(|(i, b)| match i {
            3 | 6 => matches!(b, b'-' | b' '),
            _ => b.is_ascii_digit(),
        })
}

/// Groups of 8, 4, 4, 4 and 12 hexadecimal digits, dashes between them or not. A version is the first digit
/// of the third group; versions 4 and 5 also have a variant in the fourth.
pub(super) fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text.as_bytes();
    let mut digits = Vec::with_capacity(32);
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        digits.extend_from_slice(group);
        rest = after;
    }
    let variant = |b: Option<&u8>| b.is_some_and(|b| matches!(b, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'));
    rest.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|v| digits.get(12) == Some(&v) && (v == b'3' || variant(digits.get(16))))
}

fn without_separators(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'-' | b' ' | b'\t' | b'\n' | b'\r' | 0x0c)).collect()
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    let Some((last, first)) = digits.split_last().filter(|(_, first)| first.len() == 9) else { return false };
    let last = match last {
        b'X' => 10,
        b'0'..=b'9' => u32::from(last - b'0'),
        _ => return false,
    };
    let sum: u32 = first.iter().zip(1..).map(|(b, n)| n * u32::from(b.wrapping_sub(b'0'))).sum();
    first.iter().all(u8::is_ascii_digit) && (sum + 10 * last).is_multiple_of(11)
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let digits = without_separators(text);
    let sum: u32 =
        digits.iter().zip([1, 3].into_iter().cycle()).map(|(b, n)| n * u32::from(b.wrapping_sub(b'0'))).sum();
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && sum.is_multiple_of(10)
}

/// A number of one of the known issuers, with Luhn's checksum; everything but digits is ignored.
pub(super) fn is_credit_card(text: &str) -> bool {
    const ISSUERS: &str = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\\d{3})\\d{11})$";
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !regexp::compile(ISSUERS).is_ok_and(|regex| regex.is_match(&digits)) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| match (u32::from(b - b'0'), i % 2) {
            (n, 0) => n,
            (n, _) => n / 5 + n * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}
