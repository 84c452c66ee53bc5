//! Value parsers shared by command-line flags.

use std::time::Duration;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Go's duration syntax, as in kube-apiserver's flags, after a whole number of days (`30d`, `1d12h`), if any.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.parse().ok(), rest),
        None => (Some(0), text),
    };
    let rest = match rest {
        "" if text.ends_with('d') => Some(0),
        rest => plinth_codec::time::parse_duration(rest).ok().and_then(|nanos| u64::try_from(nanos).ok()),
    };
    let days = days.and_then(|days: u64| days.checked_mul(SECONDS_PER_DAY)).map(Duration::from_secs);
    days.zip(rest)
        .and_then(|(days, nanos)| days.checked_add(Duration::from_nanos(nanos)))
        .ok_or_else(|| format!("{text:?} is not a duration like 90s, 5m, 1h30m or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos_with_days() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("7d"), Ok(7 * 86_400));
        assert_eq!(seconds("1d12h30m"), Ok(86_400 + 45_000));
        assert_eq!(seconds("0"), Ok(0));
        for wrong in ["", "d", "1.5d", "-1d", "1d-1h", "-5m", "5", "300000000000000000d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
