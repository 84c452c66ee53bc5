//! Pod templates and the specs of pods: what Pods, the workloads of `apps` and `batch`, PodTemplates and
//! ReplicationControllers share.

pub(crate) mod app_armor;
pub(crate) mod container;
pub(crate) mod controller;
pub(crate) mod defaults;
pub(crate) mod env;
pub(crate) mod file_paths;
pub(crate) mod handler;
mod pod_context;
pub(crate) mod scheduling;
pub(crate) mod security;
pub(crate) mod volume;
pub(crate) mod volume_paths;
pub(crate) mod warnings;

use plinth_api::{annotation_errors, label_errors};
use plinth_codec::{names, Value};

use crate::checks::Check::{self, AnyText, By, Each, EachUniqueElement, In, Is, OneOf, Range, Text};
use crate::checks::{address, quantities, Part};
use crate::pod_template::scheduling::AFFINITY_CHECKS;
use crate::pod_template::security::POD_CHECKS;

pub(crate) use crate::pod_template::pod_context::PodContext;

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Checks of a pod template. Upstream omits `metadata` in the paths of its labels and annotations.
pub(crate) const TEMPLATE_CHECKS: &[Check] = &[By(|template| {
    template.append("labels", |path, errors| {
        errors.extend(label_errors(template.at("metadata.labels"), path));
    });
    template.append("annotations", |path, errors| {
        errors.extend(annotation_errors(template.at("metadata.annotations"), path));
    });
    annotations(template, "annotations");
    validate_spec(&template.field("spec"), "");
    if !template.list("spec.ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        template.forbidden("spec.ephemeralContainers", why);
    }
})];

const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";

const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Validates the annotations of a pod or template; errors report `key` as their path.
pub(crate) fn annotations(object: &Part<'_>, key: &str) {
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let given = object.at("metadata.annotations");
    if let Some(value) = given.and_then(|a| a.get(MIRROR_ANNOTATION)).and_then(Value::as_str) {
        if object.text("spec.nodeName").is_empty() {
            let why = "must set spec.nodeName if mirror pod annotation is set";
            object.invalid(format_args!("{key}[{MIRROR_ANNOTATION}]"), value, why);
        }
    }
    if let Some(cost) = given.and_then(|a| a.get(COST)).and_then(Value::as_str) {
        // Upstream accepts no plus sign and no leading zeros.
        let plain = cost == "0" || !cost.trim_start_matches('-').starts_with('0') && !cost.starts_with('+');
        if !plain || cost.parse::<i32>().is_err() {
            object.invalid(format_args!("{key}[{COST}]"), cost, "must be a 32bit integer");
        }
    }
    for (name, value) in object.members("metadata.annotations") {
        let value = value.as_str().unwrap_or_default();
        if name == SECCOMP || name.starts_with(SECCOMP_OF_CONTAINER) {
            let path = format_args!("{key}.{name}");
            match value.strip_prefix("localhost/") {
                Some(file) => object.apply_to(path, file, file_paths::local_path),
                None if ["runtime/default", "docker/default", "unconfined"].contains(&value) => {}
                None => object.invalid(path, value, "must be a valid seccomp profile"),
            }
        }
    }
    app_armor::annotation_errors(object, key);
}

/// Checks of a spec that run after those of volumes and containers.
const SPEC_CHECKS: &[Check] = &[
    OneOf("restartPolicy", &["Always", "OnFailure", "Never"]),
    OneOf("dnsPolicy", DNS_POLICIES),
    Check::Labels("nodeSelector"),
    In("securityContext", POD_CHECKS),
    By(security::host_namespaces),
    In("affinity", AFFINITY_CHECKS),
    By(dns_config),
    Each("readinessGates", &[AnyText("conditionType", names::qualified_name_errors)]),
    // Upstream reports the gate instead of its name.
    EachUniqueElement("schedulingGates", "name", &[By(gate_name)]),
    By(scheduling::spread_constraints),
    By(hostname_override),
    Text("serviceAccountName", names::dns1123_subdomain_errors),
    Text("nodeName", names::dns1123_subdomain_errors),
    Range("activeDeadlineSeconds", 1, i32::MAX as i64),
    Text("hostname", names::dns1123_label_errors),
    Text("subdomain", names::dns1123_label_errors),
    By(scheduling::validate_tolerations),
    Each(
        "hostAliases",
        &[Is("ip", address::legacy), Each("hostnames", &[AnyText("", names::dns1123_subdomain_errors)])],
    ),
    Text("priorityClassName", names::dns1123_subdomain_errors),
    Text("runtimeClassName", names::dns1123_subdomain_errors),
    By(|spec| {
        if spec.has("preemptionPolicy") {
            spec.check(&[Check::RequiredOneOf("preemptionPolicy", &["PreemptLowerPriority", "Never"])]);
        }
    }),
    By(|spec| quantities::overhead(spec, "overhead")),
    By(operating_system),
    By(scheduling_group),
];

/// The PodGroup that a pod is of.
fn scheduling_group(spec: &Part<'_>) {
    let Some(group) = spec.get("schedulingGroup") else { return };
    match group.set_text("podGroupName") {
        None => group.invalid("podGroupName", Value::Null, "must specify one of: `podGroupName`"),
        Some(name) => group.check_text("podGroupName", name, names::dns1123_subdomain_errors),
    }
}

pub(crate) fn validate_spec(spec: &Part<'_>, name: &str) {
    let context = PodContext::of(spec.value(), volume::volumes(spec, name));
    container::resource_claims(spec);
    container::containers(spec, &context);
    container::init_containers(spec, &context);
    container::pod_resources(spec, &context);
    spec.check(SPEC_CHECKS);
}

fn dns_config(spec: &Part<'_>) {
    const MAX_SERVERS: usize = 3;
    const MAX_PATHS: usize = 32;
    const MAX_SEARCH_LENGTH: usize = 2048;
    let config = spec.field("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !spec.has("dnsConfig") {
            spec.required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.list("nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            config.required("nameservers", why);
            return;
        }
    }
    let refuse = |key: &str, why: String| config.invalid(key, config.list(key).to_vec(), &why);
    if config.list("nameservers").len() > MAX_SERVERS {
        refuse("nameservers", format!("must not have more than {MAX_SERVERS} nameservers"));
    }
    if config.list("searches").len() > MAX_PATHS {
        refuse("searches", format!("must not have more than {MAX_PATHS} search paths"));
    }
    if config.texts("searches").join(" ").len() > MAX_SEARCH_LENGTH {
        let why = format!(
            "must not have more than {MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        );
        refuse("searches", why);
    }
    config.check(&[Each("nameservers", &[Is("", address::legacy)])]);
    for search in config.each("searches").filter(|search| search.text("") != ".") {
        let name = search.text("");
        search.check_text("", name.strip_suffix('.').unwrap_or(name), names::underscored_subdomain_errors);
    }
    for option in config.each("options").filter(|option| option.text("name").is_empty()) {
        option.required("", "must not be empty");
    }
}

fn gate_name(gate: &Part<'_>) {
    gate.check_text("", gate.text("name"), names::qualified_name_errors);
}

fn hostname_override(spec: &Part<'_>) {
    let Some(name) = spec.set_text("hostnameOverride") else { return };
    for key in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|key| spec.is_true(key)) {
        spec.forbidden("hostnameOverride", &format!("may not be specified when {key} is true"));
    }
    spec.at_most_bytes("hostnameOverride", name, 64);
    spec.check_text("hostnameOverride", name, names::dns1123_subdomain_errors);
}

fn operating_system(spec: &Part<'_>) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    match spec.set_text("os.name") {
        _ if !spec.has("os") => {}
        None | Some("") => spec.required("os.name", ""),
        Some("linux") => {
            spec.forbid_each(&["securityContext.windowsOptions"], WHY);
            for container in ["initContainers", "containers"].into_iter().flat_map(|part| spec.each(part)) {
                container.forbid_each(&["securityContext.windowsOptions"], WHY);
            }
        }
        Some("windows") => not_on_windows(spec),
        Some(other) => spec.not_supported("os", other, &["linux", "windows"]),
    }
}

/// Reports fields that are forbidden in a pod for Windows.
fn not_on_windows(spec: &Part<'_>) {
    const WHY: &str = "cannot be set for a windows pod";
    const OF_CONTAINER: &[&str] = &[
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "securityContext.seccompProfile",
        "securityContext.capabilities",
        "securityContext.readOnlyRootFilesystem",
        "securityContext.privileged",
        "securityContext.allowPrivilegeEscalation",
        "securityContext.procMount",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
    ];
    let forbid_filled = |part: &Part<'_>, keys: &[&str]| {
        keys.iter().filter(|key| !part.is_empty(key)).for_each(|key| part.forbidden(key, WHY));
    };
    forbid_filled(spec, &["securityContext.appArmorProfile", "securityContext.seLinuxOptions"]);
    spec.forbid_each(&["hostUsers"], WHY);
    for key in ["hostPID", "hostIPC"].into_iter().filter(|key| spec.is_true(key)) {
        spec.forbidden(key, WHY);
    }
    forbid_filled(
        spec,
        &[
            "securityContext.seccompProfile",
            "securityContext.fsGroup",
            "securityContext.fsGroupChangePolicy",
            "securityContext.sysctls",
        ],
    );
    if spec.has("shareProcessNamespace") {
        // Upstream reports it as a member of the security context.
        spec.forbidden("securityContext.shareProcessNamespace", WHY);
    }
    forbid_filled(
        spec,
        &[
            "securityContext.runAsUser",
            "securityContext.runAsGroup",
            "securityContext.supplementalGroups",
            "securityContext.supplementalGroupsPolicy",
            "securityContext.seLinuxChangePolicy",
        ],
    );
    for container in ["initContainers", "containers"].into_iter().flat_map(|part| spec.each(part)) {
        forbid_filled(&container, OF_CONTAINER);
    }
}

/// Annotation of mirror pods, which represent static pods of a node.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
