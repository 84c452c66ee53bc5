//! Flags of admission plugins.

use std::path::PathBuf;

use clap::Args;

use super::configuration::{self, ConfigurationError};
use super::plugin_context::{PluginContext, TOLERATION_SECONDS};
use super::{ActivePlugin, Plugins, PLUGINS};

/// Selection and configuration of admission plugins.
#[derive(Clone, Debug, Args)]
pub struct AdmissionOptions {
    /// Admission plugins to enable in addition to the default ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable, including default ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// File with the AdmissionConfiguration (apiserver.config.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// Seconds that a pod tolerates a node that is not ready, unless the pod has such a toleration
    #[arg(long, default_value_t = TOLERATION_SECONDS, value_name = "SECONDS")]
    pub default_not_ready_toleration_seconds: i64,
    /// Seconds that a pod tolerates an unreachable node, unless the pod has such a toleration
    #[arg(long, default_value_t = TOLERATION_SECONDS, value_name = "SECONDS")]
    pub default_unreachable_toleration_seconds: i64,
}

impl Default for AdmissionOptions {
    fn default() -> AdmissionOptions {
        AdmissionOptions {
            enable_admission_plugins: Vec::new(),
            disable_admission_plugins: Vec::new(),
            admission_control_config_file: None,
            default_not_ready_toleration_seconds: TOLERATION_SECONDS,
            default_unreachable_toleration_seconds: TOLERATION_SECONDS,
        }
    }
}

/// Plugins of upstream that are accepted and have no function here: they allow everything, others of this
/// table do the same, or they concern APIs that are not served.
const NEEDLESS: &[&str] = &["AlwaysAdmit", "JobValidation", "NamespaceExists"];
/// Invalid admission flags.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum BadPlugins {
    /// No plugin has that name.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// The flag without its dashes.
        flag: &'static str,
        name: String,
    },
    /// A plugin is enabled and disabled.
    #[error("{0:?} in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
    /// The configuration file is invalid.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
}

impl AdmissionOptions {
    /// The enabled plugins.
    ///
    /// # Errors
    /// [`BadPlugins`].
    pub fn admission(&self) -> Result<Plugins, BadPlugins> {
        let lists = [
            ("enable-admission-plugins", &self.enable_admission_plugins),
            ("disable-admission-plugins", &self.disable_admission_plugins),
        ];
        for (flag, names) in lists {
            let known = |name: &str| PLUGINS.iter().any(|p| p.name == name) || NEEDLESS.contains(&name);
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Err(BadPlugins::Unknown { flag, name: name.clone() });
            }
        }
        let is_in = |names: &[String], name: &str| names.iter().any(|n| n == name);
        let enabled = |name: &str| is_in(&self.enable_admission_plugins, name);
        let disabled = |name: &str| is_in(&self.disable_admission_plugins, name);
        if let Some(both) = self.enable_admission_plugins.iter().find(|name| disabled(name)) {
            return Err(BadPlugins::Both(both.clone()));
        }
        let plugins: Vec<_> =
            PLUGINS.iter().filter(|p| (p.on || enabled(p.name)) && !disabled(p.name)).collect();
        let runs = |name: &str| plugins.iter().any(|plugin| plugin.name == name);
        let settings = configuration::read(self.admission_control_config_file.as_deref(), &runs)?;
        Ok(Plugins {
            plugins: plugins.into_iter().map(ActivePlugin::new).collect(),
            context: PluginContext {
                settings,
                not_ready_toleration_seconds: self.default_not_ready_toleration_seconds,
                unreachable_toleration_seconds: self.default_unreachable_toleration_seconds,
                ..PluginContext::default()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(enable: &[&str], disable: &[&str]) -> AdmissionOptions {
        let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect();
        AdmissionOptions {
            enable_admission_plugins: texts(enable),
            disable_admission_plugins: texts(disable),
            ..AdmissionOptions::default()
        }
    }

    #[test]
    fn plugins_are_switched_by_name() {
        assert!(options(&[], &[]).admission().unwrap().runs("NamespaceLifecycle"));
        assert!(!options(&[], &["NamespaceLifecycle"]).admission().unwrap().runs("NamespaceLifecycle"));
        assert!(options(&["AlwaysPullImages"], &[]).admission().unwrap().runs("AlwaysPullImages"));
        assert!(!options(&[], &[]).admission().unwrap().runs("AlwaysPullImages"));
        let needless = options(&["AlwaysAdmit", "NamespaceExists"], &["EventRateLimit", "JobValidation"]);
        assert!(needless.admission().is_ok());
        assert!(options(&["PodNodeSelector"], &[]).admission().unwrap().runs("PodNodeSelector"));
        let errors = [
            (options(&["Nope"], &[]), "enable-admission-plugins plugin \"Nope\" is unknown"),
            (
                options(&["EventRateLimit"], &[]),
                "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty",
            ),
            (
                options(&["NamespaceLifecycle"], &["NamespaceLifecycle"]),
                "\"NamespaceLifecycle\" in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
        ];
        for (options, message) in errors {
            assert_eq!(options.admission().err().map(|error| error.to_string()).as_deref(), Some(message));
        }
    }

    #[test]
    fn each_plugin_has_one_name() {
        let mut names: Vec<&str> = PLUGINS.iter().map(|plugin| plugin.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
