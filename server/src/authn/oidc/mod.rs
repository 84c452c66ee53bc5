//! ID tokens of OpenID Connect issuers (k8s.io/apiserver `plugin/pkg/authenticator/token/oidc`).
//!
//! An issuer's keys are fetched when its first token comes and again when a token names a key that is not known, at
//! most every ten seconds; a server that cannot be reached makes tokens invalid, never the start fail.

pub mod config;
mod expressions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::ACCEPT;
use hyper::{Request, Uri};
use jsonwebtoken::jwk::Jwk;
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;

use super::jwt::{self, Algorithm, JwtError, Registered, VerifyingKey};
use super::{user, User};
use crate::outward::client::{Bounds, Client, Origin};
use crate::outward::tls::{self, AuthoritiesError, Trust};
use config::{ConfigError, Configuration, JwtAuthenticator, PrefixedClaim};
use expressions::Expressions;

/// The least time between two fetches of an issuer's keys.
const FETCH_PAUSE: Duration = Duration::from_secs(10);
/// Keys that are kept of an issuer.
const KEYS: usize = 256;
/// What an issuer's configuration or its keys may take.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), answer: 1 << 20 };

/// Flags of one issuer; more of them need a file.
#[derive(Clone, Debug, Args)]
pub struct OidcOptions {
    /// Issuer of ID tokens, https
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// The client that its tokens must be meant for
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// Authorities of the issuer's server, PEM; the machine's when not given
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim that is the user's name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,
    /// What is put before names; the issuer's URL and # when not given, - for nothing
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub oidc_username_prefix: String,
    /// Claim that is the user's groups
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// What is put before groups
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub oidc_groups_prefix: String,
    /// CLAIM=VALUE that tokens must have
    #[arg(long, value_name = "PAIR", value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
    /// Signature algorithms
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// File with an AuthenticationConfiguration, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
}

/// Why an ID token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum OidcError {
    #[error("oidc: verify token: {0}")]
    Jwt(#[from] JwtError),
    #[error("oidc: the keys of {issuer:?} cannot be had: {why}")]
    Keys { issuer: String, why: String },
    #[error("oidc: expected audience in {wanted:?} got {tokens:?}")]
    Audience { wanted: Vec<String>, tokens: Vec<String> },
    #[error("oidc: {0}")]
    Claims(String),
}

/// The issuers. The list is replaced as a whole when its file changes; the lock is held to look and to put.
pub struct Issuers {
    list: RwLock<Arc<[Arc<Issuer>]>>,
}

/// One issuer. Its keys are behind a lock that is held to look and to put, never across a fetch.
struct Issuer {
    config: JwtAuthenticator,
    expressions: Expressions,
    algorithms: Vec<Algorithm>,
    tls: Arc<ClientConfig>,
    keys: Mutex<Keys>,
    /// Held across a fetch, so that there is one at a time.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Keys {
    keys: Arc<[VerifyingKey]>,
    fetched: Option<Instant>,
    fault: Option<String>,
}

impl Issuers {
    /// The issuers of a configuration; nothing is fetched yet.
    ///
    /// # Errors
    /// When an authority cannot be used.
    pub fn new(configuration: &Configuration) -> Result<Issuers, ConfigError> {
        Ok(Issuers { list: RwLock::new(Issuers::list(configuration)?) })
    }

    fn list(configuration: &Configuration) -> Result<Arc<[Arc<Issuer>]>, ConfigError> {
        configuration.jwt.iter().map(|jwt| Issuer::new(jwt.clone()).map(Arc::new)).collect()
    }

    /// Reads the file again; on an error the old issuers stay.
    ///
    /// # Errors
    /// As [`Configuration::read`].
    pub fn reload(&self, path: &Path, own_issuers: &[String]) -> Result<(), ConfigError> {
        let list = Issuers::list(&Configuration::read(path, own_issuers)?)?;
        *self.list.write() = list;
        Ok(())
    }

    /// Who a token stands for; `None` for tokens of other issuers.
    ///
    /// # Errors
    /// [`OidcError`].
    pub async fn authenticate(&self, token: &str) -> Result<Option<Arc<User>>, OidcError> {
        #[derive(Deserialize)]
        struct Claims {
            #[serde(default)]
            iss: String,
        }
        let list = self.list.read().clone();
        if list.is_empty() {
            return Ok(None);
        }
        let Ok(Claims { iss }) = jwt::unverified(token) else { return Ok(None) };
        let Some(issuer) = list.iter().find(|issuer| issuer.config.issuer.url == iss) else {
            return Ok(None);
        };
        issuer.authenticate(token).await.map(|user| Some(Arc::new(user)))
    }
}

/// TLS settings that trust the authorities of a PEM text, or the machine's.
fn trust(authorities: &str) -> Result<Arc<ClientConfig>, AuthoritiesError> {
    let roots = tls::authorities_or_system(authorities.as_bytes())?;
    tls::config(Trust::Authorities(roots), None).map_err(|_| AuthoritiesError::Certificate)
}

impl Issuer {
    fn new(config: JwtAuthenticator) -> Result<Issuer, ConfigError> {
        let invalid =
            |why: AuthoritiesError| ConfigError::Invalid(vec![format!("issuer.certificateAuthority: {why}")]);
        // The flags name some; a file names none and may use all, as upstream.
        let algorithms = match config.algorithms.is_empty() {
            true => Algorithm::ALL.to_vec(),
            false => config.algorithms.iter().filter_map(|name| Algorithm::of(name)).collect(),
        };
        // Faults were told when the configuration was checked.
        let expressions = Expressions::compile(&config, "", &mut Vec::new());
        Ok(Issuer {
            expressions,
            algorithms,
            tls: trust(&config.issuer.certificate_authority).map_err(invalid)?,
            keys: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
            config,
        })
    }

    async fn authenticate(&self, token: &str) -> Result<User, OidcError> {
        let header = jwt::header(token)?;
        if !header.algorithm().is_some_and(|algorithm| self.algorithms.contains(&algorithm)) {
            return Err(OidcError::Jwt(JwtError::Signature));
        }
        let kid = header.kid.unwrap_or_default();
        let fits = |key: &&VerifyingKey| kid.is_empty() || key.id() == kid;
        let mut keys = self.keys.lock().keys.clone();
        let mut claims = jwt::verify::<BTreeMap<String, Value>>(token, keys.iter().filter(fits));
        if matches!(claims, Err(JwtError::NoKey | JwtError::Signature)) {
            // The issuer may have changed its keys.
            keys = self.fetch().await?;
            claims = jwt::verify(token, keys.iter().filter(fits));
        }
        self.user(&claims?, jwt::now())
    }

    /// Fetches the keys, unless that was done a moment ago.
    async fn fetch(&self) -> Result<Arc<[VerifyingKey]>, OidcError> {
        let _one = self.fetching.lock().await;
        let issuer = &self.config.issuer.url;
        {
            let known = self.keys.lock();
            if known.fetched.is_some_and(|when| when.elapsed() < FETCH_PAUSE) {
                return match &known.fault {
                    Some(why) if known.keys.is_empty() => {
                        Err(OidcError::Keys { issuer: issuer.clone(), why: why.clone() })
                    }
                    _ => Ok(known.keys.clone()),
                };
            }
        }
        let fetched = self.fetch_now().await;
        let mut known = self.keys.lock();
        known.fetched = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                known.fault = None;
                known.keys = keys;
                Ok(known.keys.clone())
            }
            Err(why) => {
                tracing::error!(issuer, why, "the keys of an issuer cannot be had");
                known.fault = Some(why.clone());
                // Keys that were good a moment ago stay good.
                match known.keys.is_empty() {
                    true => Err(OidcError::Keys { issuer: issuer.clone(), why }),
                    false => Ok(known.keys.clone()),
                }
            }
        }
    }

    /// What is behind one of the issuer's URLs.
    async fn get(&self, url: &str) -> Result<Bytes, String> {
        let failed = |why: &dyn std::fmt::Display| format!("Get {url:?}: {why}");
        let uri: Uri = url.parse().map_err(|why| failed(&why))?;
        if uri.scheme_str() != Some("https") {
            return Err(failed(&"not https"));
        }
        let origin = Origin::of_url(&uri, Some(self.tls.clone())).ok_or_else(|| failed(&"no host"))?;
        let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(ACCEPT, "application/json")
            .body(Full::default())
            .map_err(|why| failed(&why))?;
        Client::new(origin).call(request, BOUNDS).await.map_err(|why| failed(&why))
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
        let issuer = &self.config.issuer;
        let url = match issuer.discovery_url.is_empty() {
            true => format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/')),
            false => issuer.discovery_url.clone(),
        };
        let text = self.get(&url).await?;
        let discovery: Discovery =
            serde_json::from_slice(&text).map_err(|fault| format!("{url}: {fault}"))?;
        if discovery.issuer != issuer.url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                issuer.url, discovery.issuer
            ));
        }
        let text = self.get(&discovery.jwks_uri).await?;
        let set: KeySet =
            serde_json::from_slice(&text).map_err(|fault| format!("{}: {fault}", discovery.jwks_uri))?;
        // A key of a kind that is not known does not spoil the others.
        let keys = set.keys.into_iter().take(KEYS).filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(keys.filter_map(|jwk| VerifyingKey::from_jwk(&jwk)).collect())
    }

    fn user(&self, claims: &BTreeMap<String, Value>, now: i64) -> Result<User, OidcError> {
        let registered: Registered = serde_json::to_value(claims)
            .and_then(serde_json::from_value)
            .map_err(|fault| OidcError::Claims(format!("parse claims: {fault}")))?;
        let wanted = &self.config.issuer.audiences;
        if !registered.aud.iter().any(|audience| wanted.contains(audience)) {
            return Err(OidcError::Audience { wanted: wanted.clone(), tokens: registered.aud });
        }
        // ID tokens must say when they end; go-oidc takes one without an end for long over.
        if registered.exp.is_none() {
            return Err(OidcError::Jwt(JwtError::Expired));
        }
        registered.check_time(now)?;
        let fault = |what: String| Err(OidcError::Claims(what));
        for rule in self.config.claim_validation_rules.iter().filter(|rule| !rule.claim.is_empty()) {
            match claims.get(&rule.claim) {
                None => return fault(format!("required claim {} not present in ID token", rule.claim)),
                Some(Value::String(value)) if *value == rule.required_value => {}
                Some(_) => return fault(format!("required claim {} value does not match", rule.claim)),
            }
        }
        let mappings = &self.config.claim_mappings;
        let tree = to_tree(claims)?;
        let name = match self.expressions.username(&tree)? {
            Some(name) => name,
            None => self.name(claims)?,
        };
        let mut user = User { name, ..User::default() };
        user.groups = match self.expressions.groups(&tree)? {
            Some(groups) => groups,
            None => groups(&mappings.groups, claims)?,
        };
        user.uid = self.expressions.uid(&tree)?.unwrap_or_default();
        if !mappings.uid.claim.is_empty() {
            match claims.get(&mappings.uid.claim) {
                Some(Value::String(uid)) => user.uid.clone_from(uid),
                _ => return fault(format!("parse uid claim {:?}", mappings.uid.claim)),
            }
        }
        if !registered.jti.is_empty() {
            user.extra.insert(user::CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", registered.jti)]);
        }
        self.expressions.extra(&tree, &mut user.extra)?;
        self.expressions.check_claims(&tree)?;
        self.expressions.check_user(&user)?;
        Ok(user.authenticated())
    }

    fn name(&self, claims: &BTreeMap<String, Value>) -> Result<String, OidcError> {
        let mapping = &self.config.claim_mappings.username;
        let fault = |what: &str| Err(OidcError::Claims(what.to_owned()));
        let Some(Value::String(name)) = claims.get(&mapping.claim) else {
            return Err(OidcError::Claims(format!(
                "parse username claims {:?}: claim not present",
                mapping.claim
            )));
        };
        if mapping.claim == "email"
            && claims.get("email_verified").is_some_and(|verified| verified != &Value::Bool(true))
        {
            return fault("email not verified");
        }
        if name.is_empty() {
            return fault("empty username is not allowed");
        }
        Ok(format!("{}{name}", mapping.prefix.as_deref().unwrap_or_default()))
    }
}

/// The claims as expressions see them.
fn to_tree(claims: &BTreeMap<String, Value>) -> Result<plinth_codec::Value, OidcError> {
    let fault = |what: String| OidcError::Claims(format!("parse claims: {what}"));
    let text = serde_json::to_vec(claims).map_err(|e| fault(e.to_string()))?;
    plinth_codec::json::parse(&text).map_err(|e| fault(e.to_string()))
}

/// Groups are a list of texts, or one text.
fn groups(mapping: &PrefixedClaim, claims: &BTreeMap<String, Value>) -> Result<Vec<String>, OidcError> {
    if mapping.claim.is_empty() {
        return Ok(Vec::new());
    }
    let prefix = mapping.prefix.as_deref().unwrap_or_default();
    let fault = || OidcError::Claims(format!("parse groups claim {:?}", mapping.claim));
    match claims.get(&mapping.claim) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(group)) => Ok(vec![format!("{prefix}{group}")]),
        Some(Value::Array(list)) => {
            list.iter().map(|group| Ok(format!("{prefix}{}", group.as_str().ok_or_else(fault)?))).collect()
        }
        Some(_) => Err(fault()),
    }
}

#[cfg(test)]
mod tests;
