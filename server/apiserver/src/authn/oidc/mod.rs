//! ID tokens of OpenID Connect issuers (k8s.io/apiserver `plugin/pkg/authenticator/token/oidc`).
//!
//! An issuer's keys are fetched when its first token arrives and again when a token has an unknown key ID, at
//! most every ten seconds. An unreachable issuer makes tokens invalid; it does not fail the start.

pub mod authenticators;
pub mod config;
mod distributed;
mod expressions;
mod provider;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use parking_lot::RwLock;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::egress::tls::{self, AuthoritiesError, ServerTrust};
use authenticators::{Configuration, JwtAuthenticator, PrefixedClaim};
use config::ConfigError;
use distributed::Resolver;
use expressions::Expressions;
use plinth_api::{User, CREDENTIAL_ID_KEY};
use plinth_pki::{unix_now, unverified_claims, JwtAlgorithm, JwtError, RegisteredClaims};
use provider::Provider;

/// Google's tokens have the issuer with or without the scheme.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// Flags of one issuer; several issuers need a file.
#[derive(Clone, Debug, Args)]
pub struct OidcOptions {
    /// URL of the OpenID Connect issuer; https only
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// Client ID that ID tokens must be issued for
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// Certificate authorities of the issuer's server, PEM; default: the system's
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim used as the user name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,
    /// Prefix of user names; default: the issuer's URL and #; "-" for no prefix
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub oidc_username_prefix: String,
    /// Claim used as the user's groups
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// Prefix of groups
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub oidc_groups_prefix: String,
    /// CLAIM=VALUE pairs that ID tokens must contain
    #[arg(long, value_name = "PAIR", value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
    /// Accepted signature algorithms (JOSE)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// File with an AuthenticationConfiguration; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
}

/// Why an ID token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum OidcError {
    #[error("oidc: verify token: {0}")]
    Jwt(#[from] JwtError),
    #[error("oidc: the keys of {issuer:?} could not be fetched: {why}")]
    Keys { issuer: String, why: String },
    #[error("oidc: expected audience in {wanted:?} got {tokens:?}")]
    Audience { wanted: Vec<String>, tokens: Vec<String> },
    #[error("oidc: {0}")]
    Claims(String),
    #[error("oidc: could not expand distributed claims: {0}")]
    Distributed(String),
}

/// The claims of a token.
type Claims = BTreeMap<String, Value>;

/// The configured issuers. The list is replaced as a whole when its file changes; the lock is held to read or
/// replace it.
pub(crate) struct Issuers {
    list: RwLock<Arc<[Arc<Issuer>]>>,
}

/// An issuer with the rules for its claims.
struct Issuer {
    config: JwtAuthenticator,
    expressions: Expressions,
    rules: TokenRequirements,
    provider: Arc<Provider>,
    /// Resolves distributed groups; `None` when groups are not mapped from a claim.
    resolver: Option<Resolver>,
}

/// Requirements on every token, including those of distributed claims.
struct TokenRequirements {
    algorithms: Vec<JwtAlgorithm>,
    /// A token must have one of these audiences.
    audiences: Vec<String>,
}

impl TokenRequirements {
    /// Verifies a token of this issuer and returns its claims. `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`OidcError`].
    async fn verify(&self, provider: &Provider, token: &str, now: i64) -> Result<Claims, OidcError> {
        let claims = provider.verify(token, &self.algorithms).await?;
        self.check(&claims, now)?;
        Ok(claims)
    }

    /// Checks audience and validity as go-oidc does: `exp` without leeway, `nbf` with a minute of leeway;
    /// `iat` is ignored.
    fn check(&self, claims: &Claims, now: i64) -> Result<(), OidcError> {
        let registered = serde_json::to_value(claims).and_then(serde_json::from_value);
        let RegisteredClaims { aud, exp, nbf, .. } =
            registered.map_err(|error| OidcError::Claims(format!("parse claims: {error}")))?;
        distributed::sources(claims)?;
        if !aud.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(OidcError::Audience { wanted: self.audiences.clone(), tokens: aud });
        }
        // A token without `exp` is expired.
        if exp.unwrap_or(0) < now {
            return Err(OidcError::Jwt(JwtError::Expired));
        }
        RegisteredClaims { nbf, ..RegisteredClaims::default() }.check_time(now)?;
        Ok(())
    }
}

/// The issuer claim of a token, unverified.
fn untrusted_issuer(token: &str) -> Result<String, JwtError> {
    #[derive(Deserialize)]
    struct Claims {
        #[serde(default)]
        iss: String,
    }
    let Claims { iss } = unverified_claims(token)?;
    Ok(if iss == GOOGLE.0 { GOOGLE.1.to_owned() } else { iss })
}

impl Issuers {
    /// The issuers of a configuration; fetches nothing.
    ///
    /// # Errors
    /// When a certificate authority cannot be used.
    pub fn new(configuration: &Configuration) -> Result<Issuers, ConfigError> {
        Ok(Issuers { list: RwLock::new(Issuers::list(configuration)?) })
    }

    fn list(configuration: &Configuration) -> Result<Arc<[Arc<Issuer>]>, ConfigError> {
        configuration.jwt.iter().map(|jwt| Issuer::new(jwt.clone()).map(Arc::new)).collect()
    }

    /// Reloads the file; on an error the previous issuers stay in use.
    ///
    /// # Errors
    /// As [`Configuration::read`].
    pub fn reload(&self, path: &Path, own_issuers: &[String]) -> Result<(), ConfigError> {
        let list = Issuers::list(&Configuration::read(path, own_issuers)?)?;
        *self.list.write() = list;
        Ok(())
    }

    /// The user of a token; `None` for tokens of other issuers.
    ///
    /// # Errors
    /// [`OidcError`].
    pub async fn authenticate(&self, token: &str) -> Result<Option<Arc<User>>, OidcError> {
        let list = self.list.read().clone();
        if list.is_empty() {
            return Ok(None);
        }
        let Ok(iss) = untrusted_issuer(token) else { return Ok(None) };
        let Some(issuer) = list.iter().find(|issuer| issuer.config.issuer.url == iss) else {
            return Ok(None);
        };
        issuer.authenticate(token).await.map(|user| Some(Arc::new(user)))
    }
}

/// TLS settings that trust the authorities of a PEM text, or the system's.
fn trust(authorities: &str) -> Result<Arc<ClientConfig>, AuthoritiesError> {
    let roots = tls::authorities_or_system(authorities.as_bytes())?;
    tls::config(ServerTrust::Authorities(roots), None).map_err(|_| AuthoritiesError::Certificate)
}

impl Issuer {
    fn new(config: JwtAuthenticator) -> Result<Issuer, ConfigError> {
        let invalid =
            |why: AuthoritiesError| ConfigError::Invalid(vec![format!("issuer.certificateAuthority: {why}")]);
        // Flags restrict the algorithms; a file allows all, as upstream.
        let algorithms = match config.algorithms.is_empty() {
            true => JwtAlgorithm::ALL.to_vec(),
            false => config.algorithms.iter().filter_map(|name| JwtAlgorithm::of(name)).collect(),
        };
        // Errors were reported when the configuration was validated.
        let expressions = Expressions::compile(&config, "", &mut Vec::new());
        let issuer = &config.issuer;
        let tls = trust(&issuer.certificate_authority).map_err(invalid)?;
        let groups = config.claim_mappings.groups.claim.as_str();
        Ok(Issuer {
            expressions,
            rules: TokenRequirements { algorithms, audiences: issuer.audiences.clone() },
            provider: Arc::new(Provider::new(&issuer.url, &issuer.discovery_url, tls)),
            resolver: (!groups.is_empty()).then(|| Resolver::new(groups)),
            config,
        })
    }

    async fn authenticate(&self, token: &str) -> Result<User, OidcError> {
        let mut claims = self.rules.verify(&self.provider, token, unix_now()).await?;
        if let Some(resolver) = &self.resolver {
            resolver.expand(&self.provider, &self.rules, token, &mut claims).await?;
        }
        self.user(&claims)
    }

    /// Maps verified claims to the user.
    fn user(&self, claims: &Claims) -> Result<User, OidcError> {
        let error = |what: String| Err(OidcError::Claims(what));
        for rule in self.config.claim_validation_rules.iter().filter(|rule| !rule.claim.is_empty()) {
            match claims.get(&rule.claim) {
                None => return error(format!("required claim {} not present in ID token", rule.claim)),
                Some(Value::String(value)) if *value == rule.required_value => {}
                Some(_) => return error(format!("required claim {} value does not match", rule.claim)),
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
                _ => return error(format!("parse uid claim {:?}", mappings.uid.claim)),
            }
        }
        if let Some(jti) = claims.get("jti").and_then(Value::as_str).filter(|jti| !jti.is_empty()) {
            user.extra.insert(CREDENTIAL_ID_KEY.to_owned(), vec![format!("JTI={jti}")]);
        }
        self.expressions.extra(&tree, &mut user.extra)?;
        self.expressions.check_claims(&tree)?;
        self.expressions.check_user(&user)?;
        Ok(user.authenticated())
    }

    fn name(&self, claims: &Claims) -> Result<String, OidcError> {
        let mapping = &self.config.claim_mappings.username;
        let error = |what: &str| Err(OidcError::Claims(what.to_owned()));
        let Some(Value::String(name)) = claims.get(&mapping.claim) else {
            return Err(OidcError::Claims(format!(
                "parse username claims {:?}: claim not present",
                mapping.claim
            )));
        };
        if mapping.claim == "email"
            && claims.get("email_verified").is_some_and(|verified| verified != &Value::Bool(true))
        {
            return error("email not verified");
        }
        if name.is_empty() {
            return error("empty username is not allowed");
        }
        Ok(format!("{}{name}", mapping.prefix.as_deref().unwrap_or_default()))
    }
}

/// The claims as CEL input.
fn to_tree(claims: &Claims) -> Result<plinth_codec::Value, OidcError> {
    let error = |what: String| OidcError::Claims(format!("parse claims: {what}"));
    let text = serde_json::to_vec(claims).map_err(|e| error(e.to_string()))?;
    plinth_codec::json::parse(&text).map_err(|e| error(e.to_string()))
}

/// Maps the groups claim, a string or a list of strings.
fn groups(mapping: &PrefixedClaim, claims: &Claims) -> Result<Vec<String>, OidcError> {
    if mapping.claim.is_empty() {
        return Ok(Vec::new());
    }
    let prefix = mapping.prefix.as_deref().unwrap_or_default();
    let error = || OidcError::Claims(format!("parse groups claim {:?}", mapping.claim));
    match claims.get(&mapping.claim) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(group)) => Ok(vec![format!("{prefix}{group}")]),
        Some(Value::Array(list)) => {
            list.iter().map(|group| Ok(format!("{prefix}{}", group.as_str().ok_or_else(error)?))).collect()
        }
        Some(_) => Err(error()),
    }
}

#[cfg(test)]
mod tests;
