//! An issuer's server: fetches its keys and verifies token signatures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HeaderValue, ACCEPT};
use hyper::{Request, Uri};
use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;

use super::claims::{Claims, OidcError};
use crate::egress::client::{Bounds, Client, Origin};
use plinth_pki::{jwt_header, verify_jwt, JwtAlgorithm, JwtError, VerifyingKey};

/// Minimum time between two fetches of an issuer's keys.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Keys cached per issuer.
const MAX_KEYS: usize = 256;
/// Limits of fetching an issuer's configuration or keys.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), answer: 1 << 20 };

/// The server of one issuer. The lock of the keys is held to look up and to insert, never across a fetch.
pub(super) struct Provider {
    /// The claim `iss`.
    issuer: String,
    /// URL of its discovery document when not below its own URL; otherwise empty.
    discovery_url: String,
    tls: Arc<ClientConfig>,
    keys: Mutex<Keys>,
    /// Held across a fetch, so that there is only one at a time.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Keys {
    keys: Arc<[VerifyingKey]>,
    fetched: Option<Instant>,
    error: Option<String>,
}

impl Provider {
    /// Fetches nothing yet.
    pub(super) fn new(issuer: &str, discovery_url: &str, tls: Arc<ClientConfig>) -> Provider {
        Provider {
            issuer: issuer.to_owned(),
            discovery_url: discovery_url.to_owned(),
            tls,
            keys: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// The issuer's URL (claim `iss`).
    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// TLS settings for the issuer's server and the URLs that it names.
    pub(super) fn tls(&self) -> &Arc<ClientConfig> {
        &self.tls
    }

    /// Verifies a token's signature, by one of these algorithms and a key of the issuer, and returns its
    /// claims. Nothing else is checked.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(super) async fn verify(&self, token: &str, algorithms: &[JwtAlgorithm]) -> Result<Claims, OidcError> {
        let header = jwt_header(token)?;
        if !header.algorithm().is_some_and(|algorithm| algorithms.contains(&algorithm)) {
            return Err(OidcError::Jwt(JwtError::Signature));
        }
        let kid = header.kid.unwrap_or_default();
        let fits = |key: &&VerifyingKey| kid.is_empty() || key.id() == kid;
        let mut keys = self.keys.lock().keys.clone();
        let mut claims = verify_jwt(token, keys.iter().filter(fits));
        if matches!(claims, Err(JwtError::NoKey | JwtError::Signature)) {
            // The issuer may have rotated its keys.
            keys = self.fetch().await?;
            claims = verify_jwt(token, keys.iter().filter(fits));
        }
        Ok(claims?)
    }

    /// Fetches the keys, unless that was done recently.
    async fn fetch(&self) -> Result<Arc<[VerifyingKey]>, OidcError> {
        let _one = self.fetching.lock().await;
        let issuer = &self.issuer;
        {
            let state = self.keys.lock();
            if state.fetched.is_some_and(|when| when.elapsed() < MIN_FETCH_INTERVAL) {
                return match &state.error {
                    Some(why) if state.keys.is_empty() => {
                        Err(OidcError::Keys { issuer: issuer.clone(), why: why.clone() })
                    }
                    _ => Ok(state.keys.clone()),
                };
            }
        }
        let fetched = self.fetch_now().await;
        let mut state = self.keys.lock();
        state.fetched = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                state.error = None;
                state.keys = keys;
                Ok(state.keys.clone())
            }
            Err(why) => {
                tracing::error!(
                    issuer,
                    error = why,
                    "keys of the OpenID Connect issuer could not be fetched"
                );
                state.error = Some(why.clone());
                // Keys that have been fetched before stay in use.
                match state.keys.is_empty() {
                    true => Err(OidcError::Keys { issuer: issuer.clone(), why }),
                    false => Ok(state.keys.clone()),
                }
            }
        }
    }

    async fn fetch_now(&self) -> Result<Arc<[VerifyingKey]>, String> {
        #[derive(Deserialize)]
        struct Discovery {
            issuer: String,
            jwks_uri: String,
        }
        #[derive(Deserialize)]
        struct KeySet {
            keys: Vec<Value>,
        }
        let url = match self.discovery_url.is_empty() {
            true => format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/')),
            false => self.discovery_url.clone(),
        };
        let text = get(&url, &self.tls, None, BOUNDS).await?;
        let discovery: Discovery =
            serde_json::from_slice(&text).map_err(|error| format!("{url}: {error}"))?;
        if discovery.issuer != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                self.issuer, discovery.issuer
            ));
        }
        let text = get(&discovery.jwks_uri, &self.tls, None, BOUNDS).await?;
        let set: KeySet =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", discovery.jwks_uri))?;
        // Keys of unsupported types are skipped.
        let keys =
            set.keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(keys.filter_map(|jwk| VerifyingKey::from_jwk(&jwk)).collect())
    }
}

/// GETs an https URL named by an issuer; redirects are not followed.
///
/// # Errors
/// A message in Go's words.
pub(super) async fn get(
    url: &str,
    tls: &Arc<ClientConfig>,
    authorization: Option<HeaderValue>,
    bounds: Bounds,
) -> Result<Bytes, String> {
    let failed = |why: &dyn std::fmt::Display| format!("Get {url:?}: {why}");
    let uri: Uri = url.parse().map_err(|why| failed(&why))?;
    if uri.scheme_str() != Some("https") {
        return Err(failed(&"not https"));
    }
    let origin = Origin::of_url(&uri, Some(tls.clone())).ok_or_else(|| failed(&"no host"))?;
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|why| failed(&why))?;
    Client::new(Origin { authorization, ..origin }).call(request, bounds).await.map_err(|why| failed(&why))
}
