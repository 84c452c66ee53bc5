//! Dates, times and durations.

use plinth_codec::time::parse_duration;

/// `2006-01-02`
pub(super) fn is_date(text: &str) -> bool {
    let b = text.as_bytes();
    if b.len() != 10 || b[4] != b'-' || b[7] != b'-' {
        return false;
    }
    let number = |from: usize, to: usize| -> Option<u32> {
        let digits = text.get(from..to).filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    };
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// RFC 3339, upper or lower case. Upstream accepts any character for the point before the fraction.
pub(super) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// `15:04:05.9z`, `15:04:05+01:00`
fn is_time(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let clock = |text: &str| {
        let mut parts = text.split(':');
        let two = |part: Option<&str>| part.is_some_and(|p| p.len() == 2 && digits(p));
        two(parts.next()) && two(parts.next()) && (parts.next().is_none_or(|p| p.len() == 2 && digits(p)))
    };
    let Some((time, rest)) = text.split_at_checked(8) else { return false };
    let in_range = time <= "23:59:59" && time[3..] <= *"59:59" && time[6..] <= *"59";
    let (fraction, zone) = match rest.strip_suffix('z') {
        Some(fraction) => (fraction, ""),
        None => match rest.len().checked_sub(6).and_then(|at| rest.split_at_checked(at)) {
            Some(parts) => parts,
            None => return false,
        },
    };
    let is_zone = zone.is_empty() || (zone.starts_with(['+', '-']) && zone.len() == 6 && clock(&zone[1..]));
    let mut fraction = fraction.chars();
    let is_fraction = fraction.next().is_none_or(|c| c != '\n' && digits(fraction.as_str()));
    time.is_ascii() && time.matches(':').count() == 2 && clock(time) && in_range && is_fraction && is_zone
}

/// Units with their names; a prefix of the last name of each suffices.
const UNITS: &[&[&str]] = &[
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

/// A Go duration, or numbers with unit names anywhere in the text: `3 weeks`.
pub(super) fn is_duration(text: &str) -> bool {
    if parse_duration(text).is_ok() {
        return true;
    }
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[start..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (number, after) = digits.split_at(end);
        rest = after;
        let word = after.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        let end = word.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(word.len());
        let (unit, after) = word.split_at(end);
        if unit.is_empty() {
            continue;
        }
        rest = after;
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        found |= UNITS.iter().any(|words| {
            words.contains(&unit.as_str()) || words.last().is_some_and(|last| unit.starts_with(last))
        });
    }
    found
}
