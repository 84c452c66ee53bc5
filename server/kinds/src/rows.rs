//! Which resource does what. A resource without a row follows [`BASE`].

use super::core::{data, devices, namespace, node, pod, service, storage};
use super::defaults::{cluster, core, pod as pods, workloads as work};
use super::validation::{
    autoscaling as check_scaling, batch as check_batch, claims as check_claims, cluster as check_cluster,
    devices as check_devices, event as check_event, fixed, flow_control as check_flow,
    network as check_network, pod as check_pod, policies as check_policies, quota as check_quota,
    rbac as check_rbac, service as check_service, status, storage as check_storage, update,
    webhooks as check_webhooks, workloads as check_work,
};
use super::{
    certificates, definitions, faces, warnings, workloads, Deletion, Generation, NameRule, Strategy, BASE,
};

const ANSWERING: Strategy = Strategy { answers_deleted_object: true, ..BASE };
const GENERATION: Strategy = Strategy { generation: Generation::Changes, ..BASE };
const ANSWERING_GENERATION: Strategy = Strategy { answers_deleted_object: true, ..GENERATION };
const CONDITIONAL: Strategy = Strategy { unconditional_update: false, ..BASE };
const ANSWERING_CONDITIONAL: Strategy = Strategy { answers_deleted_object: true, ..CONDITIONAL };
const POLICY: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    warnings: warnings::reserved_name,
    ..BASE
};
const RBAC: Strategy = Strategy { name: NameRule::PathSegment, create_on_update: true, ..BASE };
const ROLE_BINDING: Strategy =
    Strategy { defaults: cluster::ROLE_BINDING, validate_update: update::role_binding, ..RBAC };
const CREATE_ON_UPDATE: Strategy = Strategy { create_on_update: true, ..BASE };
const ADMISSION_POLICY: Strategy = Strategy { defaults: cluster::ADMISSION_POLICY, ..POLICY };
/// Webhooks have match conditions.
const CONDITIONAL_WEBHOOKS: Strategy = Strategy {
    validate_create: check_policies::new_webhooks,
    validate_update: check_policies::changed_webhooks,
    ..POLICY
};
const ADMISSION_POLICY_BINDING: Strategy = Strategy { defaults: cluster::ADMISSION_POLICY_BINDING, ..POLICY };
/// What most statuses that a controller writes keep of the metadata (`rest.ResetObjectMetaForStatus`).
const STATUS_KEEPS_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];
/// Events are second-class: no finalizers of the collector.
const EVENTS: Strategy =
    Strategy { create_on_update: true, collected: false, expires: true, error_group: Some(""), ..BASE };

/// Group, plural and row.
type Row = (&'static str, &'static str, Strategy);

pub(super) static ROWS: &[Row] = &[
    (
        "",
        "componentstatuses",
        Strategy { warning: Some("v1 ComponentStatus is deprecated in v1.19+"), ..BASE },
    ),
    ("", "configmaps", Strategy { validate: data::validate, validate_update: update::data, ..BASE }),
    (
        "",
        "endpoints",
        Strategy {
            storage_name: Some("services/endpoints"),
            defaults: core::ENDPOINTS,
            checks: check_network::ENDPOINTS,
            warning: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            warnings: warnings::endpoints,
            ..CREATE_ON_UPDATE
        },
    ),
    ("", "events", Strategy { name: NameRule::PathSegment, validate: check_event::validate_core, ..EVENTS }),
    (
        "",
        "limitranges",
        Strategy {
            defaults: core::LIMIT_RANGE,
            checks: check_quota::LIMIT_RANGE,
            prepare_for_create: data::name_limit_range,
            ..CREATE_ON_UPDATE
        },
    ),
    (
        "",
        "namespaces",
        Strategy {
            name: NameRule::Label,
            deletion: Deletion::Namespace,
            defaults: core::NAMESPACE,
            checks: check_cluster::NAMESPACE,
            prepare_for_create: namespace::prepare_for_create,
            validate_status: status::namespace,
            ..ANSWERING
        },
    ),
    (
        "",
        "nodes",
        Strategy {
            storage_name: Some("minions"),
            prepare_for_create: node::prepare_for_create,
            prepare_for_update: node::prepare_for_update,
            defaults: core::NODE,
            status_at_create: true,
            checks: check_cluster::NODE,
            validate_update: fixed::node,
            status_checks: check_cluster::NODE,
            validate_status: fixed::node,
            warnings: warnings::node,
            ..BASE
        },
    ),
    (
        "",
        "persistentvolumeclaims",
        Strategy {
            defaults: core::PERSISTENT_VOLUME_CLAIM,
            checks: check_claims::PERSISTENT_VOLUME_CLAIM,
            prepare_for_create: storage::prepare_claim_for_create,
            prepare_for_update: storage::prepare_claim_for_update,
            validate_update: fixed::claim,
            status_checks: status::PERSISTENT_VOLUME_CLAIM,
            warnings: warnings::claim,
            ..ANSWERING
        },
    ),
    (
        "",
        "persistentvolumes",
        Strategy {
            defaults: core::PERSISTENT_VOLUME,
            checks: check_storage::PERSISTENT_VOLUME,
            validate_update: fixed::volume,
            prepare_for_create: storage::prepare_volume_for_create,
            prepare_status: status::date_phase,
            warnings: warnings::volume,
            ..ANSWERING
        },
    ),
    (
        "",
        "pods",
        Strategy {
            deletion: Deletion::Pod,
            defaults: pods::POD,
            checks: check_pod::POD,
            settled: fixed::pod_is_settled,
            prepare_for_create: pod::prepare_for_create,
            validate: faces::ephemeral_containers,
            validate_create: check_pod::validate_create,
            validate_update: fixed::pod,
            faces: faces::POD,
            status_keeps: &["ownerReferences"],
            status_checks: status::POD,
            validate_status: status::pod,
            prepare_status: status::keep_of_pod,
            warnings: warnings::pod,
            status_warnings: warnings::pod_status,
            ..ANSWERING_GENERATION
        },
    ),
    (
        "",
        "podtemplates",
        Strategy {
            defaults: work::POD_TEMPLATE,
            checks: check_work::POD_TEMPLATE,
            warnings: warnings::pod_template,
            ..ANSWERING_GENERATION
        },
    ),
    (
        "",
        "replicationcontrollers",
        Strategy {
            storage_name: Some("controllers"),
            orphans_by_default: true,
            defaults: work::REPLICATION_CONTROLLER,
            checks: check_work::REPLICATION_CONTROLLER,
            status_checks: status::REPLICA_SET,
            warnings: warnings::template,
            ..GENERATION
        },
    ),
    (
        "",
        "resourcequotas",
        Strategy {
            checks: check_quota::RESOURCE_QUOTA,
            validate_update: check_quota::quota_update,
            status_checks: check_quota::RESOURCE_QUOTA_STATUS,
            warnings: warnings::quota,
            defaults: core::RESOURCE_QUOTA,
            ..ANSWERING
        },
    ),
    (
        "",
        "secrets",
        Strategy {
            defaults: core::SECRET,
            checks: check_cluster::SECRET,
            validate_update: update::data,
            validate: data::validate,
            warnings: warnings::secret,
            ..BASE
        },
    ),
    ("", "serviceaccounts", Strategy { warnings: warnings::service_account, ..ANSWERING }),
    (
        "",
        "services",
        Strategy {
            storage_name: Some("services/specs"),
            name: NameRule::Label,
            create_on_update: true,
            defaults: core::SERVICE,
            checks: check_service::SERVICE,
            validate_update: update::service,
            prepare_for_update: service::prepare_for_update,
            validate_status: status::service,
            warnings: warnings::service,
            status_warnings: warnings::load_balancer_status,
            ..ANSWERING
        },
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        Strategy {
            checks: check_policies::MUTATING_POLICY,
            validate_create: check_policies::new_mutating_policy,
            validate_update: check_policies::changed_mutating_policy,
            ..ADMISSION_POLICY
        },
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        Strategy { checks: check_policies::MUTATING_BINDING, ..ADMISSION_POLICY_BINDING },
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        Strategy {
            defaults: cluster::MUTATING_WEBHOOKS,
            checks: check_webhooks::WEBHOOKS,
            ..CONDITIONAL_WEBHOOKS
        },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        Strategy {
            checks: check_policies::VALIDATING_POLICY,
            validate_create: check_policies::new_policy,
            validate_update: check_policies::changed_policy,
            status_keeps: STATUS_KEEPS_METADATA,
            ..ADMISSION_POLICY
        },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        Strategy { checks: check_policies::VALIDATING_BINDING, ..ADMISSION_POLICY_BINDING },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        Strategy {
            defaults: cluster::VALIDATING_WEBHOOKS,
            checks: check_webhooks::WEBHOOKS,
            ..CONDITIONAL_WEBHOOKS
        },
    ),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        Strategy {
            answers_deleted_object: true,
            deletion: Deletion::Definition,
            defaults: cluster::CUSTOM_RESOURCE_DEFINITION,
            prepare_for_update: definitions::keep_storage_version,
            validate_create: definitions::validate,
            validate_update: definitions::validate_update,
            warnings: definitions::warnings,
            ..POLICY
        },
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        Strategy {
            defaults: cluster::API_SERVICE,
            checks: check_cluster::API_SERVICE,
            status_keeps: STATUS_KEEPS_METADATA,
            unconditional_update: false,
            ..BASE
        },
    ),
    (
        "apps",
        "daemonsets",
        Strategy {
            defaults: work::DAEMON_SET,
            checks: check_work::DAEMON_SET,
            immutable: &["spec.selector"],
            prepare_for_create: workloads::prepare_daemon_set_for_create,
            prepare_for_update: workloads::prepare_daemon_set_for_update,
            status_checks: status::DAEMON_SET,
            validate_status: status::collisions,
            warnings: warnings::daemon_set,
            prepare_status: workloads::keep_template_generation,
            ..GENERATION
        },
    ),
    (
        "apps",
        "deployments",
        Strategy {
            generation: Generation::ChangesAndAnnotations,
            status_keeps: &["labels"],
            defaults: work::DEPLOYMENT,
            checks: check_work::DEPLOYMENT,
            immutable: &["spec.selector"],
            status_checks: status::DEPLOYMENT,
            validate_status: status::collisions,
            warnings: warnings::template,
            ..BASE
        },
    ),
    (
        "apps",
        "replicasets",
        Strategy {
            defaults: work::REPLICA_SET,
            checks: check_work::REPLICA_SET,
            immutable: &["spec.selector"],
            status_checks: status::REPLICA_SET,
            warnings: warnings::template,
            ..GENERATION
        },
    ),
    (
        "apps",
        "statefulsets",
        Strategy {
            name: NameRule::Label,
            defaults: work::STATEFUL_SET,
            checks: check_work::STATEFUL_SET,
            validate_create: check_work::stateful_set_create,
            validate_update: fixed::stateful_set,
            status_checks: status::STATEFUL_SET,
            validate_status: status::collisions,
            warnings: warnings::stateful_set,
            prepare_for_create: workloads::prepare_stateful_set_for_create,
            prepare_for_update: workloads::prepare_stateful_set_for_update,
            ..GENERATION
        },
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        Strategy {
            defaults: work::HORIZONTAL_POD_AUTOSCALER,
            checks: check_scaling::HORIZONTAL_POD_AUTOSCALER,
            status_checks: status::HORIZONTAL_POD_AUTOSCALER,
            ..BASE
        },
    ),
    (
        "apps",
        "controllerrevisions",
        Strategy { checks: check_work::CONTROLLER_REVISION, immutable: &["data"], ..BASE },
    ),
    (
        "batch",
        "cronjobs",
        Strategy {
            defaults: work::CRON_JOB,
            checks: check_batch::CRON_JOB,
            validate_create: check_batch::cron_job_create,
            warnings: warnings::cron_job,
            ..GENERATION
        },
    ),
    (
        "batch",
        "jobs",
        Strategy {
            orphan_warning: Some(workloads::JOB_ORPHANS),
            orphans_by_default: true,
            defaults: work::JOB,
            checks: check_batch::JOB,
            validate_update: fixed::job,
            prepare_for_create: workloads::prepare_job_for_create,
            status_checks: status::JOB,
            validate_status: status::job,
            warnings: warnings::job,
            ..GENERATION
        },
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        Strategy {
            name: NameRule::PathSegment,
            stamp: certificates::stamp,
            prepare_for_update: certificates::prepare_for_update,
            prepare_status: certificates::prepare_status,
            validate: certificates::validate,
            subresource_errors: certificates::subresource_errors,
            validate_status: |new, _| certificates::validate(new),
            ..BASE
        },
    ),
    (
        "coordination.k8s.io",
        "leases",
        Strategy {
            create_on_update: true,
            unconditional_update: false,
            checks: check_cluster::LEASE,
            ..BASE
        },
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        Strategy {
            defaults: cluster::ENDPOINT_SLICE,
            checks: check_network::ENDPOINT_SLICE,
            immutable: &["addressType"],
            generation: Generation::ChangesAndLabels,
            warnings: warnings::endpoint_slice,
            ..BASE
        },
    ),
    (
        "events.k8s.io",
        "events",
        Strategy {
            validate_create: check_event::validate,
            validate_update: check_event::validate_update,
            ..EVENTS
        },
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        Strategy {
            rows_sorted_by: Some(&["spec", "matchingPrecedence"]),
            defaults: cluster::FLOW_SCHEMA,
            checks: check_flow::FLOW_SCHEMA,
            status_keeps: STATUS_KEEPS_METADATA,
            ..GENERATION
        },
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        Strategy {
            defaults: cluster::PRIORITY_LEVEL,
            checks: check_flow::PRIORITY_LEVEL,
            status_keeps: STATUS_KEEPS_METADATA,
            ..GENERATION
        },
    ),
    (
        "networking.k8s.io",
        "ingresses",
        Strategy {
            storage_name: Some("ingress"),
            checks: check_network::INGRESS,
            validate_status: status::ingress,
            warnings: warnings::ingress,
            status_warnings: warnings::load_balancer_status,
            ..GENERATION
        },
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        Strategy {
            defaults: cluster::INGRESS_CLASS,
            checks: check_network::INGRESS_CLASS,
            immutable: &["spec.controller"],
            ..GENERATION
        },
    ),
    (
        "networking.k8s.io",
        "ipaddresses",
        Strategy {
            name: NameRule::PathSegment,
            checks: check_network::IP_ADDRESS,
            immutable: &["spec.parentRef"],
            ..BASE
        },
    ),
    (
        "networking.k8s.io",
        "servicecidrs",
        Strategy {
            create_checks: check_network::SERVICE_CIDR,
            validate_update: check_network::service_cidr_update,
            status_keeps: STATUS_KEEPS_METADATA,
            ..BASE
        },
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        Strategy {
            defaults: cluster::NETWORK_POLICY,
            checks: check_network::NETWORK_POLICY,
            warnings: warnings::network_policy,
            ..GENERATION
        },
    ),
    (
        "node.k8s.io",
        "runtimeclasses",
        Strategy {
            checks: check_cluster::RUNTIME_CLASS,
            immutable: &["handler"],
            warnings: warnings::runtime_class,
            create_on_update: true,
            ..CONDITIONAL
        },
    ),
    (
        "policy",
        "poddisruptionbudgets",
        Strategy {
            checks: check_work::POD_DISRUPTION_BUDGET,
            status_checks: status::POD_DISRUPTION_BUDGET,
            ..POLICY
        },
    ),
    (
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        Strategy { checks: check_rbac::CLUSTER_ROLE_BINDING, ..ROLE_BINDING },
    ),
    ("rbac.authorization.k8s.io", "clusterroles", Strategy { checks: check_rbac::CLUSTER_ROLE, ..RBAC }),
    (
        "rbac.authorization.k8s.io",
        "rolebindings",
        Strategy { checks: check_rbac::ROLE_BINDING, ..ROLE_BINDING },
    ),
    ("rbac.authorization.k8s.io", "roles", Strategy { checks: check_rbac::ROLE, ..RBAC }),
    (
        "resource.k8s.io",
        "deviceclasses",
        Strategy { checks: check_devices::DEVICE_CLASS, ..ANSWERING_GENERATION },
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        Strategy {
            defaults: work::RESOURCE_CLAIM,
            create_checks: check_devices::RESOURCE_CLAIM,
            immutable: &["spec"],
            status_keeps: STATUS_KEEPS_METADATA,
            validate_status: check_devices::claim_status,
            prepare_status: devices::prepare_status,
            ..ANSWERING
        },
    ),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        Strategy {
            defaults: work::RESOURCE_CLAIM_TEMPLATE,
            checks: check_devices::RESOURCE_CLAIM_TEMPLATE,
            immutable: &["spec"],
            ..ANSWERING
        },
    ),
    (
        "resource.k8s.io",
        "resourceslices",
        Strategy {
            checks: check_devices::RESOURCE_SLICE,
            validate_update: check_devices::slice_update,
            warnings: warnings::resource_slice,
            ..ANSWERING_GENERATION
        },
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        Strategy {
            defaults: work::PRIORITY_CLASS,
            checks: check_cluster::PRIORITY_CLASS,
            refuses_delete: check_cluster::system_priority_class,
            validate_update: update::priority_class,
            generation: Generation::Birth,
            ..BASE
        },
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        Strategy {
            defaults: cluster::CSI_DRIVER,
            checks: check_storage::CSI_DRIVER,
            validate_update: check_storage::driver_update,
            generation: Generation::LaterChanges,
            warnings: warnings::csi_driver,
            ..ANSWERING_CONDITIONAL
        },
    ),
    (
        "storage.k8s.io",
        "csinodes",
        Strategy {
            checks: check_storage::CSI_NODE,
            validate_update: check_storage::node_update,
            ..ANSWERING_CONDITIONAL
        },
    ),
    (
        "storage.k8s.io",
        "csistoragecapacities",
        Strategy {
            checks: check_storage::CSI_STORAGE_CAPACITY,
            immutable: &["nodeTopology", "storageClassName"],
            warnings: warnings::capacity,
            ..CONDITIONAL
        },
    ),
    (
        "storage.k8s.io",
        "storageclasses",
        Strategy {
            defaults: cluster::STORAGE_CLASS,
            checks: check_storage::STORAGE_CLASS,
            validate_update: update::storage_class,
            warnings: warnings::storage_class,
            ..ANSWERING
        },
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        Strategy {
            defaults: cluster::VOLUME_ATTACHMENT,
            checks: check_storage::VOLUME_ATTACHMENT,
            validate_update: check_storage::attachment_update,
            status_keeps: STATUS_KEEPS_METADATA,
            ..ANSWERING_CONDITIONAL
        },
    ),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        Strategy {
            checks: check_storage::VOLUME_ATTRIBUTES_CLASS,
            validate_update: check_storage::attributes_class_update,
            ..ANSWERING
        },
    ),
];
