//! Validation of security contexts of pods and containers.

use std::collections::HashSet;

use crate::checks::Check::{self, By, Each, Enum, In, Range};
use crate::checks::Part;
use crate::pod_template::file_paths::local_path;

const NUMBER: i64 = i32::MAX as i64;

/// Validates the security context of a container.
pub(crate) fn validate_container(container: &Part<'_>, host_users: bool) {
    let Some(context) = container.get("securityContext") else { return };
    context.check(&[
        Range("runAsUser", 0, NUMBER),
        Range("runAsGroup", 0, NUMBER),
        Enum("procMount", &["Default", "Unmasked"]),
    ]);
    if host_users && context.text("procMount") == "Unmasked" {
        context.invalid("procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    context.check(&[In("seccompProfile", SECCOMP_CHECKS)]);
    if context.flag("allowPrivilegeEscalation") == Some(false) {
        let refuse = |why: &str| context.invalid("", context.shown(""), why);
        if context.is_true("privileged") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        let added = context.texts("capabilities.add").into_iter();
        for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    context.check(&[In("appArmorProfile", APP_ARMOR_CHECKS)]);
}

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

const SECCOMP_CHECKS: &[Check] = &[By(|profile| {
    profile.required_one_of("type", PROFILES, "type is required when seccompProfile is set");
    const KEY: &str = "localhostProfile";
    match (profile.text("type") == "Localhost", profile.set_text(KEY)) {
        (true, None) => profile.required(KEY, "must be set when seccomp type is Localhost"),
        (true, Some(_)) => profile.apply(KEY, local_path),
        (false, Some(_)) => {
            profile.invalid(KEY, profile.shown(""), "can only be set when seccomp type is Localhost");
        }
        (false, None) => {}
    }
})];

const APP_ARMOR_CHECKS: &[Check] = &[By(|profile| {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    const KEY: &str = "localhostProfile";
    match (profile.text("type"), profile.set_text(KEY)) {
        ("Localhost", None) => profile.required(KEY, NEEDED),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                profile.invalid(KEY, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                profile.required(KEY, NEEDED);
            }
            profile.at_most_bytes(KEY, file, 4095);
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            profile.invalid(KEY, file, "can only be set when AppArmor type is Localhost");
        }
        _ => {}
    }
    profile.required_one_of("type", PROFILES, "type is required when appArmorProfile is set");
})];

/// Checks of the security context of a pod.
pub(crate) const POD_CHECKS: &[Check] = &[
    Range("fsGroup", 0, NUMBER),
    Range("runAsUser", 0, NUMBER),
    Range("runAsGroup", 0, NUMBER),
    Each("supplementalGroups", &[Range("", 0, NUMBER)]),
    By(sysctls),
    Enum("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    In("seccompProfile", SECCOMP_CHECKS),
    In("appArmorProfile", APP_ARMOR_CHECKS),
    Enum("supplementalGroupsPolicy", &["Merge", "Strict"]),
    Enum("seLinuxChangePolicy", &["MountOption", "Recursive"]),
];

fn sysctls(context: &Part<'_>) {
    const PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    const MAX_LENGTH: usize = 253;
    let mut seen = HashSet::new();
    for sysctl in context.each("sysctls") {
        let name = sysctl.text("name");
        if name.is_empty() {
            sysctl.required("name", "");
        } else if name.len() > MAX_LENGTH || !plinth_codec::regexp::is_match(PATTERN, name) {
            let why = format!("must have at most {MAX_LENGTH} characters and match regex {PATTERN}");
            sysctl.invalid("name", name, &why);
        } else if seen.contains(name) {
            sysctl.duplicate("name", name);
        }
        seen.insert(name);
    }
}

/// Fields that are forbidden in a pod that uses namespaces of the node.
pub(crate) fn host_namespaces(spec: &Part<'_>) {
    const IPC: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
    if spec.is_true("shareProcessNamespace") && spec.is_true("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        spec.invalid("securityContext.shareProcessNamespace", true, why);
    }
    for sysctl in spec.each("securityContext.sysctls") {
        let name = sysctl.text("name");
        if spec.is_true("hostNetwork") && name.starts_with("net.") {
            sysctl.invalid("name", name, "may not be specified when 'hostNetwork' is true");
        } else if spec.is_true("hostIPC") && IPC.iter().any(|prefix| name.starts_with(prefix)) {
            sysctl.invalid("name", name, "may not be specified when 'hostIPC' is true");
        }
    }
    if spec.flag("hostUsers") == Some(false) {
        // Upstream reports two of the fields by their Go names.
        let rows = [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")];
        for (_, shown) in rows.into_iter().filter(|(key, _)| spec.is_true(key)) {
            spec.forbidden(shown, "when `hostUsers` is false");
        }
    }
    if !spec.is_true("hostNetwork") {
        return;
    }
    for container in spec.each("containers") {
        for port in container.each("ports") {
            let host = port.number("hostPort");
            if host != 0 && port.int("containerPort") != Some(host) {
                port.invalid("hostPort", host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}
