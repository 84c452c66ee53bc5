//! `--authentication-token-webhook-config-file`: a webhook that answers TokenReviews (k8s.io/apiserver
//! `plugin/pkg/authenticator/token/webhook`). Both positive and negative answers are cached.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{json, tree, Map, Value};
use sha2::{Digest, Sha256};

use super::Authenticated;
use crate::egress::{decode_review, AnswerCache, KubeconfigError, ReviewError, Service};
use plinth_api::{User, UserFields};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenReview";
/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Cached answers.
const MAX_CACHED: usize = 4096;

/// API version of the TokenReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TokenReviewVersion {
    /// `authentication.k8s.io/v1`.
    #[value(name = "v1")]
    V1,
    /// `authentication.k8s.io/v1beta1`.
    #[value(name = "v1beta1")]
    V1Beta1,
}

/// Why the webhook gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenWebhookError {
    /// The call failed.
    #[error("the authentication webhook failed: {0}")]
    Call(String),
    /// It refused the token, with a reason.
    #[error("{0}")]
    Refused(String),
}

/// The webhook's answer: a user for some audiences, or none.
pub type Answer = Option<(Arc<User>, Vec<String>)>;

/// The webhook, and what it answered lately.
pub(crate) struct TokenWebhook {
    service: Service,
    version: TokenReviewVersion,
    ttl: Duration,
    audiences: Vec<String>,
    cache: AnswerCache<[u8; 32], Answer>,
}

impl TokenWebhook {
    /// The webhook of a kubeconfig. `audiences` are this server's own.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(crate) fn new(
        kubeconfig: &Path,
        version: TokenReviewVersion,
        ttl: Duration,
        audiences: Vec<String>,
    ) -> Result<TokenWebhook, KubeconfigError> {
        let service = Service::from_kubeconfig(kubeconfig, TIMEOUT)?;
        Ok(TokenWebhook { service, version, ttl, audiences, cache: AnswerCache::new(MAX_CACHED) })
    }

    /// Authenticates a token; `None` when the webhook does not recognize it.
    ///
    /// # Errors
    /// [`TokenWebhookError`].
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Result<Option<Authenticated>, TokenWebhookError> {
        let key = key(token, wanted);
        let answer = match self.cache.get(&key) {
            Some(answer) => answer,
            None => {
                let answer = parse_review(&self.call(token, wanted).await?, wanted, &self.audiences)?;
                self.cache.insert(key, answer.clone(), self.ttl);
                answer
            }
        };
        Ok(answer.map(|(user, audiences)| Authenticated { user, audiences }))
    }

    async fn call(&self, token: &str, wanted: &[String]) -> Result<Value, TokenWebhookError> {
        let version = match self.version {
            TokenReviewVersion::V1 => "v1",
            TokenReviewVersion::V1Beta1 => "v1beta1",
        };
        let api_version = format!("{GROUP}/{version}");
        let mut spec = Map::new();
        spec.insert("token", token);
        if !wanted.is_empty() {
            spec.insert("audiences", wanted.iter().map(|a| Value::from(a.as_str())).collect::<Vec<_>>());
        }
        let review = tree!({ "apiVersion": api_version, "kind": KIND, "metadata": Map::new(), "spec": spec });
        let mut body = Vec::with_capacity(2048);
        json::write_untyped(&review, &mut body);
        let answer = self.service.post_with_retries(body.into()).await.map_err(|error| {
            tracing::error!(%error, "authentication webhook call failed");
            TokenWebhookError::Call(error.to_string())
        })?;
        decode(&answer, version).map_err(|error| TokenWebhookError::Call(error.to_string()))
    }
}

/// Decodes an answer to a review of a version.
pub fn decode(answer: &[u8], version: &str) -> Result<Value, ReviewError> {
    decode_review(answer, (GROUP, version, KIND))
}

/// Hash of token and audiences; tokens are not kept in memory.
fn key(token: &str, wanted: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in std::iter::once(token).chain(wanted.iter().map(String::as_str)) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// Parses the answer. A review without audiences is valid for this server's own.
pub fn parse_review(review: &Value, wanted: &[String], own: &[String]) -> Result<Answer, TokenWebhookError> {
    let status = |key: &str| review.at(&["status", key]);
    let named = review.texts_at(&["status", "audiences"]);
    let speaks_for = if named.is_empty() { own.to_vec() } else { named };
    let audiences: Vec<String> = wanted.iter().filter(|a| speaks_for.contains(a)).cloned().collect();
    if audiences.is_empty() && !wanted.is_empty() {
        return Ok(None);
    }
    if status("authenticated").and_then(Value::as_bool) != Some(true) {
        return match review.str_at(&["status", "error"]).filter(|text| !text.is_empty()) {
            Some(why) => Err(TokenWebhookError::Refused(why.to_owned())),
            None => Ok(None),
        };
    }
    let user = status("user").map(|user| User::of(user, UserFields::USER_INFO)).unwrap_or_default();
    Ok(Some((Arc::new(user.authenticated()), audiences)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_by_table() {
        let own = ["api".to_owned()];
        let user = r#""user":{"username":"jane","uid":"u","groups":["dev"],"extra":{"k":["v"]}}"#;
        let rows: &[(String, &[&str], Result<Option<&[&str]>, &str>)] = &[
            (format!(r#"{{"authenticated":true,{user}}}"#), &["api"], Ok(Some(&["api"]))),
            (
                format!(r#"{{"authenticated":true,{user},"audiences":["vault"]}}"#),
                &["vault", "api"],
                Ok(Some(&["vault"])),
            ),
            (format!(r#"{{"authenticated":true,{user},"audiences":["vault"]}}"#), &["api"], Ok(None)),
            (format!(r#"{{"authenticated":true,{user}}}"#), &["vault"], Ok(None)),
            (r#"{"authenticated":false}"#.into(), &["api"], Ok(None)),
            ("{}".into(), &["api"], Ok(None)),
            (r#"{"error":"too old"}"#.into(), &["api"], Err("too old")),
        ];
        for (status, wanted, expected) in rows {
            let review = json::parse(format!(r#"{{"status":{status}}}"#).as_bytes()).unwrap();
            let wanted: Vec<String> = wanted.iter().map(|a| (*a).to_owned()).collect();
            match (parse_review(&review, &wanted, &own), expected) {
                (Ok(None), Ok(None)) => {}
                (Ok(Some((user, audiences))), Ok(Some(expected))) => {
                    assert_eq!(audiences, *expected, "{status}");
                    assert_eq!((user.name.as_str(), user.extra_value("k")), ("jane", Some("v")));
                    assert_eq!(user.groups, ["dev", "system:authenticated"]);
                }
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), *expected),
                (found, expected) => panic!("{status}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn keys_do_not_run_together() {
        let keys = [
            key("ab", &[]),
            key("a", &["b".into()]),
            key("a", &[]),
            key("a", &["b".into(), "c".into()]),
            key("a", &["bc".into()]),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|other| other != one));
        }
    }
}
