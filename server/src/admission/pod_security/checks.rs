//! The Pod Security Standards, as a table of checks.
//!
//! Source: k8s.io/pod-security-admission `policy`. A violation has a short reason and a detail.

use std::collections::BTreeSet;

use plinth_codec::{Map, Value};

use super::policy::{Level, Standard};

/// A violation of a standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// Short reason, like `host namespaces`.
    pub reason: String,
    /// Details; may be empty.
    pub detail: String,
}

/// A pod or pod template.
pub(super) struct Pod<'a> {
    pub annotations: Option<&'a Map>,
    pub spec: &'a Value,
}

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

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
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

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

fn containers<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> {
    let spec = pod.spec;
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |part| list(spec, &[part]))
}

fn name(object: &Value) -> &str {
    object.str_at(&["name"]).unwrap_or_default()
}

fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let each: Vec<String> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    each.join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    match count {
        1 => one,
        _ => many,
    }
}

/// `containers "a", "b"`.
fn named_containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names.iter().copied()))
}

/// `pod and container "a"`: where a forbidden value is set.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(named_containers(names));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

/// The names of the containers for which a test holds.
fn bad<'a>(pod: &Pod<'a>, test: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
    containers(pod).filter(test).map(name).collect()
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let mut is_bad = |object: &Value| {
        let profile = object.str_at(&["securityContext", "appArmorProfile", "type"]);
        let bad = object.at(&["securityContext", "appArmorProfile"]).is_some()
            && !matches!(profile, Some("RuntimeDefault" | "Localhost"));
        if bad {
            values.insert(profile.unwrap_or_default().to_owned());
        }
        bad
    };
    let of_pod = is_bad(pod.spec);
    let names = bad(pod, |container| is_bad(container));
    let annotations = pod.annotations.into_iter().flat_map(Map::iter).filter_map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        let good = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        (key.starts_with(ANNOTATION) && !good).then(|| format!("{key}=\"{value}\""))
    });
    let annotations: Vec<String> = annotations.collect();
    let mut who: Vec<String> = setters(of_pod, &names).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let all: Vec<&str> = values.iter().chain(&annotations).map(String::as_str).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", all.len());
    let detail = format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(all));
    violation(reason, detail)
}

/// Capabilities that a container may add at level baseline.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add forbidden capabilities, and those capabilities.
fn added_capabilities<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut forbidden = BTreeSet::new();
    let names = bad(pod, |container| {
        let added = list(container, &["securityContext", "capabilities", "add"]).iter();
        let bad: Vec<&str> = added.filter_map(Value::as_str).filter(|c| !allowed.contains(c)).collect();
        forbidden.extend(bad.iter().copied());
        !bad.is_empty()
    });
    (names, forbidden)
}

fn must_not_add((names, forbidden): &(Vec<&str>, BTreeSet<&str>)) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            named_containers(names),
            quoted(forbidden.iter().copied())
        )
    })
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", must_not_add(&added_capabilities(pod, &CAPABILITIES))?)
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    let drops_all = |container: &Value| {
        let dropped = list(container, &["securityContext", "capabilities", "drop"]);
        dropped.iter().any(|c| c.as_str() == Some("ALL"))
    };
    let missing = bad(pod, |container| !drops_all(container));
    let mut details = Vec::new();
    if !missing.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named_containers(&missing)
        ));
    }
    details.extend(must_not_add(&added_capabilities(pod, &["NET_BIND_SERVICE"])));
    match details.is_empty() {
        true => None,
        false => violation("unrestricted capabilities", details.join("; ")),
    }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set = set.filter(|key| pod.spec.get(key).and_then(Value::as_bool) == Some(true));
    let set: Vec<String> = set.map(|key| format!("{key}=true")).collect();
    match set.is_empty() {
        true => None,
        false => violation("host namespaces", set.join(", ")),
    }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec, &["volumes"]).iter().filter(|v| v.get("hostPath").is_some()).map(name);
    let volumes: Vec<&str> = volumes.collect();
    match volumes.len() {
        0 => None,
        count => violation(
            "hostPath volumes",
            format!("{} {}", plural("volume", "volumes", count), quoted(volumes)),
        ),
    }
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // Sorted as text, as upstream does.
    let mut ports = BTreeSet::new();
    let names = bad(pod, |container| {
        let used = list(container, &["ports"]).iter().filter_map(|port| port.get("hostPort")?.as_int());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        let bad = !used.is_empty();
        ports.extend(used);
        bad
    });
    if names.is_empty() {
        return None;
    }
    let all: Vec<String> = ports.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        named_containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", all.len()),
        all.join(", ")
    );
    violation("hostPort", detail)
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let mut hosts = BTreeSet::new();
    let mut names = bad(pod, |container| {
        let found = HANDLERS.iter().filter_map(|path| container.at(path)).flat_map(|handler| {
            [&["httpGet", "host"], &["tcpSocket", "host"]].into_iter().filter_map(|path| handler.str_at(path))
        });
        let found: Vec<&str> = found.filter(|host| !host.is_empty()).collect();
        hosts.extend(found.iter().copied());
        !found.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let detail = format!(
        "{} {} {} {}",
        named_containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts)
    );
    violation("probe or lifecycle host", detail)
}

fn context_flag(object: &Value, path: &[&str]) -> Option<bool> {
    object.at(&["securityContext"])?.at(path)?.as_bool()
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = bad(pod, |c| context_flag(c, &["privileged"]) == Some(true));
    match names.is_empty() {
        true => None,
        false => violation(
            "privileged",
            format!("{} must not set securityContext.privileged=true", named_containers(&names)),
        ),
    }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let names = bad(pod, |container| {
        let kind = container.str_at(&["securityContext", "procMount"]).filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    match names.is_empty() {
        true => None,
        false => violation(
            "procMount",
            format!(
                "{} must not set securityContext.procMount to {}",
                named_containers(&names),
                quoted(kinds)
            ),
        ),
    }
}

const SELINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SELINUX_31: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn selinux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_bad = |object: &Value| {
        let text = |key: &str| {
            object.str_at(&["securityContext", "seLinuxOptions", key]).unwrap_or_default().to_owned()
        };
        let kind = text("type");
        let (bad_type, bad_user, bad_role) =
            (!allowed.contains(&kind.as_str()), !text("user").is_empty(), !text("role").is_empty());
        if bad_type {
            types.insert(kind);
        }
        user |= bad_user;
        role |= bad_role;
        bad_type || bad_user || bad_role
    };
    let of_pod = is_bad(pod.spec);
    let names = bad(pod, |container| is_bad(container));
    let who = setters(of_pod, &names)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!(
            "{} {}",
            plural("type", "types", types.len()),
            quoted(types.iter().map(String::as_str))
        ));
    }
    what.extend(user.then(|| "user may not be set".to_owned()));
    what.extend(role.then(|| "role may not be set".to_owned()));
    let verb = "set forbidden securityContext.seLinuxOptions:";
    violation("seLinuxOptions", format!("{who} {verb} {}", what.join("; ")))
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_bad = |v: &str| v != "runtime/default" && v != "docker/default" && !v.starts_with("localhost/");
    let keys =
        std::iter::once(POD.to_owned()).chain(containers(pod).map(|c| format!("{CONTAINER}{}", name(c))));
    let annotation = |key: &str| pod.annotations?.get(key)?.as_str();
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| annotation(&key).filter(|v| is_bad(v)).map(|value| format!("{key}=\"{value}\"")))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let all: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", all.join(", ")))
}

/// The profile type; `None` if it is not set.
fn seccomp(object: &Value) -> Option<&str> {
    let profile = object.at(&["securityContext", "seccompProfile"])?;
    Some(profile.str_at(&["type"]).unwrap_or_default())
}

fn is_good_seccomp(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |object: &Value| {
        let bad = seccomp(object).filter(|kind| !is_good_seccomp(kind)).map(str::to_owned);
        let is_bad = bad.is_some();
        values.extend(bad);
        is_bad
    };
    let of_pod = is_bad(pod.spec);
    let names = bad(pod, |container| is_bad(container));
    let who = setters(of_pod, &names)?;
    let values = quoted(values.iter().map(String::as_str));
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {values}"))
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(bad) = seccomp_baseline(pod) {
        return Some(bad);
    }
    let of_pod = seccomp(pod.spec).is_some();
    let names = bad(pod, |container| !of_pod && seccomp(container).is_none());
    match names.is_empty() {
        true => None,
        false => violation(
            "seccompProfile",
            format!(
                "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
                named_containers(&names)
            ),
        ),
    }
}

/// Safe sysctls, in the order of their introduction; how many are allowed depends on the version.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: &Pod<'_>, count: usize) -> Option<Violation> {
    let set = list(pod.spec, &["securityContext", "sysctls"]).iter().map(name);
    let forbidden: Vec<&str> = set.filter(|name| !SYSCTLS.iter().take(count).any(|s| s == name)).collect();
    match forbidden.is_empty() {
        true => None,
        false => violation("forbidden sysctls", forbidden.join(", ")),
    }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |object: &Value| context_flag(object, &["windowsOptions", "hostProcess"]) == Some(true);
    let names = bad(pod, |container| is_bad(container));
    let who = setters(is_bad(pod.spec), &names)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = bad(pod, |c| context_flag(c, &["allowPrivilegeEscalation"]) != Some(false));
    match names.is_empty() {
        true => None,
        false => violation(
            "allowPrivilegeEscalation != false",
            format!("{} must set securityContext.allowPrivilegeEscalation=false", named_containers(&names)),
        ),
    }
}

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    const GOOD: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in list(pod.spec, &["volumes"]) {
        if GOOD.iter().any(|kind| volume.get(kind).is_some_and(|v| !v.is_null())) {
            continue;
        }
        names.push(name(volume));
        let sources = volume.as_object().into_iter().flat_map(Map::iter).filter(|(_, v)| !v.is_null());
        kinds.insert(sources.map(|(key, _)| key.as_str()).find(|key| *key != "name").unwrap_or("unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(names.iter().copied()),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let flag = |object: &Value| context_flag(object, &["runAsNonRoot"]);
    let explicit = bad(pod, |container| flag(container) == Some(false));
    if let Some(who) = setters(flag(pod.spec) == Some(false), &explicit) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let of_pod = flag(pod.spec) == Some(true);
    let implicit = bad(pod, |container| !of_pod && flag(container).is_none());
    match implicit.is_empty() {
        true => None,
        false => violation(
            REASON,
            format!("pod or {} must set securityContext.runAsNonRoot=true", named_containers(&implicit)),
        ),
    }
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root =
        |object: &Value| object.at(&["securityContext", "runAsUser"]).and_then(Value::as_int) == Some(0);
    let names = bad(pod, |container| is_root(container));
    let who = setters(is_root(pod.spec), &names)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
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
