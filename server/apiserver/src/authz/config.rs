//! `AuthorizationConfiguration`: the file that configures authorizers (`apiserver.config.k8s.io/v1`).
//!
//! Rules and field names are upstream's (k8s.io/apiserver `pkg/apis/apiserver`). The file is loaded at start
//! and reloaded when it changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plinth_codec::{names, time};
use serde::Deserialize;

use super::webhook::conditions::Conditions;
use super::webhook::{AccessReviewVersion, WebhookSettings};
use super::Verdict;
use crate::egress::KubeconfigError;
use plinth_api::{read_config, ConfigFileError, ConfigKind};

/// Default times to live of a webhook's cached decisions.
const DEFAULT_AUTHORIZED_TTL: Duration = Duration::from_secs(300);
const DEFAULT_UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
/// Longest allowed timeout of a webhook.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Why authorizers cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizationSetupError {
    /// A mode is given twice.
    #[error("authorization-mode {0:?} has mode specified more than once")]
    DuplicateMode(String),
    /// Mode Webhook without a kubeconfig.
    #[error("authorization-mode Webhook's authorization config file not passed")]
    NoKubeconfig,
    /// A kubeconfig without mode Webhook.
    #[error("cannot specify --authorization-webhook-config-file without mode Webhook")]
    UnusedKubeconfig,
    /// The webhook's kubeconfig is invalid.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The configuration file cannot be read or decoded.
    #[error(transparent)]
    File(#[from] ConfigFileError),
    /// The configuration is invalid.
    #[error("{path}: {what}")]
    Config {
        /// Path of the file.
        path: PathBuf,
        /// The error, with its field.
        what: String,
    },
}

/// The configuration of an authorizer.
#[derive(Debug)]
pub struct AuthorizerConfig {
    pub(super) name: String,
    pub(super) kind: AuthorizerKind,
}

/// Type and settings of an authorizer.
#[derive(Debug)]
pub(crate) enum AuthorizerKind {
    Node,
    Rbac,
    AlwaysAllow,
    AlwaysDeny,
    Webhook { kubeconfig: PathBuf, timeout: Duration, settings: WebhookSettings, conditions: Conditions },
}

impl AuthorizerKind {
    /// The name in the configuration.
    pub(super) fn name(&self) -> &'static str {
        match self {
            AuthorizerKind::Node => "Node",
            AuthorizerKind::Rbac => "RBAC",
            AuthorizerKind::AlwaysAllow => "AlwaysAllow",
            AuthorizerKind::AlwaysDeny => "AlwaysDeny",
            AuthorizerKind::Webhook { .. } => "Webhook",
        }
    }
}

const KIND: ConfigKind = ConfigKind {
    kind: "AuthorizationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthorizationConfiguration {
    authorizers: Vec<AuthorizerEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthorizerEntry {
    r#type: String,
    name: String,
    webhook: Option<WebhookEntry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WebhookEntry {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    timeout: Option<String>,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfoEntry,
    match_conditions: Vec<ConditionEntry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConnectionInfoEntry {
    r#type: String,
    kube_config_file: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionEntry {
    expression: String,
}

/// Loads a configuration file.
pub fn read(path: &Path) -> Result<Vec<AuthorizerConfig>, AuthorizationSetupError> {
    let error = |what: String| AuthorizationSetupError::Config { path: path.to_owned(), what };
    validate(&read_config(path, KIND)?).map_err(error)
}

fn validate(config: &AuthorizationConfiguration) -> Result<Vec<AuthorizerConfig>, String> {
    if config.authorizers.is_empty() {
        return Err("authorizers: Required value: at least one authorization mode must be defined".into());
    }
    let mut out: Vec<AuthorizerConfig> = Vec::new();
    for (i, entry) in config.authorizers.iter().enumerate() {
        let (at, name) = (format!("authorizers[{i}]"), entry.name.as_str());
        let kind = match (entry.r#type.as_str(), &entry.webhook) {
            ("Webhook", Some(webhook)) => validate_webhook(webhook, &format!("{at}.webhook"))?,
            ("Webhook", None) => return Err(format!("{at}.webhook: Required value")),
            (_, Some(_)) => {
                return Err(format!("{at}.webhook: Invalid value: may only be specified when type=Webhook"))
            }
            ("Node", None) => AuthorizerKind::Node,
            ("RBAC", None) => AuthorizerKind::Rbac,
            ("AlwaysAllow", None) => AuthorizerKind::AlwaysAllow,
            ("AlwaysDeny", None) => AuthorizerKind::AlwaysDeny,
            ("", None) => return Err(format!("{at}.type: Required value")),
            (other, None) => return Err(format!("{at}.type: Unsupported value: {other:?}")),
        };
        if name.is_empty() {
            return Err(format!("{at}.name: Required value"));
        }
        if let Some(why) = names::dns1123_subdomain_errors(name).first() {
            return Err(format!("{at}.name: Invalid value: {name:?}: {why}"));
        }
        if out.iter().any(|other| other.name == name) {
            return Err(format!("{at}.name: Duplicate value: {name:?}"));
        }
        let is_same =
            |other: &AuthorizerConfig| std::mem::discriminant(&other.kind) == std::mem::discriminant(&kind);
        if !matches!(kind, AuthorizerKind::Webhook { .. }) && out.iter().any(is_same) {
            return Err(format!("{at}.type: Duplicate value: {:?}", entry.r#type));
        }
        let expected = kind.name().to_lowercase();
        if !matches!(kind, AuthorizerKind::Webhook { .. }) && name != expected {
            return Err(format!("expected name {expected} for authorizer {} instead of {name}", kind.name()));
        }
        out.push(AuthorizerConfig { name: name.to_owned(), kind });
    }
    Ok(out)
}

fn validate_webhook(webhook: &WebhookEntry, at: &str) -> Result<AuthorizerKind, String> {
    let duration = |key: &str, text: &Option<String>| -> Result<Option<Duration>, String> {
        let Some(text) = text else { return Ok(None) };
        let nanos = time::parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
        let bad = || format!("{at}.{key}: Invalid value: {text:?}: must be a duration that is not negative");
        // Zero means the default.
        let nanos = nanos.ok_or_else(bad)?;
        Ok(Some(Duration::from_nanos(nanos)).filter(|duration| !duration.is_zero()))
    };
    // Caching is disabled by separate flags.
    let ttl = |given: Option<Duration>, enabled: Option<bool>, default: Duration| match enabled {
        Some(false) => Duration::ZERO,
        _ => given.unwrap_or(default),
    };
    let timeout =
        duration("timeout", &webhook.timeout)?.ok_or_else(|| format!("{at}.timeout: Required value"))?;
    if timeout > MAX_TIMEOUT {
        return Err(format!("{at}.timeout: Invalid value: must be <= 30s"));
    }
    let unsupported = |key: &str, given: &str, supported: &str| match given {
        "" => format!("{at}.{key}: Required value"),
        other => format!("{at}.{key}: Unsupported value: {other:?}: supported values: {supported}"),
    };
    let version = match webhook.subject_access_review_version.as_str() {
        "v1" => AccessReviewVersion::V1,
        "v1beta1" => AccessReviewVersion::V1Beta1,
        other => return Err(unsupported("subjectAccessReviewVersion", other, "\"v1\", \"v1beta1\"")),
    };
    let on_error = match webhook.failure_policy.as_str() {
        "NoOpinion" => Verdict::NoOpinion,
        "Deny" => Verdict::Deny,
        other => return Err(unsupported("failurePolicy", other, "\"NoOpinion\", \"Deny\"")),
    };
    match webhook.match_condition_subject_access_review_version.as_str() {
        "" if webhook.match_conditions.is_empty() => {}
        "v1" => {}
        other => return Err(unsupported("matchConditionSubjectAccessReviewVersion", other, "\"v1\"")),
    }
    let conditions: Vec<&str> = webhook.match_conditions.iter().map(|c| c.expression.as_str()).collect();
    let conditions = Conditions::compile(&conditions, &format!("{at}.matchConditions"))?;
    let kubeconfig = match webhook.connection_info.r#type.as_str() {
        "KubeConfigFile" => webhook.connection_info.kube_config_file.as_str(),
        "" => return Err(format!("{at}.connectionInfo.type: Required value")),
        // `InClusterConfig` is not supported: the control plane does not run in a pod.
        other => {
            return Err(format!(
                "{at}.connectionInfo.type: Unsupported value: {other:?}: supported values: \"KubeConfigFile\""
            ))
        }
    };
    if !kubeconfig.starts_with('/') {
        return Err(format!(
            "{at}.connectionInfo.kubeConfigFile: Invalid value: {kubeconfig:?}: must be an absolute path"
        ));
    }
    let authorized = duration("authorizedTTL", &webhook.authorized_ttl)?;
    let unauthorized = duration("unauthorizedTTL", &webhook.unauthorized_ttl)?;
    let settings = WebhookSettings {
        version,
        authorized_ttl: ttl(authorized, webhook.cache_authorized_requests, DEFAULT_AUTHORIZED_TTL),
        unauthorized_ttl: ttl(unauthorized, webhook.cache_unauthorized_requests, DEFAULT_UNAUTHORIZED_TTL),
        on_error,
    };
    Ok(AuthorizerKind::Webhook { kubeconfig: kubeconfig.into(), timeout, settings, conditions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::decode_config;

    fn parsed(authorizers: &str) -> Result<Vec<AuthorizerConfig>, String> {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n");
        validate(&decode_config(text.as_bytes(), KIND).map_err(|error| error.to_string())?)
    }

    fn webhook(members: &str) -> String {
        format!("[{{type: Webhook, name: w, webhook: {{{members}}}}}]")
    }

    const GOOD: &str = "timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, authorizedTTL: 1m, cacheUnauthorizedRequests: false, connectionInfo: {type: KubeConfigFile, kubeConfigFile: /k}";

    #[test]
    fn a_file_gives_the_chain() {
        let chain = parsed("[{type: Node, name: node}, {type: RBAC, name: rbac}]").unwrap();
        assert!(
            matches!(chain[0].kind, AuthorizerKind::Node) && matches!(chain[1].kind, AuthorizerKind::Rbac)
        );
        let chain = parsed(&webhook(GOOD)).unwrap();
        let AuthorizerKind::Webhook { kubeconfig, timeout, settings, .. } = &chain[0].kind else { panic!() };
        assert_eq!((kubeconfig.as_path(), *timeout), (Path::new("/k"), Duration::from_secs(3)));
        assert_eq!((settings.version, settings.on_error), (AccessReviewVersion::V1, Verdict::Deny));
        assert_eq!(settings.authorized_ttl, Duration::from_secs(60));
        assert_eq!(settings.unauthorized_ttl, Duration::ZERO);
    }

    #[test]
    fn errors_by_table() {
        let good = |from: &str, to: &str| webhook(&GOOD.replace(from, to));
        let conditions = |list: &str| {
            let more =
                format!("matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{list}], timeout");
            good("timeout", &more)
        };
        let rows = [
            ("[]".to_owned(), "authorizers: Required value"),
            ("[{type: RBAC}]".into(), "authorizers[0].name: Required value"),
            ("[{name: a}]".into(), "authorizers[0].type: Required value"),
            ("[{type: X, name: a}]".into(), "authorizers[0].type: Unsupported value: \"X\""),
            ("[{type: RBAC, name: A}]".into(), "authorizers[0].name: Invalid value"),
            (
                "[{type: RBAC, name: rbac}, {type: Node, name: rbac}]".into(),
                "authorizers[1].name: Duplicate value",
            ),
            (
                "[{type: RBAC, name: rbac}, {type: RBAC, name: b}]".into(),
                "authorizers[1].type: Duplicate value",
            ),
            ("[{type: RBAC, name: a, more: x}]".into(), "unknown field \"authorizers[0].more\""),
            ("[{type: RBAC, name: a, webhook: {}}]".into(), "authorizers[0].webhook: Invalid value"),
            ("[{type: Webhook, name: a}]".into(), "authorizers[0].webhook: Required value"),
            (good("timeout: 3s", "timeout: 31s"), "must be <= 30s"),
            (good("timeout: 3s, ", ""), "webhook.timeout: Required value"),
            (good("Version: v1", "Version: v2"), "Unsupported value: \"v2\""),
            (good("failurePolicy: Deny, ", ""), "failurePolicy: Required value"),
            (good("/k", "k"), "must be an absolute path"),
            (good("type: KubeConfigFile", "type: InClusterConfig"), "connectionInfo.type: Unsupported value"),
            (
                good("timeout", "matchConditions: [{expression: 'true'}], timeout"),
                "webhook.matchConditionSubjectAccessReviewVersion: Required value",
            ),
            (
                good("timeout", "matchConditionSubjectAccessReviewVersion: v1beta1, timeout"),
                "webhook.matchConditionSubjectAccessReviewVersion: Unsupported value: \"v1beta1\"",
            ),
            (conditions("{expression: '1'}"), "webhook.matchConditions[0].expression: Invalid value"),
            (
                conditions("{expression: 'true', name: a}"),
                "unknown field \"authorizers[0].webhook.matchConditions[0].name\"",
            ),
            (
                good("type: KubeConfigFile", "kind: KubeConfigFile"),
                "unknown field \"authorizers[0].webhook.connectionInfo.kind\"",
            ),
            ("[{type: RBAC, name: rbac, name: b}]".into(), "strict decoding error"),
            ("[{type: RBAC, name: 3}]".into(), "authorizers[0].name: Invalid value: must be a string"),
            ("[{type: RBAC, name: roles}]".into(), "expected name rbac for authorizer RBAC instead of roles"),
        ];
        for (authorizers, error) in rows {
            let found = parsed(&authorizers).unwrap_err();
            assert!(found.contains(error), "{authorizers}: {found:?} has no {error:?}");
        }
    }
}
