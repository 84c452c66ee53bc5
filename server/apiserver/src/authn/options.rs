//! The flags of authentication: names and meanings are kube-apiserver's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};

use super::oidc::config::{self, Configuration};
use super::oidc::OidcOptions;
use super::trust::{Trust, TrustedProxy};
use super::webhook::{ReviewVersion, Webhook};
use super::{service_account, SetupError};

/// Who may send requests, and by which credentials they are known.
#[derive(Clone, Debug, Args)]
pub struct AuthenticationOptions {
    /// Authorities whose client certificates are trusted, PEM; the server's own authority when not given
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Serve requests without credentials, as system:anonymous; true when not given
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: Option<bool>,
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
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = crate::flags::duration)]
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
    /// Kubeconfig of a service that is asked about bearer tokens
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// The form in which it is asked; upstream's default is v1beta1, too
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: ReviewVersion,
    /// How long its answers are kept
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = crate::flags::duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Issuers of ID tokens
    #[command(flatten)]
    pub oidc: OidcOptions,
}

/// The shortest and the longest `--service-account-max-token-expiration`, in seconds.
const MAX_EXPIRATION: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

impl AuthenticationOptions {
    /// Whether the flags fit together.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let error = |text: String| Err(SetupError::Flag(text));
        let issuers = &self.service_account_issuer;
        if issuers.iter().any(String::is_empty) {
            return error("service-account-issuer should not be an empty string".into());
        }
        if let Some(twice) = issuers.iter().enumerate().find(|(i, issuer)| issuers[..*i].contains(issuer)) {
            return error(format!("service-account-issuer {:?} is already specified", twice.1));
        }
        if let Some(uri) = self.service_account_jwks_uri.as_ref().filter(|uri| !uri.starts_with("https://")) {
            return error(format!("service-account-jwks-uri requires https scheme, parsed as: {uri}"));
        }
        let longest = self.service_account_max_token_expiration.as_secs();
        if longest != 0 && !MAX_EXPIRATION.contains(&longest) {
            return error(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".into(),
            );
        }
        if self.requestheader_client_ca_file.is_some()
            && self.requestheader_client_ca_file == self.client_ca_file
            && self.requestheader_allowed_names.is_empty()
        {
            return error("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users".into());
        }
        Ok(())
    }

    /// Whom this server trusts to say who asks, for others to know.
    pub fn trust(&self, own_ca: &Path) -> Trust {
        let proxy = self.requestheader_client_ca_file.as_ref().map(|ca| TrustedProxy {
            ca: ca.clone(),
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_headers_prefix: self.requestheader_extra_headers_prefix.clone(),
        });
        Trust { client_ca: self.client_ca_file.clone().unwrap_or_else(|| own_ca.to_owned()), proxy }
    }

    /// Issuers of ID tokens and where anonymous requests are served: of the file, or of the flags.
    pub(super) fn configuration(&self) -> Result<Configuration, SetupError> {
        let flags = config::of_flags(&self.oidc, &self.service_account_issuer)?;
        let Some(file) = &self.oidc.authentication_config else { return Ok(flags.unwrap_or_default()) };
        let mut configuration = Configuration::read(file, &self.service_account_issuer)?;
        let both = |what: &str| {
            SetupError::Flag(format!("authentication-config file and {what} are mutually exclusive"))
        };
        if let Some(flags) = flags {
            if !configuration.jwt.is_empty() {
                return Err(both("oidc-* flags"));
            }
            configuration.jwt = flags.jwt;
        }
        if configuration.anonymous.is_some() && self.anonymous_auth.is_some() {
            return Err(both("anonymous-auth flag"));
        }
        Ok(configuration)
    }

    /// The service that is asked about tokens.
    pub(super) fn webhook(&self) -> Result<Option<Webhook>, SetupError> {
        let Some(file) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let (version, ttl) =
            (self.authentication_token_webhook_version, self.authentication_token_webhook_cache_ttl);
        Ok(Some(Webhook::new(file, version, ttl, self.audiences())?))
    }

    /// The audiences of this server: as given, or its first issuer.
    fn audiences(&self) -> Vec<String> {
        match self.api_audiences.is_empty() {
            true => self.service_account_issuer.iter().take(1).cloned().collect(),
            false => self.api_audiences.clone(),
        }
    }

    /// The settings of service-account tokens. `own_key` signs when no flag names another key.
    pub(super) fn service_accounts(&self, own_key: &Path) -> service_account::Settings {
        let longest = self.service_account_max_token_expiration.as_secs();
        service_account::Settings {
            issuers: self.service_account_issuer.clone(),
            audiences: self.audiences(),
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
