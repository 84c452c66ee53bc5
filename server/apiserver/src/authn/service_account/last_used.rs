//! Records the date on which the token of a Secret was last used, in a label for administrators and the
//! legacy token cleaner (kubernetes `pkg/serviceaccount/legacy.go`).
//!
//! Requests do not wait for it: they queue the Secret's name, and a controller writes the labels.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use time::macros::format_description;
use time::{Date, Duration, OffsetDateTime};
use tokio::sync::Notify;

/// Label of a token Secret: the date of its last use.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Queued Secrets; beyond that the label is written at a later use.
const MAX_PENDING: usize = 1024;

/// A date in the label's format.
pub fn day(date: Date) -> String {
    date.format(format_description!("[year]-[month]-[day]")).unwrap_or_default()
}

/// Parses the label.
pub fn parse_day(text: &str) -> Option<Date> {
    Date::parse(text, format_description!("[year]-[month]-[day]")).ok()
}

/// Whether the label must be written: it is neither today nor, since clocks differ, tomorrow.
pub fn is_due(label: Option<&str>, today: Date) -> bool {
    let tomorrow = today.saturating_add(Duration::DAY);
    label != Some(&day(today)) && label != Some(&day(tomorrow))
}

/// Secrets whose labels must be written. The lock is held to insert or remove one.
#[derive(Debug, Default)]
pub struct LastUsed {
    /// By namespace and name; the value is the UID.
    pending: Mutex<BTreeMap<(String, String), String>>,
    added: Notify,
}

impl LastUsed {
    /// Records the use of a Secret's token.
    pub fn record(&self, namespace: &str, name: &str, uid: &str, label: Option<&str>) {
        if !is_due(label, OffsetDateTime::now_utc().date()) {
            return;
        }
        let mut pending = self.pending.lock();
        if pending.len() < MAX_PENDING {
            pending.insert((namespace.to_owned(), name.to_owned()), uid.to_owned());
            drop(pending);
            self.added.notify_one();
        }
    }

    /// Waits for the next Secret: its namespace, name and UID.
    pub async fn next(&self) -> (String, String, String) {
        loop {
            if let Some(((namespace, name), uid)) = self.pending.lock().pop_first() {
                return (namespace, name, uid);
            }
            self.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::date;

    #[test]
    fn a_label_is_written_once_a_day() {
        let today = date!(2024 - 02 - 28);
        let rows = [
            (None, true),
            (Some(""), true),
            (Some("2024-02-27"), true),
            (Some("2024-02-28"), false),
            (Some("2024-02-29"), false),
            (Some("2024-03-01"), true),
        ];
        for (label, due) in rows {
            assert_eq!(is_due(label, today), due, "{label:?}");
        }
        assert_eq!(parse_day("2024-02-29"), Some(date!(2024 - 02 - 29)));
        assert_eq!(parse_day("2024-02-30"), None);
    }

    #[test]
    fn each_secret_waits_once_and_not_without_bounds() {
        let used = LastUsed::default();
        for number in 0..2 * MAX_PENDING {
            used.record("n", &number.to_string(), "u", None);
            used.record("n", &number.to_string(), "u", None);
        }
        assert_eq!(used.pending.lock().len(), MAX_PENDING);
    }
}
