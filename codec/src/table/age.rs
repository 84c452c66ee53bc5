//! Ages and durations as kubectl shows them: `45s`, `3m20s`, `5d`, `2y11d`.

use std::borrow::Cow;
use std::time::SystemTime;

const SECOND: i64 = 1_000_000;

/// The moment that ages are counted to: microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now(i64);

impl From<SystemTime> for Now {
    fn from(time: SystemTime) -> Now {
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |n| -n),
        };
        Now(micros)
    }
}

impl Now {
    /// How long ago a timestamp was; `<unknown>` for none, `<invalid>` for what is no timestamp or lies in
    /// the future by more than the two seconds that clocks may differ.
    pub fn age(self, timestamp: &str) -> Cow<'static, str> {
        if timestamp.is_empty() {
            return Cow::Borrowed("<unknown>");
        }
        match parse(timestamp) {
            Some(then) => human(self.0.saturating_sub(then)),
            None => Cow::Borrowed("<invalid>"),
        }
    }
}

/// The time between two timestamps.
pub(super) fn between(from: &str, to: &str) -> Cow<'static, str> {
    match (parse(from), parse(to)) {
        (Some(from), Some(to)) => human(to.saturating_sub(from)),
        _ => Cow::Borrowed("<invalid>"),
    }
}

/// A number of seconds.
pub(super) fn seconds(n: i64) -> Cow<'static, str> {
    human(n.saturating_mul(SECOND))
}

/// A duration in microseconds with two or three significant figures, as
/// `k8s.io/apimachinery/pkg/util/duration` cuts it.
fn human(micros: i64) -> Cow<'static, str> {
    let seconds = micros / SECOND;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    // The larger unit, and the smaller one where there is some of it.
    let pair = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    Cow::Owned(match seconds {
        ..=-2 => return Cow::Borrowed("<invalid>"),
        -1 => return Cow::Borrowed("0s"),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 8 * 24 => pair(days, 'd', hours % 24, 'h'),
        _ if hours < 2 * 365 * 24 => format!("{days}d"),
        _ if hours < 8 * 365 * 24 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    })
}

/// Microseconds since the epoch of an RFC 3339 timestamp with seconds, with or without a fraction.
pub(super) fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0i64, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let is = |i: usize, any: &[u8]| bytes.get(i).is_some_and(|b| any.contains(b));
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !separated
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let mut end = 19;
    let mut micros = 0;
    if is(end, b".") {
        let digits = bytes[end + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        let kept = digits.min(6);
        micros = number(end + 1, end + 1 + kept)? * 10i64.pow(6 - kept as u32);
        end += 1 + digits;
        if digits == 0 {
            return None;
        }
    }
    let offset = match bytes.get(end..)? {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = number(end + 1, end + 3)? * 60 + number(end + 4, end + 6)?;
            minutes * 60 * if *sign == b'+' { 1 } else { -1 }
        }
        _ => return None,
    };
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(seconds * SECOND + micros)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Counts years from March, so that the leap day
/// is the last one of a year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_or_three_figures() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE + 5, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR + MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR + DAY, "8y"),
        ];
        for (n, text) in cases {
            assert_eq!(seconds(n), text, "{n} seconds");
        }
    }

    #[test]
    fn timestamps() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T00:00:01.5Z", Some(1_500_000)),
            ("1970-01-01T00:00:00.123456789Z", Some(123_456)),
            ("2000-02-29T12:00:00Z", Some(951_825_600 * SECOND)),
            ("2026-11-21T19:29:34+02:00", Some(1_795_282_174 * SECOND)),
            ("1969-12-31T23:59:59Z", Some(-SECOND)),
            ("0001-01-01T00:00:00Z", Some(-62_135_596_800 * SECOND)),
            ("2026-11-21", None),
            ("2026-11-21T19:29:34", None),
            ("2026-13-21T19:29:34Z", None),
            ("2026-11-21T19:29:34.Z", None),
            ("2026-11-21T19:29:3éZ", None),
            ("", None),
        ];
        for (text, micros) in cases {
            assert_eq!(parse(text), micros, "{text}");
        }
    }

    #[test]
    fn ages() {
        let now = Now::from(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(100_900));
        assert_eq!(now.age("1970-01-01T00:00:00Z"), "100s");
        assert_eq!(now.age("1970-01-01T00:01:40.95Z"), "0s");
        assert_eq!(now.age("1970-01-01T00:02:00Z"), "<invalid>");
        assert_eq!(now.age("soon"), "<invalid>");
        assert_eq!(now.age(""), "<unknown>");
        assert_eq!(between("1970-01-01T00:00:00Z", "1970-01-01T05:06:00Z"), "5h6m");
    }
}
