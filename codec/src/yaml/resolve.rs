//! The resolution of scalars in YAML 1.1, by the rules of goyaml v2.

use smol_str::SmolStr;

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResolvedScalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond `i64`.
    Big(u64),
    Float(f64),
    /// A date or time. It becomes a string like any other, but is quoted when written.
    Timestamp,
    String,
}

impl ResolvedScalar {
    /// The short form of the value's tag.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            ResolvedScalar::Null => "!!null",
            ResolvedScalar::Bool(_) => "!!bool",
            ResolvedScalar::Int(_) | ResolvedScalar::Big(_) => "!!int",
            ResolvedScalar::Float(_) => "!!float",
            ResolvedScalar::Timestamp => "!!timestamp",
            ResolvedScalar::String => "!!str",
        }
    }
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str) -> ResolvedScalar {
    match text.as_bytes().first() {
        None => ResolvedScalar::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => word(text),
        Some(b'.') => match text {
            ".nan" | ".NaN" | ".NAN" => ResolvedScalar::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" => ResolvedScalar::Float(f64::INFINITY),
            _ => go_float(text).map_or(ResolvedScalar::String, ResolvedScalar::Float),
        },
        Some(b'+' | b'-' | b'0'..=b'9') => number(text),
        Some(_) => ResolvedScalar::String,
    }
}

fn word(text: &str) -> ResolvedScalar {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            ResolvedScalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ResolvedScalar::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
        _ => ResolvedScalar::String,
    }
}

fn number(text: &str) -> ResolvedScalar {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return ResolvedScalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return ResolvedScalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if is_timestamp(text) {
        return ResolvedScalar::Timestamp;
    }
    let plain: SmolStr = text.chars().filter(|&c| c != '_').collect();
    let (negative, digits) = match plain.as_bytes().first() {
        Some(b'-') => (true, &plain[1..]),
        Some(b'+') => (false, &plain[1..]),
        _ => (false, &plain[..]),
    };
    let magnitude = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => radix(&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => radix(&digits[2..], 2),
        [b'0', b'o' | b'O', ..] => radix(&digits[2..], 8),
        [b'0', _, ..] => radix(&digits[1..], 8),
        _ => radix(digits, 10),
    };
    match (negative, magnitude) {
        (false, Some(n)) => return i64::try_from(n).map_or(ResolvedScalar::Big(n), ResolvedScalar::Int),
        (true, Some(n)) if n <= 1 << 63 => return ResolvedScalar::Int((n as i64).wrapping_neg()),
        _ => {}
    }
    go_float(&plain).map_or(ResolvedScalar::String, ResolvedScalar::Float)
}

fn radix(digits: &str, radix: u32) -> Option<u64> {
    // Rust's parser accepts a sign, which is not allowed here.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, in range.
fn go_float(text: &str) -> Option<f64> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = digits(rest);
    let mut rest = &rest[whole..];
    if let Some(after) = rest.strip_prefix('.') {
        let fraction = digits(after);
        if whole == 0 && fraction == 0 {
            return None;
        }
        rest = &after[fraction..];
    } else if whole == 0 {
        return None;
    }
    if let Some(power) = rest.strip_prefix(['e', 'E']) {
        let power = power.strip_prefix(['-', '+']).unwrap_or(power);
        if power.is_empty() || digits(power) != power.len() {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Whether goyaml resolves the text as a date or time: `2001-12-14`, `2001-12-14t21:59:43.10-05:00`,
/// `2001-12-14 21:59:43`.
fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-').filter(|(year, _)| year.len() == 4) else { return false };
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let end = rest.find(['T', 't', ' ']).unwrap_or(rest.len());
    let (day, time) = rest.split_at(end);
    let (Some(year), Some(month), Some(day)) =
        (short_number(year, 4), short_number(month, 2), short_number(day, 2))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => return false,
    };
    if !(1..=days).contains(&day) {
        return false;
    }
    match time.chars().next() {
        None => true,
        Some(' ') => is_clock(&time[1..]),
        Some(_) => {
            let zone = time.find(['Z', '+', '-']).unwrap_or(time.len());
            is_clock(&time[1..zone.max(1)]) && is_zone(&time[zone..])
        }
    }
}

fn short_number(text: &str, most: usize) -> Option<u32> {
    (1..=most).contains(&text.len()).then_some(())?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `h:m:s` with an optional fraction.
fn is_clock(text: &str) -> bool {
    let (clock, fraction) = text.split_once(['.', ',']).map_or((text, None), |(clock, f)| (clock, Some(f)));
    let mut parts = clock.split(':').map(|part| short_number(part, 2));
    let whole = matches!(
        (parts.next(), parts.next(), parts.next(), parts.next()),
        (Some(Some(0..=23)), Some(Some(0..=59)), Some(Some(0..=59)), None)
    );
    whole && fraction.is_none_or(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()))
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()),
        _ => false,
    }
}

/// Whether text looks like a number of base 60, which other parsers resolve it as: `1:20`, `190:20:30.15`.
pub(super) fn is_base60(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (rest, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    let mut others = 0;
    for part in parts {
        others += 1;
        match part.as_bytes() {
            [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'] => {}
            _ => return false,
        }
    }
    others > 0 && first.starts_with(|c: char| c.is_ascii_digit()) && digits(first) && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_resolved_as_by_goyaml() {
        for (text, meaning) in [
            ("", ResolvedScalar::Null),
            ("~", ResolvedScalar::Null),
            ("Null", ResolvedScalar::Null),
            ("nULL", ResolvedScalar::String),
            ("yes", ResolvedScalar::Bool(true)),
            ("Off", ResolvedScalar::Bool(false)),
            ("y", ResolvedScalar::Bool(true)),
            ("yess", ResolvedScalar::String),
            ("12", ResolvedScalar::Int(12)),
            ("+12", ResolvedScalar::Int(12)),
            ("-12", ResolvedScalar::Int(-12)),
            ("1_000", ResolvedScalar::Int(1000)),
            ("0644", ResolvedScalar::Int(420)),
            ("0o17", ResolvedScalar::Int(15)),
            ("0x1F", ResolvedScalar::Int(31)),
            ("0b101", ResolvedScalar::Int(5)),
            ("-0b101", ResolvedScalar::Int(-5)),
            ("08", ResolvedScalar::Float(8.0)),
            ("1e3", ResolvedScalar::Float(1000.0)),
            ("1.", ResolvedScalar::Float(1.0)),
            (".5", ResolvedScalar::Float(0.5)),
            ("1e999", ResolvedScalar::String),
            (".", ResolvedScalar::String),
            ("-", ResolvedScalar::String),
            ("1.2.3", ResolvedScalar::String),
            ("0x", ResolvedScalar::String),
            ("9223372036854775808", ResolvedScalar::Big(1 << 63)),
            ("-9223372036854775808", ResolvedScalar::Int(i64::MIN)),
            ("18446744073709551616", ResolvedScalar::Float(18446744073709551616.0)),
            ("-.inf", ResolvedScalar::Float(f64::NEG_INFINITY)),
            ("2001-12-14", ResolvedScalar::Timestamp),
            ("2001-2-3", ResolvedScalar::Timestamp),
            ("2001-02-30", ResolvedScalar::String),
            ("2001-12-14t21:59:43.10-05:00", ResolvedScalar::Timestamp),
            ("2001-12-14 21:59:43", ResolvedScalar::Timestamp),
            ("2001-12-14T21:59:43Z", ResolvedScalar::Timestamp),
            ("2001-12-14T21:59:43", ResolvedScalar::String),
            ("10.0.0.1", ResolvedScalar::String),
            ("100m", ResolvedScalar::String),
            ("1:20", ResolvedScalar::String),
        ] {
            assert_eq!(resolve(text), meaning, "{text}");
        }
        assert!(is_base60("1:20") && is_base60("190:20:30.15") && !is_base60("1:60") && !is_base60("a:10"));
    }
}
