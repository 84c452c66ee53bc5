//! Distributed claims: claims that are fetched from an endpoint named by the token (OpenID Connect Core 1.0,
//! 5.6.2.2, as k8s.io/apiserver `plugin/pkg/authenticator/token/oidc` implements it), for the groups claim
//! only. Aggregated claims are ignored.
//!
//! ```json
//! {"_claim_names": {"groups": "a"}, "_claim_sources": {"a": {"endpoint": "https://…", "access_token": "…"}}}
//! ```
//!
//! The endpoint returns a token of its own, whose issuer must meet this authenticator's requirements for all
//! tokens: algorithms, audience, time. The endpoint is taken from the issuer's signed token; nothing is
//! fetched before its signature is verified.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::claims::{sources, untrusted_issuer, ClaimSource, Claims, OidcError};
use super::provider::{self, Provider};
use super::requirements::TokenRequirements;
use crate::egress::client::Bounds;
use crate::egress::AnswerCache;
use plinth_pki::{unix_now, LONGEST_JWT};

/// Limits of an endpoint's answer, which is a token.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), answer: LONGEST_JWT };
/// Concurrent fetches, over all tokens: authentication precedes flow control.
const MAX_IN_FLIGHT: usize = 16;
/// How long a claim is cached, as long as upstream caches the user of a token.
const CACHE_TTL: Duration = Duration::from_secs(10);
/// Cached claims, each of at most [`LONGEST_JWT`].
const MAX_CACHED: usize = 256;
/// Issuers whose keys are cached.
const MAX_PROVIDERS: usize = 16;

/// Resolves a distributed claim. The lock is held to look up and to insert, never across a fetch.
pub(super) struct Resolver {
    claim: String,
    in_flight: Semaphore,
    /// Issuers of fetched tokens, by URL.
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
    /// Fetched claims, by the hash of the token that named the endpoint.
    cache: AnswerCache<[u8; 32], Value>,
}

impl Resolver {
    /// Resolves this claim.
    pub(super) fn new(claim: &str) -> Resolver {
        Resolver {
            claim: claim.to_owned(),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            providers: Mutex::default(),
            cache: AnswerCache::new(MAX_CACHED),
        }
    }

    /// Adds the claim to the claims of a token of `own` if it is distributed. It is fetched at most once per
    /// [`CACHE_TTL`] and token.
    ///
    /// # Errors
    /// [`OidcError::Distributed`].
    pub(super) async fn expand(
        &self,
        own: &Arc<Provider>,
        rules: &TokenRequirements,
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
        let value = match self.cache.get(&id) {
            Some(value) => value,
            None => {
                let resolved = tokio::time::timeout(BOUNDS.time, self.resolve(own, rules, &source)).await;
                let timeout =
                    || format!("while getting distributed claim {:?}: context deadline exceeded", self.claim);
                let value = resolved.unwrap_or_else(|_| Err(timeout())).map_err(OidcError::Distributed)?;
                self.cache.insert(id, value.clone(), CACHE_TTL);
                value
            }
        };
        claims.insert(self.claim.clone(), value);
        Ok(())
    }

    async fn resolve(
        &self,
        own: &Arc<Provider>,
        rules: &TokenRequirements,
        source: &ClaimSource,
    ) -> Result<Value, String> {
        let ClaimSource { endpoint, access_token } = source;
        let claim = &self.claim;
        let failed = |why: String| format!("while getting distributed claim {claim:?}: {why}");
        // Never closed.
        let _permit = self.in_flight.acquire().await.map_err(|why| failed(why.to_string()))?;
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
        let issuer = untrusted_issuer(&token).map_err(|why| {
            format!("getting untrusted issuer from endpoint {endpoint} failed for claim {claim:?}: {why}")
        })?;
        let provider = self.provider(own, &issuer);
        let verified = rules.verify(&provider, &token, unix_now()).await;
        let mut claims = verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        claims.remove(claim).ok_or_else(|| {
            format!("jwt returned by distributed claim endpoint {endpoint:?} did not contain claim: {claim}")
        })
    }

    /// The provider of an issuer. It uses the TLS settings of the authenticator's own issuer.
    fn provider(&self, own: &Arc<Provider>, issuer: &str) -> Arc<Provider> {
        if own.issuer() == issuer {
            return own.clone();
        }
        let mut providers = self.providers.lock();
        if !providers.contains_key(issuer) && providers.len() >= MAX_PROVIDERS {
            providers.clear();
        }
        let new = || Arc::new(Provider::new(issuer, "", own.tls().clone()));
        providers.entry(issuer.to_owned()).or_insert_with(new).clone()
    }
}
