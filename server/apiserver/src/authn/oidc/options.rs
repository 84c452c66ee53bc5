//! Flags of OpenID Connect issuers.

use std::path::PathBuf;

use clap::Args;

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
