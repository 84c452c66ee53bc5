//! Flags of authorization, as kube-apiserver names them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::config::{self, Configured, Kind, SetupError};
use super::webhook::conditions::Conditions;
use super::webhook::{ReviewVersion, Settings};
use super::Verdict;

/// The authorizers when no flag names any.
const DEFAULT: &[Mode] = &[Mode::Node, Mode::Rbac];
/// How long the service of `--authorization-webhook-config-file` may take for one answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Who may do what.
#[derive(Clone, Debug, Args)]
pub struct AuthorizationOptions {
    /// Authorizers, asked in this order until one decides; Node,RBAC when not given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub authorization_mode: Vec<Mode>,
    /// AuthorizationConfiguration, in place of the other flags of authorization
    #[arg(long, value_name = "FILE", conflicts_with_all = ["authorization_mode", "authorization_webhook_config_file"])]
    pub authorization_config: Option<PathBuf>,
    /// Kubeconfig of the service that mode Webhook asks
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReview that it is sent
    #[arg(long, default_value = "v1beta1", value_name = "VERSION")]
    pub authorization_webhook_version: ReviewVersion,
    /// How long its yes is kept
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = crate::flags::duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long its other answers are kept
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = crate::flags::duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl Default for AuthorizationOptions {
    fn default() -> AuthorizationOptions {
        AuthorizationOptions {
            authorization_mode: Vec::new(),
            authorization_config: None,
            authorization_webhook_config_file: None,
            authorization_webhook_version: ReviewVersion::V1Beta1,
            authorization_webhook_cache_authorized_ttl: Duration::from_secs(300),
            authorization_webhook_cache_unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

/// One word of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Nodes: what their pods need.
    #[value(name = "Node")]
    Node,
    /// Roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
    /// A service elsewhere.
    #[value(name = "Webhook")]
    Webhook,
    /// Everything to everybody who is authenticated.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nothing to anybody.
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
    /// [`SetupError`], one line for people.
    pub(super) fn configured(&self) -> Result<Vec<Configured>, SetupError> {
        if let Some(path) = &self.authorization_config {
            return config::read(path);
        }
        let modes = if self.authorization_mode.is_empty() { DEFAULT } else { &self.authorization_mode };
        let mut chosen: Vec<Configured> = Vec::new();
        for mode in modes {
            if modes.iter().filter(|other| *other == mode).count() > 1 {
                return Err(SetupError::ModeTwice(mode.name()));
            }
            let kind = match mode {
                Mode::Node => Kind::Node,
                Mode::Rbac => Kind::Rbac,
                Mode::AlwaysAllow => Kind::AlwaysAllow,
                Mode::AlwaysDeny => Kind::AlwaysDeny,
                Mode::Webhook => Kind::Webhook {
                    kubeconfig: self
                        .authorization_webhook_config_file
                        .clone()
                        .ok_or(SetupError::NoKubeconfig)?,
                    timeout: WEBHOOK_TIMEOUT,
                    settings: Settings {
                        version: self.authorization_webhook_version,
                        authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
                        unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
                        on_error: Verdict::NoOpinion,
                    },
                    conditions: Conditions::default(),
                },
            };
            chosen.push(Configured { name: mode.name().to_lowercase(), kind });
        }
        match (&self.authorization_webhook_config_file, modes.contains(&Mode::Webhook)) {
            (Some(_), false) => Err(SetupError::UnusedKubeconfig),
            _ => Ok(chosen),
        }
    }
}
