//! Validation of security contexts of pods and containers.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::Value;

use crate::checks::validate;
use crate::checks::Check::{self, By, Enum, In, Range};
use crate::path::{at, int, list, text};
use crate::pod_template::volume::local_path;

const NUMBER: i64 = i32::MAX as i64;

/// Validates the security context of a container.
pub(crate) fn validate_container(
    container: &Value,
    host_users: bool,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let Some(context) = at(container, "securityContext") else { return };
    let here = format_args!("{path}securityContext");
    let checks: &[Check] = &[
        Range("runAsUser", 0, NUMBER),
        Range("runAsGroup", 0, NUMBER),
        Enum("procMount", &["Default", "Unmasked"]),
    ];
    validate(checks, context, format_args!("{here}."), errors);
    if host_users && text(context, "procMount") == "Unmasked" {
        let why = "`hostUsers` must be false to use `Unmasked`";
        errors.push(field::invalid(format_args!("{here}.procMount"), "Unmasked", why));
    }
    validate(&[In("seccompProfile", SECCOMP_CHECKS)], context, format_args!("{here}."), errors);
    let flag = |key: &str| at(context, key).and_then(Value::as_bool);
    if flag("allowPrivilegeEscalation") == Some(false) {
        let mut refuse = |why: &str| errors.push(field::invalid(here, context.clone(), why));
        if flag("privileged") == Some(true) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        let added = list(context, "capabilities.add").iter();
        for _ in added.filter(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    validate(&[In("appArmorProfile", APP_ARMOR_CHECKS)], context, format_args!("{here}."), errors);
}

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

const SECCOMP_CHECKS: &[Check] = &[By(|profile, path, errors| {
    profile_type(profile, "type is required when seccompProfile is set", path, errors);
    let file = at(profile, "localhostProfile").and_then(Value::as_str);
    let here = format_args!("{path}localhostProfile");
    match (text(profile, "type") == "Localhost", file) {
        (true, None) => errors.push(field::required(here, "must be set when seccomp type is Localhost")),
        (true, Some(file)) => local_path(file, here, errors),
        (false, Some(_)) => {
            errors.push(field::invalid(
                here,
                profile.clone(),
                "can only be set when seccomp type is Localhost",
            ));
        }
        (false, None) => {}
    }
})];

const APP_ARMOR_CHECKS: &[Check] = &[By(|profile, path, errors| {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    const MAX_LENGTH: usize = 4095;
    let file = at(profile, "localhostProfile").and_then(Value::as_str);
    let here = format_args!("{path}localhostProfile");
    match (text(profile, "type"), file) {
        ("Localhost", None) => errors.push(field::required(here, NEEDED)),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                errors.push(field::invalid(here, file, "must not be padded with whitespace"));
            } else if file.is_empty() {
                errors.push(field::required(here, NEEDED));
            }
            if file.len() > MAX_LENGTH {
                errors.push(field::too_long(here, MAX_LENGTH));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            errors.push(field::invalid(here, file, "can only be set when AppArmor type is Localhost"));
        }
        _ => {}
    }
    profile_type(profile, "type is required when appArmorProfile is set", path, errors);
})];

fn profile_type(profile: &Value, needed: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match text(profile, "type") {
        "" => errors.push(field::required(format_args!("{path}type"), needed)),
        given if !PROFILES.contains(&given) => {
            errors.push(field::not_supported(format_args!("{path}type"), given, PROFILES));
        }
        _ => {}
    }
}

/// Checks of the security context of a pod.
pub(crate) const POD_CHECKS: &[Check] = &[
    Range("fsGroup", 0, NUMBER),
    Range("runAsUser", 0, NUMBER),
    Range("runAsGroup", 0, NUMBER),
    By(supplemental_groups),
    By(sysctls),
    Enum("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    In("seccompProfile", SECCOMP_CHECKS),
    In("appArmorProfile", APP_ARMOR_CHECKS),
    Enum("supplementalGroupsPolicy", &["Merge", "Strict"]),
    Enum("seLinuxChangePolicy", &["MountOption", "Recursive"]),
];

fn supplemental_groups(context: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        if let Some(group) = group.as_int().filter(|group| !(0..=NUMBER).contains(group)) {
            let why = format!("must be between 0 and {NUMBER}, inclusive");
            errors.push(field::invalid(format_args!("{path}supplementalGroups[{i}]"), group, &why));
        }
    }
}

fn sysctls(context: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    const MAX_LENGTH: usize = 253;
    let mut seen = HashSet::new();
    for (i, sysctl) in list(context, "sysctls").iter().enumerate() {
        let (name, here) = (text(sysctl, "name"), format_args!("{path}sysctls[{i}].name"));
        if name.is_empty() {
            errors.push(field::required(here, ""));
        } else if name.len() > MAX_LENGTH || !plinth_codec::regexp::is_match(PATTERN, name) {
            let why = format!("must have at most {MAX_LENGTH} characters and match regex {PATTERN}");
            errors.push(field::invalid(here, name, &why));
        } else if seen.contains(name) {
            errors.push(field::duplicate(here, name));
        }
        seen.insert(name);
    }
}

/// Fields that are forbidden in a pod that uses namespaces of the node.
pub(crate) fn host_namespaces(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let flag = |key: &str| at(spec, key).and_then(Value::as_bool);
    if flag("shareProcessNamespace") == Some(true) && flag("hostPID") == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(field::invalid(format_args!("{path}securityContext.shareProcessNamespace"), true, why));
    }
    for (i, sysctl) in list(spec, "securityContext.sysctls").iter().enumerate() {
        let name = text(sysctl, "name");
        let here = format_args!("{path}securityContext.sysctls[{i}].name");
        let of_ipc =
            ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|p| name.starts_with(p));
        if flag("hostNetwork") == Some(true) && name.starts_with("net.") {
            errors.push(field::invalid(here, name, "may not be specified when 'hostNetwork' is true"));
        } else if flag("hostIPC") == Some(true) && of_ipc {
            errors.push(field::invalid(here, name, "may not be specified when 'hostIPC' is true"));
        }
    }
    if flag("hostUsers") == Some(false) {
        // Upstream reports two of the fields by their Go names.
        for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if flag(key) == Some(true) {
                errors.push(field::forbidden(format_args!("{path}{shown}"), "when `hostUsers` is false"));
            }
        }
    }
    if flag("hostNetwork") != Some(true) {
        return;
    }
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (j, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or(0);
            if host != 0 && int(port, "containerPort") != Some(host) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(field::invalid(
                    format_args!("{path}containers[{i}].ports[{j}].hostPort"),
                    host,
                    why,
                ));
            }
        }
    }
}
