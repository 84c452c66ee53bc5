//! Looks at the settings and the members of the journal while this replica runs: others may change the
//! settings, and the next start would be refused; a member that is damaged is passed over.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_journal::Journal;

use crate::reconciler::{self, Action, Reconciler, Settings, Start};

/// Interval of the looks.
const INTERVAL: Duration = Duration::from_secs(60);

/// Warns of problems of the journal's settings and members, and when they are gone, until the server stops.
pub fn watch(server: &Arc<Server>, journal: Arc<dyn Journal>) {
    reconciler::spawn(server, JournalSettings { journal, reported: Mutex::default() });
}

struct JournalSettings {
    journal: Arc<dyn Journal>,
    /// Problems that were warned of.
    reported: Mutex<Vec<String>>,
}

impl Reconciler for JournalSettings {
    type Key = ();

    fn settings(&self) -> Settings {
        let retry = (INTERVAL, INTERVAL);
        Settings { name: "journal-settings", workers: 1, retry, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        let journal = self.journal.clone();
        let found = tokio::task::spawn_blocking(move || journal.problems()).await;
        match found.map_err(ApiError::internal)? {
            Ok(found) => {
                let (new, gone) = changes(&mut self.reported.lock(), found);
                for problem in new {
                    tracing::warn!(%problem, "the journal is not as it has to be; correct it before a replica is started again");
                }
                for problem in gone {
                    tracing::info!(%problem, "a problem of the journal was corrected");
                }
            }
            // A journal that is away, or that is another one by now, is seen by who follows it.
            Err(error) => tracing::debug!(%error, "the settings of the journal could not be read"),
        }
        Ok(Action::RequeueAfter(INTERVAL))
    }
}

/// Takes what was found; returns the problems that were not reported yet, and those that are gone.
fn changes(reported: &mut Vec<String>, found: Vec<String>) -> (Vec<String>, Vec<String>) {
    let new = found.iter().filter(|problem| !reported.contains(problem)).cloned().collect();
    let before = std::mem::replace(reported, found);
    let gone = before.into_iter().filter(|problem| !reported.contains(problem)).collect();
    (new, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_reported_once_and_again_after_it_was_gone() {
        let mut reported = Vec::new();
        let mut after = |found: &[&str]| {
            let (new, gone) = changes(&mut reported, found.iter().map(|text| (*text).to_owned()).collect());
            (new.join(" "), gone.join(" "))
        };
        assert_eq!(after(&["a"]), ("a".to_owned(), String::new()));
        assert_eq!(after(&["a", "b"]), ("b".to_owned(), String::new()));
        assert_eq!(after(&["b"]), (String::new(), "a".to_owned()));
        assert_eq!(after(&["a"]), ("a".to_owned(), "b".to_owned()));
        assert_eq!(after(&[]), (String::new(), "a".to_owned()));
    }
}
