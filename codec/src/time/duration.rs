//! Go's durations, and the short form that kubectl prints.

use smol_str::{format_smolstr, SmolStr};

use super::TimeError;

const SECOND: u64 = 1_000_000_000;

/// Reads a duration in nanoseconds: `1h30m`, `-1.5s`, `300ms`, `0`.
pub fn parse_duration(text: &str) -> Result<i64, TimeError> {
    let error = |what: &str| TimeError::Duration { what: what.into(), text: text.into() };
    let invalid = || error("invalid duration");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let (unit, after) =
            after.split_at(after.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count());
        let scale = match unit {
            "" => return Err(error("missing unit in duration")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            unit => return Err(error(&format!("unknown unit {} in duration", crate::quoted::quoted(unit)))),
        };
        let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = whole_part(whole, scale).ok_or_else(invalid)?;
        total = total
            .checked_add(part)
            .and_then(|t| t.checked_add(fraction_part(fraction, scale)))
            .ok_or_else(invalid)?;
        if total > 1 << 63 {
            return Err(invalid());
        }
        rest = after;
    }
    match (negative, total) {
        (true, _) => Ok((total as i64).wrapping_neg()),
        (false, 0..=0x7fff_ffff_ffff_ffff) => Ok(total as i64),
        (false, _) => Err(invalid()),
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn whole_part(whole: u64, scale: u64) -> Option<u64> {
    whole.checked_mul(scale).filter(|part| *part <= 1 << 63)
}

/// `.fraction` of a unit, cut to whole nanoseconds.
fn fraction_part(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut divisor) = (0u128, 1u128);
    // Digits after the eighteenth are below a nanosecond in every unit.
    for digit in fraction.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        divisor *= 10;
    }
    (value * u128::from(scale) / divisor) as u64
}

/// A duration of nanoseconds as Go prints it: `1h0m0s`, `1.5s`, `300ms`, `0s`.
pub fn format_duration(nanos: i64) -> SmolStr {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let (unit, scale) = match n {
        0 => return SmolStr::new_static("0s"),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..SECOND => ("ms", 1_000_000),
        _ => {
            let (minutes, seconds) = (n / SECOND / 60, with_fraction(n % (60 * SECOND), SECOND));
            return match (minutes / 60, minutes % 60) {
                (0, 0) => format_smolstr!("{sign}{seconds}s"),
                (0, minutes) => format_smolstr!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format_smolstr!("{sign}{hours}h{minutes}m{seconds}s"),
            };
        }
    };
    format_smolstr!("{sign}{}{unit}", with_fraction(n, scale))
}

/// `n / scale` (a power of ten) with as many decimal places as it has.
fn with_fraction(n: u64, scale: u64) -> SmolStr {
    let (whole, part) = (n / scale, n % scale);
    if part == 0 {
        return format_smolstr!("{whole}");
    }
    let width = scale.ilog10() as usize;
    let fraction = format_smolstr!("{part:0width$}");
    format_smolstr!("{whole}.{}", fraction.trim_end_matches('0'))
}

/// A span of seconds as kubectl's age column shows it: `45s`, `5m30s`, `3d4h`, `2y10d`.
pub fn human(seconds: i64) -> SmolStr {
    // Clocks differ a little, so an age just below zero is zero.
    if seconds < -1 {
        return SmolStr::new_static("<invalid>");
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format_smolstr!("{large}{unit}"),
        _ => format_smolstr!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        _ if seconds < 120 => format_smolstr!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format_smolstr!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format_smolstr!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format_smolstr!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format_smolstr!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_go_prints_them() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("90m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
            ("300ms", 300_000_000, "300ms"),
            ("1us", 1_000, "1µs"),
            ("2m0.25s", 120_250_000_000, "2m0.25s"),
            ("10ns", 10, "10ns"),
            ("-2562047h47m16.854775808s", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
            assert_eq!(format_duration(nanos), printed);
            assert_eq!(parse_duration(printed), Ok(nanos));
        }
    }

    #[test]
    fn faulty_durations() {
        for (text, error) in [
            ("", r#"time: invalid duration """#),
            ("3", r#"time: missing unit in duration "3""#),
            ("3x", r#"time: unknown unit "x" in duration "3x""#),
            ("h", r#"time: invalid duration "h""#),
            ("9999999h", r#"time: invalid duration "9999999h""#),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, age) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_936_000, "2y10d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(seconds), age, "{seconds}");
        }
    }
}
