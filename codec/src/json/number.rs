//! Conversion of JSON numbers to integers and doubles, as Go decodes them.

use super::source::Number;
use super::writer::write_number;

/// The text of a number, as Go would receive it before decoding.
pub(super) fn number_text(number: Number<'_>) -> String {
    match number {
        Number::Text(text) => text.to_string(),
        Number::Int(n) => n.to_string(),
        Number::Float(n) => {
            let mut out = Vec::new();
            write_number(n, &mut out);
            String::from_utf8(out).unwrap_or_default()
        }
    }
}

#[inline]
pub(super) fn integer(number: Number<'_>) -> Option<i64> {
    match number {
        Number::Text(text) => text.parse().ok(),
        Number::Int(n) => Some(n),
        // A tree from YAML has 1e3 as a float; upstream writes it as 1000 before decoding.
        Number::Float(_) => number_text(number).parse().ok(),
    }
}

pub(super) fn double(number: Number<'_>) -> Option<f64> {
    match number {
        Number::Text(text) => text.parse().ok(),
        Number::Int(n) => Some(n as f64),
        Number::Float(n) => Some(n),
    }
}
