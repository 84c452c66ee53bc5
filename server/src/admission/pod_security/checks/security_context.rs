//! Checks of security contexts.

use std::collections::BTreeSet;

use plinth_codec::{Map, Value};

use super::violation::{
    bad, containers, context_flag, name, named_containers, plural, quoted, setters, violation, Pod, Violation,
};

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
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
        let added = container.list_at(&["securityContext", "capabilities", "add"]).iter();
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

pub(super) fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", must_not_add(&added_capabilities(pod, &CAPABILITIES))?)
}

pub(super) fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    let drops_all = |container: &Value| {
        let dropped = container.list_at(&["securityContext", "capabilities", "drop"]);
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

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = bad(pod, |c| context_flag(c, &["privileged"]) == Some(true));
    match names.is_empty() {
        true => None,
        false => violation(
            "privileged",
            format!("{} must not set securityContext.privileged=true", named_containers(&names)),
        ),
    }
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) const SELINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
pub(super) const SELINUX_31: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

pub(super) fn selinux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
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

pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = bad(pod, |c| context_flag(c, &["allowPrivilegeEscalation"]) != Some(false));
    match names.is_empty() {
        true => None,
        false => violation(
            "allowPrivilegeEscalation != false",
            format!("{} must set securityContext.allowPrivilegeEscalation=false", named_containers(&names)),
        ),
    }
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
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

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root =
        |object: &Value| object.at(&["securityContext", "runAsUser"]).and_then(Value::as_int) == Some(0);
    let names = bad(pod, |container| is_root(container));
    let who = setters(is_root(pod.spec), &names)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
