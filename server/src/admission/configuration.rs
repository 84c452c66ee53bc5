//! `AdmissionConfiguration`: the plugins' configuration file (`apiserver.config.k8s.io/v1`,
//! `--admission-control-config-file`).
//!
//! Upstream: k8s.io/apiserver `pkg/admission/config.go`. The file is read at start. Sections of plugins that
//! are off are ignored; sections of plugins that have no configuration here are an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plinth_codec::Value;
use serde::de::IgnoredAny;
use serde::Deserialize;

use super::event_rate_limit::Limits;
use super::image_policy::ImagePolicy;
use super::pod_node_selector::Selectors;
use super::pod_toleration_restriction::Tolerations;
use super::resource_quota::{self, LimitedResources};
use super::{
    event_rate_limit, image_policy, pod_node_selector, pod_security, pod_toleration_restriction,
    static_manifests, webhook,
};
use plinth_api::{
    decode_config_tree, parse_config, ConfigDecodeError, ConfigFileError, ConfigKind, Strictness,
};
use plinth_apiserver::egress::webhook_credentials::WebhookCredentials;

/// The plugins' configuration.
#[derive(Debug, Default)]
pub(crate) struct PluginSettings {
    pub(super) pod_security: pod_security::PodSecuritySettings,
    pub(super) selectors: Selectors,
    pub(super) tolerations: Tolerations,
    pub(super) event_limits: Limits,
    pub(super) image_policy: Option<Arc<ImagePolicy>>,
    pub(super) limited_resources: LimitedResources,
    pub(super) mutating_webhooks: Option<Arc<WebhookCredentials>>,
    pub(super) validating_webhooks: Option<Arc<WebhookCredentials>>,
}

impl PluginSettings {
    /// The credentials that webhooks are called with, to be reloaded with their files.
    pub(crate) fn webhook_credentials(&self) -> impl Iterator<Item = &Arc<WebhookCredentials>> {
        self.mutating_webhooks.iter().chain(&self.validating_webhooks)
    }
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("unable to read admission control configuration from {path:?} [{source}]")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The file is not a valid configuration.
    #[error("--admission-control-config-file: {0}")]
    Decode(#[from] ConfigFileError),
    /// A plugin rejects its section.
    #[error("couldn't init admission plugin {plugin:?}: {what}")]
    Plugin {
        /// Name of the plugin.
        plugin: &'static str,
        /// What is wrong.
        what: String,
    },
}

/// Loads a plugin's section; `None` when there is none.
type Load = fn(&mut PluginSettings, Option<&Value>) -> Result<(), String>;

/// The plugins with a configuration.
const CONFIGURABLE: &[(&str, Load)] = &[
    (pod_security::NAME, |settings, part| {
        settings.pod_security =
            part.map(pod_security::PodSecuritySettings::read).transpose()?.unwrap_or_default();
        Ok(())
    }),
    (pod_node_selector::NAME, |settings, part| {
        settings.selectors = part.map(Selectors::read).transpose()?.unwrap_or_default();
        Ok(())
    }),
    (pod_toleration_restriction::NAME, |settings, part| {
        settings.tolerations = part.map(Tolerations::read).transpose()?.unwrap_or_default();
        Ok(())
    }),
    (event_rate_limit::NAME, |settings, part| {
        settings.event_limits = Limits::read(part.unwrap_or(&Value::Null))?;
        Ok(())
    }),
    (image_policy::NAME, |settings, part| {
        settings.image_policy = Some(Arc::new(ImagePolicy::read(part.ok_or("no config specified")?)?));
        Ok(())
    }),
    (resource_quota::NAME, |settings, part| {
        settings.limited_resources = part.map(LimitedResources::read).transpose()?.unwrap_or_default();
        Ok(())
    }),
    (webhook::MUTATING, |settings, part| {
        settings.mutating_webhooks = part.map(webhook::read_section).transpose()?.flatten();
        Ok(())
    }),
    (webhook::VALIDATING, |settings, part| {
        settings.validating_webhooks = part.map(webhook::read_section).transpose()?.flatten();
        Ok(())
    }),
    (static_manifests::VALIDATING.0, |_, part| {
        static_manifests::check_section(part, static_manifests::VALIDATING)
    }),
    (static_manifests::MUTATING.0, |_, part| {
        static_manifests::check_section(part, static_manifests::MUTATING)
    }),
];

/// Plugins for which a file without kind may be: the format before AdmissionConfiguration.
const WITHOUT_KIND: [(&str, &str); 2] = [
    (image_policy::PART_WITHOUT_KIND, image_policy::NAME),
    (pod_node_selector::PART_WITHOUT_KIND, pod_node_selector::NAME),
];

/// Loads the configuration of the plugins that run.
///
/// # Errors
/// [`ConfigurationError`].
pub(crate) fn read(
    path: Option<&Path>,
    runs: &dyn Fn(&str) -> bool,
) -> Result<PluginSettings, ConfigurationError> {
    let parts = path.map(sections_of).transpose()?.unwrap_or_default();
    let mut settings = PluginSettings::default();
    for (plugin, load) in CONFIGURABLE.iter().filter(|(plugin, _)| runs(plugin)) {
        let part = parts.iter().find(|(name, _)| name == plugin).map(|(_, part)| part);
        load(&mut settings, part).map_err(|what| ConfigurationError::Plugin { plugin, what })?;
    }
    Ok(settings)
}

const KIND: ConfigKind = ConfigKind {
    kind: "AdmissionConfiguration",
    versions: &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"],
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct AdmissionConfiguration {
    plugins: Vec<PluginEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PluginEntry {
    name: String,
    path: String,
    /// Taken from the document, and decoded by its plugin.
    #[serde(rename = "configuration")]
    _configuration: IgnoredAny,
}

fn document(path: &Path) -> Result<Value, ConfigurationError> {
    let text =
        std::fs::read(path).map_err(|source| ConfigurationError::File { path: path.to_owned(), source })?;
    Ok(parse_config(&text, Strictness::Strict).map_err(|source| source.of_file(path))?)
}

/// The sections of a file by plugin name.
fn sections_of(path: &Path) -> Result<Vec<(String, Value)>, ConfigurationError> {
    let tree = document(path)?;
    if tree.str_at(&["kind"]).unwrap_or_default().is_empty() {
        let old = WITHOUT_KIND.into_iter().filter(|(member, _)| tree.get(member).is_some());
        let parts: Vec<(String, Value)> = old.map(|(_, plugin)| (plugin.to_owned(), tree.clone())).collect();
        return match parts.is_empty() {
            true => {
                Err(ConfigDecodeError::Invalid("Object 'Kind' is missing".to_owned()).of_file(path).into())
            }
            false => Ok(parts),
        };
    }
    let config: AdmissionConfiguration =
        decode_config_tree(&tree, KIND, Strictness::Strict).map_err(|source| source.of_file(path))?;
    let given = tree.list_at(&["plugins"]);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut parts = Vec::new();
    for (plugin, given) in config.plugins.into_iter().zip(given) {
        let part = match given.get("configuration").filter(|part| !part.is_null()) {
            Some(part) => part.clone(),
            None if plugin.path.is_empty() => continue,
            None => document(&folder.join(plugin.path))?,
        };
        // The first section of a plugin is used.
        if !parts.iter().any(|(other, _)| *other == plugin.name) {
            parts.push((plugin.name, part));
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, plugins: &[&str]) -> Result<PluginSettings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(dir.path().join("selector.yaml"), "podNodeSelectorPluginConfig: {a: b=c}").unwrap();
        read(Some(&path), &|name| plugins.contains(&name))
            .map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn files_by_table() {
        const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        let of = |plugins: &str| format!("{HEAD}plugins: {plugins}");
        // file, plugins that run, the error
        let rows: [(String, &[&str], Option<&str>); 18] = [
            (
                of("[{name: ValidatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration}}]"),
                &["ValidatingAdmissionPolicy"],
                None,
            ),
            (
                of("[{name: ValidatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration}}]"),
                &["ValidatingAdmissionPolicy"],
                Some("couldn't init admission plugin \"ValidatingAdmissionPolicy\": no kind \"MutatingAdmissionPolicyConfiguration\" is registered for version \"apiserver.config.k8s.io/v1\"; expected ValidatingAdmissionPolicyConfiguration of apiserver.config.k8s.io/v1"),
            ),
            (
                of("[{name: MutatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, staticManifestsDir: /d}}]"),
                &["MutatingAdmissionPolicy"],
                Some("couldn't init admission plugin \"MutatingAdmissionPolicy\": staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"),
            ),
            (
                of("[{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: /d}}]"),
                &["MutatingAdmissionWebhook"],
                Some("couldn't init admission plugin \"MutatingAdmissionWebhook\": staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"),
            ),
            (of("[]"), &["PodSecurity"], None),
            (of("[{name: PodNodeSelector, path: selector.yaml}]"), &["PodNodeSelector"], None),
            ("podNodeSelectorPluginConfig: {}".into(), &["PodNodeSelector"], None),
            (of("[{name: Other, configuration: {a: b}}]"), &[], None),
            (of("[{name: ValidatingAdmissionWebhook, configuration: {a: b}}]"), &[], None),
            (
                of("[{name: ValidatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: x}}]"),
                &["ValidatingAdmissionWebhook"],
                Some("couldn't init admission plugin \"ValidatingAdmissionWebhook\": kubeConfigFile: Invalid value: \"x\": must be an absolute file path"),
            ),
            (
                of("[{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission, kubeConfigFile: /nowhere/x}}]"),
                &["MutatingAdmissionWebhook"],
                Some("couldn't init admission plugin \"MutatingAdmissionWebhook\": /nowhere/x: No such file or directory (os error 2)"),
            ),
            (
                of("[{name: ResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{apiGroup: x}]}}]"),
                &["ResourceQuota"],
                Some("couldn't init admission plugin \"ResourceQuota\": limitedResources[0].resource: Required value"),
            ),
            (of("[{nam: x}]"), &[], Some("--admission-control-config-file: DIR/admission.yaml: strict decoding error: unknown field \"plugins[0].nam\"")),
            ("kind: X".into(), &[], Some("--admission-control-config-file: DIR/admission.yaml: no kind \"X\" is registered for version \"\"; expected AdmissionConfiguration of apiserver.config.k8s.io/v1 or apiserver.k8s.io/v1alpha1")),
            ("a: b".into(), &[], Some("--admission-control-config-file: DIR/admission.yaml: Object 'Kind' is missing")),
            (
                of("[]"),
                &["EventRateLimit"],
                Some("couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty"),
            ),
            (of("[]"), &["ImagePolicyWebhook"], Some("couldn't init admission plugin \"ImagePolicyWebhook\": no config specified")),
            (
                of("[{name: PodSecurity, configuration: {apiVersion: v1, kind: X}}]"),
                &["PodSecurity"],
                Some("couldn't init admission plugin \"PodSecurity\": no kind \"X\" is registered for version \"v1\"; expected PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1 or pod-security.admission.config.k8s.io/v1beta1 or pod-security.admission.config.k8s.io/v1alpha1"),
            ),
        ];
        for (text, plugins, error) in rows {
            assert_eq!(read_text(&text, plugins).err().as_deref(), error, "{text}");
        }
        let gone = read(Some(Path::new("/nowhere/x")), &|_| true).err().map(|error| error.to_string());
        assert!(gone.is_some_and(|text| text.starts_with("unable to read admission control configuration")));
    }
}
