use super::*;
use plinth_codec::json;

type Rule = fn(&Value, &Value) -> Vec<Cause>;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn counts_agree() {
    // checks, status, paths of the errors
    let rows: &[(&[Check], &str, &[&str])] = &[
        (DEPLOYMENT, r#"{"replicas":3,"readyReplicas":2,"availableReplicas":1}"#, &[]),
        (
            DEPLOYMENT,
            r#"{"replicas":-1}"#,
            &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"],
        ),
        (DEPLOYMENT, r#"{"replicas":2,"readyReplicas":1,"availableReplicas":2}"#, &["availableReplicas"]),
        (REPLICA_SET, r#"{"replicas":1,"fullyLabeledReplicas":2}"#, &["fullyLabeledReplicas"]),
        (
            STATEFUL_SET,
            r#"{"replicas":1,"currentReplicas":2,"collisionCount":-1}"#,
            &["collisionCount", "currentReplicas"],
        ),
        (DAEMON_SET, r#"{"numberReady":-1,"observedGeneration":-1}"#, &["numberReady", "observedGeneration"]),
        (POD_DISRUPTION_BUDGET, r#"{"disruptionsAllowed":-1}"#, &["disruptionsAllowed"]),
        (HORIZONTAL_POD_AUTOSCALER, r#"{"currentReplicas":-1}"#, &["currentReplicas"]),
        (
            JOB,
            r#"{"active":-1,"uncountedTerminatedPods":{"succeeded":["a",""],"failed":["a"]}}"#,
            &["active", "uncountedTerminatedPods.succeeded[1]", "uncountedTerminatedPods.failed[0]"],
        ),
        (PERSISTENT_VOLUME_CLAIM, r#"{"capacity":{"storage":"-1Gi"}}"#, &["capacity[storage]"]),
        (
            POD,
            r#"{"conditions":[{"type":"Ready"},{"type":"a b","observedGeneration":-1}]}"#,
            &["conditions[1].observedGeneration", "conditions[1].Type"],
        ),
    ];
    for (checks, status, paths) in rows {
        let mut errors = Vec::new();
        crate::validation::validate(
            checks,
            &parse(&format!(r#"{{"status":{status}}}"#)),
            format_args!(""),
            &mut errors,
        );
        let found: Vec<&str> = errors.iter().map(|f| f.field.strip_prefix("status.").unwrap()).collect();
        assert_eq!(found, *paths, "{status}");
    }
}

#[test]
fn what_a_status_may_become() {
    const DONE: &str = r#"{"status":{"startTime":"2020-01-01T00:00:00Z","completionTime":"2020-01-02T00:00:00Z","succeeded":1,
            "conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}"#;
    // rule, old, new, paths of the errors
    let rows: &[(Rule, &str, &str, &[&str])] = &[
        (
            collisions,
            r#"{"status":{"collisionCount":2}}"#,
            r#"{"status":{"collisionCount":1}}"#,
            &["status.collisionCount"],
        ),
        (collisions, r#"{"status":{"collisionCount":2}}"#, r#"{"status":{}}"#, &["status.collisionCount"]),
        (collisions, r#"{"status":{}}"#, r#"{"status":{"collisionCount":1}}"#, &[]),
        (
            service,
            "{}",
            r#"{"spec":{"type":"ClusterIP"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#,
            &["status.loadBalancer.ingress"],
        ),
        (
            service,
            "{}",
            r#"{"spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4","ipMode":"VIP"}]}}}"#,
            &[],
        ),
        (
            service,
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
            ingress,
            "{}",
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"},{"ip":"x"}]}}}"#,
            &["status.loadBalancer.ingress[1].ip"],
        ),
        (
            ingress,
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}}}"#,
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}}}"#,
            &[],
        ),
        (
            pod,
            r#"{"status":{"qosClass":"Burstable"}}"#,
            r#"{"status":{"qosClass":"Guaranteed"}}"#,
            &["status.qosClass"],
        ),
        (
            pod,
            r#"{"spec":{"nodeName":"a"}}"#,
            r#"{"status":{"nominatedNodeName":"n"}}"#,
            &["status.nominatedNodeName"],
        ),
        (pod, "{}", r#"{"status":{"nominatedNodeName":"n"}}"#, &[]),
        (
            pod,
            "{}",
            r#"{"status":{"podIPs":[{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}],"hostIP":"a","hostIPs":[{"ip":"1.1.1.1"}]}}"#,
            &["status.podIPs", "status.hostIPs[0].ip"],
        ),
        (pod, "{}", r#"{"status":{"podIPs":[{"ip":"1.2.3.4"},{"ip":"fd00::1"}]}}"#, &[]),
        (
            pod,
            r#"{"spec":{"restartPolicy":"Never"},"status":{"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}}}]}}"#,
            r#"{"status":{"containerStatuses":[{"name":"c","state":{"running":{}}}]}}"#,
            &["status.containerStatuses[0].state"],
        ),
        (
            pod,
            r#"{"spec":{"restartPolicy":"OnFailure"},"status":{"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}}}]}}"#,
            r#"{"status":{"containerStatuses":[{"name":"c","state":{"running":{}}}]}}"#,
            &[],
        ),
        (job, "{}", DONE, &[]),
        (job, DONE, DONE, &[]),
        (
            job,
            DONE,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            &["status.conditions", "status.succeeded", "status.conditions"],
        ),
        (job, "{}", r#"{"status":{"completionTime":"2020-01-02T00:00:00Z"}}"#, &["status.completionTime"]),
        (
            job,
            "{}",
            r#"{"status":{"active":1,"ready":2,"conditions":[{"type":"Failed","status":"True"}]}}"#,
            &["status.conditions", "status.active", "status.startTime", "status.ready"],
        ),
        (job, r#"{"status":{"active":1,"ready":2}}"#, r#"{"status":{"active":1,"ready":2,"failed":1}}"#, &[]),
        (
            job,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            r#"{"status":{}}"#,
            &["status.startTime"],
        ),
        (
            job,
            r#"{"status":{"startTime":"2020-01-01T00:00:00Z"}}"#,
            r#"{"spec":{"suspend":true},"status":{}}"#,
            &[],
        ),
    ];
    for (rule, old, new, paths) in rows {
        let errors = rule(&parse(new), &parse(old));
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, *paths, "{old} -> {new}");
    }
}

#[test]
fn what_an_old_kubelet_leaves_out_stays() {
    let old = parse(
        r#"{"status":{"qosClass":"Burstable","observedGeneration":2,"conditions":[{"type":"Ready","observedGeneration":2}]}}"#,
    );
    let mut new = parse(r#"{"status":{"phase":"Failed","conditions":[{"type":"Ready"},{"type":"Other"}]}}"#);
    keep_of_pod(&mut new, &old);
    assert_eq!(
        new,
        parse(
            r#"{"status":{"phase":"Failed","qosClass":"Burstable","observedGeneration":2,"conditions":[{"type":"Ready","observedGeneration":2},{"type":"Other"}]}}"#
        )
    );
}

#[test]
fn a_phase_is_dated() {
    let old = parse(r#"{"status":{"phase":"Pending","lastPhaseTransitionTime":"2020-01-01T00:00:00Z"}}"#);
    let since = |new: &str| {
        let mut new = parse(new);
        date_phase(&mut new, &old);
        text(&new, "status.lastPhaseTransitionTime").to_owned()
    };
    assert_eq!(since(r#"{"status":{"phase":"Pending"}}"#), "2020-01-01T00:00:00Z");
    assert_eq!(
        since(r#"{"status":{"phase":"Bound","lastPhaseTransitionTime":"2021-01-01T00:00:00Z"}}"#),
        "2021-01-01T00:00:00Z"
    );
    assert_ne!(since(r#"{"status":{"phase":"Bound"}}"#), "2020-01-01T00:00:00Z");
}
