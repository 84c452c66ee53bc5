//! Fields that can and cannot change.

use plinth_codec::Value;

use super::{parse, strategy, Resource, CLAIMS, JOBS, NODES, PODS, STATEFUL_SETS, VOLUMES};
use crate::checks::ErrorList;

/// Resource, old, new, paths of the errors.
const ROWS: &[(Resource, &str, &str, &[&str])] = &[
    (
        PODS,
        r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
        r#"{"spec":{"containers":[{"name":"a","image":"y"}],"tolerations":[{"key":"k"}],"activeDeadlineSeconds":5}}"#,
        &[],
    ),
    (
        PODS,
        r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
        r#"{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"x"}]}}"#,
        &["spec.containers"],
    ),
    (
        PODS,
        r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#,
        r#"{"spec":{"containers":[{"name":"a","image":"x","command":["c"]}]}}"#,
        &["spec"],
    ),
    (PODS, r#"{"spec":{"nodeName":"a"}}"#, r#"{"spec":{"nodeName":"b"}}"#, &["spec"]),
    (
        PODS,
        r#"{"spec":{"activeDeadlineSeconds":5}}"#,
        r#"{"spec":{"activeDeadlineSeconds":6}}"#,
        &["spec.activeDeadlineSeconds"],
    ),
    (PODS, r#"{"spec":{"activeDeadlineSeconds":5}}"#, r#"{"spec":{"activeDeadlineSeconds":4}}"#, &[]),
    (PODS, r#"{"spec":{"activeDeadlineSeconds":5}}"#, r#"{"spec":{}}"#, &["spec.activeDeadlineSeconds"]),
    (
        PODS,
        r#"{"spec":{"tolerations":[{"key":"k","tolerationSeconds":1}]}}"#,
        r#"{"spec":{"tolerations":[{"key":"k","tolerationSeconds":2},{"key":"l"}]}}"#,
        &[],
    ),
    (PODS, r#"{"spec":{"tolerations":[{"key":"k"}]}}"#, r#"{"spec":{}}"#, &["spec.tolerations"]),
    (
        PODS,
        r#"{"spec":{"schedulingGates":[{"name":"a"}]}}"#,
        r#"{"spec":{"schedulingGates":[{"name":"b"}],"nodeSelector":{"k":"v"}}}"#,
        &["spec.schedulingGates[0].name"],
    ),
    (
        PODS,
        r#"{"spec":{"terminationGracePeriodSeconds":-1}}"#,
        r#"{"spec":{"terminationGracePeriodSeconds":1}}"#,
        &[],
    ),
    (
        CLAIMS,
        r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Pending"}}"#,
        r#"{"spec":{"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Pending"}}"#,
        &["spec"],
    ),
    (
        CLAIMS,
        r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound"}}"#,
        r#"{"spec":{"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound"}}"#,
        &[],
    ),
    (
        CLAIMS,
        r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#,
        r#"{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#,
        &["spec.resources.requests.storage"],
    ),
    (
        VOLUMES,
        r#"{"spec":{"hostPath":{"path":"/a"},"capacity":{"storage":"1"}}}"#,
        r#"{"spec":{"hostPath":{"path":"/b"},"capacity":{"storage":"2"}}}"#,
        &["spec.persistentvolumesource"],
    ),
    (
        VOLUMES,
        r#"{"spec":{"hostPath":{"path":"/a"}}}"#,
        r#"{"spec":{"hostPath":{"path":"/a"},"claimRef":{"name":"c"}}}"#,
        &[],
    ),
    (
        VOLUMES,
        r#"{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}"#,
        r#"{"spec":{}}"#,
        &["nodeAffinity"],
    ),
    (VOLUMES, r#"{"spec":{}}"#, r#"{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}"#, &[]),
    (STATEFUL_SETS, r#"{"spec":{"replicas":1}}"#, r#"{"spec":{"replicas":2,"template":{}}}"#, &[]),
    (STATEFUL_SETS, r#"{"spec":{"serviceName":"a"}}"#, r#"{"spec":{"serviceName":"b"}}"#, &["spec"]),
    (JOBS, r#"{"spec":{"completions":1}}"#, r#"{"spec":{"completions":2}}"#, &["spec.completions"]),
    (
        JOBS,
        r#"{"spec":{"completionMode":"Indexed","completions":1,"parallelism":1}}"#,
        r#"{"spec":{"completionMode":"Indexed","completions":2,"parallelism":2}}"#,
        &[],
    ),
    (
        JOBS,
        r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#,
        r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"c"}}}}}"#,
        &["spec.template"],
    ),
    (
        JOBS,
        r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#,
        r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"c"}}}}}"#,
        &[],
    ),
    // Of a suspended Job that ran before, too, once its pods are gone.
    (
        JOBS,
        r#"{"spec":{"suspend":true,"template":{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}}]}}},
            "status":{"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"True"}]}}"#,
        r#"{"spec":{"suspend":true,"template":{"spec":{"tolerations":[{"key":"k"}],
            "initContainers":[{"name":"i","resources":{"limits":{"cpu":"1"}}}],"containers":[{"name":"a","resources":{"limits":{"cpu":"2"}}}]}}},
            "status":{"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"True"}]}}"#,
        &[],
    ),
    (
        JOBS,
        r#"{"spec":{"suspend":true,"template":{"spec":{"containers":[{"name":"a","image":"i"}]}}}}"#,
        r#"{"spec":{"suspend":true,"template":{"spec":{"containers":[{"name":"a","image":"j"}]}}}}"#,
        &["spec.template.spec"],
    ),
    (
        JOBS,
        r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"b"}}}},
            "status":{"active":1,"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"True"}]}}"#,
        r#"{"spec":{"suspend":true,"template":{"spec":{"nodeSelector":{"a":"c"}}}},
            "status":{"active":1,"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"True"}]}}"#,
        &["spec.template"],
    ),
    (NODES, r#"{"spec":{}}"#, r#"{"spec":{"podCIDRs":["10.0.0.0/24"],"providerID":"x"}}"#, &[]),
    (
        NODES,
        r#"{"spec":{"podCIDRs":["10.0.0.0/24"],"providerID":"x"}}"#,
        r#"{"spec":{"podCIDRs":["10.0.1.0/24"],"providerID":"y"}}"#,
        &["spec.podCIDRs", "spec.providerID"],
    ),
];

#[test]
fn immutable_and_mutable_fields() {
    for (resource, old, new, paths) in ROWS {
        let (old_object, new_object) = (parse(old), parse(new));
        let errors =
            |new: &Value| ErrorList::of(new, |new| (strategy(*resource).validate_update)(new, &old_object));
        let found: Vec<String> = errors(&new_object).into_iter().map(|error| error.field).collect();
        assert_eq!(found, *paths, "{old} -> {new}");
        assert_eq!(errors(&old_object), [], "{old}");
    }
}
