//! Checks of the host's namespaces, paths, ports, sysctls, and of volume types.

use std::collections::BTreeSet;

use plinth_codec::{Map, Value};

use super::violation::{
    bad, context_flag, name, named_containers, plural, quoted, setters, violation, Pod, Violation,
};

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set = set.filter(|key| pod.spec.get(key).and_then(Value::as_bool) == Some(true));
    let set: Vec<String> = set.map(|key| format!("{key}=true")).collect();
    match set.is_empty() {
        true => None,
        false => violation("host namespaces", set.join(", ")),
    }
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list_at(&["volumes"]).iter().filter(|v| v.get("hostPath").is_some()).map(name);
    let volumes: Vec<&str> = volumes.collect();
    match volumes.len() {
        0 => None,
        count => violation(
            "hostPath volumes",
            format!("{} {}", plural("volume", "volumes", count), quoted(volumes)),
        ),
    }
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // Sorted as text, as upstream does.
    let mut ports = BTreeSet::new();
    let names = bad(pod, |container| {
        let used = container.list_at(&["ports"]).iter().filter_map(|port| port.get("hostPort")?.as_int());
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

pub(super) fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn sysctls(pod: &Pod<'_>, count: usize) -> Option<Violation> {
    let set = pod.spec.list_at(&["securityContext", "sysctls"]).iter().map(name);
    let forbidden: Vec<&str> = set.filter(|name| !SYSCTLS.iter().take(count).any(|s| s == name)).collect();
    match forbidden.is_empty() {
        true => None,
        false => violation("forbidden sysctls", forbidden.join(", ")),
    }
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |object: &Value| context_flag(object, &["windowsOptions", "hostProcess"]) == Some(true);
    let names = bad(pod, |container| is_bad(container));
    let who = setters(is_bad(pod.spec), &names)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

pub(super) fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
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
    for volume in pod.spec.list_at(&["volumes"]) {
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
