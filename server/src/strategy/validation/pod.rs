//! Pods and pod templates.

use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use super::Check::{Amounts, AtLeast, By, Each, In, Labels, Name, Need, OneOf, Port, Text, Unique};
use super::{at, list, text, Check};
use crate::field;
use crate::status::Cause;

const POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// A Pod.
pub const POD: &[Check] = &[By(at_spec)];

/// A pod template; its spec has to be there.
pub const TEMPLATE: &[Check] = &[Labels("metadata.labels"), By(at_spec)];

fn at_spec(object: &Value, path: &str, faults: &mut Vec<Cause>) {
    let nothing = Value::object();
    super::validate(SPEC, object.get("spec").unwrap_or(&nothing), &format!("{path}spec."), faults);
}

const SPEC: &[Check] = &[
    Unique("volumes", "name"),
    Each("volumes", &[Name("name", names::dns1123_label_faults), By(one_source)]),
    Need("containers", ""),
    Each("containers", CONTAINER),
    Unique("containers", "name"),
    Each("initContainers", CONTAINER),
    Unique("initContainers", "name"),
    OneOf("restartPolicy", POLICIES),
    OneOf("dnsPolicy", DNS_POLICIES),
    Labels("nodeSelector"),
    By(mounts),
    Text("serviceAccountName", names::dns1123_subdomain_faults),
    Text("nodeName", names::dns1123_subdomain_faults),
    Text("hostname", names::dns1123_label_faults),
    AtLeast("activeDeadlineSeconds", 1),
    AtLeast("terminationGracePeriodSeconds", 0),
    Each("imagePullSecrets", &[Need("name", "")]),
];

const CONTAINER: &[Check] = &[
    Name("name", names::dns1123_label_faults),
    By(image),
    In("livenessProbe", PROBE),
    In("readinessProbe", PROBE),
    In("startupProbe", PROBE),
    Each(
        "ports",
        &[Text("name", port_name_faults), By(container_port), Port("hostPort"), OneOf("protocol", PROTOCOLS)],
    ),
    Unique("ports", "name"),
    Each("env", &[By(variable)]),
    Each("volumeMounts", &[Need("name", ""), Need("mountPath", "")]),
    OneOf("imagePullPolicy", PULL_POLICIES),
    OneOf("terminationMessagePolicy", &["FallbackToLogsOnError", "File"]),
    Amounts("resources.limits"),
    Amounts("resources.requests"),
    By(requests_within_limits),
];

/// What a container of its own and one that is put into a running pod have in common.
pub const EPHEMERAL: &[Check] = &[
    Name("name", names::dns1123_label_faults),
    By(image),
    Each("env", &[By(variable)]),
    Each("volumeMounts", &[Need("name", ""), Need("mountPath", "")]),
    OneOf("imagePullPolicy", PULL_POLICIES),
    OneOf("terminationMessagePolicy", &["FallbackToLogsOnError", "File"]),
];

const PROBE: &[Check] = &[
    By(handler),
    AtLeast("initialDelaySeconds", 0),
    AtLeast("timeoutSeconds", 0),
    AtLeast("periodSeconds", 0),
    AtLeast("successThreshold", 0),
    AtLeast("failureThreshold", 0),
];

const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

fn handler(probe: &Value, path: &str, faults: &mut Vec<Cause>) {
    let given: Vec<&str> = HANDLERS.into_iter().filter(|key| at(probe, key).is_some()).collect();
    let parent = path.trim_end_matches('.');
    if given.is_empty() {
        faults.push(field::required(parent, "must specify a handler type"));
    }
    for extra in given.iter().skip(1) {
        faults.push(field::forbidden(format!("{path}{extra}"), "may not specify more than 1 handler type"));
    }
    match given.first() {
        Some(&"exec") if list(probe, "exec.command").is_empty() => {
            faults.push(field::required(format!("{path}exec.command"), ""));
        }
        Some(&"httpGet") => {
            super::validate(
                &[Need("httpGet.path", ""), OneOf("httpGet.scheme", &["HTTP", "HTTPS"])],
                probe,
                path,
                faults,
            );
            port_or_name(at(probe, "httpGet.port"), &format!("{path}httpGet.port"), faults);
        }
        Some(&"tcpSocket") => {
            port_or_name(at(probe, "tcpSocket.port"), &format!("{path}tcpSocket.port"), faults)
        }
        _ => {}
    }
}

/// A port by number or by name.
pub(super) fn port_or_name(port: Option<&Value>, path: &str, faults: &mut Vec<Cause>) {
    match port {
        Some(Value::String(name)) => {
            faults.extend(port_name_faults(name).iter().map(|why| field::invalid(path, name.clone(), why)));
        }
        other => {
            let number = other.and_then(Value::as_int).unwrap_or(0);
            if !super::is_port(number) {
                faults.push(field::invalid(path, number, super::PORT));
            }
        }
    }
}

/// The name of a port as IANA has service names.
pub(super) fn port_name_faults(name: &str) -> Vec<String> {
    const MOST: usize = 15;
    let mut faults = Vec::new();
    if name.len() > MOST {
        faults.push(format!("must be no more than {MOST} characters"));
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".into());
    }
    faults
}

fn image(container: &Value, path: &str, faults: &mut Vec<Cause>) {
    let image = text(container, "image");
    if image.is_empty() {
        faults.push(field::required(format!("{path}image"), ""));
    } else if image.trim() != image {
        faults.push(field::invalid(
            format!("{path}image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
}

fn container_port(port: &Value, path: &str, faults: &mut Vec<Cause>) {
    let number = at(port, "containerPort").and_then(Value::as_int).unwrap_or(0);
    if number == 0 {
        faults.push(field::required(format!("{path}containerPort"), ""));
    } else if !super::is_port(number) {
        faults.push(field::invalid(format!("{path}containerPort"), number, super::PORT));
    }
}

fn variable(variable: &Value, path: &str, faults: &mut Vec<Cause>) {
    const WHY: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    let name = text(variable, "name");
    if name.is_empty() {
        faults.push(field::required(format!("{path}name"), ""));
    } else if name.contains('=') || !name.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        faults.push(field::invalid(format!("{path}name"), name, WHY));
    }
    let Some(source) = at(variable, "valueFrom") else { return };
    let sources = source.as_object().into_iter().flat_map(Map::iter).filter(|(_, v)| !v.is_null()).count();
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        faults.push(field::invalid(format!("{path}valueFrom"), "", why));
    } else if !text(variable, "value").is_empty() {
        faults.push(field::invalid(
            format!("{path}valueFrom"),
            "",
            "may not be specified when `value` is not empty",
        ));
    } else if sources > 1 {
        faults.push(field::invalid(
            format!("{path}valueFrom"),
            "",
            "may not have more than one field specified at a time",
        ));
    }
}

fn requests_within_limits(container: &Value, path: &str, faults: &mut Vec<Cause>) {
    let amounts = |part: &str| at(container, part).and_then(Value::as_object);
    let Some(requests) = amounts("resources.requests") else { return };
    for (name, request) in requests.iter() {
        let limit = amounts("resources.limits").and_then(|limits| limits.get(name));
        let (Some(limit), Some(request)) = (limit.and_then(Value::as_str), request.as_str()) else {
            continue;
        };
        let (Ok(most), Ok(asked)) = (Quantity::parse(limit), Quantity::parse(request)) else { continue };
        if asked > most {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            faults.push(field::invalid(format!("{path}resources.requests"), request, &why));
        }
    }
}

/// A volume has one source; the default gives one to those that name none.
fn one_source(volume: &Value, path: &str, faults: &mut Vec<Cause>) {
    let sources =
        volume.as_object().into_iter().flat_map(Map::iter).filter(|(key, v)| *key != "name" && !v.is_null());
    let mut named: Vec<&str> = sources.map(|(key, _)| key.as_str()).collect();
    // Upstream looks at emptyDir first, hostPath next.
    named.sort_by_key(|key| (*key != "emptyDir", *key != "hostPath"));
    for extra in named.iter().skip(1) {
        faults.push(field::forbidden(format!("{path}{extra}"), "may not specify more than 1 volume type"));
    }
}

fn mounts(spec: &Value, path: &str, faults: &mut Vec<Cause>) {
    let volumes: Vec<&str> = list(spec, "volumes").iter().map(|volume| text(volume, "name")).collect();
    for part in ["containers", "initContainers"] {
        for (i, container) in list(spec, part).iter().enumerate() {
            for (j, mount) in list(container, "volumeMounts").iter().enumerate() {
                let name = text(mount, "name");
                if !name.is_empty() && !volumes.contains(&name) {
                    faults.push(field::not_found(format!("{path}{part}[{i}].volumeMounts[{j}].name"), name));
                }
            }
        }
    }
}
