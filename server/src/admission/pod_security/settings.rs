//! `PodSecurityConfiguration`: what namespaces without labels ask for, and what is left alone.
//!
//! Upstream: k8s.io/pod-security-admission `admission/api`.

use plinth_codec::{names, Value};

use super::policy::{self, Level, Policy, Standard, PERMISSIVE};
use crate::admission::configuration::{expect, only};

/// What the configuration says.
#[derive(Debug)]
pub(in crate::admission) struct Settings {
    /// What namespaces ask for that say nothing.
    pub(super) default: Policy,
    namespaces: Vec<String>,
    users: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            default: PERMISSIVE,
            namespaces: Vec::new(),
            users: Vec::new(),
            runtime_classes: Vec::new(),
        }
    }
}

/// Errors of a name.
type Rule = fn(&str) -> Vec<String>;

impl Settings {
    /// Of a configuration.
    ///
    /// # Errors
    /// Another kind, unknown members, levels and versions that are none, names that are none or stand there twice.
    pub(in crate::admission) fn read(part: &Value) -> Result<Settings, String> {
        const VERSIONS: [&str; 3] = [
            "pod-security.admission.config.k8s.io/v1",
            "pod-security.admission.config.k8s.io/v1beta1",
            "pod-security.admission.config.k8s.io/v1alpha1",
        ];
        expect(part, "PodSecurityConfiguration", &VERSIONS, &["defaults", "exemptions"])?;
        let nothing = Value::object();
        let defaults = part.get("defaults").unwrap_or(&nothing);
        const MODES: [&str; 6] =
            ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];
        only(defaults, &MODES, "defaults")?;
        let exemptions = part.get("exemptions").unwrap_or(&nothing);
        only(exemptions, &["usernames", "namespaces", "runtimeClasses"], "exemptions")?;
        let list = |key: &str, rule: Rule| list(exemptions, key, rule);
        Ok(Settings {
            default: Policy {
                enforce: standard(defaults, "enforce")?,
                audit: standard(defaults, "audit")?,
                warn: standard(defaults, "warn")?,
            },
            namespaces: list("namespaces", names::dns1123_label_errors)?,
            users: list("usernames", |name| match name {
                "" => vec!["username must not be empty".to_owned()],
                _ => Vec::new(),
            })?,
            runtime_classes: list("runtimeClasses", names::dns1123_subdomain_errors)?,
        })
    }

    /// What of the three is left alone, as audit calls it.
    pub(super) fn exempts(&self, namespace: &str, user: &str, runtime_class: &str) -> Option<&'static str> {
        let is_in = |list: &[String], name: &str| !name.is_empty() && list.iter().any(|other| other == name);
        let rows = [
            (is_in(&self.namespaces, namespace), "namespace"),
            (is_in(&self.users, user), "user"),
            (is_in(&self.runtime_classes, runtime_class), "runtimeClass"),
        ];
        rows.into_iter().find(|(exempt, _)| *exempt).map(|(_, what)| what)
    }

    /// What an exempt namespace asks for in vain, in words.
    pub(super) fn ignored(&self, policy: &Policy, namespace: &Value) -> Option<String> {
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
        let told =
            modes.iter().filter(|(mode, standard)| standard.level != Level::Privileged && is_labelled(mode));
        let told: Vec<String> = told.map(|(mode, standard)| format!("{mode}={standard}")).collect();
        Some(told.join(", "))
    }
}

fn standard(defaults: &Value, mode: &str) -> Result<Standard, String> {
    let said = defaults.str_at(&[mode]).unwrap_or("privileged");
    let level = policy::level(said).ok_or_else(|| {
        format!("defaults.{mode}: Invalid value: {said:?}: must be one of privileged, baseline, restricted")
    })?;
    let key = format!("{mode}-version");
    let said = defaults.str_at(&[&key]).unwrap_or("latest");
    let version =
        policy::version(said).map_err(|why| format!("defaults.{key}: Invalid value: {said:?}: {why}"))?;
    Ok(Standard { level, version })
}

fn list(exemptions: &Value, key: &str, rule: Rule) -> Result<Vec<String>, String> {
    let mut out: Vec<String> = Vec::new();
    for (i, name) in exemptions.get(key).and_then(Value::as_array).unwrap_or_default().iter().enumerate() {
        let (name, here) = (name.as_str().unwrap_or_default(), format!("exemptions.{key}[{i}]"));
        let errors = rule(name);
        if !errors.is_empty() {
            return Err(format!("{here}: Invalid value: {name:?}: {}", errors.join(", ")));
        }
        if out.iter().any(|other| other == name) {
            return Err(format!("{here}: Duplicate value: {name:?}"));
        }
        out.push(name.to_owned());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn read(members: &str) -> Result<Settings, String> {
        let text = format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",{members}}}"#
        );
        Settings::read(&json::parse(text.as_bytes()).unwrap())
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
    fn an_exempt_namespace_is_told_what_it_asks_for_in_vain() {
        let settings = Settings::default();
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
            (r#""exemptions":{"users":[]}"#, "unknown field \"exemptions.users\""),
        ];
        for (members, error) in rows {
            assert_eq!(read(members).unwrap_err(), error);
        }
    }
}
