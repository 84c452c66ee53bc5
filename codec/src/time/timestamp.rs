//! `metav1.Time` and `metav1.MicroTime`.

use std::time::{SystemTime, UNIX_EPOCH};

use smol_str::SmolStr;

use super::TimeError;

const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";
const DAY: i64 = 86_400;

/// A point in time, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// Go's zero time, 0001-01-01T00:00:00Z: what the API writes as `null`.
    pub const ZERO: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

    /// The current time.
    pub fn now() -> Timestamp {
        SystemTime::now().into()
    }

    /// Reads RFC 3339; a fraction is allowed, any offset is turned into UTC.
    pub fn parse(text: &str) -> Result<Timestamp, TimeError> {
        read(text, RFC3339)
    }

    /// Reads RFC 3339 with exactly six digits of fraction, as `MicroTime` wants it.
    pub fn parse_micro(text: &str) -> Result<Timestamp, TimeError> {
        read(text, RFC3339_MICRO)
    }

    /// RFC 3339 in UTC, the fraction cut off: 20 bytes, never on the heap.
    pub fn to_rfc3339(self) -> SmolStr {
        let mut out = [0; 28];
        let end = self.write_seconds(&mut out);
        finish(&mut out, end)
    }

    /// RFC 3339 in UTC with six digits of fraction, the rest cut off.
    pub fn to_rfc3339_micro(self) -> SmolStr {
        let mut out = [0; 28];
        let end = self.write_seconds(&mut out);
        out[end] = b'.';
        put(&mut out, end + 1, u64::from(self.nanos / 1000), 6);
        finish(&mut out, end + 7)
    }

    fn write_seconds(self, out: &mut [u8; 28]) -> usize {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY));
        let second = self.seconds.rem_euclid(DAY) as u64;
        // Years beyond four digits occur only in crafted protobuf bodies.
        put(out, 0, year.clamp(0, 9999) as u64, 4);
        out[4] = b'-';
        put(out, 5, month as u64, 2);
        out[7] = b'-';
        put(out, 8, day as u64, 2);
        out[10] = b'T';
        put(out, 11, second / 3600, 2);
        out[13] = b':';
        put(out, 14, second / 60 % 60, 2);
        out[16] = b':';
        put(out, 17, second % 60, 2);
        19
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let part = before.subsec_nanos();
                let (whole, nanos) = if part == 0 { (0, 0) } else { (1, 1_000_000_000 - part) };
                Timestamp { seconds: -(before.as_secs() as i64) - whole, nanos }
            }
        }
    }
}

fn put(out: &mut [u8; 28], at: usize, mut value: u64, digits: usize) {
    for place in (at..at + digits).rev() {
        out[place] = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn finish(out: &mut [u8; 28], end: usize) -> SmolStr {
    out[end] = b'Z';
    // All ASCII, so this cannot fail.
    SmolStr::new(std::str::from_utf8(&out[..=end]).unwrap_or_default())
}

/// Year, month and day of a day counted from 1970-01-01 (Howard Hinnant's algorithm of that name).
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The day counted from 1970-01-01 of a year, month and day: the inverse of [`civil_from_days`].
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A parser of a text by its layout.
struct Walk<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Walk<'_> {
    fn error(&self, part: &'static str) -> TimeError {
        TimeError::Layout { text: self.text.into(), layout: self.layout, rest: self.rest.into(), part }
    }

    fn range(&self, what: &'static str) -> TimeError {
        TimeError::Range { text: self.text.into(), what }
    }

    fn number(&mut self, digits: usize, part: &'static str) -> Result<i64, TimeError> {
        let head = self.rest.as_bytes().get(..digits).filter(|head| head.iter().all(u8::is_ascii_digit));
        let value = head.ok_or_else(|| self.error(part))?.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        self.rest = &self.rest[digits..];
        Ok(value)
    }

    fn mark(&mut self, part: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(part).ok_or_else(|| self.error(part))?;
        Ok(())
    }

    fn nanos(&mut self) -> Result<u32, TimeError> {
        let micro = self.layout == RFC3339_MICRO;
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        if micro && digits != 6 {
            return Err(self.error(".000000"));
        }
        if digits == 0 {
            return Ok(0);
        }
        let fraction = &self.rest[1..=digits];
        let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
        self.rest = &self.rest[digits + 1..];
        Ok(nanos.fold(0, |n, b| n * 10 + u32::from(b - b'0')))
    }

    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let error = self.error("Z07:00");
        let sign = match self.rest.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(error),
        };
        self.rest = &self.rest[1..];
        let parts = (|| {
            let hours = self.number(2, "")?;
            self.mark(":")?;
            Ok::<_, TimeError>((hours, self.number(2, "")?))
        })();
        let (hours, minutes) = parts.map_err(|_| error)?;
        if hours > 24 {
            return Err(self.range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.range("time zone offset minute"));
        }
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

fn read(text: &str, layout: &'static str) -> Result<Timestamp, TimeError> {
    let mut walk = Walk { text, rest: text, layout };
    let year = walk.number(4, "2006")?;
    walk.mark("-")?;
    let month = walk.number(2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(walk.range("month"));
    }
    walk.mark("-")?;
    let day = walk.number(2, "02")?;
    walk.mark("T")?;
    // Go accepts an hour of one digit here.
    let short = walk.rest.as_bytes().get(1) == Some(&b':');
    let hour = walk.number(if short { 1 } else { 2 }, "15")?;
    if hour > 23 {
        return Err(walk.range("hour"));
    }
    walk.mark(":")?;
    let minute = walk.number(2, "04")?;
    if minute > 59 {
        return Err(walk.range("minute"));
    }
    walk.mark(":")?;
    let second = walk.number(2, "05")?;
    if second > 59 {
        return Err(walk.range("second"));
    }
    let nanos = walk.nanos()?;
    let offset = walk.offset()?;
    if !walk.rest.is_empty() {
        return Err(TimeError::Extra { text: text.into(), rest: walk.rest.into() });
    }
    // Go checks the day last, when month and year are known.
    if !(1..=days_in(year, month)).contains(&day) {
        return Err(walk.range("day"));
    }
    let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    Ok(Timestamp { seconds, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in
            ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "9999-12-31T00:00:00Z"]
        {
            assert_eq!(Timestamp::parse(text).unwrap().to_rfc3339(), text);
        }
        assert_eq!(Timestamp::parse("0001-01-01T00:00:00Z").unwrap(), Timestamp::ZERO);
        let micro = "2020-05-06T07:08:09.012345Z";
        assert_eq!(Timestamp::parse_micro(micro).unwrap().to_rfc3339_micro(), micro);
        for seconds in (-62_135_596_800..253_402_300_799).step_by(86_400 * 97 + 12_345) {
            let at = Timestamp { seconds, nanos: 0 };
            assert_eq!(Timestamp::parse(&at.to_rfc3339()).unwrap(), at);
        }
    }

    #[test]
    fn offsets_become_utc_and_fractions_go() {
        let at = Timestamp::parse("2020-01-01T01:30:00.5+02:00").unwrap();
        assert_eq!(at.to_rfc3339(), "2019-12-31T23:30:00Z");
        assert_eq!(at.nanos, 500_000_000);
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, error) in [
            ("abc", r#"parsing time "abc" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2020-13-01T00:00:00Z", r#"parsing time "2020-13-01T00:00:00Z": month out of range"#),
            ("2021-02-29T00:00:00Z", r#"parsing time "2021-02-29T00:00:00Z": day out of range"#),
            (
                "2020-01-01",
                r#"parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2020-01-01T00:00:00Zx", r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap_err().to_string(), error);
        }
        assert!(Timestamp::parse_micro("2020-01-01T00:00:00Z")
            .unwrap_err()
            .to_string()
            .ends_with(r#"as ".000000""#));
    }
}
