//! The selectable fields of each resource, and the sources of their values.
//!
//! Facts of upstream's `pkg/registry/*/strategy.go` (values) and `pkg/apis/*/v1/conversion.go` (labels and
//! error messages). Two rules differ, on purpose: ReplicaSets can be selected by `status.replicas`, as the
//! Kubernetes documentation says, though upstream refuses it in apps/v1.

use crate::error::quoted;
use crate::Value;
use smol_str::{SmolStr, ToSmolStr};
use std::borrow::Cow;
use std::fmt;

/// A field that a resource can be selected by.
#[derive(Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The label in selectors.
    pub label: &'static str,
    /// The name under which the value is stored; another label may share it.
    pub name: &'static str,
    /// The sources of the value: the first of these paths with a non-empty value. A number steps into a list.
    paths: &'static [&'static [&'static str]],
    /// The value when there is none.
    absent: &'static str,
}

impl SelectableField {
    /// The value in an object, as text; the empty string, or the field's default, when absent.
    pub fn value<'a>(&self, object: &'a Value) -> Cow<'a, str> {
        self.paths
            .iter()
            .filter_map(|path| path.iter().try_fold(object, |v, step| child(v, step)))
            .map(text)
            .find(|text| !text.is_empty())
            .unwrap_or(Cow::Borrowed(self.absent))
    }

    /// Whether this is `metadata.name` or `metadata.namespace`, which are part of the object's key.
    pub fn in_key(&self) -> bool {
        self.name.starts_with("metadata.")
    }
}

fn child<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    }
}

/// A scalar as Go's `fmt.Sprint` writes it; nothing for lists and objects.
fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(s) => Cow::Borrowed(s.as_str()),
        Value::Bool(b) => Cow::Borrowed(if *b { "true" } else { "false" }),
        Value::Int(n) => Cow::Owned(n.to_string()),
        Value::Float(n) => Cow::Owned(n.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) | Value::Encoded(_) => Cow::Borrowed(""),
    }
}

/// The fields that a built-in resource can be selected by, with the labels of its API group. Resources
/// that are not listed have `metadata.name` and `metadata.namespace`.
pub fn selectable_fields(group: &str, resource: &str) -> &'static [SelectableField] {
    of(group, resource)
}

/// The fields whose values are stored in the object header: each name once, without those of the key. Both
/// API versions of events store the same ones, read from the core/v1 form.
pub fn stored_fields(group: &str, resource: &str) -> impl Iterator<Item = &'static SelectableField> {
    let fields = match (group, resource) {
        ("events.k8s.io", "events") => EVENT,
        _ => of(group, resource),
    };
    fields.iter().filter(|field| !field.in_key() && field.label == field.name)
}

pub(super) fn of(group: &str, resource: &str) -> &'static [SelectableField] {
    match (group, resource) {
        ("", "pods") => POD,
        ("", "nodes") => NODE,
        ("", "namespaces") => NAMESPACE,
        ("", "replicationcontrollers") => REPLICAS,
        ("", "secrets") => SECRET,
        ("", "services") => SERVICE,
        ("", "events") => EVENT,
        ("events.k8s.io", "events") => REGARDING_EVENT,
        ("apps", "replicasets") => REPLICAS,
        ("batch", "jobs") => JOB,
        ("certificates.k8s.io", "certificatesigningrequests") => SIGNING_REQUEST,
        ("resource.k8s.io", "resourceslices") => RESOURCE_SLICE,
        _ => METADATA,
    }
}

/// Writes a list of fields: `label = path | path, default`, the label being the stored name too unless
/// `as` gives another.
macro_rules! fields {
    ($( $label:literal $(as $name:literal)? : $([ $($step:literal),* ])|* $(, $absent:literal)? ; )*) => {
        &[ $( SelectableField {
            label: $label,
            name: fields!(@or $label $(, $name)?),
            paths: &[ $( &[ $($step),* ] ),* ],
            absent: fields!(@or "" $(, $absent)?),
        } ),* ]
    };
    (@or $default:literal) => { $default };
    (@or $default:literal, $given:literal) => { $given };
}

static METADATA: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
};

static POD: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "spec.nodeName": ["spec", "nodeName"];
    "spec.host" as "spec.nodeName": ["spec", "nodeName"];
    "spec.restartPolicy": ["spec", "restartPolicy"];
    "spec.schedulerName": ["spec", "schedulerName"];
    "spec.serviceAccountName": ["spec", "serviceAccountName"] | ["spec", "serviceAccount"];
    "spec.hostNetwork": ["spec", "hostNetwork"], "false";
    "status.phase": ["status", "phase"];
    "status.podIP": ["status", "podIP"] | ["status", "podIPs", "0", "ip"];
    // Upstream accepts the label but has no value for it.
    "status.podIPs": [];
    "status.nominatedNodeName": ["status", "nominatedNodeName"];
};

static NODE: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "spec.unschedulable": ["spec", "unschedulable"], "false";
};

static NAMESPACE: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "status.phase": ["status", "phase"];
};

static REPLICAS: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "status.replicas": ["status", "replicas"], "0";
};

static SECRET: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "type": ["type"];
};

static SERVICE: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "spec.clusterIP": ["spec", "clusterIP"];
    "spec.type": ["spec", "type"];
};

static EVENT: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "involvedObject.kind": ["involvedObject", "kind"];
    "involvedObject.namespace": ["involvedObject", "namespace"];
    "involvedObject.name": ["involvedObject", "name"];
    "involvedObject.uid": ["involvedObject", "uid"];
    "involvedObject.apiVersion": ["involvedObject", "apiVersion"];
    "involvedObject.resourceVersion": ["involvedObject", "resourceVersion"];
    "involvedObject.fieldPath": ["involvedObject", "fieldPath"];
    "reason": ["reason"];
    "reportingComponent": ["reportingComponent"];
    "source": ["source", "component"] | ["reportingComponent"];
    "type": ["type"];
};

/// Paths are those of events.k8s.io/v1, for objects in that form.
static REGARDING_EVENT: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "regarding.kind" as "involvedObject.kind": ["regarding", "kind"];
    "regarding.namespace" as "involvedObject.namespace": ["regarding", "namespace"];
    "regarding.name" as "involvedObject.name": ["regarding", "name"];
    "regarding.uid" as "involvedObject.uid": ["regarding", "uid"];
    "regarding.apiVersion" as "involvedObject.apiVersion": ["regarding", "apiVersion"];
    "regarding.resourceVersion" as "involvedObject.resourceVersion": ["regarding", "resourceVersion"];
    "regarding.fieldPath" as "involvedObject.fieldPath": ["regarding", "fieldPath"];
    "reason": ["reason"];
    "reportingController" as "reportingComponent": ["reportingController"];
    "type": ["type"];
};

static JOB: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "metadata.namespace": ["metadata", "namespace"];
    "status.successful": ["status", "succeeded"], "0";
};

static SIGNING_REQUEST: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "spec.signerName": ["spec", "signerName"];
};

static RESOURCE_SLICE: &[SelectableField] = fields! {
    "metadata.name": ["metadata", "name"];
    "spec.nodeName": ["spec", "nodeName"];
    "spec.driver": ["spec", "driver"];
};

/// The wording of an error, which differs between resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wording {
    /// For most resources with selectable fields, and for custom resources.
    Plain,
    /// For resources without selectable fields of their own.
    Default,
    /// Of jobs.
    Job,
    /// Of resource slices.
    ResourceSlice,
}

impl Wording {
    pub(super) fn of(group: &str, resource: &str) -> Wording {
        match (group, resource) {
            ("batch", "jobs") => Wording::Job,
            ("resource.k8s.io", "resourceslices") => Wording::ResourceSlice,
            ("apps", "replicasets") => Wording::Default,
            _ if std::ptr::eq(of(group, resource), METADATA) => Wording::Default,
            _ => Wording::Plain,
        }
    }

    pub(super) fn write(self, f: &mut fmt::Formatter<'_>, label: &str) -> fmt::Result {
        let quoted = quoted(label);
        match self {
            Wording::Plain => write!(f, "field label not supported: {label}"),
            Wording::Default => write!(
                f,
                r#"{quoted} is not a known field selector: only "metadata.name", "metadata.namespace""#
            ),
            Wording::Job => write!(f, "field label {quoted} not supported for Job"),
            Wording::ResourceSlice => {
                write!(f, "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
            }
        }
    }
}

/// The fields that a custom resource can be selected by: `selectableFields` of one version of its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomFields {
    /// Whether `metadata.namespace` is selectable.
    pub namespaced: bool,
    /// The JSON paths without the leading dot, which are the labels too: `spec.color`.
    pub paths: Vec<SmolStr>,
}

impl CustomFields {
    /// Creates the fields from the paths in a definition: `.spec.color`.
    pub fn new<'a>(namespaced: bool, json_paths: impl IntoIterator<Item = &'a str>) -> CustomFields {
        let paths = json_paths.into_iter().map(|p| p.strip_prefix('.').unwrap_or(p).to_smolstr()).collect();
        CustomFields { namespaced, paths }
    }

    /// Whether the resource can be selected by this field.
    pub fn supports(&self, label: &str) -> bool {
        label == "metadata.name"
            || (label == "metadata.namespace" && self.namespaced)
            || self.paths.iter().any(|path| path == label)
    }

    /// The values in an object, in the order of `paths`; the empty string where there is none.
    pub fn values<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        self.paths.iter().map(move |path| {
            let value = path.split('.').try_fold(object, |v, key| v.get(key));
            (path.as_str(), value.map_or(Cow::Borrowed(""), text))
        })
    }
}
