//! `PodSecurityConfiguration`: the default policy and exemptions.
//!
//! Upstream: k8s.io/pod-security-admission `admission/api`.

use plinth_codec::{names, Value};
use serde::Deserialize;

use super::policy::{self, Level, NamespacePolicy, Standard, PERMISSIVE};
use crate::admission::section::decode_section;
use plinth_api::ConfigKind;

#[derive(Debug)]
pub(in crate::admission) struct PodSecuritySettings {
    /// The policy of namespaces without labels.
    pub(super) default: NamespacePolicy,
    namespaces: Vec<String>,
    users: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Default for PodSecuritySettings {
    fn default() -> PodSecuritySettings {
        PodSecuritySettings {
            default: PERMISSIVE,
            namespaces: Vec::new(),
            users: Vec::new(),
            runtime_classes: Vec::new(),
        }
    }
}

const KIND: ConfigKind = ConfigKind {
    kind: "PodSecurityConfiguration",
    versions: &[
        "pod-security.admission.config.k8s.io/v1",
        "pod-security.admission.config.k8s.io/v1beta1",
        "pod-security.admission.config.k8s.io/v1alpha1",
    ],
};

/// The section of the configuration file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodSecurityConfiguration {
    defaults: Defaults,
    exemptions: Exemptions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Defaults {
    enforce: Option<String>,
    enforce_version: Option<String>,
    audit: Option<String>,
    audit_version: Option<String>,
    warn: Option<String>,
    warn_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

/// Validates a name.
type Rule = fn(&str) -> Vec<String>;

impl PodSecuritySettings {
    /// Loads the configuration.
    ///
    /// # Errors
    /// Another kind, unknown members, invalid levels and versions, invalid or duplicate names.
    pub(in crate::admission) fn read(part: &Value) -> Result<PodSecuritySettings, String> {
        let PodSecurityConfiguration { defaults, exemptions } = decode_section(part, KIND)?;
        Ok(PodSecuritySettings {
            default: NamespacePolicy {
                enforce: standard("enforce", &defaults.enforce, &defaults.enforce_version)?,
                audit: standard("audit", &defaults.audit, &defaults.audit_version)?,
                warn: standard("warn", &defaults.warn, &defaults.warn_version)?,
            },
            namespaces: names_of("namespaces", exemptions.namespaces, names::dns1123_label_errors)?,
            users: names_of("usernames", exemptions.usernames, |name| match name {
                "" => vec!["username must not be empty".to_owned()],
                _ => Vec::new(),
            })?,
            runtime_classes: names_of(
                "runtimeClasses",
                exemptions.runtime_classes,
                names::dns1123_subdomain_errors,
            )?,
        })
    }

    /// Which of the three is exempt, as named in audit annotations.
    pub(super) fn exempts(&self, namespace: &str, user: &str, runtime_class: &str) -> Option<&'static str> {
        let is_in = |list: &[String], name: &str| !name.is_empty() && list.iter().any(|other| other == name);
        let rows = [
            (is_in(&self.namespaces, namespace), "namespace"),
            (is_in(&self.users, user), "user"),
            (is_in(&self.runtime_classes, runtime_class), "runtimeClass"),
        ];
        rows.into_iter().find(|(exempt, _)| *exempt).map(|(_, what)| what)
    }

    /// The policy of an exempt namespace that is ignored, formatted for the warning.
    pub(super) fn ignored(&self, policy: &NamespacePolicy, namespace: &Value) -> Option<String> {
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        if *policy == self.default || modes.iter().all(|(_, standard)| standard.level == Level::Privileged) {
            return None;
        }
        let is_labelled = |mode: &str| {
            let label = |suffix: &str| {
                let key = format!("pod-security.kubernetes.io/{mode}{suffix}");
                namespace.at(&["metadata", "labels", &key]).is_some()
            };
            label("") || label("-version")
        };
        let formatted =
            modes.iter().filter(|(mode, standard)| standard.level != Level::Privileged && is_labelled(mode));
        let formatted: Vec<String> = formatted.map(|(mode, standard)| format!("{mode}={standard}")).collect();
        Some(formatted.join(", "))
    }
}

fn standard(mode: &str, level: &Option<String>, version: &Option<String>) -> Result<Standard, String> {
    let given = level.as_deref().unwrap_or("privileged");
    let level = policy::level(given).ok_or_else(|| {
        format!("defaults.{mode}: Invalid value: {given:?}: must be one of privileged, baseline, restricted")
    })?;
    let given = version.as_deref().unwrap_or("latest");
    let version = policy::version(given)
        .map_err(|why| format!("defaults.{mode}-version: Invalid value: {given:?}: {why}"))?;
    Ok(Standard { level, version })
}

/// Validates a list of exempt names.
fn names_of(key: &str, names: Vec<String>, rule: Rule) -> Result<Vec<String>, String> {
    for (i, name) in names.iter().enumerate() {
        let (errors, here) = (rule(name), format!("exemptions.{key}[{i}]"));
        if !errors.is_empty() {
            return Err(format!("{here}: Invalid value: {name:?}: {}", errors.join(", ")));
        }
        if names.iter().take(i).any(|other| other == name) {
            return Err(format!("{here}: Duplicate value: {name:?}"));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn read(members: &str) -> Result<PodSecuritySettings, String> {
        let text = format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",{members}}}"#
        );
        PodSecuritySettings::read(&json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn defaults_and_exemptions_count() {
        let settings = read(
            r#""defaults":{"enforce":"baseline","enforce-version":"v1.30","warn":"restricted"},
               "exemptions":{"usernames":["u"],"namespaces":["n"],"runtimeClasses":["r"]}"#,
        )
        .unwrap();
        let default = settings.default;
        assert_eq!(
            [default.enforce, default.audit, default.warn].map(|standard| standard.to_string()),
            ["baseline:v1.30", "privileged:latest", "restricted:latest"]
        );
        let rows = [
            (("n", "x", ""), Some("namespace")),
            (("x", "u", ""), Some("user")),
            (("x", "x", "r"), Some("runtimeClass")),
            (("x", "x", ""), None),
            (("", "", ""), None),
        ];
        for ((namespace, user, class), expected) in rows {
            assert_eq!(settings.exempts(namespace, user, class), expected);
        }
    }

    #[test]
    fn an_exempt_namespace_is_warned_of_its_ignored_policy() {
        let settings = PodSecuritySettings::default();
        let namespace = |labels: &str| {
            json::parse(format!(r#"{{"metadata":{{"labels":{labels}}}}}"#).as_bytes()).unwrap()
        };
        let ignored = |labels: &str| {
            let namespace = namespace(labels);
            let (policy, _) = super::super::policy_of_labels(&settings.default, &namespace);
            settings.ignored(&policy, &namespace)
        };
        assert_eq!(ignored("{}"), None);
        assert_eq!(
            ignored(r#"{"pod-security.kubernetes.io/enforce":"baseline"}"#).as_deref(),
            Some("enforce=baseline:latest")
        );
    }

    #[test]
    fn errors_by_table() {
        let rows = [
            (
                r#""defaults":{"enforce":"x"}"#,
                "defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted",
            ),
            (
                r#""defaults":{"warn-version":"1"}"#,
                "defaults.warn-version: Invalid value: \"1\": must be \"latest\" or \"v1.x\"",
            ),
            (r#""exemptions":{"namespaces":["a","a"]}"#, "exemptions.namespaces[1]: Duplicate value: \"a\""),
            (
                r#""exemptions":{"usernames":[""]}"#,
                "exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
            ),
            (r#""exemptions":{"users":[]}"#, "strict decoding error: unknown field \"exemptions.users\""),
        ];
        for (members, error) in rows {
            assert_eq!(read(members).unwrap_err(), error);
        }
    }
}
