//! Validation of containers.

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::ports::{port_name_errors, PROTOCOLS};
use crate::checks::quantities::Kind;
use crate::checks::Check::{self, By, Each, MustBe, OneOf, Port, Required, RequiredText};
use crate::checks::{check_text, quantities, validate};
use crate::path::{at, int, list, text};
use crate::pod_template::env::{self, VARIABLE};
use crate::pod_template::volume::{local_path, no_backsteps};
use crate::pod_template::{handler, security, PodContext};

/// Valid image pull policies.
pub(crate) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

const NAMED: &[Check] = &[
    RequiredText("name", names::dns1123_label_errors),
    Required("image", ""),
    OneOf("terminationMessagePolicy", &["File", "FallbackToLogsOnError"]),
    By(ports),
    Each("env", VARIABLE),
    By(|container, path, errors| {
        for (i, source) in list(container, "envFrom").iter().enumerate() {
            env::env_from(source, format_args!("{path}envFrom"), i, errors);
        }
    }),
];

/// Validates what regular, init and ephemeral containers have in common.
pub(crate) fn common(
    container: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    validate(NAMED, container, path, errors);
    mounts(container, context, path, errors);
    devices(container, context, path, errors);
    validate(&[OneOf("imagePullPolicy", PULL_POLICIES)], container, path, errors);
    if let Some(resources) = at(container, "resources") {
        quantities::requirements(
            resources,
            Kind::Container,
            &context.claims,
            format_args!("{path}resources"),
            errors,
        );
    }
    resize_policy(container, context, path, errors);
    security::validate_container(container, context.host_users, path, errors);
}

/// Validates the regular containers.
pub(crate) fn containers(
    spec: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let all = list(spec, "containers");
    if all.is_empty() {
        errors.push(field::required(format_args!("{path}containers"), ""));
        return;
    }
    let (mut seen, mut host_ports) = (HashSet::new(), HashSet::new());
    for (i, container) in all.iter().enumerate() {
        let path = format_args!("{path}containers[{i}].");
        common(container, context, path, errors);
        if !seen.insert(text(container, "name")) {
            errors.push(field::duplicate(format_args!("{path}name"), text(container, "name")));
        }
        handler::handlers(container, context, path, errors);
        restart_policy(container, path, errors);
    }
    for (i, container) in all.iter().enumerate() {
        unique_host_ports(container, &mut host_ports, format_args!("{path}containers[{i}]."), errors);
    }
}

/// Validates init containers, including sidecars.
pub(crate) fn init_containers(
    spec: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    const WHY: &str = "may not be set for init containers without restartPolicy=Always";
    let mut seen: HashSet<&str> = list(spec, "containers").iter().map(|c| text(c, "name")).collect();
    for (i, container) in list(spec, "initContainers").iter().enumerate() {
        let here = format_args!("{path}initContainers[{i}].");
        common(container, context, here, errors);
        restart_policy(container, here, errors);
        let name = text(container, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{here}name"), name));
        }
        // Upstream validates them one at a time, so the index is always 0.
        unique_host_ports(container, &mut HashSet::new(), format_args!("{path}initContainers[0]."), errors);
        if text(container, "restartPolicy") == "Always" {
            handler::handlers(container, context, here, errors);
            continue;
        }
        for part in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if at(container, part).is_some() {
                errors.push(field::forbidden(format_args!("{here}{part}"), WHY));
            }
        }
        for (j, policy) in list(container, "resizePolicy").iter().enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let path = format_args!("{here}resizePolicy[{j}].restartPolicy");
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(field::invalid(path, "RestartContainer", why));
            }
        }
    }
}

/// Image names may not have leading or trailing white space.
pub(crate) fn images(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for part in ["containers", "initContainers"] {
        for (i, container) in list(spec, part).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.push(field::invalid(format_args!("{path}{part}[{i}].image"), image, why));
            }
        }
    }
}

fn ports(container: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, port) in list(container, "ports").iter().enumerate() {
        let path = format_args!("{path}ports[{i}].");
        let name = text(port, "name");
        let bad = if name.is_empty() { Vec::new() } else { port_name_errors(name) };
        if bad.is_empty() && !name.is_empty() && !seen.insert(name) {
            errors.push(field::duplicate(format_args!("{path}name"), name));
        }
        errors.extend(bad.iter().map(|why| field::invalid(format_args!("{path}name"), name, why)));
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.push(field::required(format_args!("{path}containerPort"), "")),
            _ => validate(&[Port("containerPort")], port, path, errors),
        }
        if int(port, "hostPort").is_some_and(|number| number != 0) {
            validate(&[Port("hostPort")], port, path, errors);
        }
        validate(&[OneOf("protocol", PROTOCOLS)], port, path, errors);
    }
}

fn unique_host_ports(
    container: &Value,
    seen: &mut HashSet<String>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    for (i, port) in list(container, "ports").iter().enumerate() {
        let Some(number) = int(port, "hostPort").filter(|number| *number != 0) else { continue };
        let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if !seen.insert(key.clone()) {
            errors.push(field::duplicate(format_args!("{path}ports[{i}].hostPort"), key));
        }
    }
}

/// The values of a field in the elements of a list.
fn members<'a>(holder: &'a Value, list_key: &str, key: &str) -> HashSet<&'a str> {
    list(holder, list_key).iter().map(|element| text(element, key)).collect()
}

fn mounts(container: &Value, context: &PodContext<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut points = HashSet::new();
    let [device_names, device_paths] =
        ["name", "devicePath"].map(|key| members(container, "volumeDevices", key));
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let (list_path, here) =
            (format_args!("{path}volumeMounts"), format_args!("{path}volumeMounts[{i}]."));
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        validate(&[Required("name", "")], mount, here, errors);
        if context.volume(name).is_none() {
            errors.push(field::not_found(format_args!("{here}name"), name));
        }
        validate(&[Required("mountPath", "")], mount, here, errors);
        if !points.insert(point) {
            errors.push(field::invalid(format_args!("{here}mountPath"), point, "must be unique"));
        }
        if device_names.contains(name) {
            errors.push(field::invalid(
                format_args!("{here}name"),
                name,
                "must not already exist in volumeDevices",
            ));
        }
        if device_paths.contains(point) {
            let why = "must not already exist as a path in volumeDevices";
            errors.push(field::invalid(format_args!("{here}mountPath"), point, why));
        }
        let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        // Upstream omits the index in these paths.
        local_path(sub, format_args!("{list_path}.subPath"), errors);
        if !sub.is_empty() && !expression.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.push(field::invalid(format_args!("{here}subPathExpr"), expression, why));
        }
        local_path(expression, format_args!("{list_path}.subPathExpr"), errors);
        propagation(mount, container, list_path, errors);
    }
}

fn propagation(mount: &Value, container: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    let mode = at(mount, "mountPropagation").and_then(Value::as_str);
    if let Some(mode) = mode {
        let here = format_args!("{path}.mountPropagation");
        if !MODES.contains(&mode) {
            errors.push(field::not_supported(here, mode, MODES));
        }
        let privileged = at(container, "securityContext.privileged").and_then(Value::as_bool) == Some(true);
        if mode == "Bidirectional" && !privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(field::forbidden(here, why));
        }
    }
    let here = format_args!("{path}.recursiveReadOnly");
    match at(mount, "recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if at(mount, "readOnly").and_then(Value::as_bool) != Some(true) {
                errors.push(field::forbidden(here, "may only be specified when readOnly is true"));
            }
            if mode.is_some_and(|mode| mode != "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                errors.push(field::forbidden(here, why));
            }
        }
        Some(other) => {
            errors.push(field::not_supported(here, other, &["Disabled", "Enabled", "IfPossible"]));
        }
    }
}

fn devices(container: &Value, context: &PodContext<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (mut names_seen, mut paths_seen) = (HashSet::new(), HashSet::new());
    let [mount_names, mount_paths] = ["name", "mountPath"].map(|key| members(container, "volumeMounts", key));
    for (i, device) in list(container, "volumeDevices").iter().enumerate() {
        let here = format_args!("{path}volumeDevices[{i}].");
        let (name, file) = (text(device, "name"), text(device, "devicePath"));
        let mut refuse = |key: &str, value: &str, why: &str| {
            errors.push(field::invalid(format_args!("{here}{key}"), value, why));
        };
        if names_seen.contains(name) {
            refuse("name", name, "must be unique");
        }
        match context.volume(name) {
            Some(volume)
                if at(volume, "persistentVolumeClaim").is_none() && at(volume, "ephemeral").is_none() =>
            {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                refuse("name", name, why);
            }
            Some(_) => {}
            None => {
                if name.is_empty() {
                    errors.push(field::required(format_args!("{here}name"), ""));
                }
                errors.push(field::not_found(format_args!("{here}name"), name));
            }
        }
        let mut refuse = |key: &str, value: &str, why: &str| {
            errors.push(field::invalid(format_args!("{here}{key}"), value, why));
        };
        if paths_seen.contains(file) {
            refuse("devicePath", file, "must be unique");
        }
        let mut outside = Vec::new();
        no_backsteps(file, format_args!(""), &mut outside);
        match outside.is_empty() {
            true => drop(paths_seen.insert(file)),
            false => refuse("devicePath", file, "can not contain backsteps ('..')"),
        }
        if mount_names.contains(name) {
            refuse("name", name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(file) {
            refuse("devicePath", file, "must not already exist as a path in volumeMounts");
        }
        if file.is_empty() {
            errors.push(field::required(format_args!("{here}devicePath"), ""));
        }
        if !name.is_empty() {
            names_seen.insert(name);
        }
    }
}

fn resize_policy(container: &Value, context: &PodContext<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (mut seen, path) = (HashSet::new(), format_args!("{path}resizePolicy"));
    for (i, policy) in list(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.push(field::duplicate(format_args!("{path}[{i}]"), resource));
        }
        // Upstream reports the path of the list.
        let rows: [(&str, &[&str]); 2] =
            [(resource, &["cpu", "memory"]), (restart, &["NotRequired", "RestartContainer"])];
        for (given, supported) in rows {
            match given {
                "" => errors.push(field::required(path, "")),
                _ if !supported.contains(&given) => {
                    errors.push(field::not_supported(path, given, supported));
                }
                _ => {}
            }
        }
        if context.restart == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(field::invalid(path, restart, why));
        }
    }
}

fn restart_policy(container: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 20;
    let rules = list(container, "restartPolicyRules");
    match at(container, "restartPolicy") {
        None if !rules.is_empty() => {
            let why = "must specify restartPolicy when restart rules are used";
            errors.push(field::required(format_args!("{path}restartPolicy"), why));
        }
        None => {}
        Some(_) => {
            validate(&[MustBe("restartPolicy", &["Always", "Never", "OnFailure"])], container, path, errors);
        }
    }
    if rules.len() > MAX {
        errors.push(field::too_many(format_args!("{path}restartPolicyRules"), rules.len(), MAX));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = format_args!("{path}restartPolicyRules[{i}].");
        validate(&[MustBe("action", &["Restart", "RestartAllContainers"])], rule, path, errors);
        match at(rule, "exitCodes") {
            None => errors.push(field::required(format_args!("{path}exitCodes"), "must be specified")),
            Some(codes) => {
                let path = format_args!("{path}exitCodes.");
                validate(&[MustBe("operator", &["In", "NotIn"])], codes, path, errors);
                let count = list(codes, "values").len();
                if count > 255 {
                    errors.push(field::too_many(format_args!("{path}values"), count, 255));
                }
            }
        }
    }
}

/// Validates pod-level resources against those of the containers.
pub(crate) fn pod_resources(
    spec: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let Some(resources) = at(spec, "resources") else { return };
    let here = format_args!("{path}resources");
    if context.os == Some("windows") {
        errors.push(field::forbidden(here, "may not be set for a windows pod"));
        return;
    }
    if at(resources, "claims").is_some() {
        let why = "claims may not be set for Resources at pod-level";
        errors.push(field::forbidden(format_args!("{here}.claims"), why));
    }
    quantities::requirements(resources, Kind::Pod, &context.claims, here, errors);
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let limits = at(container, "resources.limits").and_then(Value::as_object);
        for (name, limit) in limits.into_iter().flat_map(plinth_codec::Map::iter) {
            let most = at(resources, "limits").and_then(|l| l.get(name)).and_then(Value::as_str);
            let (Some(most), Some(limit)) = (most, limit.as_str()) else { continue };
            if Quantity::parse(limit).ok() > Quantity::parse(most).ok() {
                let why = format!("must be less than or equal to pod limits of {most}");
                errors.push(field::invalid(
                    format_args!("{here}.containers[{i}][{name}].limits"),
                    limit,
                    &why,
                ));
            }
        }
    }
}

/// Validates `resourceClaims`.
pub(crate) fn resource_claims(spec: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let here = format_args!("{path}resourceClaims[{i}]");
        let name = text(claim, "name");
        if seen.contains(name) {
            errors.push(field::duplicate(format_args!("{here}.name"), name));
        } else {
            validate(
                &[RequiredText("name", names::dns1123_label_errors)],
                claim,
                format_args!("{here}."),
                errors,
            );
        }
        if !name.is_empty() {
            seen.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|key| at(claim, key).is_some()).count() {
            0 => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.push(field::invalid(here, claim.clone(), why));
            }
            1 => {}
            _ => {
                let why =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.push(field::invalid(here, claim.clone(), why));
            }
        }
        for key in sources {
            if let Some(name) = at(claim, key).and_then(Value::as_str) {
                check_text(format_args!("{here}.{key}"), name, names::dns1123_subdomain_errors, errors);
            }
        }
    }
}
