//! Ages and durations as kubectl shows them: `45s`, `3m20s`, `5d`, `2y11d`.

use crate::time::{human, Timestamp};
use std::borrow::Cow;
use std::time::SystemTime;

/// The time relative to which ages are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now(Timestamp);

impl From<SystemTime> for Now {
    fn from(time: SystemTime) -> Now {
        Now(time.into())
    }
}

impl From<Timestamp> for Now {
    fn from(time: Timestamp) -> Now {
        Now(time)
    }
}

impl Now {
    /// How long ago a timestamp was; `<unknown>` for none, `<invalid>` for a malformed timestamp or one more
    /// than two seconds in the future.
    pub fn age(self, timestamp: &str) -> Cow<'static, str> {
        match Timestamp::parse(timestamp) {
            Ok(then) => span(then, self.0),
            Err(_) if timestamp.is_empty() => Cow::Borrowed("<unknown>"),
            Err(_) => Cow::Borrowed("<invalid>"),
        }
    }
}

/// The time between two timestamps; `<invalid>` where one is malformed.
pub fn duration_between(from: &str, to: &str) -> Cow<'static, str> {
    match (Timestamp::parse(from), Timestamp::parse(to)) {
        (Ok(from), Ok(to)) => span(from, to),
        _ => Cow::Borrowed("<invalid>"),
    }
}

/// The whole seconds between two times, truncated towards zero as in Go.
fn span(from: Timestamp, to: Timestamp) -> Cow<'static, str> {
    let whole = to.seconds.saturating_sub(from.seconds);
    let whole = match to.nanos.cmp(&from.nanos) {
        std::cmp::Ordering::Less if whole > 0 => whole - 1,
        std::cmp::Ordering::Greater if whole < 0 => whole + 1,
        _ => whole,
    };
    Cow::Owned(human(whole).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let now = Now::from(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(100_900));
        let cases = [
            ("1970-01-01T00:00:00Z", "100s"),
            ("1970-01-01T00:00:00.95Z", "99s"),
            ("1970-01-01T00:00:00.9Z", "100s"),
            ("1970-01-01T02:00:00+02:00", "100s"),
            ("1970-01-01T00:01:40.95Z", "0s"),
            ("1970-01-01T00:01:42.8Z", "0s"),
            ("1970-01-01T00:01:42.95Z", "<invalid>"),
            ("1970-01-01T00:02:00Z", "<invalid>"),
            ("1969-12-31T23:55:00Z", "6m40s"),
            ("soon", "<invalid>"),
            ("", "<unknown>"),
        ];
        for (timestamp, age) in cases {
            assert_eq!(now.age(timestamp), age, "{timestamp}");
        }
        assert_eq!(duration_between("1970-01-01T00:00:00Z", "1970-01-01T05:06:00Z"), "5h6m");
        assert_eq!(duration_between("1970-01-01T00:00:00Z", "later"), "<invalid>");
    }
}
