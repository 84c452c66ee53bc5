//! Which resource does what. A resource without a row follows [`BASE`].

use super::core::{data, namespace, pod, service, storage};
use super::defaults::{cluster, core, pod as pods, workloads as work};
use super::validation::{
    cluster as check_cluster, event as check_event, fixed, pod as check_pod, policies as check_policies,
    rbac as check_rbac, service as check_service, update, workloads as check_work,
};
use super::{certificates, definitions, faces, workloads, Deletion, NameRule, Strategy, BASE};

const ANSWERING: Strategy = Strategy { answers_deleted_object: true, ..BASE };
const GENERATION: Strategy = Strategy { generation: true, ..BASE };
const ANSWERING_GENERATION: Strategy = Strategy { answers_deleted_object: true, ..GENERATION };
const CONDITIONAL: Strategy = Strategy { unconditional_update: false, ..BASE };
const ANSWERING_CONDITIONAL: Strategy = Strategy { answers_deleted_object: true, ..CONDITIONAL };
const POLICY: Strategy = Strategy { generation: true, unconditional_update: false, ..BASE };
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
const EVENTS: Strategy = Strategy { create_on_update: true, collected: false, ..BASE };

/// Group, plural and row.
type Row = (&'static str, &'static str, Strategy);

pub(super) static ROWS: &[Row] = &[
    ("", "configmaps", Strategy { validate: data::validate, validate_update: update::data, ..BASE }),
    (
        "",
        "endpoints",
        Strategy {
            defaults: core::ENDPOINTS,
            warning: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ..CREATE_ON_UPDATE
        },
    ),
    ("", "events", Strategy { validate: check_event::validate_core, ..EVENTS }),
    ("", "limitranges", Strategy { defaults: core::LIMIT_RANGE, ..CREATE_ON_UPDATE }),
    (
        "",
        "namespaces",
        Strategy {
            name: NameRule::Label,
            deletion: Deletion::Namespace,
            defaults: core::NAMESPACE,
            prepare_for_create: namespace::prepare_for_create,
            ..ANSWERING
        },
    ),
    (
        "",
        "nodes",
        Strategy {
            defaults: core::NODE,
            status_at_create: true,
            checks: check_cluster::NODE,
            validate_update: fixed::node,
            ..BASE
        },
    ),
    (
        "",
        "persistentvolumeclaims",
        Strategy {
            defaults: core::PERSISTENT_VOLUME_CLAIM,
            checks: check_cluster::PERSISTENT_VOLUME_CLAIM,
            validate_update: fixed::claim,
            ..ANSWERING
        },
    ),
    (
        "",
        "persistentvolumes",
        Strategy {
            defaults: core::PERSISTENT_VOLUME,
            checks: check_cluster::PERSISTENT_VOLUME,
            validate_update: fixed::volume,
            prepare_for_create: storage::prepare_volume_for_create,
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
            prepare_for_create: pod::prepare_for_create,
            validate: faces::ephemeral_containers,
            validate_update: fixed::pod,
            faces: faces::POD,
            status_keeps: &["ownerReferences"],
            ..ANSWERING_GENERATION
        },
    ),
    ("", "podtemplates", Strategy { defaults: work::POD_TEMPLATE, ..ANSWERING_GENERATION }),
    (
        "",
        "replicationcontrollers",
        Strategy {
            orphans_by_default: true,
            defaults: work::REPLICATION_CONTROLLER,
            checks: check_work::REPLICATION_CONTROLLER,
            ..ANSWERING_GENERATION
        },
    ),
    ("", "resourcequotas", ANSWERING),
    (
        "",
        "secrets",
        Strategy {
            defaults: core::SECRET,
            checks: check_cluster::SECRET,
            validate_update: update::data,
            validate: data::validate,
            ..BASE
        },
    ),
    ("", "serviceaccounts", ANSWERING),
    (
        "",
        "services",
        Strategy {
            name: NameRule::Label,
            create_on_update: true,
            defaults: core::SERVICE,
            checks: check_service::SERVICE,
            validate_update: update::service,
            prepare_for_update: service::prepare_for_update,
            ..ANSWERING
        },
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", ADMISSION_POLICY),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ADMISSION_POLICY_BINDING),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        Strategy {
            defaults: cluster::MUTATING_WEBHOOKS,
            checks: check_cluster::WEBHOOKS,
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
            checks: check_cluster::WEBHOOKS,
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
            status_keeps: STATUS_KEEPS_METADATA,
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
            ..GENERATION
        },
    ),
    (
        "apps",
        "deployments",
        Strategy {
            generation_of_annotations: true,
            status_keeps: &["labels"],
            defaults: work::DEPLOYMENT,
            checks: check_work::DEPLOYMENT,
            immutable: &["spec.selector"],
            ..GENERATION
        },
    ),
    (
        "apps",
        "replicasets",
        Strategy {
            defaults: work::REPLICA_SET,
            checks: check_work::REPLICA_SET,
            immutable: &["spec.selector"],
            ..GENERATION
        },
    ),
    (
        "apps",
        "statefulsets",
        Strategy {
            defaults: work::STATEFUL_SET,
            checks: check_work::STATEFUL_SET,
            validate_update: fixed::stateful_set,
            ..GENERATION
        },
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        Strategy {
            defaults: work::HORIZONTAL_POD_AUTOSCALER,
            checks: check_work::HORIZONTAL_POD_AUTOSCALER,
            ..BASE
        },
    ),
    ("batch", "cronjobs", Strategy { defaults: work::CRON_JOB, checks: check_work::CRON_JOB, ..GENERATION }),
    (
        "batch",
        "jobs",
        Strategy {
            orphans_by_default: true,
            defaults: work::JOB,
            checks: check_work::JOB,
            validate_update: fixed::job,
            prepare_for_create: workloads::prepare_job_for_create,
            ..ANSWERING_GENERATION
        },
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        Strategy {
            name: NameRule::PathSegment,
            stamp: certificates::stamp,
            prepare_for_update: certificates::prepare_for_update,
            validate: certificates::validate,
            subresource_faults: certificates::subresource_faults,
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
            checks: check_service::ENDPOINT_SLICE,
            immutable: &["addressType"],
            ..GENERATION
        },
    ),
    (
        "events.k8s.io",
        "events",
        Strategy { validate: check_event::validate, validate_update: check_event::validate_update, ..EVENTS },
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        Strategy { defaults: cluster::FLOW_SCHEMA, checks: check_cluster::FLOW_SCHEMA, ..GENERATION },
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        Strategy { defaults: cluster::PRIORITY_LEVEL, ..GENERATION },
    ),
    ("networking.k8s.io", "ingresses", Strategy { checks: check_service::INGRESS, ..GENERATION }),
    ("networking.k8s.io", "ingressclasses", Strategy { defaults: cluster::INGRESS_CLASS, ..GENERATION }),
    (
        "networking.k8s.io",
        "networkpolicies",
        Strategy { defaults: cluster::NETWORK_POLICY, checks: check_service::NETWORK_POLICY, ..GENERATION },
    ),
    ("node.k8s.io", "runtimeclasses", CONDITIONAL),
    ("policy", "poddisruptionbudgets", Strategy { checks: check_work::POD_DISRUPTION_BUDGET, ..POLICY }),
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
    ("resource.k8s.io", "deviceclasses", ANSWERING_GENERATION),
    ("resource.k8s.io", "resourceclaims", Strategy { defaults: work::RESOURCE_CLAIM, ..ANSWERING }),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        Strategy { defaults: work::RESOURCE_CLAIM_TEMPLATE, ..ANSWERING },
    ),
    ("resource.k8s.io", "resourceslices", ANSWERING_GENERATION),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        Strategy {
            defaults: work::PRIORITY_CLASS,
            checks: check_cluster::PRIORITY_CLASS,
            refuses_delete: check_cluster::system_priority_class,
            validate_update: update::priority_class,
            ..GENERATION
        },
    ),
    ("storage.k8s.io", "csidrivers", Strategy { defaults: cluster::CSI_DRIVER, ..ANSWERING_CONDITIONAL }),
    ("storage.k8s.io", "csinodes", ANSWERING_CONDITIONAL),
    ("storage.k8s.io", "csistoragecapacities", CONDITIONAL),
    (
        "storage.k8s.io",
        "storageclasses",
        Strategy {
            defaults: cluster::STORAGE_CLASS,
            checks: check_cluster::STORAGE_CLASS,
            validate_update: update::storage_class,
            ..ANSWERING
        },
    ),
    (
        "storage.k8s.io",
        "volumeattachments",
        Strategy { defaults: cluster::VOLUME_ATTACHMENT, ..ANSWERING_CONDITIONAL },
    ),
    ("storage.k8s.io", "volumeattributesclasses", ANSWERING),
];
