//! OpenID Connect discovery documents, with which relying parties verify service account tokens (OpenID
//! Connect Discovery 1.0; kubernetes `pkg/serviceaccount/openidmetadata.go`).

use serde_json::json;

use super::ServiceAccounts;

/// Path of the configuration.
pub const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Path of the keys.
pub const KEYS: &str = "/openid/v1/jwks";
/// The media type of the keys.
pub(crate) const KEYS_TYPE: &str = "application/jwk-set+json";
/// Cache-Control of both.
pub(crate) const CACHE_CONTROL: &str = "public, max-age=3600";

/// Both documents.
pub struct Documents {
    /// The configuration, JSON.
    pub configuration: Vec<u8>,
    /// The keys, JSON.
    pub keys: Vec<u8>,
}

/// Generates the documents; `None` when the issuer is not an https URL without a query. Keys do not change
/// while the server runs. `address` is the server's.
pub fn documents(accounts: &ServiceAccounts, jwks_uri: Option<&str>, address: &str) -> Option<Documents> {
    let issuer = accounts.settings().issuers.first()?;
    let fits = |url: &str| url.starts_with("https://") && !url.contains(['?', '#']);
    if !fits(issuer) || jwks_uri.is_some_and(|uri| !uri.starts_with("https://")) {
        return None;
    }
    let jwks_uri = jwks_uri.map_or_else(|| format!("https://{address}{KEYS}"), str::to_owned);
    let (keys, names): (Vec<_>, Vec<_>) = accounts.keys().iter().map(|key| key.to_jwk()).unzip();
    let mut names: Vec<&str> = names;
    names.sort_unstable();
    names.dedup();
    let configuration = json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": names,
    });
    let text = |document: serde_json::Value| document.to_string().into_bytes();
    Some(Documents { configuration: text(configuration), keys: text(json!({ "keys": keys })) })
}
