//! The Webhook authorizer: an external service that answers SubjectAccessReviews.
//!
//! Upstream: k8s.io/apiserver `plugin/pkg/authorizer/webhook`. Answers are cached for a while, so that
//! repeated requests do not wait for the service; a failing call is retried a few times, after which the
//! authorizer has no opinion, or denies if configured so.

pub(super) mod conditions;
pub mod review;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_codec::selector::Requirement;

use super::{Attributes, Decision, Reason, Selectors, Target, Verdict};
use crate::egress::client::CallError;
use crate::egress::{AnswerCache, Service};
use crate::metrics::{AuthorizationCall, AuthorizationWebhookMetrics};
use conditions::Conditions;
use review::AccessReviewStatus;

pub use review::AccessReviewVersion;

/// Cached answers.
const MAX_CACHED: usize = 8192;
/// Answers for attributes of more bytes than this are not cached: the client chooses them freely.
const MAX_CACHED_TEXT: usize = 10_000;

/// How a webhook is called.
#[derive(Clone, Debug)]
pub(crate) struct WebhookSettings {
    /// Version of the review.
    pub version: AccessReviewVersion,
    /// Time to live of cached allow decisions; zero disables caching.
    pub authorized_ttl: Duration,
    /// Time to live of other cached decisions; zero disables caching.
    pub unauthorized_ttl: Duration,
    /// The verdict when the call fails.
    pub on_error: Verdict,
}

/// Where the calls of a webhook are counted, and the name that its configuration has.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub metrics: &'a AuthorizationWebhookMetrics,
    pub name: &'a str,
}

/// A webhook, and what it answered lately.
pub(crate) struct WebhookAuthorizer {
    service: Service,
    settings: WebhookSettings,
    conditions: Conditions,
    cache: AnswerCache<Bytes, Arc<AccessReviewStatus>>,
}

impl WebhookAuthorizer {
    /// A webhook without match conditions.
    pub(crate) fn new(service: Service, settings: WebhookSettings) -> WebhookAuthorizer {
        let cache = AnswerCache::new(MAX_CACHED);
        WebhookAuthorizer { service, settings, conditions: Conditions::default(), cache }
    }

    /// Calls the webhook only if these conditions are true.
    pub(super) fn with_conditions(self, conditions: Conditions) -> WebhookAuthorizer {
        WebhookAuthorizer { conditions, ..self }
    }

    /// Decides from the cache or by calling the webhook, if its conditions match.
    pub(crate) async fn authorize(
        &self,
        attributes: &Attributes<'_>,
        counted: Option<Counted<'_>>,
    ) -> Decision {
        match self.conditions.matches(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::no_opinion(String::new()),
            Err(error) => {
                return Decision { verdict: self.settings.on_error, reason: Reason::None, error: Some(error) }
            }
        }
        let body: Bytes = review::encode(self.settings.version, attributes).into();
        let answer = match self.cache.get(&body) {
            Some(answer) => answer,
            None => match self.call(&body, counted).await {
                Ok(answer) => {
                    let answer = Arc::new(answer);
                    let ttl = match answer.allowed {
                        true => self.settings.authorized_ttl,
                        false => self.settings.unauthorized_ttl,
                    };
                    if texts(attributes) < MAX_CACHED_TEXT {
                        self.cache.insert(body, answer.clone(), ttl);
                    }
                    answer
                }
                Err(error) => {
                    tracing::error!(%error, "authorization webhook call failed");
                    return Decision {
                        verdict: self.settings.on_error,
                        reason: Reason::None,
                        error: Some(error),
                    };
                }
            },
        };
        let verdict = match (answer.denied, answer.allowed) {
            (true, _) => Verdict::Deny,
            (false, true) => Verdict::Allow,
            (false, false) => Verdict::NoOpinion,
        };
        const BOTH: &str = "webhook subject access review returned both allow and deny response";
        let error = (answer.denied && answer.allowed).then(|| BOTH.to_owned());
        Decision { verdict, reason: Reason::Text(answer.reason.clone().into()), error }
    }

    async fn call(&self, body: &Bytes, counted: Option<Counted<'_>>) -> Result<AccessReviewStatus, String> {
        let count = |call, took| {
            if let Some(Counted { metrics, name }) = counted {
                metrics.called(name, call, took);
            }
        };
        let kind = |failure: &CallError| match failure {
            CallError::Timeout => AuthorizationCall::Timeout,
            _ => AuthorizationCall::Error,
        };
        let failed = |failure: &CallError, took| count(kind(failure), took);
        let outcome = match self.service.post_observed(body.clone(), failed).await {
            Ok((answer, took)) => {
                let decoded = review::decode(&answer, self.settings.version);
                let call =
                    if decoded.is_ok() { AuthorizationCall::Success } else { AuthorizationCall::Error };
                count(call, took);
                decoded.map_err(|error| (call, error.to_string()))
            }
            Err(error) => Err((kind(error.cause()), error.to_string())),
        };
        outcome.map_err(|(call, error)| {
            if let (Verdict::NoOpinion, Some(Counted { metrics, name })) = (self.settings.on_error, counted) {
                metrics.failed_open(name, call);
            }
            error
        })
    }
}

/// Bytes of the attributes that the client chooses.
fn texts(attributes: &Attributes<'_>) -> usize {
    attributes.verb.len()
        + match attributes.target {
            Target::Path(path) => path.len(),
            Target::Resource(r) => {
                let texts = [r.group, r.version, r.resource, r.subresource, r.name, r.namespace];
                texts.iter().map(|text| text.len()).sum::<usize>() + r.selectors.map_or(0, selector_texts)
            }
        }
}

/// The same of selectors, which upstream does not count. Each requirement has some bytes around it.
fn selector_texts(selectors: &Selectors) -> usize {
    const AROUND: usize = 64;
    let fields = selectors.fields.iter().map(|r| AROUND + r.field.len() + r.value.len());
    let label = |r: &Requirement| AROUND + r.key().len() + r.values().iter().map(|v| v.len()).sum::<usize>();
    fields.sum::<usize>() + selectors.labels.iter().map(label).sum::<usize>()
}

#[cfg(test)]
mod tests;
