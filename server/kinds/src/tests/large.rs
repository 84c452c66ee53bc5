//! Objects as large as a body may be: each rule looks at each element once. A rule that compared each with
//! all others would be here for minutes.

use plinth_codec::{json, Value};

use plinth_api::Cause;

/// Elements of a list; so many short ones fit into a body of 3 MiB.
const MANY: usize = 50_000;

fn list(element: impl Fn(usize) -> String) -> String {
    (0..MANY).map(element).collect::<Vec<_>>().join(",")
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {}", &text[..200.min(text.len())]))
}

fn created(group: &str, plural: &str, object: &str) -> Vec<Cause> {
    crate::of(group, plural).create_errors(&parse(object))
}

#[test]
fn lists_of_pods() {
    let pod = |spec: &str| {
        format!(
            r#"{{"kind":"Pod","metadata":{{"name":"p"}},"spec":{{"restartPolicy":"Always","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":30,{spec}}}}}"#
        )
    };
    let container = |more: &str| {
        format!(
            r#"{{"name":"c","image":"i","imagePullPolicy":"Always","terminationMessagePolicy":"File"{more}}}"#
        )
    };
    let plain = format!(r#""containers":[{}]"#, container(""));
    let volumes = list(|i| format!(r#"{{"name":"v{i}","emptyDir":{{}}}}"#));
    let mounts = list(|i| format!(r#"{{"name":"v{i}","mountPath":"/{i}"}}"#));
    let devices = list(|i| format!(r#"{{"name":"d{i}","devicePath":"/d{i}"}}"#));
    let ephemeral = list(|i| {
        format!(
            r#"{{"name":"e{i}","image":"i","imagePullPolicy":"Always","terminationMessagePolicy":"File"}}"#
        )
    });
    let gates = list(|i| format!(r#"{{"name":"a.io/g{i}"}}"#));
    let sysctls = list(|i| format!(r#"{{"name":"kernel.shm{i}","value":"0"}}"#));
    let spread =
        list(|i| format!(r#"{{"maxSkew":1,"topologyKey":"k{i}","whenUnsatisfiable":"DoNotSchedule"}}"#));
    let claims = list(|i| format!(r#"{{"name":"r{i}","resourceClaimName":"c"}}"#));
    let named = list(|i| format!(r#"{{"name":"r{i}"}}"#));
    let requests = list(|i| format!(r#"{{"name":"r","request":"q{i}"}}"#));
    let keys = list(|i| format!(r#""k{i}""#));
    let ports = list(|i| format!(r#"{{"name":"p{i}","containerPort":{},"protocol":"TCP"}}"#, i % 60_000 + 1));
    let env = list(|i| format!(r#"{{"name":"E{i}","value":"x"}}"#));
    let affinity = format!(
        r#""affinity":{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"z","labelSelector":{{}},"matchLabelKeys":[{keys}],"mismatchLabelKeys":["other"]}}]}}}}"#
    );
    // spec, whether it is a good one
    let rows = [
        (
            format!(
                r#""volumes":[{volumes}],"containers":[{}]"#,
                container(&format!(r#","volumeMounts":[{mounts}]"#))
            ),
            true,
        ),
        (
            format!(
                r#""volumes":[{volumes}],"containers":[{}]"#,
                container(&format!(r#","volumeMounts":[{mounts}],"volumeDevices":[{devices}]"#))
            ),
            false,
        ),
        // A new pod may not have them.
        (format!(r#"{plain},"ephemeralContainers":[{ephemeral}],"volumes":[{volumes}]"#), false),
        (format!(r#"{plain},"schedulingGates":[{gates}]"#), true),
        (format!(r#"{plain},"securityContext":{{"sysctls":[{sysctls}]}}"#), true),
        (format!(r#"{plain},"topologySpreadConstraints":[{spread}]"#), true),
        (
            format!(
                r#""resourceClaims":[{claims}],"containers":[{}]"#,
                container(&format!(r#","resources":{{"claims":[{named}]}}"#))
            ),
            true,
        ),
        (
            format!(
                r#""resourceClaims":[{{"name":"r","resourceClaimName":"c"}}],"containers":[{}]"#,
                container(&format!(r#","resources":{{"claims":[{requests}]}}"#))
            ),
            true,
        ),
        (format!("{plain},{affinity}"), true),
        (format!(r#""containers":[{}]"#, container(&format!(r#","ports":[{ports}],"env":[{env}]"#))), true),
    ];
    for (spec, good) in rows {
        let errors = created("", "pods", &pod(&spec));
        assert_eq!(errors.is_empty(), good, "{}: {:?}", &spec[..60], errors.first());
    }
}

#[test]
fn lists_of_other_kinds() {
    let ports = list(|i| {
        let protocol = ["TCP", "UDP", "SCTP"][i % 3];
        format!(r#"{{"name":"p{i}","port":{},"protocol":"{protocol}","targetPort":80}}"#, i / 3 + 1)
    });
    let families = list(|_| r#""IPv4""#.to_owned());
    let taints = list(|i| format!(r#"{{"key":"k{i}","effect":"NoSchedule"}}"#));
    let terms = list(|i| format!(r#"{{"matchLabelExpressions":[{{"key":"k{i}","values":["v"]}}]}}"#));
    let expressions = list(|i| format!(r#"{{"key":"k{i}","values":["v"]}}"#));
    let claims = list(|i| {
        format!(
            r#"{{"metadata":{{"name":"v{i}"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1"}}}}}}}}"#
        )
    });
    let volumes = list(|i| format!(r#"{{"name":"v{i}","emptyDir":{{}}}}"#));
    let addresses = list(|i| format!(r#"{{"ip":"10.{}.{}.{}"}}"#, i / 65_536, i / 256 % 256, i % 256));
    let set = format!(
        r#"{{"kind":"StatefulSet","metadata":{{"name":"s"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"volumeClaimTemplates":[{claims}],
            "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"volumes":[{volumes}],"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
    );
    // Errors are allowed: what counts is that they are found.
    let rows = [
        (
            "",
            "services",
            format!(r#"{{"spec":{{"type":"ClusterIP","ports":[{ports}],"ipFamilies":[{families}]}}}}"#),
        ),
        ("", "nodes", format!(r#"{{"spec":{{"taints":[{taints}]}}}}"#)),
        ("", "endpoints", format!(r#"{{"subsets":[{{"addresses":[{addresses}],"ports":[{ports}]}}]}}"#)),
        (
            "storage.k8s.io",
            "storageclasses",
            format!(r#"{{"provisioner":"a","allowedTopologies":[{terms}]}}"#),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            format!(
                r#"{{"provisioner":"a","allowedTopologies":[{{"matchLabelExpressions":[{expressions}]}}]}}"#
            ),
        ),
        ("apps", "statefulsets", set),
    ];
    for (group, plural, object) in rows {
        created(group, plural, &object);
    }
}

#[test]
fn changes_of_large_objects() {
    let tolerations = list(|i| format!(r#"{{"key":"k{i}","operator":"Exists"}}"#));
    let gates = list(|i| format!(r#"{{"name":"a.io/g{i}"}}"#));
    let drivers = list(|i| format!(r#"{{"name":"d{i}","nodeID":"n"}}"#));
    let ephemeral = list(|i| format!(r#"{{"name":"e{i}","image":"i"}}"#));
    let conditions = list(|i| format!(r#"{{"type":"T{i}","status":"True"}}"#));
    let pod = format!(
        r#"{{"spec":{{"containers":[{{"name":"c","image":"i"}}],"tolerations":[{tolerations}],"schedulingGates":[{gates}],"ephemeralContainers":[{ephemeral}]}}}}"#
    );
    let pod = parse(&pod);
    let mut other = pod.clone();
    other.object_at_mut(&["spec"]).unwrap().insert("activeDeadlineSeconds", 5);
    let pods = crate::of("", "pods");
    assert_eq!(pods.update_errors(&other, &pod), []);
    assert_eq!(pods.subresource("ephemeralcontainers").unwrap().errors(&pod, &pod), []);
    let node = parse(&format!(r#"{{"spec":{{"drivers":[{drivers}]}}}}"#));
    assert_eq!(crate::of("storage.k8s.io", "csinodes").update_errors(&node, &node), []);
    let mut request = parse(&format!(r#"{{"status":{{"conditions":[{conditions}]}}}}"#));
    let before = request.clone();
    (crate::of("certificates.k8s.io", "certificatesigningrequests").prepare_for_update)(
        &mut request,
        &before,
    );
    let dated = request.at(&["status", "conditions"]).and_then(Value::as_array).unwrap();
    assert!(dated.iter().all(|condition| condition.str_at(&["lastTransitionTime"]).is_some()));
}

#[test]
fn node_ports_of_large_services() {
    use crate::core::service::addresses as service;
    let ports = |node_port: bool| {
        list(|i| {
            let held = if node_port { format!(r#","nodePort":{}"#, i % 30_000 + 1) } else { String::new() };
            format!(r#"{{"name":"p{i}","port":{},"protocol":"TCP"{held}}}"#, i % 60_000 + 1)
        })
    };
    let spec = |ports: &str| {
        parse(&format!(
            r#"{{"spec":{{"type":"NodePort","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{ports}]}}}}"#
        ))
    };
    let (old, mut new) = (spec(&ports(true)), spec(&ports(false)));
    assert_eq!(crate::service_families::set_families(&mut new, Some(&old), &["IPv4"]), []);
    assert_eq!(service::node_ports(&new).len(), 30_000);
    let shared = service::SharedPorts::of(&new);
    let missing = service::missing_node_ports(&new);
    assert_eq!(missing.len(), MANY - 30_000);
    assert!(missing.iter().all(|place| shared.find(&new, place).is_none()));
}
