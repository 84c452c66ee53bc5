use plinth_codec::{json, Value};

/// Group, plural, object, and what must be there afterwards: a JSON pointer and the value.
type Row = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// A container and the parts that defaults look at.
const POD: &str = r#"{"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"web:1","ports":[{"containerPort":80}],
    "env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
    "livenessProbe":{"httpGet":{"port":80},"periodSeconds":0},"readinessProbe":{"grpc":{"port":9},"timeoutSeconds":7},
    "lifecycle":{"preStop":{"httpGet":{"port":1}}},"resources":{"limits":{"cpu":"1"}}}],
    "initContainers":[{"name":"i","image":"a@sha256:00"}],
    "volumes":[{"name":"a"},{"name":"b","secret":{}},{"name":"c","hostPath":{"path":"/x"}},
      {"name":"d","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}},
      {"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{}}}},{"name":"f","iscsi":{}}]}}"#;
const TEMPLATE: &str = r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"web"}]}}}}"#;

static ROWS: &[Row] = &[
    (
        "",
        "pods",
        POD,
        &[
            ("/spec/dnsPolicy", r#""ClusterFirst""#),
            ("/spec/restartPolicy", r#""Always""#),
            ("/spec/securityContext", "{}"),
            ("/spec/terminationGracePeriodSeconds", "30"),
            ("/spec/schedulerName", r#""default-scheduler""#),
            ("/spec/enableServiceLinks", "true"),
            ("/spec/containers/0/imagePullPolicy", r#""IfNotPresent""#),
            ("/spec/containers/0/terminationMessagePath", r#""/dev/termination-log""#),
            ("/spec/containers/0/terminationMessagePolicy", r#""File""#),
            ("/spec/containers/0/ports/0/protocol", r#""TCP""#),
            ("/spec/containers/0/ports/0/hostPort", "80"),
            ("/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion", r#""v1""#),
            ("/spec/containers/0/livenessProbe/httpGet/path", r#""/""#),
            ("/spec/containers/0/livenessProbe/httpGet/scheme", r#""HTTP""#),
            ("/spec/containers/0/livenessProbe/periodSeconds", "10"),
            ("/spec/containers/0/livenessProbe/failureThreshold", "3"),
            ("/spec/containers/0/readinessProbe/timeoutSeconds", "7"),
            ("/spec/containers/0/readinessProbe/grpc/service", r#""""#),
            ("/spec/containers/0/lifecycle/preStop/httpGet/path", r#""/""#),
            ("/spec/containers/0/resources/requests/cpu", r#""1""#),
            ("/spec/initContainers/0/imagePullPolicy", r#""IfNotPresent""#),
            ("/spec/volumes/0/emptyDir", "{}"),
            ("/spec/volumes/1/secret/defaultMode", "420"),
            ("/spec/volumes/2/hostPath/type", r#""""#),
            ("/spec/volumes/3/projected/defaultMode", "420"),
            ("/spec/volumes/3/projected/sources/0/serviceAccountToken/expirationSeconds", "3600"),
            ("/spec/volumes/4/ephemeral/volumeClaimTemplate/spec/volumeMode", r#""Filesystem""#),
            ("/spec/volumes/5/iscsi/iscsiInterface", r#""default""#),
        ],
    ),
    (
        "",
        "pods",
        r#"{"spec":{"serviceAccount":"s","containers":[{"name":"c","image":"web:latest","imagePullPolicy":"Never"}]}}"#,
        &[("/spec/serviceAccountName", r#""s""#), ("/spec/containers/0/imagePullPolicy", r#""Never""#)],
    ),
    (
        "",
        "replicationcontrollers",
        TEMPLATE,
        &[
            ("/spec/replicas", "1"),
            ("/spec/selector/a", r#""b""#),
            ("/metadata/labels/a", r#""b""#),
            ("/spec/template/spec/containers/0/imagePullPolicy", r#""Always""#),
        ],
    ),
    (
        "apps",
        "deployments",
        TEMPLATE,
        &[
            ("/spec/replicas", "1"),
            ("/spec/strategy/type", r#""RollingUpdate""#),
            ("/spec/strategy/rollingUpdate/maxSurge", r#""25%""#),
            ("/spec/strategy/rollingUpdate/maxUnavailable", r#""25%""#),
            ("/spec/revisionHistoryLimit", "10"),
            ("/spec/progressDeadlineSeconds", "600"),
            ("/spec/template/spec/restartPolicy", r#""Always""#),
            ("/spec/template/spec/enableServiceLinks", "null"),
        ],
    ),
    (
        "apps",
        "deployments",
        r#"{"spec":{"strategy":{"type":"Recreate"},"replicas":0}}"#,
        &[("/spec/strategy", r#"{"type":"Recreate"}"#), ("/spec/replicas", "0")],
    ),
    ("apps", "replicasets", TEMPLATE, &[("/spec/replicas", "1"), ("/spec/revisionHistoryLimit", "null")]),
    (
        "apps",
        "daemonsets",
        TEMPLATE,
        &[(
            "/spec/updateStrategy",
            r#"{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}"#,
        )],
    ),
    (
        "apps",
        "statefulsets",
        r#"{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"v"}}]}}"#,
        &[
            ("/spec/podManagementPolicy", r#""OrderedReady""#),
            ("/spec/updateStrategy/rollingUpdate/partition", "0"),
            ("/spec/persistentVolumeClaimRetentionPolicy/whenScaled", r#""Retain""#),
            ("/spec/volumeClaimTemplates/0/kind", r#""PersistentVolumeClaim""#),
            ("/spec/volumeClaimTemplates/0/spec/volumeMode", r#""Filesystem""#),
            ("/spec/volumeClaimTemplates/0/status/phase", r#""Pending""#),
        ],
    ),
    (
        "apps",
        "statefulsets",
        r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}"#,
        &[("/spec/updateStrategy", r#"{"type":"RollingUpdate"}"#)],
    ),
    (
        "batch",
        "jobs",
        TEMPLATE,
        &[
            ("/spec/completions", "1"),
            ("/spec/parallelism", "1"),
            ("/spec/backoffLimit", "6"),
            ("/spec/completionMode", r#""NonIndexed""#),
            ("/spec/suspend", "false"),
            ("/spec/manualSelector", "false"),
            ("/spec/podReplacementPolicy", r#""TerminatingOrFailed""#),
        ],
    ),
    (
        "batch",
        "jobs",
        r#"{"spec":{"parallelism":2,"backoffLimitPerIndex":1,"podFailurePolicy":{"rules":[{"onPodConditions":[{"type":"X"}]}]}}}"#,
        &[
            ("/spec/completions", "null"),
            ("/spec/backoffLimit", "2147483647"),
            ("/spec/podReplacementPolicy", r#""Failed""#),
            ("/spec/podFailurePolicy/rules/0/onPodConditions/0/status", r#""True""#),
        ],
    ),
    (
        "batch",
        "cronjobs",
        r#"{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"web"}]}}}}}}"#,
        &[
            ("/spec/concurrencyPolicy", r#""Allow""#),
            ("/spec/suspend", "false"),
            ("/spec/successfulJobsHistoryLimit", "3"),
            ("/spec/failedJobsHistoryLimit", "1"),
            ("/spec/jobTemplate/spec/completions", "null"),
            ("/spec/jobTemplate/spec/template/spec/containers/0/imagePullPolicy", r#""Always""#),
        ],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        r#"{"apiVersion":"autoscaling/v2","spec":{"behavior":{"scaleDown":{"policies":[]}}}}"#,
        &[
            ("/spec/minReplicas", "1"),
            ("/spec/metrics/0/resource/target/averageUtilization", "80"),
            ("/spec/behavior/scaleDown", r#"{"policies":[],"selectPolicy":"Max"}"#),
            ("/spec/behavior/scaleUp/stabilizationWindowSeconds", "0"),
            ("/spec/behavior/scaleUp/policies/0/value", "4"),
        ],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        r#"{"apiVersion":"autoscaling/v1","spec":{}}"#,
        &[("/spec/minReplicas", "1"), ("/spec/metrics", "null")],
    ),
    (
        "",
        "services",
        r#"{"spec":{"ports":[{"port":80}]}}"#,
        &[
            ("/spec/type", r#""ClusterIP""#),
            ("/spec/sessionAffinity", r#""None""#),
            ("/spec/ports/0", r#"{"port":80,"protocol":"TCP","targetPort":80}"#),
            ("/spec/internalTrafficPolicy", r#""Cluster""#),
            ("/spec/externalTrafficPolicy", "null"),
        ],
    ),
    (
        "",
        "services",
        r#"{"spec":{"type":"LoadBalancer","sessionAffinity":"ClientIP","ports":[{"port":80,"targetPort":"http"}]}}"#,
        &[
            ("/spec/sessionAffinityConfig/clientIP/timeoutSeconds", "10800"),
            ("/spec/allocateLoadBalancerNodePorts", "true"),
            ("/spec/externalTrafficPolicy", r#""Cluster""#),
            ("/spec/ports/0/targetPort", r#""http""#),
        ],
    ),
    ("", "services", r#"{"spec":{"type":"ExternalName"}}"#, &[("/spec/internalTrafficPolicy", "null")]),
    (
        "",
        "endpoints",
        r#"{"subsets":[{"ports":[{"port":1}]}]}"#,
        &[("/subsets/0/ports/0/protocol", r#""TCP""#)],
    ),
    (
        "",
        "limitranges",
        r#"{"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"1","memory":"1"}},{"type":"Pod","max":{"cpu":"2"}}]}}"#,
        &[
            ("/spec/limits/0/default", r#"{"cpu":"2"}"#),
            ("/spec/limits/0/defaultRequest", r#"{"cpu":"2","memory":"1"}"#),
            ("/spec/limits/1/default", "null"),
        ],
    ),
    (
        "",
        "namespaces",
        r#"{"metadata":{"name":"n","labels":{"a":"b"}}}"#,
        &[
            ("/metadata/labels", r#"{"a":"b","kubernetes.io/metadata.name":"n"}"#),
            ("/status/phase", r#""Active""#),
        ],
    ),
    ("", "nodes", r#"{"status":{"capacity":{"cpu":"1"}}}"#, &[("/status/allocatable", r#"{"cpu":"1"}"#)]),
    (
        "",
        "persistentvolumes",
        r#"{"spec":{"azureDisk":{"diskName":"d"}}}"#,
        &[
            ("/spec/persistentVolumeReclaimPolicy", r#""Retain""#),
            ("/spec/volumeMode", r#""Filesystem""#),
            ("/spec/azureDisk/kind", r#""Shared""#),
            ("/status/phase", r#""Pending""#),
        ],
    ),
    ("", "persistentvolumeclaims", "{}", &[("/spec/volumeMode", r#""Filesystem""#)]),
    (
        "",
        "secrets",
        r#"{"stringData":{"a":"b"},"data":{"a":"eA==","c":"eA=="}}"#,
        &[("/type", r#""Opaque""#), ("/data", r#"{"a":"Yg==","c":"eA=="}"#), ("/stringData", "null")],
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        r#"{"spec":{"egress":[{"ports":[{}]}]}}"#,
        &[("/spec/policyTypes", r#"["Ingress","Egress"]"#), ("/spec/egress/0/ports/0/protocol", r#""TCP""#)],
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        r#"{"spec":{"parameters":{}}}"#,
        &[("/spec/parameters/scope", r#""Cluster""#)],
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        r#"{"ports":[{}]}"#,
        &[("/ports/0", r#"{"name":"","protocol":"TCP"}"#)],
    ),
    (
        "storage.k8s.io",
        "storageclasses",
        "{}",
        &[("/reclaimPolicy", r#""Delete""#), ("/volumeBindingMode", r#""Immediate""#)],
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        r#"{"spec":{"attachRequired":false}}"#,
        &[
            ("/spec/attachRequired", "false"),
            ("/spec/volumeLifecycleModes", r#"["Persistent"]"#),
            ("/spec/fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
        ],
    ),
    (
        "rbac.authorization.k8s.io",
        "rolebindings",
        r#"{"roleRef":{"kind":"Role"},"subjects":[{"kind":"User"},{"kind":"ServiceAccount"}]}"#,
        &[
            ("/roleRef/apiGroup", r#""rbac.authorization.k8s.io""#),
            ("/subjects/0/apiGroup", r#""rbac.authorization.k8s.io""#),
            ("/subjects/1/apiGroup", "null"),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        r#"{"webhooks":[{"clientConfig":{"service":{}},"rules":[{}]}]}"#,
        &[
            ("/webhooks/0/failurePolicy", r#""Fail""#),
            ("/webhooks/0/timeoutSeconds", "10"),
            ("/webhooks/0/namespaceSelector", "{}"),
            ("/webhooks/0/reinvocationPolicy", r#""Never""#),
            ("/webhooks/0/clientConfig/service/port", "443"),
            ("/webhooks/0/rules/0/scope", r#""*""#),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        r#"{"spec":{"matchConstraints":{"resourceRules":[{}]}}}"#,
        &[
            ("/spec/failurePolicy", r#""Fail""#),
            ("/spec/matchConstraints/matchPolicy", r#""Equivalent""#),
            ("/spec/matchConstraints/resourceRules/0/scope", r#""*""#),
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        r#"{"spec":{"limited":{"limitResponse":{"queuing":{}}}}}"#,
        &[
            ("/spec/limited/nominalConcurrencyShares", "30"),
            ("/spec/limited/limitResponse/queuing/queues", "64"),
        ],
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "{}", &[("/spec/matchingPrecedence", "1000")]),
    ("scheduling.k8s.io", "priorityclasses", "{}", &[("/preemptionPolicy", r#""PreemptLowerPriority""#)]),
    ("apiregistration.k8s.io", "apiservices", r#"{"spec":{"service":{}}}"#, &[("/spec/service/port", "443")]),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        r#"{"spec":{"names":{"kind":"Thing"},"versions":[{"name":"v1"},{"name":"v2","storage":true}]}}"#,
        &[
            ("/spec/names/singular", r#""thing""#),
            ("/spec/names/listKind", r#""ThingList""#),
            ("/spec/conversion/strategy", r#""None""#),
            ("/status/storedVersions", r#"["v2"]"#),
        ],
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        r#"{"spec":{"devices":{"requests":[{"exactly":{}},{"firstAvailable":[{"allocationMode":"All"}]}]}}}"#,
        &[
            ("/spec/devices/requests/0/exactly", r#"{"allocationMode":"ExactCount","count":1}"#),
            ("/spec/devices/requests/1/firstAvailable/0", r#"{"allocationMode":"All"}"#),
        ],
    ),
];

fn pointer<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').skip(1).try_fold(object, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

#[test]
fn each_kind_has_its_defaults() {
    for (group, plural, text, expected) in ROWS {
        let mut object = json::parse(text.as_bytes()).unwrap();
        let row = crate::of(group, plural);
        row.default(&mut object);
        for (path, value) in *expected {
            let value = json::parse(value.as_bytes()).unwrap();
            assert_eq!(pointer(&object, path).unwrap_or(&Value::Null), &value, "{plural} {path} of {text}");
        }
        let once = object.clone();
        row.default(&mut object);
        assert_eq!(object, once, "{plural}: defaults must be stable");
    }
}

#[test]
fn pull_policy_follows_the_tag() {
    let rows = [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("web:1", "IfNotPresent"),
        ("Host.example:5000/team/web", "Always"),
        ("host:5000/web:2", "IfNotPresent"),
        ("web@sha256:00", "IfNotPresent"),
        ("web:latest@sha256:00", "Always"),
        ("WEB", "IfNotPresent"),
        ("a..b", "IfNotPresent"),
        ("a__b/c--d/e.f", "Always"),
        ("-a", "IfNotPresent"),
        ("web:latest/", "IfNotPresent"),
        ("web:.latest", "IfNotPresent"),
        ("", "IfNotPresent"),
    ];
    for (image, policy) in rows {
        let text = format!(r#"{{"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#);
        let mut pod = json::parse(text.as_bytes()).unwrap();
        crate::of("", "pods").default(&mut pod);
        let container = pointer(&pod, "/spec/containers/0/imagePullPolicy").and_then(Value::as_str);
        assert_eq!(container, Some(policy), "{image}");
    }
}
