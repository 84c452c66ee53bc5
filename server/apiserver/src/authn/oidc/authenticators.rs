//! Types of the configuration of OpenID Connect issuers (k8s.io/apiserver `pkg/apis/apiserver`,
//! AuthenticationConfiguration).

use serde::Deserialize;

/// `AuthenticationConfiguration`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// OpenID Connect issuers.
    #[serde(default)]
    pub jwt: Vec<JwtAuthenticator>,
    /// Anonymous requests.
    #[serde(default)]
    pub anonymous: Option<AnonymousConfig>,
}

/// Configuration of anonymous requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnonymousConfig {
    /// Whether they are allowed.
    #[serde(default)]
    pub enabled: bool,
    /// Allowed paths; all when empty.
    #[serde(default)]
    pub conditions: Vec<AnonymousCondition>,
}

/// An allowed path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnonymousCondition {
    /// The path, compared exactly.
    pub path: String,
}

/// An issuer with the rules for its claims.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JwtAuthenticator {
    /// Who signs its tokens, and for whom.
    #[serde(default)]
    pub issuer: IssuerConfig,
    /// Rules that the claims must satisfy.
    #[serde(default)]
    pub claim_validation_rules: Vec<ClaimRule>,
    /// Claims that make up the user.
    #[serde(default)]
    pub claim_mappings: ClaimMappings,
    /// Rules that the user must satisfy.
    #[serde(default)]
    pub user_validation_rules: Vec<UserRule>,
    /// Signature algorithms, set by flags only; all when empty.
    #[serde(skip)]
    pub algorithms: Vec<String>,
}

/// `issuer` of a JWT authenticator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuerConfig {
    /// The claim `iss`.
    #[serde(default)]
    pub url: String,
    /// URL of the issuer's discovery document, when it is not below the issuer's URL.
    #[serde(default, rename = "discoveryURL")]
    pub discovery_url: String,
    /// Certificate authorities of the issuer's server, PEM; the system's when empty.
    #[serde(default)]
    pub certificate_authority: String,
    /// Accepted audiences; a token must have one of them.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// `MatchAny` or empty.
    #[serde(default)]
    pub audience_match_policy: String,
    /// Not supported: there are no egress proxies.
    #[serde(default)]
    pub egress_selector_type: String,
}

/// A rule on the claims.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRule {
    /// The required claim.
    #[serde(default)]
    pub claim: String,
    /// Its required value.
    #[serde(default)]
    pub required_value: String,
    /// CEL expression.
    #[serde(default)]
    pub expression: String,
    /// Error message when the expression is false.
    #[serde(default)]
    pub message: String,
}

/// A rule on the user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserRule {
    /// CEL expression over `user`.
    #[serde(default)]
    pub expression: String,
    /// Error message when it is false.
    #[serde(default)]
    pub message: String,
}

/// An extra value of the user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraMapping {
    /// Its key: a domain-prefixed path.
    #[serde(default)]
    pub key: String,
    /// CEL expression over `claims`.
    #[serde(default)]
    pub value_expression: String,
}

/// Claims that make up the user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMappings {
    /// How the user name is made of claims.
    #[serde(default)]
    pub username: PrefixedClaim,
    /// How the groups are made of claims.
    #[serde(default)]
    pub groups: PrefixedClaim,
    /// How the UID is made of claims.
    #[serde(default)]
    pub uid: PrefixedClaim,
    /// Extra values, each a CEL expression.
    #[serde(default)]
    pub extra: Vec<ExtraMapping>,
}

/// A claim and the prefix of its value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixedClaim {
    /// Name of the claim; an expression excludes it.
    #[serde(default)]
    pub claim: String,
    /// The prefix; required where a claim is set, may be empty.
    #[serde(default)]
    pub prefix: Option<String>,
    /// CEL expression.
    #[serde(default)]
    pub expression: String,
}
