//! The label that says on which day the token of a Secret was last used, which tells administrators, and the controller that
//! cleans up, who can do without (kubernetes `pkg/serviceaccount/legacy.go`).
//!
//! Requests do not wait for it: they put the Secret's name down, and a controller writes the labels.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use time::macros::format_description;
use time::{Date, Duration, OffsetDateTime};
use tokio::sync::Notify;

/// The label.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Secrets that may wait for their label; beyond them it is written at a later use.
const MOST: usize = 1024;

/// A day as labels have it.
pub fn day(date: Date) -> String {
    date.format(format_description!("[year]-[month]-[day]")).unwrap_or_default()
}

/// A day that a label has.
pub fn parse_day(text: &str) -> Option<Date> {
    Date::parse(text, format_description!("[year]-[month]-[day]")).ok()
}

/// Whether a label is to be written: it names neither this day nor, since clocks differ, the next.
pub fn is_due(label: Option<&str>, today: Date) -> bool {
    let tomorrow = today.saturating_add(Duration::DAY);
    label != Some(&day(today)) && label != Some(&day(tomorrow))
}

/// The Secrets whose tokens were used. The lock is held to put and to take one.
#[derive(Debug, Default)]
pub struct LastUsed {
    /// By namespace and name; the value is the UID.
    waiting: Mutex<BTreeMap<(String, String), String>>,
    came: Notify,
}

impl LastUsed {
    /// The token of a Secret was used.
    pub fn note(&self, namespace: &str, name: &str, uid: &str, label: Option<&str>) {
        if !is_due(label, OffsetDateTime::now_utc().date()) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST {
            waiting.insert((namespace.to_owned(), name.to_owned()), uid.to_owned());
            drop(waiting);
            self.came.notify_one();
        }
    }

    /// Waits for the next Secret: its namespace, name and UID.
    pub async fn next(&self) -> (String, String, String) {
        loop {
            if let Some(((namespace, name), uid)) = self.waiting.lock().pop_first() {
                return (namespace, name, uid);
            }
            self.came.notified().await;
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
        for number in 0..2 * MOST {
            used.note("n", &number.to_string(), "u", None);
            used.note("n", &number.to_string(), "u", None);
        }
        assert_eq!(used.waiting.lock().len(), MOST);
    }
}
