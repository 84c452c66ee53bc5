//! Value parsers shared by command-line flags.

use std::time::Duration;

/// Go's duration syntax, as in kube-apiserver's flags.
pub fn duration(text: &str) -> Result<Duration, String> {
    plinth_codec::time::parse_duration(text)
        .ok()
        .and_then(|nanos| u64::try_from(nanos).ok())
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text:?} is not a duration like 90s, 5m or 1h30m"))
}
