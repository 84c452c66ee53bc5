//! Validation of containers.

use std::collections::HashSet;

use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Value};

use crate::checks::ports::{port_name_errors, PROTOCOLS};
use crate::checks::quantities::{self, Kind};
use crate::checks::Check::{
    self, AtMostItems, By, Each, Enum, ExactlyOne, In, MustBe, OneOf, OptionalText, Port, Required,
    RequiredText, Set, Text,
};
use crate::checks::{Part, PartError};
use crate::path::{at, text};
use crate::pod_template::env::{ENV_FROM, VARIABLE};
use crate::pod_template::file_paths::{has_backsteps, local_path};
use crate::pod_template::pod_context::PodContext;
use crate::pod_template::volume::PULL_POLICIES;
use crate::pod_template::{handler, security};

const COMMON: &[Check] = &[
    RequiredText("name", names::dns1123_label_errors),
    Required("image", ""),
    OneOf("terminationMessagePolicy", &["File", "FallbackToLogsOnError"]),
    By(ports),
    Each("env", VARIABLE),
    Each("envFrom", ENV_FROM),
];

/// Validates what regular, init and ephemeral containers have in common.
pub(crate) fn common(container: &Part<'_>, context: &PodContext<'_>) {
    container.check(COMMON);
    mounts(container, context);
    devices(container, context);
    container.check(&[OneOf("imagePullPolicy", PULL_POLICIES)]);
    if let Some(resources) = container.get("resources") {
        quantities::requirements(&resources, Kind::Container, &context.claims);
    }
    resize_policy(container, context);
    security::validate_container(container, context.host_users);
}

/// Validates the regular containers.
pub(crate) fn containers(spec: &Part<'_>, context: &PodContext<'_>) {
    if spec.list("containers").is_empty() {
        spec.required("containers", "");
    }
    let (mut seen, mut host_ports) = (HashSet::new(), HashSet::new());
    for container in spec.each("containers") {
        common(&container, context);
        container.unique("name", container.text("name"), &mut seen);
        handler::handlers(&container, context);
        restart_policy(&container);
    }
    for container in spec.each("containers") {
        unique_host_ports(&container, &mut host_ports);
    }
}

/// Validates init containers, including sidecars.
pub(crate) fn init_containers(spec: &Part<'_>, context: &PodContext<'_>) {
    const WHY: &str = "may not be set for init containers without restartPolicy=Always";
    let mut seen: HashSet<&str> = spec.list("containers").iter().map(|c| text(c, "name")).collect();
    for container in spec.each("initContainers") {
        common(&container, context);
        restart_policy(&container);
        let name = container.text("name");
        if !name.is_empty() && !seen.insert(name) {
            container.duplicate("name", name);
        }
        // Upstream validates them one at a time, so the index is always 0.
        let first = container.in_place_of(spec, "initContainers[0]");
        unique_host_ports(&first, &mut HashSet::new());
        if container.text("restartPolicy") == "Always" {
            handler::handlers(&container, context);
            continue;
        }
        container.forbid_each(&["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"], WHY);
        for policy in container.each("resizePolicy") {
            if policy.text("restartPolicy") == "RestartContainer" {
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                policy.invalid("restartPolicy", "RestartContainer", why);
            }
        }
    }
}

/// Image names may not have leading or trailing white space.
pub(crate) fn images(spec: &Part<'_>) {
    for container in ["containers", "initContainers"].into_iter().flat_map(|part| spec.each(part)) {
        let image = container.text("image");
        if image.trim() != image {
            container.invalid("image", image, "must not have leading or trailing whitespace");
        }
    }
}

fn ports(container: &Part<'_>) {
    let mut seen = HashSet::new();
    for port in container.each("ports") {
        let name = port.text("name");
        if !name.is_empty() && port_name_errors(name).is_empty() {
            port.unique("name", name, &mut seen);
        }
        port.check(&[Text("name", port_name_errors)]);
        match port.number("containerPort") {
            0 => port.required("containerPort", ""),
            _ => port.check(&[Port("containerPort")]),
        }
        if port.number("hostPort") != 0 {
            port.check(&[Port("hostPort")]);
        }
        port.check(&[OneOf("protocol", PROTOCOLS)]);
    }
}

fn unique_host_ports(container: &Part<'_>, seen: &mut HashSet<String>) {
    for port in container.each("ports").filter(|port| port.number("hostPort") != 0) {
        let key = format!("{}/{}/{}", port.text("protocol"), port.text("hostIP"), port.number("hostPort"));
        if !seen.insert(key.clone()) {
            port.duplicate("hostPort", key);
        }
    }
}

/// The values of a field in the elements of a list.
fn members<'a>(holder: &Part<'a>, list: &str, key: &str) -> HashSet<&'a str> {
    holder.list(list).iter().map(|element| text(element, key)).collect()
}

fn mounts(container: &Part<'_>, context: &PodContext<'_>) {
    let mut points = HashSet::new();
    let [device_names, device_paths] =
        ["name", "devicePath"].map(|key| members(container, "volumeDevices", key));
    for mount in container.each("volumeMounts") {
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        mount.check(&[Required("name", "")]);
        if context.volume(name).is_none() {
            mount.not_found("name", name);
        }
        mount.check(&[Required("mountPath", "")]);
        if !points.insert(point) {
            mount.invalid("mountPath", point, "must be unique");
        }
        if device_names.contains(name) {
            mount.invalid("name", name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(point) {
            mount.invalid("mountPath", point, "must not already exist as a path in volumeDevices");
        }
        // Upstream omits the index in these paths.
        let indexless = mount.in_place_of(container, "volumeMounts");
        indexless.apply("subPath", local_path);
        let expression = mount.text("subPathExpr");
        if !mount.text("subPath").is_empty() && !expression.is_empty() {
            mount.invalid("subPathExpr", expression, "subPathExpr and subPath are mutually exclusive");
        }
        indexless.apply("subPathExpr", local_path);
        propagation(&indexless, container.is_true("securityContext.privileged"));
    }
}

fn propagation(mount: &Part<'_>, privileged: bool) {
    mount.check(&[Enum("mountPropagation", &["Bidirectional", "HostToContainer", "None"])]);
    let mode = mount.set_text("mountPropagation");
    if mode == Some("Bidirectional") && !privileged {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        mount.forbidden("mountPropagation", why);
    }
    match mount.set_text("recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.is_true("readOnly") {
                mount.forbidden("recursiveReadOnly", "may only be specified when readOnly is true");
            }
            if mode.is_some_and(|mode| mode != "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                mount.forbidden("recursiveReadOnly", why);
            }
        }
        Some(_) => mount.one_of("recursiveReadOnly", &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(container: &Part<'_>, context: &PodContext<'_>) {
    const NOT_BLOCK: &str =
        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
    let (mut names_seen, mut paths_seen) = (HashSet::new(), HashSet::new());
    let [mount_names, mount_paths] = ["name", "mountPath"].map(|key| members(container, "volumeMounts", key));
    for device in container.each("volumeDevices") {
        let (name, file) = (device.text("name"), device.text("devicePath"));
        if names_seen.contains(name) {
            device.invalid("name", name, "must be unique");
        }
        match context.volume(name) {
            Some(volume)
                if ["persistentVolumeClaim", "ephemeral"].iter().all(|key| at(volume, key).is_none()) =>
            {
                device.invalid("name", name, NOT_BLOCK);
            }
            Some(_) => {}
            None => {
                device.check(&[Required("name", "")]);
                device.not_found("name", name);
            }
        }
        if paths_seen.contains(file) {
            device.invalid("devicePath", file, "must be unique");
        }
        match has_backsteps(file) {
            true => device.invalid("devicePath", file, "can not contain backsteps ('..')"),
            false => drop(paths_seen.insert(file)),
        }
        if mount_names.contains(name) {
            device.invalid("name", name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(file) {
            device.invalid("devicePath", file, "must not already exist as a path in volumeMounts");
        }
        device.check(&[Required("devicePath", "")]);
        if !name.is_empty() {
            names_seen.insert(name);
        }
    }
}

fn resize_policy(container: &Part<'_>, context: &PodContext<'_>) {
    let mut seen = HashSet::new();
    for policy in container.each("resizePolicy") {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        policy.unique("", resource, &mut seen);
        // Upstream reports the path of the list.
        let list = container.field("resizePolicy");
        for (given, supported) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            match given {
                "" => list.required("", ""),
                _ if !supported.contains(&given) => list.not_supported("", given, &supported),
                _ => {}
            }
        }
        if context.restart == "Never" && restart != "NotRequired" {
            list.invalid("", restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_policy(container: &Part<'_>) {
    if !container.has("restartPolicy") && !container.list("restartPolicyRules").is_empty() {
        container.required("restartPolicy", "must specify restartPolicy when restart rules are used");
    }
    container.check(&[Enum("restartPolicy", &["Always", "Never", "OnFailure"])]);
    container.check(&[
        AtMostItems("restartPolicyRules", 20, &[]),
        Each(
            "restartPolicyRules",
            &[
                MustBe("action", &["Restart", "RestartAllContainers"]),
                Set("exitCodes", "must be specified"),
                In("exitCodes", &[MustBe("operator", &["In", "NotIn"]), AtMostItems("values", 255, &[])]),
            ],
        ),
    ]);
}

/// Validates pod-level resources against those of the containers.
pub(crate) fn pod_resources(spec: &Part<'_>, context: &PodContext<'_>) {
    let Some(resources) = spec.get("resources") else { return };
    if context.os == Some("windows") {
        resources.forbidden("", "may not be set for a windows pod");
        return;
    }
    resources.forbid_each(&["claims"], "claims may not be set for Resources at pod-level");
    quantities::requirements(&resources, Kind::Pod, &context.claims);
    for (i, container) in spec.each("containers").enumerate() {
        for (name, limit) in container.members("resources.limits") {
            let most = resources.at("limits").and_then(|l| l.get(name)).and_then(Value::as_str);
            let (Some(most), Some(limit)) = (most, limit.as_str()) else { continue };
            if Quantity::parse(limit).ok() > Quantity::parse(most).ok() {
                let why = format!("must be less than or equal to pod limits of {most}");
                resources.invalid(format_args!("containers[{i}][{name}].limits"), limit, &why);
            }
        }
    }
}

const CLAIM_SOURCE: &[Check] = &[
    ExactlyOne(
        &["resourceClaimName", "resourceClaimTemplateName"],
        PartError::Invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        PartError::Invalid(
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        &[],
    ),
    OptionalText("resourceClaimName", names::dns1123_subdomain_errors),
    OptionalText("resourceClaimTemplateName", names::dns1123_subdomain_errors),
];

/// Validates `resourceClaims`.
pub(crate) fn resource_claims(spec: &Part<'_>) {
    let mut seen = HashSet::new();
    for claim in spec.each("resourceClaims") {
        let name = claim.text("name");
        match seen.contains(name) {
            true => claim.duplicate("name", name),
            false => claim.check(&[RequiredText("name", names::dns1123_label_errors)]),
        }
        if !name.is_empty() {
            seen.insert(name);
        }
        claim.check(CLAIM_SOURCE);
    }
}
