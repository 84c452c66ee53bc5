//! The flags of authentication: names and meanings are kube-apiserver's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};

use super::{service_account, SetupError};

/// Who may send requests, and by which credentials they are known.
#[derive(Clone, Debug, Args)]
pub struct AuthenticationOptions {
    /// Authorities whose client certificates are trusted, PEM; the server's own authority when not given
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Serve requests without credentials, as system:anonymous
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: bool,
    /// Audiences of the API; the first service-account issuer when not given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Bearer tokens, CSV: token, user name, user UID, "groups"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Take the tokens of Secrets of type bootstrap.kubernetes.io/token in kube-system
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub enable_bootstrap_token_auth: bool,
    /// Issuer of service-account tokens; given again, more issuers whose tokens are accepted
    #[arg(long, value_name = "URL", default_value = service_account::DEFAULT_ISSUER)]
    pub service_account_issuer: Vec<String>,
    /// Where the keys of the issuer are found; this server's own address when not given
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Private key that signs service-account tokens, PEM, RSA or ECDSA; made by the server when not given
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Public or private keys that service-account tokens are checked with, PEM; the signing key when not given
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// The longest life of a service-account token that can be asked for, between 1h and 2^32s; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = crate::cli::duration)]
    pub service_account_max_token_expiration: Duration,
    /// Let the tokens in pods live a year, for clients that do not read them again
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub service_account_extend_token_expiration: bool,
    /// Whether tokens that lie in Secrets end with their Secret
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub service_account_lookup: bool,
    /// Authorities of authenticating front proxies, PEM
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; any of that authority when not given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers that hold the user's name
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers that hold the user's UID
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers that hold the user's groups
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    /// What headers with the user's extra values start with
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// The shortest and the longest `--service-account-max-token-expiration`, in seconds.
const MAX_EXPIRATION: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

impl AuthenticationOptions {
    /// Whether the flags fit together.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let fault = |text: String| Err(SetupError::Flag(text));
        let issuers = &self.service_account_issuer;
        if issuers.iter().any(String::is_empty) {
            return fault("service-account-issuer should not be an empty string".into());
        }
        if let Some(twice) = issuers.iter().enumerate().find(|(i, issuer)| issuers[..*i].contains(issuer)) {
            return fault(format!("service-account-issuer {:?} is already specified", twice.1));
        }
        if let Some(uri) = self.service_account_jwks_uri.as_ref().filter(|uri| !uri.starts_with("https://")) {
            return fault(format!("service-account-jwks-uri requires https scheme, parsed as: {uri}"));
        }
        let longest = self.service_account_max_token_expiration.as_secs();
        if longest != 0 && !MAX_EXPIRATION.contains(&longest) {
            return fault(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".into(),
            );
        }
        if self.requestheader_client_ca_file.is_some()
            && self.requestheader_client_ca_file == self.client_ca_file
            && self.requestheader_allowed_names.is_empty()
        {
            return fault("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users".into());
        }
        Ok(())
    }

    /// The settings of service-account tokens. `own_key` signs when no flag names another key.
    pub(super) fn service_accounts(&self, own_key: &Path) -> service_account::Settings {
        let first_issuer = self.service_account_issuer.iter().take(1);
        let audiences = match self.api_audiences.is_empty() {
            true => first_issuer.cloned().collect(),
            false => self.api_audiences.clone(),
        };
        let longest = self.service_account_max_token_expiration.as_secs();
        service_account::Settings {
            issuers: self.service_account_issuer.clone(),
            audiences,
            signing_key_file: self
                .service_account_signing_key_file
                .clone()
                .unwrap_or_else(|| own_key.to_owned()),
            key_files: self.service_account_key_file.clone(),
            max_expiration: i64::try_from(longest).ok().filter(|seconds| *seconds > 0),
            extend: self.service_account_extend_token_expiration,
            lookup: self.service_account_lookup,
        }
    }
}
