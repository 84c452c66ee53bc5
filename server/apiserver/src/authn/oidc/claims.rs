//! The claims of a token, and what is wrong with one.

use std::collections::BTreeMap;

use plinth_pki::{unverified_claims, JwtError};
use serde::Deserialize;
use serde_json::Value;

/// Google's tokens have the issuer with or without the scheme.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

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
pub(super) type Claims = BTreeMap<String, Value>;

/// The source of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ClaimSource {
    /// Empty for an aggregated claim.
    #[serde(default)]
    pub(super) endpoint: String,
    /// Bearer token for the endpoint; may be empty.
    #[serde(default)]
    pub(super) access_token: String,
}

/// Sources by claim.
pub(super) type Sources = BTreeMap<String, ClaimSource>;

/// Reads the sources of claims.
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

/// The issuer claim of a token, unverified.
pub(super) fn untrusted_issuer(token: &str) -> Result<String, JwtError> {
    #[derive(Deserialize)]
    struct Claims {
        #[serde(default)]
        iss: String,
    }
    let Claims { iss } = unverified_claims(token)?;
    Ok(if iss == GOOGLE.0 { GOOGLE.1.to_owned() } else { iss })
}
