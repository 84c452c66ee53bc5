//! Looks at the settings and the members of the journal while this replica runs: others may change the
//! settings, and the next start would be refused; a member that is damaged is passed over.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_journal::{Journal, Problem};

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
    reported: Mutex<Vec<Problem>>,
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
                    tracing::warn!(error = %problem, "the journal is not as it has to be; correct it before a replica is started again");
                }
                for problem in gone {
                    tracing::info!(error = %problem, "a problem of the journal was corrected");
                }
            }
            // A journal that is away, or that is another one by now, is seen by who follows it.
            Err(error) => tracing::debug!(%error, "the settings of the journal could not be read"),
        }
        Ok(Action::RequeueAfter(INTERVAL))
    }
}

/// Takes what was found; returns the problems that were not reported yet, and those that are gone. One that
/// was reported stays as it was then.
fn changes(reported: &mut Vec<Problem>, found: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
    let is_among = |problems: &[Problem], problem: &Problem| problems.iter().any(|one| problem.is_same(one));
    let (mut kept, gone): (Vec<_>, Vec<_>) =
        std::mem::take(reported).into_iter().partition(|problem| is_among(&found, problem));
    let new: Vec<Problem> = found.into_iter().filter(|problem| !is_among(&kept, problem)).collect();
    kept.extend(new.iter().cloned());
    *reported = kept;
    (new, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_reported_once_and_again_after_it_was_gone() {
        let mut reported = Vec::new();
        let mut after = |found: &[&str]| {
            let found = found.iter().map(|text| Problem::of_member("a:1", *text)).collect();
            let (new, gone) = changes(&mut reported, found);
            let text = |problems: Vec<Problem>| {
                problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            (text(new), text(gone))
        };
        let outcome = |new: &str, gone: &str| (new.to_owned(), gone.to_owned());
        assert_eq!(after(&["a"]), outcome("a", ""));
        assert_eq!(after(&["a", "b"]), outcome("b", ""));
        assert_eq!(after(&["b"]), outcome("", "a"));
        assert_eq!(after(&["a"]), outcome("a", "b"));
        assert_eq!(after(&[]), outcome("", "a"));
        // A number that grows makes no other problem of it.
        assert_eq!(after(&["expired 60 seconds ago"]), outcome("expired 60 seconds ago", ""));
        assert_eq!(after(&["expired 120 seconds ago"]), outcome("", ""));
        assert_eq!(after(&["a"]), outcome("a", "expired 60 seconds ago"));
    }
}
