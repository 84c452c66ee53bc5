//! Authorization flags, named as kube-apiserver's.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::config::{self, AuthorizationSetupError, AuthorizerConfig, AuthorizerKind};
use super::webhook::conditions::Conditions;
use super::webhook::{AccessReviewVersion, WebhookSettings};
use super::Verdict;

/// The authorizers without flags.
const DEFAULT: &[Mode] = &[Mode::Node, Mode::Rbac];
/// Timeout of the webhook of `--authorization-webhook-config-file`.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of authorization.
#[derive(Clone, Debug, Args)]
pub struct AuthorizationOptions {
    /// Ordered list of authorizers; default: Node,RBAC
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub authorization_mode: Vec<Mode>,
    /// File with an AuthorizationConfiguration, instead of the other authorization flags
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["authorization_mode", "authorization_webhook_config_file"])]
    pub authorization_config: Option<PathBuf>,
    /// Kubeconfig of the webhook for mode Webhook
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// API version of the SubjectAccessReview sent to the webhook
    #[arg(long, default_value = "v1beta1", value_name = "VERSION")]
    pub authorization_webhook_version: AccessReviewVersion,
    /// Duration for which 'authorized' responses of the webhook are cached
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = crate::flags::duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// Duration for which 'unauthorized' responses of the webhook are cached
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = crate::flags::duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl Default for AuthorizationOptions {
    fn default() -> AuthorizationOptions {
        AuthorizationOptions {
            authorization_mode: Vec::new(),
            authorization_config: None,
            authorization_webhook_config_file: None,
            authorization_webhook_version: AccessReviewVersion::V1Beta1,
            authorization_webhook_cache_authorized_ttl: Duration::from_secs(300),
            authorization_webhook_cache_unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

/// A value of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Kubelets: access to what their pods need.
    #[value(name = "Node")]
    Node,
    /// Roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
    /// An external service.
    #[value(name = "Webhook")]
    Webhook,
    /// Allows everything to authenticated users.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Denies everything.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}

impl Mode {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl AuthorizationOptions {
    /// The authorizers in order, from the flags or the configuration file.
    ///
    /// # Errors
    /// [`AuthorizationSetupError`].
    pub(super) fn configured(&self) -> Result<Vec<AuthorizerConfig>, AuthorizationSetupError> {
        if let Some(path) = &self.authorization_config {
            return config::read(path);
        }
        let modes = if self.authorization_mode.is_empty() { DEFAULT } else { &self.authorization_mode };
        let mut chosen: Vec<AuthorizerConfig> = Vec::new();
        for mode in modes {
            if modes.iter().filter(|other| *other == mode).count() > 1 {
                return Err(AuthorizationSetupError::DuplicateMode(mode.name()));
            }
            let kind = match mode {
                Mode::Node => AuthorizerKind::Node,
                Mode::Rbac => AuthorizerKind::Rbac,
                Mode::AlwaysAllow => AuthorizerKind::AlwaysAllow,
                Mode::AlwaysDeny => AuthorizerKind::AlwaysDeny,
                Mode::Webhook => AuthorizerKind::Webhook {
                    kubeconfig: self
                        .authorization_webhook_config_file
                        .clone()
                        .ok_or(AuthorizationSetupError::NoKubeconfig)?,
                    timeout: WEBHOOK_TIMEOUT,
                    settings: WebhookSettings {
                        version: self.authorization_webhook_version,
                        authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
                        unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
                        on_error: Verdict::NoOpinion,
                    },
                    conditions: Conditions::default(),
                },
            };
            chosen.push(AuthorizerConfig { name: mode.name().to_lowercase(), kind });
        }
        match (&self.authorization_webhook_config_file, modes.contains(&Mode::Webhook)) {
            (Some(_), false) => Err(AuthorizationSetupError::UnusedKubeconfig),
            _ => Ok(chosen),
        }
    }
}
