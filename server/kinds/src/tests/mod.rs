//! Tables over all kinds: a row per default, rule, change and warning.

mod cluster_rows;
mod columns;
mod defaults;
mod devices;
mod enums;
mod large;
mod policies;
mod rbac;
mod recording;
mod rules;
mod selectors;
mod statuses;
mod updates;
mod warnings;

use plinth_codec::{json, Value};

use crate::Strategy;

/// Group and plural.
type Resource = (&'static str, &'static str);

const PODS: Resource = ("", "pods");
const CLAIMS: Resource = ("", "persistentvolumeclaims");
const VOLUMES: Resource = ("", "persistentvolumes");
const NODES: Resource = ("", "nodes");
const SERVICES: Resource = ("", "services");
const SECRETS: Resource = ("", "secrets");
const SERVICE_ACCOUNTS: Resource = ("", "serviceaccounts");
const ENDPOINTS: Resource = ("", "endpoints");
const QUOTAS: Resource = ("", "resourcequotas");
const STATEFUL_SETS: Resource = ("apps", "statefulsets");
const DEPLOYMENTS: Resource = ("apps", "deployments");
const REPLICA_SETS: Resource = ("apps", "replicasets");
const DAEMON_SETS: Resource = ("apps", "daemonsets");
const JOBS: Resource = ("batch", "jobs");
const CRON_JOBS: Resource = ("batch", "cronjobs");
const AUTOSCALERS: Resource = ("autoscaling", "horizontalpodautoscalers");
const DISRUPTION_BUDGETS: Resource = ("policy", "poddisruptionbudgets");
const INGRESSES: Resource = ("networking.k8s.io", "ingresses");
const NETWORK_POLICIES: Resource = ("networking.k8s.io", "networkpolicies");
const ENDPOINT_SLICES: Resource = ("discovery.k8s.io", "endpointslices");
const CSI_DRIVERS: Resource = ("storage.k8s.io", "csidrivers");
const STORAGE_CLASSES: Resource = ("storage.k8s.io", "storageclasses");
const CAPACITIES: Resource = ("storage.k8s.io", "csistoragecapacities");
const RUNTIME_CLASSES: Resource = ("node.k8s.io", "runtimeclasses");
const RESOURCE_SLICES: Resource = ("resource.k8s.io", "resourceslices");

fn strategy((group, plural): Resource) -> &'static Strategy {
    crate::of(group, plural)
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}
