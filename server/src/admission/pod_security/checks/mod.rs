//! The Pod Security Standards, as a table of checks.
//!
//! Source: k8s.io/pod-security-admission `policy`. A violation has a short reason and a detail.

mod host;
mod security_context;
mod violation;

use plinth_codec::Value;

use super::policy::{Level, Standard};
use host::{
    host_namespaces, host_path_volumes, host_ports, probe_hosts, sysctls, volume_types, windows_host_process,
};
use security_context::{
    app_armor, capabilities_baseline, capabilities_restricted, privilege_escalation, privileged, proc_mount,
    run_as_non_root, run_as_user, seccomp_annotations, seccomp_baseline, seccomp_restricted, selinux,
    SELINUX, SELINUX_31,
};

pub(super) use violation::{Pod, Violation};

type Rule = fn(&Pod<'_>) -> Option<Violation>;

/// One check. The rules have the minor version that introduced them; the last one that is not newer than the
/// policy's version applies.
struct Check {
    level: Level,
    rules: &'static [(u32, Rule)],
    /// From this minor version on it is replaced by a stricter check at level `restricted`.
    replaced_from: Option<u32>,
}

const fn baseline(rules: &'static [(u32, Rule)]) -> Check {
    Check { level: Level::Baseline, rules, replaced_from: None }
}

const fn restricted(rules: &'static [(u32, Rule)]) -> Check {
    Check { level: Level::Restricted, rules, replaced_from: None }
}

/// In the order in which violations are reported.
const CHECKS: &[Check] = &[
    baseline(&[(0, app_armor)]),
    Check { replaced_from: Some(22), ..baseline(&[(0, capabilities_baseline)]) },
    baseline(&[(0, host_namespaces)]),
    Check { replaced_from: Some(0), ..baseline(&[(0, host_path_volumes)]) },
    baseline(&[(0, host_ports)]),
    baseline(&[(34, probe_hosts)]),
    baseline(&[(0, privileged)]),
    Check { replaced_from: Some(35), ..baseline(&[(0, proc_mount), (35, |pod| relaxed(pod, proc_mount))]) },
    baseline(&[(0, |pod| selinux(pod, SELINUX)), (31, |pod| selinux(pod, SELINUX_31))]),
    Check { replaced_from: Some(19), ..baseline(&[(0, seccomp_annotations), (19, seccomp_baseline)]) },
    baseline(&[
        (0, |pod| sysctls(pod, 5)),
        (27, |pod| sysctls(pod, 6)),
        (29, |pod| sysctls(pod, 10)),
        (32, |pod| sysctls(pod, 12)),
    ]),
    baseline(&[(0, windows_host_process)]),
    restricted(&[(8, privilege_escalation), (25, |pod| not_windows(pod, privilege_escalation))]),
    restricted(&[(22, capabilities_restricted), (25, |pod| not_windows(pod, capabilities_restricted))]),
    restricted(&[(35, proc_mount)]),
    restricted(&[(0, volume_types)]),
    restricted(&[(0, run_as_non_root), (35, |pod| relaxed(pod, run_as_non_root))]),
    restricted(&[(23, run_as_user), (35, |pod| relaxed(pod, run_as_user))]),
    restricted(&[(19, seccomp_restricted), (25, |pod| not_windows(pod, seccomp_restricted))]),
];

/// The violations of a standard by a pod.
pub(super) fn violations(pod: &Pod<'_>, standard: Standard) -> Vec<Violation> {
    let version = standard.version.unwrap_or(u32::MAX);
    let counts = |check: &&Check| {
        let replaced = check.replaced_from.is_some_and(|from| version >= from);
        check.level <= standard.level && !(standard.level == Level::Restricted && replaced)
    };
    let rule =
        |check: &Check| check.rules.iter().rev().find(|(from, _)| *from <= version).map(|(_, rule)| *rule);
    let applicable =
        CHECKS.iter().filter(|_| standard.level > Level::Privileged).filter(counts).filter_map(rule);
    applicable.filter_map(|rule| rule(pod)).collect()
}

/// The details of all violations.
pub(super) fn detail(violations: &[Violation]) -> String {
    let each = violations.iter().map(|v| match v.detail.is_empty() {
        true => v.reason.clone(),
        false => format!("{} ({})", v.reason, v.detail),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Relaxes a rule for pods with a user namespace.
fn relaxed(pod: &Pod<'_>, rule: Rule) -> Option<Violation> {
    match pod.spec.get("hostUsers").and_then(Value::as_bool) {
        Some(false) => None,
        _ => rule(pod),
    }
}

/// Skips a rule for Windows pods.
fn not_windows(pod: &Pod<'_>, rule: Rule) -> Option<Violation> {
    match pod.spec.str_at(&["os", "name"]) {
        Some("windows") => None,
        _ => rule(pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn violations_of(spec: &str, level: Level, version: Option<u32>) -> String {
        let spec = json::parse(spec.as_bytes()).unwrap();
        detail(&violations(&Pod { annotations: None, spec: &spec }, Standard { level, version }))
    }

    /// A container that violates no standard.
    const GOOD: &str = r#"{"name":"a","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}"#;

    #[test]
    fn violations_of_baseline() {
        // spec, violations
        let rows = [
            (format!(r#"{{"containers":[{GOOD}]}}"#), ""),
            (r#"{"containers":[{"name":"a"}]}"#.into(), ""),
            (
                r#"{"hostNetwork":true,"hostPID":true,"containers":[]}"#.into(),
                "host namespaces (hostNetwork=true, hostPID=true)",
            ),
            (
                r#"{"containers":[{"name":"a","securityContext":{"privileged":true}},{"name":"b","securityContext":{"privileged":true}}]}"#.into(),
                r#"privileged (containers "a", "b" must not set securityContext.privileged=true)"#,
            ),
            (
                r#"{"volumes":[{"name":"v","hostPath":{"path":"/"}}],"containers":[{"name":"a","ports":[{"hostPort":80},{"hostPort":443}]}]}"#.into(),
                r#"hostPath volumes (volume "v"), hostPort (container "a" uses hostPorts 443, 80)"#,
            ),
            (
                r#"{"containers":[{"name":"a","securityContext":{"capabilities":{"add":["NET_ADMIN","CHOWN"]}}}]}"#.into(),
                r#"non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add)"#,
            ),
            (
                r#"{"securityContext":{"seLinuxOptions":{"type":"x","user":"u"}},"containers":[]}"#.into(),
                r#"seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "x"; user may not be set)"#,
            ),
            (
                r#"{"securityContext":{"seccompProfile":{"type":"Unconfined"},"appArmorProfile":{"type":"Unconfined"}},"containers":[]}"#.into(),
                r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined"), seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
            ),
            (
                r#"{"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_rmem"},{"name":"kernel.msgmax"}]},"containers":[]}"#.into(),
                "forbidden sysctls (kernel.msgmax)",
            ),
            (
                r#"{"containers":[{"name":"a","livenessProbe":{"httpGet":{"host":"1.2.3.4"}}}]}"#.into(),
                r#"probe or lifecycle host (container "a" uses probe or lifecycle host "1.2.3.4")"#,
            ),
            (
                r#"{"containers":[{"name":"a","securityContext":{"procMount":"Unmasked","windowsOptions":{"hostProcess":true}}}]}"#.into(),
                r#"procMount (container "a" must not set securityContext.procMount to "Unmasked"), hostProcess (container "a" must not set securityContext.windowsOptions.hostProcess=true)"#,
            ),
        ];
        for (spec, expected) in rows {
            assert_eq!(violations_of(&spec, Level::Baseline, None), expected, "{spec}");
            assert_eq!(violations_of(&spec, Level::Privileged, None), "", "{spec}");
        }
    }

    #[test]
    fn violations_of_restricted() {
        assert_eq!(violations_of(&format!(r#"{{"containers":[{GOOD}]}}"#), Level::Restricted, None), "");
        assert_eq!(
            violations_of(r#"{"containers":[{"name":"a"}]}"#, Level::Restricted, None),
            r#"allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#
        );
        let spec = format!(
            r#"{{"securityContext":{{"runAsUser":0}},"volumes":[{{"name":"v","hostPath":{{}}}}],"containers":[{GOOD}]}}"#
        );
        assert_eq!(
            violations_of(&spec, Level::Restricted, None),
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath"), runAsUser=0 (pod must not set runAsUser=0)"#
        );
    }

    #[test]
    fn older_versions_are_less_strict() {
        let spec = r#"{"containers":[{"name":"a"}]}"#;
        assert_eq!(
            violations_of(spec, Level::Restricted, Some(7)),
            r#"runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)"#
        );
        let spec = r#"{"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_rmem"}]},"containers":[]}"#;
        assert_eq!(violations_of(spec, Level::Baseline, Some(31)), "forbidden sysctls (net.ipv4.tcp_rmem)");
        assert_eq!(violations_of(spec, Level::Baseline, Some(32)), "");
    }
}
