//! The Webhook authorizer: a service elsewhere answers a SubjectAccessReview.
//!
//! Upstream: k8s.io/apiserver `plugin/pkg/authorizer/webhook`. Answers are kept for a while, so that a client that asks
//! the same again waits for nobody; a service that fails is asked again a few times, and then it has no opinion, or denies
//! when it was configured so.

pub(super) mod conditions;
pub mod review;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Attributes, Decision, Reason, Target, Verdict};
use crate::outward::Service;
use conditions::Conditions;
use review::Answer;

/// Answers that are kept.
const CACHE: usize = 8192;
/// Questions with longer texts than this are not kept, in bytes: a client chooses them freely.
const CACHED_TEXTS: usize = 10_000;

/// Which form of SubjectAccessReview the service understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReviewVersion {
    /// `authorization.k8s.io/v1`.
    #[value(name = "v1")]
    V1,
    /// `authorization.k8s.io/v1beta1`: groups are called `group`.
    #[value(name = "v1beta1")]
    V1Beta1,
}

/// How a service is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The form of the question.
    pub version: ReviewVersion,
    /// How long a yes is kept; zero not at all.
    pub authorized_ttl: Duration,
    /// How long everything else is kept; zero not at all.
    pub unauthorized_ttl: Duration,
    /// What is decided when the service cannot be asked.
    pub on_error: Verdict,
}

/// One service. The cache's lock is held to look up and to put.
pub struct Webhook {
    service: Service,
    settings: Settings,
    conditions: Conditions,
    cache: Mutex<Cache>,
}

impl Webhook {
    /// Asks that service about everything.
    pub fn new(service: Service, settings: Settings) -> Webhook {
        Webhook { service, settings, conditions: Conditions::default(), cache: Mutex::default() }
    }

    /// Lets the service be asked only where these conditions hold.
    pub(super) fn where_holds(self, conditions: Conditions) -> Webhook {
        Webhook { conditions, ..self }
    }

    /// Asks the service, unless its answer is known or it is not to be asked.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        match self.conditions.hold(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::no_opinion(String::new()),
            Err(error) => {
                return Decision { verdict: self.settings.on_error, reason: Reason::None, error: Some(error) }
            }
        }
        let question: Bytes = review::question(self.settings.version, attributes).into();
        let known = self.cache.lock().get(&question);
        let answer = match known {
            Some(answer) => answer,
            None => match self.ask(&question).await {
                Ok(answer) => {
                    let answer = Arc::new(answer);
                    let ttl = match answer.allowed {
                        true => self.settings.authorized_ttl,
                        false => self.settings.unauthorized_ttl,
                    };
                    if !ttl.is_zero() && texts(attributes) < CACHED_TEXTS {
                        self.cache.lock().put(question, answer.clone(), ttl);
                    }
                    answer
                }
                Err(error) => {
                    tracing::error!(%error, "the authorization webhook failed");
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

    async fn ask(&self, question: &Bytes) -> Result<Answer, String> {
        let answer =
            self.service.post_patiently(question.clone()).await.map_err(|error| error.to_string())?;
        review::answer(&answer)
    }
}

/// Bytes of the texts that the client chooses.
fn texts(attributes: &Attributes<'_>) -> usize {
    attributes.verb.len()
        + match attributes.target {
            Target::Path(path) => path.len(),
            Target::Resource(r) => {
                let texts = [r.group, r.version, r.resource, r.subresource, r.name, r.namespace];
                texts.iter().map(|text| text.len()).sum()
            }
        }
}

/// Answers with the time that each is good until. When it is full, the half that ends first goes.
#[derive(Default)]
struct Cache {
    answers: std::collections::HashMap<Bytes, (Arc<Answer>, Instant)>,
}

impl Cache {
    fn get(&self, question: &Bytes) -> Option<Arc<Answer>> {
        let (answer, until) = self.answers.get(question)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    fn put(&mut self, question: Bytes, answer: Arc<Answer>, ttl: Duration) {
        if self.answers.len() >= CACHE {
            let mut ends: Vec<Instant> = self.answers.values().map(|(_, until)| *until).collect();
            let (_, median, _) = ends.select_nth_unstable(CACHE / 2);
            let median = *median;
            self.answers.retain(|_, (_, until)| *until > median);
        }
        if let Some(until) = Instant::now().checked_add(ttl) {
            self.answers.insert(question, (answer, until));
        }
    }
}

#[cfg(test)]
mod tests;
