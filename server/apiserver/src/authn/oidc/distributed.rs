//! Claims that a token does not hold but says where to ask for (OpenID Connect Core 1.0, 5.6.2.2, as k8s.io/apiserver
//! `plugin/pkg/authenticator/token/oidc` follows it): the claim of the groups alone. Aggregated claims are passed over.
//!
//! ```json
//! {"_claim_names": {"groups": "a"}, "_claim_sources": {"a": {"endpoint": "https://…", "access_token": "…"}}}
//! ```
//!
//! What the endpoint answers is a token of its own, of an issuer that must meet what this authenticator asks of all of its tokens:
//! algorithms, audience, time. Who may say where the claim is, is the issuer that signed the first token; nothing is asked before
//! its signature is checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::provider::{self, Provider};
use super::{Claims, OidcError, Rules};
use crate::outward::client::Bounds;
use plinth_pki::jwt;

/// What an endpoint's answer may take; it is a token.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), answer: jwt::LONGEST };
/// Questions at once, over all tokens: authentication comes before flow control.
const QUESTIONS: usize = 16;
/// How long an answer counts: upstream remembers whom a token stands for that long.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Answers that are kept, of [`jwt::LONGEST`] at the most.
const KEPT: usize = 256;
/// Issuers of answers whose keys are kept.
const PROVIDERS: usize = 16;

/// Where a claim is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Source {
    /// Empty for an aggregated claim.
    #[serde(default)]
    endpoint: String,
    /// What to show there; may be empty.
    #[serde(default)]
    access_token: String,
}

/// The claims that stand elsewhere, and where.
pub(super) type Sources = BTreeMap<String, Source>;

/// Reads where claims are.
///
/// # Errors
/// When a claim has no source.
pub(super) fn sources(claims: &Claims) -> Result<Sources, OidcError> {
    let error = |what: &str| OidcError::Claims(what.to_owned());
    let unread = |why: serde_json::Error| OidcError::Claims(format!("failed to unmarshal claims: {why}"));
    let Some(names) = claims.get("_claim_names").filter(|names| !names.is_null()) else {
        return Ok(Sources::new());
    };
    let names: BTreeMap<String, String> = Deserialize::deserialize(names).map_err(unread)?;
    let known: Sources = match claims.get("_claim_sources") {
        None | Some(Value::Null) => Sources::new(),
        Some(sources) => Deserialize::deserialize(sources).map_err(unread)?,
    };
    let find = |(claim, name): (String, String)| match known.get(&name) {
        _ if name.is_empty() => Err(error("failed to obtain source from claim name")),
        None => Err(error("source does not exist")),
        Some(source) => Ok((claim, source.clone())),
    };
    names.into_iter().map(find).collect()
}

/// Asks for a claim that stands elsewhere. The locks are held to look and to put, never across a question.
pub(super) struct Resolver {
    claim: String,
    places: Semaphore,
    /// Servers of the issuers of answers, by issuer.
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
    /// Answers, by the hash of the token that sent us there.
    known: Mutex<HashMap<[u8; 32], (Instant, Value)>>,
}

impl Resolver {
    /// For this claim.
    pub fn new(claim: &str) -> Resolver {
        Resolver {
            claim: claim.to_owned(),
            places: Semaphore::new(QUESTIONS),
            providers: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Puts the claim among the claims of a token of `own`'s, when it stands elsewhere. A token is asked for once in
    /// [`KEPT_FOR`].
    ///
    /// # Errors
    /// [`OidcError::Distributed`].
    pub async fn expand(
        &self,
        own: &Arc<Provider>,
        rules: &Rules,
        token: &str,
        claims: &mut Claims,
    ) -> Result<(), OidcError> {
        if claims.contains_key(&self.claim) {
            return Ok(());
        }
        let Some(source) = sources(claims)?.remove(&self.claim).filter(|s| !s.endpoint.is_empty()) else {
            return Ok(());
        };
        let id: [u8; 32] = Sha256::digest(token).into();
        let value = match self.kept(&id) {
            Some(value) => value,
            None => {
                let asked = tokio::time::timeout(BOUNDS.time, self.ask(own, rules, &source)).await;
                let late =
                    || format!("while getting distributed claim {:?}: context deadline exceeded", self.claim);
                let value = asked.unwrap_or_else(|_| Err(late())).map_err(OidcError::Distributed)?;
                self.keep(id, &value);
                value
            }
        };
        claims.insert(self.claim.clone(), value);
        Ok(())
    }

    async fn ask(&self, own: &Arc<Provider>, rules: &Rules, source: &Source) -> Result<Value, String> {
        let Source { endpoint, access_token } = source;
        let claim = &self.claim;
        let failed = |why: String| format!("while getting distributed claim {claim:?}: {why}");
        // Never closed.
        let _place = self.places.acquire().await.map_err(|why| failed(why.to_string()))?;
        let credentials = match access_token.as_str() {
            "" => None,
            token => {
                let value = HeaderValue::try_from(format!("Bearer {token}"));
                let mut value = value.map_err(|why| failed(why.to_string()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let answer = provider::get(endpoint, own.tls(), credentials, BOUNDS).await.map_err(failed)?;
        let token = String::from_utf8_lossy(&answer);
        let issuer = super::untrusted_issuer(&token).map_err(|why| {
            format!("getting untrusted issuer from endpoint {endpoint} failed for claim {claim:?}: {why}")
        })?;
        let provider = self.provider(own, &issuer);
        let verified = rules.verify(&provider, &token, jwt::now()).await;
        let mut claims = verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        claims.remove(claim).ok_or_else(|| {
            format!("jwt returned by distributed claim endpoint {endpoint:?} did not contain claim: {claim}")
        })
    }

    /// The server of an issuer. Whom this one names it by is who trusts the authenticator's own.
    fn provider(&self, own: &Arc<Provider>, issuer: &str) -> Arc<Provider> {
        if own.issuer() == issuer {
            return own.clone();
        }
        let mut providers = self.providers.lock();
        if !providers.contains_key(issuer) && providers.len() >= PROVIDERS {
            providers.clear();
        }
        let new = || Arc::new(Provider::new(issuer, "", own.tls().clone()));
        providers.entry(issuer.to_owned()).or_insert_with(new).clone()
    }

    fn kept(&self, id: &[u8; 32]) -> Option<Value> {
        let known = self.known.lock();
        known.get(id).filter(|(when, _)| when.elapsed() < KEPT_FOR).map(|(_, value)| value.clone())
    }

    fn keep(&self, id: [u8; 32], value: &Value) {
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.retain(|_, (when, _)| when.elapsed() < KEPT_FOR);
        }
        // Where all are young, the newest is asked for again.
        if known.len() < KEPT {
            known.insert(id, (Instant::now(), value.clone()));
        }
    }
}
