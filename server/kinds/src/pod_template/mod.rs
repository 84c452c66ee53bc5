//! Pod templates and the specs of pods: what Pods, the workloads of `apps` and `batch`, PodTemplates and
//! ReplicationControllers share.

pub(crate) mod app_armor;
pub(crate) mod container;
pub(crate) mod controller;
pub(crate) mod defaults;
pub(crate) mod env;
pub(crate) mod handler;
pub mod scheduling;
pub(crate) mod security;
pub(crate) mod volume;
pub(crate) mod volume_paths;
pub(crate) mod warnings;

use std::collections::{BTreeSet, HashMap, HashSet};

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::quantities::{self, Kind};
use crate::checks::Check::{self, By, Each, In, OneOf, Range, Text};
use crate::checks::{address, check_text, validate};
use crate::path::{at, int, is_empty, list, text, texts};
use crate::pod_template::scheduling::AFFINITY_CHECKS;
use crate::pod_template::security::POD_CHECKS;

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Checks of a pod template. Upstream omits `metadata` in the paths of its labels and annotations.
pub(crate) const TEMPLATE_CHECKS: &[Check] = &[By(template)];

/// What containers are validated against.
pub(crate) struct PodContext<'a> {
    /// The valid volumes, by name.
    volumes: HashMap<&'a str, &'a Value>,
    /// Names of the pod's resource claims.
    claims: BTreeSet<&'a str>,
    /// `terminationGracePeriodSeconds`.
    grace: Option<i64>,
    /// The pod's `restartPolicy`.
    restart: &'a str,
    /// Whether the pod runs in the user namespace of the node.
    host_users: bool,
    /// `os.name`.
    os: Option<&'a str>,
}

impl<'a> PodContext<'a> {
    /// The context of the containers of a spec.
    pub fn of(spec: &'a Value, volumes: HashMap<&'a str, &'a Value>) -> PodContext<'a> {
        let claims = list(spec, "resourceClaims").iter().map(|claim| text(claim, "name"));
        PodContext {
            volumes,
            claims: claims.filter(|name| !name.is_empty()).collect(),
            grace: int(spec, "terminationGracePeriodSeconds"),
            restart: text(spec, "restartPolicy"),
            host_users: at(spec, "hostUsers").and_then(Value::as_bool) != Some(false),
            os: at(spec, "os").map(|os| text(os, "name")),
        }
    }

    /// The context of ephemeral containers, which are added to a running pod: its volumes have been
    /// validated.
    pub fn of_running(pod: &'a Value) -> Option<PodContext<'a>> {
        let spec = pod.get("spec")?;
        let volumes = list(spec, "volumes").iter().map(|volume| (text(volume, "name"), volume)).collect();
        Some(PodContext::of(spec, volumes))
    }

    fn volume(&self, name: &str) -> Option<&'a Value> {
        self.volumes.get(name).copied()
    }
}

fn template(template: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let nothing = Value::object();
    errors.extend(plinth_api::metadata::label_errors(
        at(template, "metadata.labels"),
        format_args!("{path}labels"),
    ));
    let here = format_args!("{path}annotations");
    errors.extend(plinth_api::metadata::annotation_errors(at(template, "metadata.annotations"), here));
    annotations(template, here, errors);
    let spec = template.get("spec").unwrap_or(&nothing);
    validate_spec(spec, "", format_args!("{path}spec."), errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(field::forbidden(format_args!("{path}spec.ephemeralContainers"), why));
    }
}

const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";

const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

pub(crate) fn annotations(object: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let given = object.at(&["metadata", "annotations"]);
    if let Some(value) = given.and_then(|a| a.get(MIRROR_ANNOTATION)).and_then(Value::as_str) {
        if text(object, "spec.nodeName").is_empty() {
            let why = "must set spec.nodeName if mirror pod annotation is set";
            errors.push(field::invalid(format_args!("{path}[{MIRROR_ANNOTATION}]"), value, why));
        }
    }
    if let Some(cost) = given.and_then(|a| a.get(COST)).and_then(Value::as_str) {
        // Upstream accepts no plus sign and no leading zeros.
        let plain = cost == "0" || !cost.trim_start_matches('-').starts_with('0') && !cost.starts_with('+');
        if !plain || cost.parse::<i32>().is_err() {
            errors.push(field::invalid(format_args!("{path}[{COST}]"), cost, "must be a 32bit integer"));
        }
    }
    for (key, value) in given.and_then(Value::as_object).into_iter().flat_map(|all| all.iter()) {
        let value = value.as_str().unwrap_or_default();
        if key == SECCOMP || key.starts_with(SECCOMP_OF_CONTAINER) {
            match value.strip_prefix("localhost/") {
                Some(file) => volume::local_path(file, format_args!("{path}.{key}"), errors),
                None if ["runtime/default", "docker/default", "unconfined"].contains(&value) => {}
                None => {
                    let why = "must be a valid seccomp profile";
                    errors.push(field::invalid(format_args!("{path}.{key}"), value, why));
                }
            }
        }
    }
    app_armor::annotation_errors(object, path, errors);
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
    By(readiness_gates),
    By(scheduling_gates),
    By(scheduling::spread_constraints),
    By(hostname_override),
    Text("serviceAccountName", names::dns1123_subdomain_errors),
    Text("nodeName", names::dns1123_subdomain_errors),
    Range("activeDeadlineSeconds", 1, i32::MAX as i64),
    Text("hostname", names::dns1123_label_errors),
    Text("subdomain", names::dns1123_label_errors),
    By(scheduling::tolerations),
    Each(
        "hostAliases",
        &[By(|a, p, f| address::legacy(text(a, "ip"), format_args!("{p}ip"), f)), By(host_names)],
    ),
    Text("priorityClassName", names::dns1123_subdomain_errors),
    Text("runtimeClassName", names::dns1123_subdomain_errors),
    By(preemption_policy),
    By(overhead),
    By(operating_system),
];

pub(crate) fn validate_spec(spec: &Value, name: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let context = PodContext::of(spec, volume::volumes(spec, name, path, errors));
    container::resource_claims(spec, path, errors);
    container::containers(spec, &context, path, errors);
    container::init_containers(spec, &context, path, errors);
    container::pod_resources(spec, &context, path, errors);
    validate(SPEC_CHECKS, spec, path, errors);
}

/// Validates an ephemeral container where it is like others.
pub(crate) fn ephemeral(
    container: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    container::common(container, context, path, errors);
}

fn dns_config(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_SERVERS: usize = 3;
    const MAX_PATHS: usize = 32;
    const MAX_SEARCH_LENGTH: usize = 2048;
    let (config, here) = (at(spec, "dnsConfig"), format_args!("{path}dnsConfig"));
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(field::required(here, why));
            return;
        }
        if config.is_some_and(|config| list(config, "nameservers").is_empty()) {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(field::required(format_args!("{here}.nameservers"), why));
            return;
        }
    }
    let Some(config) = config else { return };
    let (servers, searches) = (texts(config, "nameservers"), texts(config, "searches"));
    let mut refuse = |key: &str, why: String| {
        errors.push(field::invalid(format_args!("{here}.{key}"), list(config, key).to_vec(), &why));
    };
    if servers.len() > MAX_SERVERS {
        refuse("nameservers", format!("must not have more than {MAX_SERVERS} nameservers"));
    }
    if searches.len() > MAX_PATHS {
        refuse("searches", format!("must not have more than {MAX_PATHS} search paths"));
    }
    if searches.join(" ").len() > MAX_SEARCH_LENGTH {
        let why = format!(
            "must not have more than {MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        );
        refuse("searches", why);
    }
    for (i, server) in servers.iter().enumerate() {
        address::legacy(server, format_args!("{here}.nameservers[{i}]"), errors);
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        check_text(format_args!("{here}.searches[{i}]"), search, names::underscored_subdomain_errors, errors);
    }
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(field::required(format_args!("{here}.options[{i}]"), "must not be empty"));
        }
    }
}

fn readiness_gates(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        let here = format_args!("{path}readinessGates[{i}].conditionType");
        check_text(here, text(gate, "conditionType"), names::qualified_name_errors, errors);
    }
}

fn scheduling_gates(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let (name, here) = (text(gate, "name"), format_args!("{path}schedulingGates[{i}]"));
        check_text(here, name, names::qualified_name_errors, errors);
        if !seen.insert(name) {
            errors.push(field::duplicate(here, name));
        }
    }
}

fn hostname_override(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_LENGTH: usize = 64;
    let Some(name) = at(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    let here = format_args!("{path}hostnameOverride");
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if at(spec, key).and_then(Value::as_bool) == Some(true) {
            errors.push(field::forbidden(here, &format!("may not be specified when {key} is true")));
        }
    }
    if name.len() > MAX_LENGTH {
        errors.push(field::too_long(here, MAX_LENGTH));
    }
    check_text(here, name, names::dns1123_subdomain_errors, errors);
}

fn host_names(alias: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, name) in texts(alias, "hostnames").iter().enumerate() {
        check_text(format_args!("{path}hostnames[{i}]"), name, names::dns1123_subdomain_errors, errors);
    }
}

fn preemption_policy(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if at(spec, "preemptionPolicy").is_some() {
        let policies = &["PreemptLowerPriority", "Never"];
        validate(&[Check::RequiredOneOf("preemptionPolicy", policies)], spec, path, errors);
    }
}

fn overhead(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    if let Some(overhead) = at(spec, "overhead") {
        let requirements = plinth_codec::tree!({ "limits": overhead.clone() });
        let (kind, here) = (Kind::Container, format_args!("{path}overhead"));
        quantities::requirements(&requirements, kind, &BTreeSet::new(), here, errors);
    }
}

fn operating_system(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(os) = at(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.push(field::required(format_args!("{path}os.name"), "")),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            if at(spec, "securityContext.windowsOptions").is_some() {
                errors.push(field::forbidden(format_args!("{path}securityContext.windowsOptions"), why));
            }
            for part in ["initContainers", "containers"] {
                for (i, container) in list(spec, part).iter().enumerate() {
                    if at(container, "securityContext.windowsOptions").is_some() {
                        let here = format_args!("{path}{part}[{i}].securityContext.windowsOptions");
                        errors.push(field::forbidden(here, why));
                    }
                }
            }
        }
        "windows" => not_on_windows(spec, path, errors),
        other => errors.push(field::not_supported(format_args!("{path}os"), other, &["linux", "windows"])),
    }
}

/// Reports fields that are forbidden in a pod for Windows.
fn not_on_windows(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const WHY: &str = "cannot be set for a windows pod";
    const OF_POD: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "shareProcessNamespace",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const OF_CONTAINER: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let is_set = |holder: Option<&Value>, key: &str| match holder.and_then(|holder| at(holder, key)) {
        Some(Value::Bool(flag)) => *flag || !key.starts_with("host"),
        other => !is_empty(other),
    };
    for key in OF_POD {
        let of_spec = matches!(*key, "hostUsers" | "hostPID" | "hostIPC" | "shareProcessNamespace");
        let holder = if of_spec { Some(spec) } else { at(spec, "securityContext") };
        let set = match *key {
            "hostUsers" => at(spec, key).is_some(),
            _ => is_set(holder, key),
        };
        if set {
            let under =
                if matches!(*key, "hostUsers" | "hostPID" | "hostIPC") { "" } else { "securityContext." };
            errors.push(field::forbidden(format_args!("{path}{under}{key}"), WHY));
        }
    }
    for part in ["initContainers", "containers"] {
        for (i, container) in list(spec, part).iter().enumerate() {
            let context = at(container, "securityContext");
            for key in OF_CONTAINER.iter().filter(|key| is_set(context, key)) {
                errors.push(field::forbidden(format_args!("{path}{part}[{i}].securityContext.{key}"), WHY));
            }
        }
    }
}

/// Annotation of mirror pods, which represent static pods of a node.
pub(crate) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
