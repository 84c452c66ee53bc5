//! What a resource does that others don't: a row of facts and hooks per resource.
//!
//! The verb handlers ask the row; a resource without a row follows [`BASE`]. Facts are upstream's registry
//! strategies (kubernetes `pkg/registry/*/strategy.go`).

use plinth_codec::Value;

use crate::status::Cause;

/// Which names an object may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain: labels separated by dots, 253 characters.
    Subdomain,
    /// DNS label: 63 characters, no dots.
    Label,
    /// DNS label that starts with a letter (RFC 1035).
    Label1035,
    /// Anything that fits into a path segment.
    PathSegment,
}

/// How an object goes when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// At once, unless finalizers hold it.
    Plain,
    /// After its grace period, when it is bound to a node and runs.
    Pod,
    /// When its content is gone and its lifecycle finalizer removed.
    Namespace,
}

/// What a resource does.
#[derive(Debug)]
pub struct Strategy {
    /// Which names its objects may have.
    pub name: NameRule,
    /// Whether `metadata.generation` counts changes of anything but metadata and status.
    pub generation: bool,
    /// Whether `metadata.generation` counts changes of annotations too.
    pub generation_of_annotations: bool,
    /// Whether PUT of an absent object creates it.
    pub create_on_update: bool,
    /// Whether PUT may come without a resourceVersion.
    pub unconditional_update: bool,
    /// How its objects go.
    pub deletion: Deletion,
    /// Whether DELETE answers the object and not a Status (upstream's `ReturnDeletedObject`).
    pub answers_deleted_object: bool,
    /// Whether the garbage collector's finalizers apply.
    pub collected: bool,
    /// Whether dependents are orphaned unless the client says otherwise.
    pub orphans_by_default: bool,
    /// Fills what the client left out; runs on create, update and before every comparison.
    pub default: fn(&mut Value),
    /// Clears what a client may not set at create and fills what the server sets.
    pub prepare_for_create: fn(&mut Value),
    /// Clears what a client may not change; `new` and `old` are in the storage version.
    pub prepare_for_update: fn(new: &mut Value, old: &Value),
    /// Faults of an object as it stands.
    pub validate: fn(&Value) -> Vec<Cause>,
    /// Faults of a change.
    pub validate_update: fn(new: &Value, old: &Value) -> Vec<Cause>,
}

/// What most resources do.
pub const BASE: Strategy = Strategy {
    name: NameRule::Subdomain,
    generation: false,
    generation_of_annotations: false,
    create_on_update: false,
    unconditional_update: true,
    deletion: Deletion::Plain,
    answers_deleted_object: false,
    collected: true,
    orphans_by_default: false,
    default: |_| {},
    prepare_for_create: |_| {},
    prepare_for_update: |_, _| {},
    validate: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
};

const GENERATION: Strategy = Strategy { generation: true, ..BASE };
const CONDITIONAL: Strategy = Strategy { unconditional_update: false, ..BASE };
const POLICY: Strategy = Strategy { generation: true, unconditional_update: false, ..BASE };
const RBAC: Strategy = Strategy { name: NameRule::PathSegment, create_on_update: true, ..BASE };
const CREATE_ON_UPDATE: Strategy = Strategy { create_on_update: true, ..BASE };
/// Events are second-class: no finalizers of the collector.
const EVENTS: Strategy = Strategy { create_on_update: true, collected: false, ..BASE };

/// Group, plural and row.
type Row = (&'static str, &'static str, Strategy);

static ROWS: &[Row] = &[
    ("", "configmaps", Strategy { validate: data::validate, ..BASE }),
    ("", "endpoints", CREATE_ON_UPDATE),
    ("", "events", EVENTS),
    ("", "limitranges", CREATE_ON_UPDATE),
    (
        "",
        "namespaces",
        Strategy {
            name: NameRule::Label,
            deletion: Deletion::Namespace,
            answers_deleted_object: true,
            prepare_for_create: namespace::prepare_for_create,
            ..BASE
        },
    ),
    ("", "pods", Strategy { deletion: Deletion::Pod, answers_deleted_object: true, ..GENERATION }),
    ("", "podtemplates", Strategy { answers_deleted_object: true, ..GENERATION }),
    ("", "replicationcontrollers", Strategy { orphans_by_default: true, ..GENERATION }),
    ("", "secrets", Strategy { validate: data::validate, ..BASE }),
    ("", "resourcequotas", Strategy { answers_deleted_object: true, ..BASE }),
    ("", "serviceaccounts", Strategy { answers_deleted_object: true, ..BASE }),
    (
        "",
        "services",
        Strategy { name: NameRule::Label1035, create_on_update: true, answers_deleted_object: true, ..BASE },
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", POLICY),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", POLICY),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", POLICY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", POLICY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", POLICY),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", POLICY),
    ("apiextensions.k8s.io", "customresourcedefinitions", POLICY),
    ("apps", "daemonsets", GENERATION),
    ("apps", "deployments", Strategy { generation: true, generation_of_annotations: true, ..BASE }),
    ("apps", "replicasets", GENERATION),
    ("apps", "statefulsets", GENERATION),
    ("batch", "cronjobs", GENERATION),
    ("batch", "jobs", Strategy { orphans_by_default: true, ..GENERATION }),
    (
        "coordination.k8s.io",
        "leases",
        Strategy { create_on_update: true, unconditional_update: false, ..BASE },
    ),
    ("discovery.k8s.io", "endpointslices", GENERATION),
    ("events.k8s.io", "events", EVENTS),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", GENERATION),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", GENERATION),
    ("networking.k8s.io", "ingresses", GENERATION),
    ("networking.k8s.io", "ingressclasses", GENERATION),
    ("networking.k8s.io", "networkpolicies", GENERATION),
    ("node.k8s.io", "runtimeclasses", CONDITIONAL),
    ("policy", "poddisruptionbudgets", POLICY),
    ("rbac.authorization.k8s.io", "clusterrolebindings", RBAC),
    ("rbac.authorization.k8s.io", "clusterroles", RBAC),
    ("rbac.authorization.k8s.io", "rolebindings", RBAC),
    ("rbac.authorization.k8s.io", "roles", RBAC),
    ("resource.k8s.io", "deviceclasses", GENERATION),
    ("resource.k8s.io", "resourceslices", GENERATION),
    ("scheduling.k8s.io", "priorityclasses", GENERATION),
    ("storage.k8s.io", "csidrivers", CONDITIONAL),
    ("storage.k8s.io", "csinodes", CONDITIONAL),
    ("storage.k8s.io", "csistoragecapacities", CONDITIONAL),
    ("storage.k8s.io", "volumeattachments", CONDITIONAL),
];

/// The row of a resource.
pub fn of(group: &str, plural: &str) -> &'static Strategy {
    static BASE_ROW: Strategy = BASE;
    ROWS.iter().find(|(g, p, _)| *g == group && *p == plural).map_or(&BASE_ROW, |(_, _, row)| row)
}

mod data {
    //! What ConfigMaps and Secrets may hold (kubernetes `pkg/apis/core/validation`).

    use plinth_codec::{Map, Value};

    use crate::field;
    use crate::status::Cause;

    /// The most that the values may weigh, in bytes.
    const SIZE_MAX: usize = 1 << 20;
    /// The longest key, in bytes.
    const KEY_MAX: usize = 253;

    pub(super) fn validate(object: &Value) -> Vec<Cause> {
        let mut faults = Vec::new();
        let mut size = 0usize;
        let is_secret = object.str_at(&["kind"]) == Some("Secret");
        for part in ["data", "binaryData"] {
            for (key, value) in object.get(part).and_then(Value::as_object).into_iter().flat_map(Map::iter) {
                let text = value.as_str().unwrap_or_default();
                // Base64 is four characters for three bytes.
                let is_base64 = is_secret || part == "binaryData";
                size += if is_base64 { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() };
                faults.extend(
                    key_faults(key).map(|why| field::invalid(format!("{part}[{key}]"), key.clone(), why)),
                );
            }
        }
        if size > SIZE_MAX {
            faults.push(field::too_long("[]", SIZE_MAX));
        }
        faults
    }

    fn key_faults(key: &str) -> Option<&'static str> {
        const RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        let made_of = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        match key {
            _ if key.len() > KEY_MAX => Some("must be no more than 253 bytes"),
            "" => Some(RULE),
            _ if !key.bytes().all(made_of) => Some(RULE),
            "." => Some("must not be '.'"),
            ".." => Some("must not be '..'"),
            _ if key.starts_with("..") => Some("must not start with '..'"),
            _ => None,
        }
    }
}

mod namespace {
    //! Namespaces carry the finalizer of their lifecycle from birth.

    use plinth_codec::{tree, Value};

    pub(super) fn prepare_for_create(object: &mut Value) {
        if let Some(spec) = object.object_at_mut(&["spec"]) {
            spec.insert("finalizers", tree!(["kubernetes"]));
        }
        if let Some(status) = object.object_at_mut(&["status"]) {
            *status = plinth_codec::Map::new();
            status.insert("phase", "Active");
        }
        let name = object.str_at(&["metadata", "name"]).unwrap_or_default().to_owned();
        if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
            labels.insert("kubernetes.io/metadata.name", name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_resource() {
        let known = &plinth_codec::resources::builtin().resources;
        for (group, plural, _) in ROWS {
            assert!(known.iter().any(|r| r.group == *group && r.plural == *plural), "{group} {plural}");
        }
    }
}
