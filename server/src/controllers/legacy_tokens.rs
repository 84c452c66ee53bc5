//! Invalidates, and later deletes, unused token Secrets that upstream once created for every service account
//! (kubernetes `pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go`).
//!
//! Secrets that users created are kept: only those that their account lists count as created by upstream. The
//! use is recorded by day, so one pass a day suffices.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::time::Timestamp;
use plinth_codec::Value;
use plinth_engine::Revision;
use smol_str::SmolStr;
use time::{Date, OffsetDateTime};

use super::{accounts, tokens};
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{is_deleting, metadata_text, ApiError, Verb};
use plinth_apiserver::authn::service_account::last_used::{day, parse_day, LAST_USED};
use plinth_apiserver::authn::service_account::INVALID_SINCE;
use plinth_apiserver::authz::node::references::{of_pod, ReferenceKind};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::{delete, internal};

/// The controller's name.
pub(super) const NAME: &str = "legacy-serviceaccount-token-cleaner-controller";
/// Interval of passes.
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// First and longest delay after an error.
const RETRY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
const SECRETS: (&str, &str, &str) = ("", "v1", "secrets");

/// The controller; its only key is a pass over all Secrets.
pub(super) struct LegacyTokens {
    server: Arc<Server>,
    unused_for: Duration,
}

impl LegacyTokens {
    pub(super) fn new(server: &Arc<Server>, unused_for: Duration) -> LegacyTokens {
        LegacyTokens { server: server.clone(), unused_for }
    }
}

impl Reconciler for LegacyTokens {
    type Key = ();

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<()>, ApiError> {
        Ok(Start::new([()]))
    }

    async fn reconcile(&self, (): ()) -> Result<Action, ApiError> {
        run_pass(&self.server, self.unused_for, OffsetDateTime::now_utc()).await?;
        Ok(Action::RequeueAfter(PERIOD))
    }
}

/// The decision about a Secret.
#[derive(Debug, PartialEq, Eq)]
enum TokenAction {
    Stays,
    Mark,
    Delete,
}

/// The time limit for unused Secrets.
struct Limit {
    /// Secrets created or used at this time or later are kept.
    since: OffsetDateTime,
}

impl Limit {
    fn decide(&self, secret: &Value) -> TokenAction {
        let label = |key: &str| secret.str_at(&["metadata", "labels", key]);
        let made = Timestamp::parse(metadata_text(secret, "creationTimestamp"));
        let is_old = |day: Date| day < self.since.date();
        if is_deleting(secret) || !made.is_ok_and(|made| made.seconds < self.since.unix_timestamp()) {
            return TokenAction::Stays;
        }
        // An invalid date is ignored; without a date the Secret was not used since tracking began.
        if label(LAST_USED).is_some_and(|used| !parse_day(used).is_some_and(is_old)) {
            return TokenAction::Stays;
        }
        match label(INVALID_SINCE).and_then(parse_day) {
            None => TokenAction::Mark,
            Some(marked) if is_old(marked) => TokenAction::Delete,
            Some(_) => TokenAction::Stays,
        }
    }
}

/// Whether an account lists a Secret.
fn lists(account: &Value, secret: &Value) -> bool {
    let (name, wanted) = (metadata_text(secret, "name"), annotation(secret, tokens::ACCOUNT_UID));
    let listed = account.list_at(&["secrets"]);
    (wanted.is_empty() || wanted == metadata_text(account, "uid"))
        && listed.iter().any(|secret| secret.str_at(&["name"]) == Some(name))
}

fn annotation<'a>(secret: &'a Value, key: &str) -> &'a str {
    secret.str_at(&["metadata", "annotations", key]).unwrap_or_default()
}

async fn run_pass(server: &Arc<Server>, unused_for: Duration, now: OffsetDateTime) -> Result<(), ApiError> {
    const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");
    let tracking = tokens::read(server, ("", "v1", "configmaps"), TRACKING).await?.unwrap_or_default();
    let Some(began) = tracking.str_at(&["data", "since"]).and_then(parse_day) else { return Ok(()) };
    let limit = Limit { since: now - unused_for };
    // The first whole day.
    if limit.since.date() <= began {
        return Ok(());
    }
    let (found, _) = tokens::of_namespace(server, "").await?;
    for (namespace, name) in found {
        let Some(secret) = tokens::read(server, SECRETS, (&namespace, &name)).await? else { continue };
        let verdict = limit.decide(&secret);
        if verdict == TokenAction::Stays {
            continue;
        }
        let account = (namespace.as_str(), annotation(&secret, tokens::ACCOUNT_NAME));
        let account = tokens::read(server, ("", "v1", "serviceaccounts"), account).await?;
        let automatic = account.is_some_and(|account| lists(&account, &secret));
        if !automatic || named_by_pods(server, &namespace).await?.contains(name.as_str()) {
            continue;
        }
        let done = match verdict {
            TokenAction::Mark => mark(server, &namespace, &secret, now).await,
            _ => remove(server, &namespace, &secret).await,
        };
        match done {
            // Deleted or changed concurrently.
            Err(error) if error.has_changed() => {}
            done => done?,
        }
    }
    Ok(())
}

async fn named_by_pods(server: &Arc<Server>, namespace: &str) -> Result<HashSet<SmolStr>, ApiError> {
    let cx = Context::internal(server, ("", "v1", "pods"), namespace, "", Verb::List)?;
    let add = |named: &mut HashSet<SmolStr>, pod: Value| {
        let secrets = of_pod(&pod).into_iter().filter(|(kind, _)| *kind == ReferenceKind::Secret);
        named.extend(secrets.map(|(_, name)| name));
        ControlFlow::Continue(())
    };
    server.store.visit(&cx.resource, namespace, |_| true, HashSet::new(), add).await
}

async fn mark(
    server: &Arc<Server>,
    namespace: &str,
    secret: &Value,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    let name = metadata_text(secret, "name");
    let cx = accounts::LEGACY_TOKENS.request(server, SECRETS, namespace, name, Verb::Update)?;
    let today = day(now.date());
    let marked = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        // One that was used or changed since it was read is left alone.
        if metadata_text(&new, "resourceVersion") == metadata_text(secret, "resourceVersion") {
            if let Some(labels) = new.object_at_mut(&["metadata", "labels"]) {
                labels.insert(INVALID_SINCE, today.as_str());
            }
        }
        Ok(new)
    };
    internal::update(&cx, &marked).await
}

/// Deletes a Secret unless it was used or changed since it was read.
async fn remove(server: &Arc<Server>, namespace: &str, secret: &Value) -> Result<(), ApiError> {
    let name = metadata_text(secret, "name");
    let cx = accounts::LEGACY_TOKENS.request(server, SECRETS, namespace, name, Verb::Delete)?;
    let revision = metadata_text(secret, "resourceVersion").parse().map_err(ApiError::internal)?;
    let revision = Some(Revision::new(revision));
    delete::delete_one(&cx, "Background", metadata_text(secret, "uid"), revision).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;
    use time::macros::datetime;

    #[test]
    fn secrets_by_table() {
        let limit = Limit { since: datetime!(2024-06-15 12:00 UTC) };
        let secret = |made: &str, labels: &[(&str, &str)]| {
            let mut secret = tree!({ "metadata": tree!({ "name": "s", "creationTimestamp": made }) });
            for (key, value) in labels {
                secret.object_at_mut(&["metadata", "labels"]).unwrap().insert(*key, *value);
            }
            secret
        };
        let old = "2024-01-01T00:00:00Z";
        let rows = [
            (secret(old, &[]), TokenAction::Mark),
            (secret("2024-06-15T11:59:59Z", &[]), TokenAction::Mark),
            (secret("2024-06-15T12:00:00Z", &[]), TokenAction::Stays),
            (secret("", &[]), TokenAction::Stays),
            (secret(old, &[(LAST_USED, "2024-06-14")]), TokenAction::Mark),
            (secret(old, &[(LAST_USED, "2024-06-15")]), TokenAction::Stays),
            (secret(old, &[(LAST_USED, "long ago")]), TokenAction::Stays),
            (secret(old, &[(INVALID_SINCE, "long ago")]), TokenAction::Mark),
            (secret(old, &[(INVALID_SINCE, "2024-06-15")]), TokenAction::Stays),
            (secret(old, &[(INVALID_SINCE, "2024-06-14")]), TokenAction::Delete),
            (secret(old, &[(INVALID_SINCE, "2024-06-14"), (LAST_USED, "2024-06-20")]), TokenAction::Stays),
        ];
        for (secret, verdict) in rows {
            assert_eq!(limit.decide(&secret), verdict, "{secret:?}");
        }
    }

    #[test]
    fn only_secrets_listed_by_their_account_are_automatic() {
        let secret = |uid: &str| {
            let annotations = tree!({ "kubernetes.io/service-account.uid": uid });
            tree!({ "metadata": tree!({ "name": "s", "annotations": annotations }) })
        };
        let account = |name: &str| tree!({ "metadata": tree!({ "uid": "u" }), "secrets": vec![tree!({ "name": name })] });
        assert!(lists(&account("s"), &secret("u")));
        assert!(lists(&account("s"), &secret("")));
        assert!(!lists(&account("s"), &secret("another")));
        assert!(!lists(&account("other"), &secret("u")));
        assert!(!lists(&tree!({}), &secret("")));
    }
}
