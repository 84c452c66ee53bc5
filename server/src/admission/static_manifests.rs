//! `staticManifestsDir`: webhooks and policies from files, which upstream has behind a gate that is off
//! (`ManifestBasedAdmissionControlConfig`) and which is not there. A file that names a directory is refused:
//! whoever wrote it expects its policies to be applied.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/manifest` and `pkg/admission/plugin/policy/config`.

use plinth_codec::Value;
use serde::Deserialize;

use super::section::decode_section;
use plinth_api::ConfigKind;

const VERSIONS: &[&str] = &["apiserver.config.k8s.io/v1"];
/// A plugin of policies, and the kind of its section.
pub(super) type PolicyPlugin = (&'static str, ConfigKind);
pub(super) const VALIDATING: PolicyPlugin = (
    "ValidatingAdmissionPolicy",
    ConfigKind { kind: "ValidatingAdmissionPolicyConfiguration", versions: VERSIONS },
);
pub(super) const MUTATING: PolicyPlugin = (
    "MutatingAdmissionPolicy",
    ConfigKind { kind: "MutatingAdmissionPolicyConfiguration", versions: VERSIONS },
);

/// The section of one of the plugins of policies.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Section {
    static_manifests_dir: String,
}

/// Checks the section of a plugin of policies, if there is one.
///
/// # Errors
/// Another kind, unknown members, a directory.
pub(super) fn check_section(part: Option<&Value>, (_, kind): PolicyPlugin) -> Result<(), String> {
    let section: Section = part.map(|part| decode_section(part, kind)).transpose()?.unwrap_or_default();
    refuse(&section.static_manifests_dir)
}

/// # Errors
/// Upstream's while the gate is off, if a directory is given.
pub(super) fn refuse(dir: &str) -> Result<(), String> {
    const WHY: &str =
        "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
    match dir.is_empty() {
        true => Ok(()),
        false => Err(format!("staticManifestsDir: Forbidden: {WHY}")),
    }
}
