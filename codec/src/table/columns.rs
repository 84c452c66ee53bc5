//! The columns of each built-in resource.

use super::cell::{Computation, Source};
use super::compute::{admin, autoscaling, event, network, node, pod, storage, workload};
use super::Column;

/// A column of a built-in resource.
#[derive(Clone, Copy)]
pub(super) struct Spec {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    pub source: Source,
}

impl Spec {
    const fn new(name: &'static str, kind: &'static str, source: Source) -> Spec {
        Spec { name, kind, format: "", priority: 0, source }
    }

    /// Shown in wide output only.
    const fn wide(self) -> Spec {
        Spec { priority: 1, ..self }
    }

    /// Identifies the row.
    const fn identity(self) -> Spec {
        Spec { format: "name", ..self }
    }

    /// Declared with another type than its cells have, as in upstream.
    const fn declared(self, kind: &'static str) -> Spec {
        Spec { kind, ..self }
    }

    pub fn head(&self) -> Column {
        Column {
            name: self.name.into(),
            kind: self.kind.into(),
            format: self.format.into(),
            description: Default::default(),
            priority: self.priority,
        }
    }
}

const fn text(name: &'static str, path: &'static str, absent: &'static str) -> Spec {
    Spec::new(name, "string", Source::Text(path, absent))
}

const fn int(name: &'static str, path: &'static str) -> Spec {
    Spec::new(name, "integer", Source::Int(path))
}

const fn int_or(name: &'static str, path: &'static str, absent: &'static str) -> Spec {
    Spec::new(name, "string", Source::IntOr(path, absent))
}

const fn boolean(name: &'static str, path: &'static str, absent: bool) -> Spec {
    Spec::new(name, "boolean", Source::Bool(path, absent))
}

const fn count(name: &'static str, path: &'static str) -> Spec {
    Spec::new(name, "integer", Source::Count(path))
}

const fn ratio(name: &'static str, part: &'static str, whole: &'static str) -> Spec {
    Spec::new(name, "string", Source::Ratio(part, whole))
}

const fn labels(name: &'static str, path: &'static str) -> Spec {
    Spec::new(name, "string", Source::Labels(path))
}

const fn selector(name: &'static str, path: &'static str) -> Spec {
    Spec::new(name, "string", Source::Selector(path, "<none>", "<error>"))
}

const fn list(name: &'static str, list: &'static str, absent: &'static str) -> Spec {
    Spec::new(name, "string", Source::Join { list, field: None, absent })
}

/// The names of a list of containers.
const fn containers(list: &'static str) -> Spec {
    Spec::new("Containers", "string", Source::Join { list, field: Some("name"), absent: "" })
}

/// The images of a list of containers.
const fn images(list: &'static str) -> Spec {
    Spec::new("Images", "string", Source::Join { list, field: Some("image"), absent: "" })
}

const fn computed(name: &'static str, computation: &'static Computation) -> Spec {
    Spec::new(name, "string", Source::Computed(computation))
}

pub(super) const NAME: Spec = text("Name", "metadata.name", "").identity();
const AGE: Spec = Spec::new("Age", "string", Source::Age("metadata.creationTimestamp", "<unknown>"));

/// Of resources without columns of their own.
pub(super) const CREATED_AT: &[Spec] =
    &[NAME, text("Created At", "metadata.creationTimestamp", "0001-01-01T00:00:00Z").declared("date")];

/// Of the `scale` subresource.
pub(super) const SCALE: &[Spec] = &[
    text("Name", "metadata.name", ""),
    int("Desired", "spec.replicas"),
    int("Available", "status.replicas"),
    AGE,
];

const EVENT: &[Spec] = &[
    computed("Last Seen", &event::LAST_SEEN),
    text("Type", "type", ""),
    text("Reason", "reason", ""),
    computed("Object", &event::OBJECT),
    text("Subobject", "involvedObject.fieldPath", "").wide(),
    computed("Source", &event::SOURCE).wide(),
    computed("Message", &event::MESSAGE),
    computed("First Seen", &event::FIRST_SEEN).wide(),
    computed("Count", &event::COUNT).wide(),
    NAME.wide(),
];

const WEBHOOKS: &[Spec] = &[NAME, count("Webhooks", "webhooks"), AGE];

const POLICY_BINDING: &[Spec] =
    &[NAME, text("PolicyName", "spec.policyName", ""), computed("ParamRef", &admin::PARAM_REF), AGE];

const ROLE_BINDING: &[Spec] = &[
    NAME,
    computed("Role", &admin::ROLE),
    AGE,
    computed("Users", &admin::USERS).wide(),
    computed("Groups", &admin::GROUPS).wide(),
    computed("ServiceAccounts", &admin::SERVICE_ACCOUNTS).wide(),
];

const POD_CONTAINERS: &str = "spec.template.spec.containers";
const JOB_CONTAINERS: &str = "spec.jobTemplate.spec.template.spec.containers";

/// Group, resource and columns of each resource that has columns of its own.
pub(super) const RESOURCES: &[(&str, &str, &[Spec])] = &[
    (
        "",
        "componentstatuses",
        &[
            NAME,
            computed("Status", &admin::COMPONENT_STATUS),
            computed("Message", &admin::COMPONENT_MESSAGE),
            computed("Error", &admin::COMPONENT_ERROR),
        ],
    ),
    ("", "configmaps", &[NAME, computed("Data", &admin::CONFIG_MAP_DATA), AGE]),
    ("", "endpoints", &[NAME, computed("Endpoints", &network::ENDPOINTS), AGE]),
    ("", "events", EVENT),
    ("events.k8s.io", "events", EVENT),
    ("", "namespaces", &[NAME, text("Status", "status.phase", ""), AGE]),
    (
        "",
        "nodes",
        &[
            NAME,
            computed("Status", &node::STATUS),
            computed("Roles", &node::ROLES),
            AGE,
            text("Version", "status.nodeInfo.kubeletVersion", ""),
            computed("Internal-IP", &node::INTERNAL_IP).wide(),
            computed("External-IP", &node::EXTERNAL_IP).wide(),
            text("OS-Image", "status.nodeInfo.osImage", "<unknown>").wide(),
            computed("Kernel-Version", &node::KERNEL).wide(),
            text("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>").wide(),
        ],
    ),
    (
        "",
        "persistentvolumeclaims",
        &[
            NAME,
            computed("Status", &storage::PHASE),
            text("Volume", "spec.volumeName", ""),
            computed("Capacity", &storage::CLAIM_CAPACITY),
            computed("Access Modes", &storage::CLAIM_ACCESS_MODES),
            computed("StorageClass", &storage::STORAGE_CLASS),
            text("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
            AGE,
            text("VolumeMode", "spec.volumeMode", "<unset>").wide(),
        ],
    ),
    (
        "",
        "persistentvolumes",
        &[
            NAME,
            text("Capacity", "spec.capacity.storage", "0"),
            computed("Access Modes", &storage::VOLUME_ACCESS_MODES),
            text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", ""),
            computed("Status", &storage::PHASE),
            computed("Claim", &storage::VOLUME_CLAIM),
            computed("StorageClass", &storage::STORAGE_CLASS),
            text("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
            text("Reason", "status.reason", ""),
            AGE,
            text("VolumeMode", "spec.volumeMode", "<unset>").wide(),
        ],
    ),
    (
        "",
        "pods",
        &[
            NAME,
            Spec::new("Ready", "string", Source::Pod(pod::ready)),
            Spec::new("Status", "string", Source::Pod(pod::status)),
            Spec::new("Restarts", "string", Source::Pod(pod::restarts)),
            AGE,
            computed("IP", &pod::IP).wide(),
            text("Node", "spec.nodeName", "<none>").wide(),
            text("Nominated Node", "status.nominatedNodeName", "<none>").wide(),
            computed("Readiness Gates", &pod::READINESS_GATES).wide(),
        ],
    ),
    (
        "",
        "podtemplates",
        &[
            NAME,
            containers("template.spec.containers"),
            images("template.spec.containers"),
            labels("Pod Labels", "template.metadata.labels"),
        ],
    ),
    (
        "",
        "replicationcontrollers",
        &[
            NAME,
            int("Desired", "spec.replicas"),
            int("Current", "status.replicas"),
            int("Ready", "status.readyReplicas"),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
            labels("Selector", "spec.selector").wide(),
        ],
    ),
    (
        "",
        "resourcequotas",
        &[NAME, computed("Request", &admin::QUOTA_REQUESTS), computed("Limit", &admin::QUOTA_LIMITS), AGE],
    ),
    ("", "secrets", &[NAME, text("Type", "type", ""), count("Data", "data").declared("string"), AGE]),
    ("", "serviceaccounts", &[NAME, AGE]),
    (
        "",
        "services",
        &[
            NAME,
            text("Type", "spec.type", ""),
            computed("Cluster-IP", &network::SERVICE_CLUSTER_IP),
            computed("External-IP", &network::SERVICE_EXTERNAL_IP),
            computed("Port(s)", &network::SERVICE_PORTS),
            AGE,
            labels("Selector", "spec.selector").wide(),
        ],
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", WEBHOOKS),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", WEBHOOKS),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        &[NAME, count("Mutations", "spec.mutations"), computed("ParamKind", &admin::PARAM_KIND), AGE],
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        &[NAME, count("Validations", "spec.validations"), computed("ParamKind", &admin::PARAM_KIND), AGE],
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", POLICY_BINDING),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", POLICY_BINDING),
    (
        "apiregistration.k8s.io",
        "apiservices",
        &[
            NAME,
            computed("Service", &admin::API_SERVICE),
            computed("Available", &admin::API_SERVICE_AVAILABLE),
            AGE,
        ],
    ),
    (
        "apps",
        "controllerrevisions",
        &[
            NAME,
            computed("Controller", &workload::REVISION_CONTROLLER),
            int("Revision", "revision").declared("string"),
            AGE,
        ],
    ),
    (
        "apps",
        "daemonsets",
        &[
            NAME,
            int("Desired", "status.desiredNumberScheduled"),
            int("Current", "status.currentNumberScheduled"),
            int("Ready", "status.numberReady"),
            int("Up-to-date", "status.updatedNumberScheduled"),
            int("Available", "status.numberAvailable"),
            labels("Node Selector", "spec.template.spec.nodeSelector"),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
            selector("Selector", "spec.selector").wide(),
        ],
    ),
    (
        "apps",
        "deployments",
        &[
            NAME,
            ratio("Ready", "status.readyReplicas", "spec.replicas"),
            int("Up-to-date", "status.updatedReplicas").declared("string"),
            int("Available", "status.availableReplicas").declared("string"),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
            Spec::new("Selector", "string", Source::Selector("spec.selector", "", "<invalid>")).wide(),
        ],
    ),
    (
        "apps",
        "replicasets",
        &[
            NAME,
            int("Desired", "spec.replicas"),
            int("Current", "status.replicas"),
            int("Ready", "status.readyReplicas"),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
            selector("Selector", "spec.selector").wide(),
        ],
    ),
    (
        "apps",
        "statefulsets",
        &[
            NAME,
            ratio("Ready", "status.readyReplicas", "spec.replicas"),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
        ],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        &[
            NAME,
            computed("Reference", &autoscaling::REFERENCE),
            computed("Targets", &autoscaling::TARGETS),
            text("MinPods", "spec.minReplicas", "<unset>"),
            int("MaxPods", "spec.maxReplicas").declared("string"),
            int("Replicas", "status.currentReplicas").declared("string"),
            AGE,
        ],
    ),
    (
        "batch",
        "cronjobs",
        &[
            NAME,
            text("Schedule", "spec.schedule", ""),
            text("Timezone", "spec.timeZone", "<none>"),
            computed("Suspend", &workload::CRON_JOB_SUSPEND).declared("boolean"),
            count("Active", "status.active"),
            Spec::new("Last Schedule", "string", Source::Age("status.lastScheduleTime", "<none>")),
            AGE,
            containers(JOB_CONTAINERS).wide(),
            images(JOB_CONTAINERS).wide(),
            selector("Selector", "spec.jobTemplate.spec.selector").wide(),
        ],
    ),
    (
        "batch",
        "jobs",
        &[
            NAME,
            computed("Status", &workload::JOB_STATUS),
            computed("Completions", &workload::JOB_COMPLETIONS),
            computed("Duration", &workload::JOB_DURATION),
            AGE,
            containers(POD_CONTAINERS).wide(),
            images(POD_CONTAINERS).wide(),
            selector("Selector", "spec.selector").wide(),
        ],
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[
            NAME,
            AGE,
            text("SignerName", "spec.signerName", "<none>"),
            text("Requestor", "spec.username", ""),
            computed("RequestedDuration", &admin::CSR_DURATION),
            computed("Condition", &admin::CSR_CONDITION),
        ],
    ),
    ("coordination.k8s.io", "leases", &[NAME, text("Holder", "spec.holderIdentity", ""), AGE]),
    (
        "discovery.k8s.io",
        "endpointslices",
        &[
            NAME,
            text("AddressType", "addressType", ""),
            computed("Ports", &network::SLICE_PORTS),
            computed("Endpoints", &network::SLICE_ENDPOINTS),
            AGE,
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        &[
            NAME,
            text("PriorityLevel", "spec.priorityLevelConfiguration.name", ""),
            int("MatchingPrecedence", "spec.matchingPrecedence").declared("string"),
            text("DistinguisherMethod", "spec.distinguisherMethod.type", "<none>"),
            AGE,
            Spec::new("MissingPL", "string", Source::Condition("status.conditions", "Dangling")),
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        &[
            NAME,
            text("Type", "spec.type", ""),
            int_or("NominalConcurrencyShares", "spec.limited.nominalConcurrencyShares", "<none>"),
            int_or("Queues", "spec.limited.limitResponse.queuing.queues", "<none>"),
            int_or("HandSize", "spec.limited.limitResponse.queuing.handSize", "<none>"),
            int_or("QueueLengthLimit", "spec.limited.limitResponse.queuing.queueLengthLimit", "<none>"),
            AGE,
        ],
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        &[
            computed("Name", &network::INGRESS_CLASS_NAME).identity(),
            text("Controller", "spec.controller", ""),
            computed("Parameters", &network::INGRESS_CLASS_PARAMETERS),
            AGE,
        ],
    ),
    (
        "networking.k8s.io",
        "ingresses",
        &[
            NAME,
            text("Class", "spec.ingressClassName", "<none>"),
            computed("Hosts", &network::INGRESS_HOSTS),
            computed("Address", &network::INGRESS_ADDRESS),
            computed("Ports", &network::INGRESS_PORTS),
            AGE,
        ],
    ),
    ("networking.k8s.io", "ipaddresses", &[NAME, computed("ParentRef", &network::IP_ADDRESS_PARENT)]),
    ("networking.k8s.io", "networkpolicies", &[NAME, selector("Pod-Selector", "spec.podSelector"), AGE]),
    ("networking.k8s.io", "servicecidrs", &[NAME, list("CIDRs", "spec.cidrs", ""), AGE]),
    ("node.k8s.io", "runtimeclasses", &[NAME, text("Handler", "handler", ""), AGE]),
    (
        "policy",
        "poddisruptionbudgets",
        &[
            NAME,
            text("Min Available", "spec.minAvailable", "N/A"),
            text("Max Unavailable", "spec.maxUnavailable", "N/A"),
            int("Allowed Disruptions", "status.disruptionsAllowed"),
            AGE,
        ],
    ),
    ("rbac.authorization.k8s.io", "clusterrolebindings", ROLE_BINDING),
    ("rbac.authorization.k8s.io", "rolebindings", ROLE_BINDING),
    ("resource.k8s.io", "deviceclasses", &[NAME, AGE]),
    ("resource.k8s.io", "resourceclaims", &[NAME, computed("State", &admin::CLAIM_STATE), AGE]),
    ("resource.k8s.io", "resourceclaimtemplates", &[NAME, AGE]),
    (
        "resource.k8s.io",
        "resourceslices",
        &[
            NAME,
            text("Node", "spec.nodeName", ""),
            text("Driver", "spec.driver", ""),
            text("Pool", "spec.pool.name", ""),
            AGE,
        ],
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        &[
            NAME,
            int("Value", "value"),
            boolean("Global-Default", "globalDefault", false),
            AGE,
            text("PreemptionPolicy", "preemptionPolicy", ""),
        ],
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        &[
            NAME,
            boolean("AttachRequired", "spec.attachRequired", true),
            boolean("PodInfoOnMount", "spec.podInfoOnMount", false),
            boolean("StorageCapacity", "spec.storageCapacity", false),
            computed("TokenRequests", &storage::DRIVER_TOKEN_REQUESTS),
            boolean("RequiresRepublish", "spec.requiresRepublish", false),
            list("Modes", "spec.volumeLifecycleModes", "<none>"),
            AGE,
        ],
    ),
    ("storage.k8s.io", "csinodes", &[NAME, count("Drivers", "spec.drivers"), AGE]),
    (
        "storage.k8s.io",
        "storageclasses",
        &[
            computed("Name", &storage::CLASS_NAME).identity(),
            text("Provisioner", "provisioner", ""),
            text("ReclaimPolicy", "reclaimPolicy", "Delete"),
            text("VolumeBindingMode", "volumeBindingMode", "Immediate"),
            boolean("AllowVolumeExpansion", "allowVolumeExpansion", false).declared("string"),
            AGE,
        ],
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        &[
            NAME,
            text("Attacher", "spec.attacher", "").identity(),
            text("PV", "spec.source.persistentVolumeName", ""),
            text("Node", "spec.nodeName", ""),
            boolean("Attached", "status.attached", false),
            AGE,
        ],
    ),
    ("storage.k8s.io", "volumeattributesclasses", &[NAME, text("DriverName", "driverName", ""), AGE]),
];
