//! Labels token Secrets with the date of their last use (kubernetes `pkg/serviceaccount/legacy.go`).

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::Value;
use time::OffsetDateTime;

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::authn::service_account::last_used::{day, is_due, LAST_USED};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;

/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// Starts the controller.
pub fn start(server: &Arc<Server>) {
    reconciler::spawn(server, TokenUse { server: server.clone() });
}

/// The controller; its keys are namespace, name and UID of Secrets, which the authenticator reports.
struct TokenUse {
    server: Arc<Server>,
}

impl Reconciler for TokenUse {
    type Key = (String, String, String);

    fn settings(&self) -> Settings {
        Settings { name: "token-last-used", workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Self::Key>, ApiError> {
        Ok(Start::new([]))
    }

    async fn notified(&self) -> Self::Key {
        self.server.authenticator.service_accounts().last_used().next().await
    }

    async fn reconcile(&self, (namespace, name, uid): Self::Key) -> Result<Action, ApiError> {
        label(&self.server, &namespace, &name, &uid).await.map(|()| Action::AwaitChange)
    }
}

async fn label(server: &Arc<Server>, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "secrets"), namespace, name, Verb::Update)?;
    let today = OffsetDateTime::now_utc().date();
    let labelled = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let same = metadata_text(&new, "uid") == uid;
        let known = new.str_at(&["metadata", "labels", LAST_USED]).map(str::to_owned);
        if same && is_due(known.as_deref(), today) {
            if let Some(labels) = new.object_at_mut(&["metadata", "labels"]) {
                labels.insert(LAST_USED, day(today));
            }
        }
        Ok(new)
    };
    match internal::update(&cx, &labelled).await {
        // Deleted concurrently.
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
