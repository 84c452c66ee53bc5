//! ID tokens of OpenID Connect issuers (k8s.io/apiserver `plugin/pkg/authenticator/token/oidc`).
//!
//! An issuer's keys are fetched when its first token arrives and again when a token has an unknown key ID, at
//! most every ten seconds. An unreachable issuer makes tokens invalid; it does not fail the start.

pub mod authenticators;
mod claims;
pub mod config;
mod distributed;
mod expressions;
mod options;
mod provider;
mod requirements;

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ClientConfig;
use serde_json::Value;

use crate::egress::tls::{self, AuthoritiesError, ServerTrust};
use authenticators::{Configuration, JwtAuthenticator, PrefixedClaim};
use claims::{untrusted_issuer, Claims};
use config::ConfigError;
use distributed::Resolver;
use expressions::Expressions;
use plinth_api::{User, CREDENTIAL_ID_KEY};
use plinth_pki::{unix_now, JwtAlgorithm};
use provider::Provider;
use requirements::TokenRequirements;

pub use claims::OidcError;
pub use options::OidcOptions;

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

impl Issuers {
    /// The issuers of a configuration; fetches nothing.
    ///
    /// # Errors
    /// When a certificate authority cannot be used.
    pub(crate) fn new(configuration: &Configuration) -> Result<Issuers, ConfigError> {
        Ok(Issuers { list: RwLock::new(Issuers::list(configuration)?) })
    }

    fn list(configuration: &Configuration) -> Result<Arc<[Arc<Issuer>]>, ConfigError> {
        configuration.jwt.iter().map(|jwt| Issuer::new(jwt.clone()).map(Arc::new)).collect()
    }

    /// Reloads the file; on an error the previous issuers stay in use.
    ///
    /// # Errors
    /// As [`Configuration::read`].
    pub(crate) fn reload(&self, path: &Path, own_issuers: &[String]) -> Result<(), ConfigError> {
        let list = Issuers::list(&Configuration::read(path, own_issuers)?)?;
        *self.list.write() = list;
        Ok(())
    }

    /// The user of a token; `None` for tokens of other issuers.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) async fn authenticate(&self, token: &str) -> Result<Option<Arc<User>>, OidcError> {
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
