//! The Pod Security policy of a namespace: its labels.
//!
//! Upstream: k8s.io/pod-security-admission `api`.

use std::fmt;

use plinth_api::Cause;

/// Levels of the Pod Security Standards, from permissive to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Allows everything.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Current hardening practices.
    Restricted,
}

/// The minor version of Kubernetes whose standards apply; `None` is the latest.
pub(super) type Version = Option<u32>;

/// A level in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standard {
    pub level: Level,
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.version {
            Some(minor) => write!(f, ":v1.{minor}"),
            None => f.write_str(":latest"),
        }
    }
}

/// The policy of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamespacePolicy {
    /// Violations are denied.
    pub enforce: Standard,
    /// Violations are recorded by audit.
    pub audit: Standard,
    /// Violations cause warnings.
    pub warn: Standard,
}

const ANYTHING: Standard = Standard { level: Level::Privileged, version: None };
/// The policy of namespaces without labels, unless configured.
pub(super) const PERMISSIVE: NamespacePolicy =
    NamespacePolicy { enforce: ANYTHING, audit: ANYTHING, warn: ANYTHING };
const PREFIX: &str = "pod-security.kubernetes.io/";

impl NamespacePolicy {
    /// The policy of the labels over the default, and its errors. An invalid enforce level is the strictest
    /// one, an invalid warn level is none.
    pub(super) fn of<'a>(
        default: &NamespacePolicy,
        labels: impl Fn(&str) -> Option<&'a str>,
    ) -> (NamespacePolicy, Vec<Cause>) {
        let mut errors = Vec::new();
        let mut read = |mode: &str, mut standard: Standard| {
            let mut is_level = None;
            let key = format!("{PREFIX}{mode}");
            if let Some(text) = labels(&key) {
                let level = level(text);
                is_level = Some(level.is_some());
                standard.level = level.unwrap_or(Level::Restricted);
                if level.is_none() {
                    let why = "must be one of privileged, baseline, restricted";
                    errors.push(Cause::invalid(format!("metadata.labels[{key}]"), text, why));
                }
            }
            let key = format!("{PREFIX}{mode}-version");
            let given = labels(&key);
            if let Some(text) = given {
                match version(text) {
                    Ok(version) => standard.version = version,
                    Err(why) => errors.push(Cause::invalid(format!("metadata.labels[{key}]"), text, why)),
                }
            }
            (standard, is_level, given.is_some())
        };
        let (enforce, enforce_is_level, _) = read("enforce", default.enforce);
        let (mut audit, audit_is_level, _) = read("audit", default.audit);
        if audit_is_level == Some(false) {
            audit.level = Level::Privileged;
        }
        let (mut warn, warn_is_level, warns_of_version) = read("warn", default.warn);
        if warn_is_level == Some(false) {
            warn.level = Level::Privileged;
        }
        // Without a warn label, violations of the enforced level are warned of.
        if warn_is_level.is_none() && enforce_is_level == Some(true) && enforce.level > warn.level {
            warn.level = enforce.level;
            if !warns_of_version {
                warn.version = enforce.version;
            }
        }
        (NamespacePolicy { enforce, audit, warn }, errors)
    }
}

pub(super) fn level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

pub(super) fn version(text: &str) -> Result<Version, &'static str> {
    const WHY: &str = "must be \"latest\" or \"v1.x\"";
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").ok_or(WHY)?;
    let is_number = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|b| b.is_ascii_digit()));
    match minor.parse() {
        Ok(minor) if is_number => Ok(Some(minor)),
        _ => Err(WHY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_make_a_policy() {
        // labels, enforce, warn, paths of the errors
        type Row = (&'static [(&'static str, &'static str)], &'static str, &'static str, usize);
        let rows: [Row; 6] = [
            (&[], "privileged:latest", "privileged:latest", 0),
            (&[("enforce", "baseline")], "baseline:latest", "baseline:latest", 0),
            (
                &[("enforce", "restricted"), ("enforce-version", "v1.24")],
                "restricted:v1.24",
                "restricted:v1.24",
                0,
            ),
            (&[("enforce", "restricted"), ("warn", "baseline")], "restricted:latest", "baseline:latest", 0),
            (&[("enforce", "none"), ("warn", "none")], "restricted:latest", "privileged:latest", 2),
            (&[("enforce-version", "v1.024")], "privileged:latest", "privileged:latest", 1),
        ];
        for (labels, enforce, warn, errors) in rows {
            let (policy, found) = NamespacePolicy::of(&PERMISSIVE, |key| {
                let mode = key.strip_prefix(PREFIX)?;
                labels.iter().find(|(k, _)| *k == mode).map(|(_, v)| *v)
            });
            assert_eq!(
                (policy.enforce.to_string().as_str(), policy.warn.to_string().as_str()),
                (enforce, warn)
            );
            assert_eq!(found.len(), errors, "{labels:?}");
        }
    }
}
