//! Statuses as controllers and kubelets write them.

use super::{
    parse, strategy, Resource, AUTOSCALERS, CLAIMS, DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, INGRESSES,
    JOBS, PODS, REPLICA_SETS, SERVICES, STATEFUL_SETS, VOLUMES,
};
use crate::checks::ErrorList;
use crate::path::text;

#[test]
fn replica_counts_are_consistent() {
    // resource, status, paths of the errors
    let rows: &[(Resource, &str, &[&str])] = &[
        (DEPLOYMENTS, r#"{"replicas":3,"readyReplicas":2,"availableReplicas":1}"#, &[]),
        (
            DEPLOYMENTS,
            r#"{"replicas":-1}"#,
            &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
        ),
        (DEPLOYMENTS, r#"{"replicas":2,"readyReplicas":1,"availableReplicas":2}"#, &["availableReplicas"]),
        (REPLICA_SETS, r#"{"replicas":1,"fullyLabeledReplicas":2}"#, &["fullyLabeledReplicas"]),
        (
            STATEFUL_SETS,
            r#"{"replicas":1,"currentReplicas":2,"collisionCount":-1}"#,
            &["collisionCount", "currentReplicas"],
        ),
        (
            DAEMON_SETS,
            r#"{"numberReady":-1,"observedGeneration":-1}"#,
            &["numberReady", "observedGeneration"],
        ),
        (DISRUPTION_BUDGETS, r#"{"disruptionsAllowed":-1}"#, &["disruptionsAllowed"]),
        (AUTOSCALERS, r#"{"currentReplicas":-1}"#, &["currentReplicas"]),
        (
            JOBS,
            r#"{"active":-1,"uncountedTerminatedPods":{"succeeded":["a",""],"failed":["a"]}}"#,
            &["active", "uncountedTerminatedPods.succeeded[1]", "uncountedTerminatedPods.failed[0]"],
        ),
        (CLAIMS, r#"{"capacity":{"storage":"-1Gi"}}"#, &["capacity[storage]"]),
        (
            PODS,
            r#"{"conditions":[{"type":"Ready"},{"type":"a b","observedGeneration":-1}]}"#,
            &["conditions[1].observedGeneration", "conditions[1].Type"],
        ),
    ];
    for (resource, status, paths) in rows {
        let object = parse(&format!(r#"{{"status":{status}}}"#));
        let errors = ErrorList::of(&object, |object| object.check(strategy(*resource).status_checks));
        let found: Vec<&str> = errors.iter().map(|f| f.field.strip_prefix("status.").unwrap()).collect();
        assert_eq!(found, *paths, "{status}");
    }
}

#[test]
fn updates_of_the_status() {
    const DONE: &str = r#"{"status":{"startTime":"2020-01-01T00:00:00Z","completionTime":"2020-01-02T00:00:00Z","succeeded":1,
            "conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}"#;
    // resource, old, new, paths of the errors
    let rows: &[(Resource, &str, &str, &[&str])] = &[
        (
            DEPLOYMENTS,
            r#"{"status":{"collisionCount":2}}"#,
            r#"{"status":{"collisionCount":1}}"#,
            &["status.collisionCount"],
        ),
        (DEPLOYMENTS, r#"{"status":{"collisionCount":2}}"#, r#"{"status":{}}"#, &["status.collisionCount"]),
        (DEPLOYMENTS, r#"{"status":{}}"#, r#"{"status":{"collisionCount":1}}"#, &[]),
        (
            SERVICES,
            "{}",
            r#"{"spec":{"type":"ClusterIP"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#,
            &["status.loadBalancer.ingress"],
        ),
        (
            SERVICES,
            "{}",
            r#"{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4","ipMode":"VIP"}]}}}"#,
            &[],
        ),
        (
            SERVICES,
            "{}",
            r#"{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"x"},{"hostname":"1.2.3.4"},{"ipMode":"VIP"},{"ip":"1.1.1.1","ipMode":"Odd"}]}}}"#,
            &[
                "status.loadBalancer.ingress[0].ip",
                "status.loadBalancer.ingress[0].ipMode",
                "status.loadBalancer.ingress[1].hostname",
                "status.loadBalancer.ingress[2].ipMode",
                "status.loadBalancer.ingress[3].ipMode",
            ],
        ),
        (
            INGRESSES,
            "{}",
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"},{"ip":"x"}]}}}"#,
            &["status.loadBalancer.ingress[1].ip"],
        ),
        (
            INGRESSES,
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}}}"#,
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}}}"#,
            &[],
        ),
        (
            PODS,
            r#"{"status":{"qosClass":"Burstable"}}"#,
            r#"{"status":{"qosClass":"Guaranteed"}}"#,
            &["status.qosClass"],
        ),
        (
            PODS,
            r#"{"spec":{"nodeName":"a"}}"#,
            r#"{"status":{"nominatedNodeName":"n"}}"#,
            &["status.nominatedNodeName"],
        ),
        (PODS, "{}", r#"{"status":{"nominatedNodeName":"n"}}"#, &[]),
        (
            PODS,
            "{}",
            r#"{"status":{"podIPs":[{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}],"hostIP":"a","hostIPs":[{"ip":"1.1.1.1"}]}}"#,
            &["status.podIPs", "status.hostIPs[0].ip"],
        ),
        (PODS, "{}", r#"{"status":{"podIPs":[{"ip":"1.2.3.4"},{"ip":"fd00::1"}]}}"#, &[]),
        (
            PODS,
            r#"{"spec":{"restartPolicy":"Never"},"status":{"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}}}]}}"#,
            r#"{"status":{"containerStatuses":[{"name":"c","state":{"running":{}}}]}}"#,
            &["status.containerStatuses[0].state"],
        ),
        (
            PODS,
            r#"{"spec":{"restartPolicy":"OnFailure"},"status":{"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}}}]}}"#,
            r#"{"status":{"containerStatuses":[{"name":"c","state":{"running":{}}}]}}"#,
            &[],
        ),
        (JOBS, "{}", DONE, &[]),
        (JOBS, DONE, DONE, &[]),
        (
            JOBS,
            DONE,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            &["status.conditions", "status.succeeded", "status.conditions"],
        ),
        (JOBS, "{}", r#"{"status":{"completionTime":"2020-01-02T00:00:00Z"}}"#, &["status.completionTime"]),
        (
            JOBS,
            "{}",
            r#"{"status":{"active":1,"ready":2,"conditions":[{"type":"Failed","status":"True"}]}}"#,
            &["status.conditions", "status.active", "status.startTime", "status.ready"],
        ),
        (
            JOBS,
            r#"{"status":{"active":1,"ready":2}}"#,
            r#"{"status":{"active":1,"ready":2,"failed":1}}"#,
            &[],
        ),
        (
            JOBS,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            r#"{"status":{}}"#,
            &["status.startTime"],
        ),
        (
            JOBS,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            r#"{"spec":{"suspend":true},"status":{}}"#,
            &[],
        ),
    ];
    for (resource, old, new, paths) in rows {
        let errors =
            ErrorList::of(&parse(new), |new| (strategy(*resource).validate_status)(new, &parse(old)));
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, *paths, "{old} -> {new}");
    }
}

#[test]
fn fields_that_old_kubelets_omit_are_kept() {
    let old = parse(
        r#"{"status":{"qosClass":"Burstable","observedGeneration":2,"conditions":[{"type":"Ready","observedGeneration":2}]}}"#,
    );
    let mut new = parse(r#"{"status":{"phase":"Failed","conditions":[{"type":"Ready"},{"type":"Other"}]}}"#);
    (strategy(PODS).prepare_status)(&mut new, &old);
    assert_eq!(
        new,
        parse(
            r#"{"status":{"phase":"Failed","qosClass":"Burstable","observedGeneration":2,"conditions":[{"type":"Ready","observedGeneration":2},{"type":"Other"}]}}"#
        )
    );
}

#[test]
fn phase_transitions_get_a_timestamp() {
    let old = parse(r#"{"status":{"phase":"Pending","lastPhaseTransitionTime":"2020-01-01T00:00:00Z"}}"#);
    let since = |new: &str| {
        let mut new = parse(new);
        (strategy(VOLUMES).prepare_status)(&mut new, &old);
        text(&new, "status.lastPhaseTransitionTime").to_owned()
    };
    assert_eq!(since(r#"{"status":{"phase":"Pending"}}"#), "2020-01-01T00:00:00Z");
    assert_eq!(
        since(r#"{"status":{"phase":"Bound","lastPhaseTransitionTime":"2021-01-01T00:00:00Z"}}"#),
        "2021-01-01T00:00:00Z"
    );
    assert_ne!(since(r#"{"status":{"phase":"Bound"}}"#), "2020-01-01T00:00:00Z");
}
