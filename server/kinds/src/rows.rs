//! Which strategy each resource has. A resource without a row has [`BASE`].

use crate::strategy::{Strategy, BASE, REVIEW};
use crate::{
    admissionregistration, apiextensions, apiregistration, apiserverinternal, apps, autoscaling, batch,
    certificates, coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac,
    resource, scheduling, storage, storagemigration,
};

/// Group, plural and strategy.
type Row = (&'static str, &'static str, &'static Strategy);

#[rustfmt::skip]
pub(crate) static ROWS: &[Row] = &[
    ("", "componentstatuses", &core::component_status::STRATEGY),
    ("", "configmaps", &core::config_map::STRATEGY),
    ("", "endpoints", &core::endpoints::STRATEGY),
    ("", "events", &core::event::STRATEGY),
    ("", "limitranges", &core::limit_range::STRATEGY),
    ("", "namespaces", &core::namespace::STRATEGY),
    ("", "nodes", &core::node::STRATEGY),
    ("", "persistentvolumeclaims", &core::persistent_volume_claim::STRATEGY),
    ("", "persistentvolumes", &core::persistent_volume::STRATEGY),
    ("", "pods", &core::pod::STRATEGY),
    ("", "podtemplates", &core::pod_template::STRATEGY),
    ("", "replicationcontrollers", &core::replication_controller::STRATEGY),
    ("", "resourcequotas", &core::resource_quota::STRATEGY),
    ("", "secrets", &core::secret::STRATEGY),
    ("", "serviceaccounts", &core::service_account::STRATEGY),
    ("", "services", &core::service::STRATEGY),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", &admissionregistration::mutating_admission_policy::STRATEGY),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", &admissionregistration::mutating_admission_policy_binding::STRATEGY),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &admissionregistration::mutating_webhook_configuration::STRATEGY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", &admissionregistration::validating_admission_policy::STRATEGY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", &admissionregistration::validating_admission_policy_binding::STRATEGY),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", &admissionregistration::validating_webhook_configuration::STRATEGY),
    ("apiextensions.k8s.io", "customresourcedefinitions", &apiextensions::custom_resource_definition::STRATEGY),
    ("apiregistration.k8s.io", "apiservices", &apiregistration::api_service::STRATEGY),
    ("apps", "controllerrevisions", &apps::controller_revision::STRATEGY),
    ("apps", "daemonsets", &apps::daemon_set::STRATEGY),
    ("apps", "deployments", &apps::deployment::STRATEGY),
    ("apps", "replicasets", &apps::replica_set::STRATEGY),
    ("apps", "statefulsets", &apps::stateful_set::STRATEGY),
    ("authentication.k8s.io", "selfsubjectreviews", &REVIEW),
    ("authentication.k8s.io", "tokenreviews", &REVIEW),
    ("authorization.k8s.io", "localsubjectaccessreviews", &REVIEW),
    ("authorization.k8s.io", "selfsubjectaccessreviews", &REVIEW),
    ("authorization.k8s.io", "selfsubjectrulesreviews", &REVIEW),
    ("authorization.k8s.io", "subjectaccessreviews", &REVIEW),
    ("autoscaling", "horizontalpodautoscalers", &autoscaling::horizontal_pod_autoscaler::STRATEGY),
    ("batch", "cronjobs", &batch::cron_job::STRATEGY),
    ("batch", "jobs", &batch::job::STRATEGY),
    ("certificates.k8s.io", "certificatesigningrequests", &certificates::certificate_signing_request::STRATEGY),
    ("certificates.k8s.io", "clustertrustbundles", &certificates::cluster_trust_bundle::STRATEGY),
    ("certificates.k8s.io", "podcertificaterequests", &certificates::pod_certificate_request::STRATEGY),
    ("coordination.k8s.io", "leasecandidates", &coordination::lease_candidate::STRATEGY),
    ("coordination.k8s.io", "leases", &coordination::lease::STRATEGY),
    ("discovery.k8s.io", "endpointslices", &discovery::endpoint_slice::STRATEGY),
    ("events.k8s.io", "events", &events::event::STRATEGY),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", &flowcontrol::flow_schema::STRATEGY),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", &flowcontrol::priority_level_configuration::STRATEGY),
    ("internal.apiserver.k8s.io", "storageversions", &apiserverinternal::storage_version::STRATEGY),
    ("networking.k8s.io", "ingressclasses", &networking::ingress_class::STRATEGY),
    ("networking.k8s.io", "ingresses", &networking::ingress::STRATEGY),
    ("networking.k8s.io", "ipaddresses", &networking::ip_address::STRATEGY),
    ("networking.k8s.io", "networkpolicies", &networking::network_policy::STRATEGY),
    ("networking.k8s.io", "servicecidrs", &networking::service_cidr::STRATEGY),
    ("node.k8s.io", "runtimeclasses", &node::runtime_class::STRATEGY),
    ("policy", "poddisruptionbudgets", &policy::pod_disruption_budget::STRATEGY),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &rbac::role_binding::CLUSTER_STRATEGY),
    ("rbac.authorization.k8s.io", "clusterroles", &rbac::role::CLUSTER_STRATEGY),
    ("rbac.authorization.k8s.io", "rolebindings", &rbac::role_binding::STRATEGY),
    ("rbac.authorization.k8s.io", "roles", &rbac::role::STRATEGY),
    ("resource.k8s.io", "deviceclasses", &resource::device_class::STRATEGY),
    ("resource.k8s.io", "devicetaintrules", &resource::device_taint_rule::STRATEGY),
    ("resource.k8s.io", "resourceclaims", &resource::resource_claim::STRATEGY),
    ("resource.k8s.io", "resourceclaimtemplates", &resource::resource_claim_template::STRATEGY),
    ("resource.k8s.io", "resourcepoolstatusrequests", &resource::resource_pool_status_request::STRATEGY),
    ("resource.k8s.io", "resourceslices", &resource::resource_slice::STRATEGY),
    ("scheduling.k8s.io", "podgroups", &scheduling::pod_group::STRATEGY),
    ("scheduling.k8s.io", "priorityclasses", &scheduling::priority_class::STRATEGY),
    ("scheduling.k8s.io", "workloads", &scheduling::workload::STRATEGY),
    ("storage.k8s.io", "csidrivers", &storage::csi_driver::STRATEGY),
    ("storage.k8s.io", "csinodes", &storage::csi_node::STRATEGY),
    ("storage.k8s.io", "csistoragecapacities", &storage::csi_storage_capacity::STRATEGY),
    ("storage.k8s.io", "storageclasses", &storage::storage_class::STRATEGY),
    ("storage.k8s.io", "volumeattachments", &storage::volume_attachment::STRATEGY),
    ("storage.k8s.io", "volumeattributesclasses", &storage::volume_attributes_class::STRATEGY),
    ("storagemigration.k8s.io", "storageversionmigrations", &storagemigration::storage_version_migration::STRATEGY),
];

/// The strategy of a resource.
pub fn of(group: &str, plural: &str) -> &'static Strategy {
    static BASE_STRATEGY: Strategy = BASE;
    ROWS.iter()
        .find(|(g, p, _)| *g == group && *p == plural)
        .map_or(&BASE_STRATEGY, |(_, _, strategy)| strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_configures_admission_and_reviews_are_exempt_from_it() {
        use crate::AdmissionExemption::{Nothing, Policies, WebhooksAndPolicies};
        for resource in &plinth_codec::resources::known().table.resources {
            let expected = match resource.group.as_str() {
                "admissionregistration.k8s.io" => WebhooksAndPolicies,
                "authentication.k8s.io" | "authorization.k8s.io" => Policies,
                _ => Nothing,
            };
            let (group, plural) = (&resource.group, &resource.plural);
            assert_eq!(of(group, plural).admission_exemption, expected, "{group} {plural}");
        }
        assert_eq!(crate::CUSTOM.admission_exemption, Nothing);
    }

    #[test]
    fn every_row_names_a_resource() {
        let known = &plinth_codec::resources::known().table.resources;
        for (group, plural, _) in ROWS {
            assert!(known.iter().any(|r| r.group == *group && r.plural == *plural), "{group} {plural}");
        }
    }
}
