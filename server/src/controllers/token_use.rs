//! Labels Secrets with the day on which their tokens were last used (kubernetes `pkg/serviceaccount/legacy.go`).

use std::sync::Arc;

use plinth_codec::Value;
use time::OffsetDateTime;

use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::authn::service_account::last_used::{day, is_due, LAST_USED};
use plinth_apiserver::context::{end_if_over, Context, Server};
use plinth_apiserver::handlers::internal;

/// Writes labels, for ever.
pub async fn run(server: Arc<Server>) {
    let accounts = server.authenticator.service_accounts().clone();
    loop {
        let (namespace, name, uid) = accounts.last_used().next().await;
        if let Err(error) = label(&server, &namespace, &name, &uid).await {
            // Its next use tries again.
            end_if_over().await;
            tracing::warn!(%error, namespace, name, "the last use of a token cannot be noted");
        }
    }
}

async fn label(server: &Arc<Server>, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let cx = Context::internal(server, ("", "v1", "secrets"), namespace, name, Verb::Update)?;
    let today = OffsetDateTime::now_utc().date();
    let labelled = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let same = metadata::text(&new, "uid") == uid;
        let known = new.str_at(&["metadata", "labels", LAST_USED]).map(str::to_owned);
        if same && is_due(known.as_deref(), today) {
            if let Some(labels) = new.object_at_mut(&["metadata", "labels"]) {
                labels.insert(LAST_USED, day(today));
            }
        }
        Ok(new)
    };
    match internal::update(&cx, &labelled).await {
        // Gone since.
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}
