//! One row per kind and case: the object, and the cells that upstream shows for it.

use super::*;

/// The cells as a JSON list without its brackets, from the bytes and from the whole tree, which must agree.
fn row(definition: &Definition, object: &str) -> String {
    let cells = |tree: &Value| {
        let mut out = Vec::new();
        for (i, cell) in definition.cells(tree, now()).enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            json::cell(&cell, &mut out);
        }
        String::from_utf8(out).unwrap()
    };
    let projected = cells(&definition.paths().read(object.as_bytes()).unwrap());
    assert_eq!(projected, cells(&parse(object)), "read in part and as a whole: {object}");
    projected
}

/// Rows of a resource: objects without the name (`n`) and creation time (a day ago), which are put in.
fn check(group: &str, resource: &str, cases: &[(&str, &str)]) {
    for (object, expected) in cases {
        let metadata = r#""name":"n","creationTimestamp":"2026-01-01T00:00:00Z""#;
        let object = match object.strip_prefix(r#"{"metadata":{"#) {
            Some(rest) => format!(r#"{{"metadata":{{{metadata},{rest}"#),
            None => format!(r#"{{"metadata":{{{metadata}}},{}"#, &object[1..]).replace(",}", "}"),
        };
        assert_eq!(row(definition(group, resource), &object), *expected, "{resource} {object}");
    }
}

/// The containers that pod templates in these tests have.
const TEMPLATE: &str = r#""template":{"metadata":{"labels":{"b":"2","a-b":"1","a":"0"}},"spec":{"nodeSelector":{"disk":"ssd"},"containers":[{"name":"c1","image":"i1"},{"name":"c2","image":"i2"}]}}"#;

fn with_template(object: &str) -> String {
    object.replace("TEMPLATE", TEMPLATE)
}

#[test]
fn absent_fields_give_cells_too() {
    for line in include_str!("columns.txt").lines().filter(|l| !l.starts_with('#')) {
        let (resource, _) = line.split_once(" | ").unwrap();
        let (group, resource) = resource.split_once(' ').unwrap();
        let definition = definition(group.trim_matches('-'), resource);
        for object in [
            "{}",
            r#"{"metadata":null,"spec":null,"status":null,"data":null,"subsets":null,"endpoints":null}"#,
            r#"{"metadata":[],"spec":"x","status":5,"data":true,"subsets":{},"ports":"p","conditions":{}}"#,
            r#"{"spec":{"template":5,"metrics":[5,{"type":"Resource"}],"rules":[null]},"status":{"conditions":[1],
                "containerStatuses":[{"state":[]}],"initContainerStatuses":[null],"hard":{"cpu":5}}}"#,
        ] {
            let cells = row(definition, object);
            let cells: Vec<serde_json::Value> = serde_json::from_str(&format!("[{cells}]")).unwrap();
            assert_eq!(cells.len(), definition.columns().len(), "{resource}");
        }
    }
}

#[test]
fn pods() {
    let running = r#"{"name":"a","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}"#;
    let waiting = r#"{"name":"a","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"m"}}}"#;
    let restarted = r#"{"name":"a","ready":true,"restartCount":3,"state":{"running":{}},"lastState":{"terminated":{"finishedAt":"2026-01-01T23:00:00Z","exitCode":1}}}"#;
    let ended = |code: i64, reason: &str, signal: i64| {
        format!(
            r#"{{"name":"a","ready":false,"restartCount":1,"state":{{"terminated":{{"exitCode":{code},"reason":"{reason}","signal":{signal}}}}}}}"#
        )
    };
    // Of the containers `spec`, the status and what else the pod has: ready, status, restarts.
    let cases: Vec<(String, &str)> = vec![
        (r#"{"spec":{"containers":[{},{}]},"status":{"phase":"Pending"}}"#.into(), "0/2|Pending|0"),
        (
            format!(r#"{{"spec":{{"containers":[{{}}]}},"status":{{"phase":"Running","containerStatuses":[{running}]}}}}"#),
            "1/1|Running|0",
        ),
        (
            format!(r#"{{"spec":{{"containers":[{{}}]}},"status":{{"phase":"Running","containerStatuses":[{waiting}]}}}}"#),
            "0/1|CrashLoopBackOff|0",
        ),
        (
            format!(r#"{{"spec":{{"containers":[{{}}]}},"status":{{"phase":"Running","containerStatuses":[{restarted}]}}}}"#),
            "1/1|Running|3 (60m ago)",
        ),
        // The first container has the last word on the status; the last restart of all counts.
        (
            format!(
                r#"{{"spec":{{"containers":[{{}},{{}}]}},"status":{{"phase":"Running","containerStatuses":[{waiting},{}]}}}}"#,
                ended(1, "Error", 0)
            ),
            "0/2|CrashLoopBackOff|1",
        ),
        (
            format!(
                r#"{{"spec":{{"containers":[{{}}]}},"status":{{"phase":"Failed","containerStatuses":[{}]}}}}"#,
                ended(137, "", 0)
            ),
            "0/1|ExitCode:137|1",
        ),
        (
            format!(
                r#"{{"spec":{{"containers":[{{}}]}},"status":{{"phase":"Failed","containerStatuses":[{}]}}}}"#,
                ended(137, "", 9)
            ),
            "0/1|Signal:9|1",
        ),
        // One container has completed, the other runs.
        (
            format!(
                r#"{{"spec":{{"containers":[{{}},{{}}]}},"status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"True"}}],"containerStatuses":[{},{running}]}}}}"#,
                ended(0, "Completed", 0)
            ),
            "1/2|Running|1",
        ),
        (
            format!(
                r#"{{"spec":{{"containers":[{{}},{{}}]}},"status":{{"phase":"Running","containerStatuses":[{},{running}]}}}}"#,
                ended(0, "Completed", 0)
            ),
            "1/2|NotReady|1",
        ),
        (
            format!(
                r#"{{"spec":{{"containers":[{{}},{{}}]}},"status":{{"phase":"Failed","containerStatuses":[{},{}]}}}}"#,
                ended(0, "Completed", 0),
                ended(2, "Error", 0)
            ),
            "0/2|Error|2",
        ),
        // Initializing.
        (
            r#"{"spec":{"containers":[{}],"initContainers":[{"name":"i"},{"name":"j"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":0,"state":{"terminated":{"exitCode":0}}},{"name":"j","restartCount":2,"state":{"running":{}}}]}}"#.into(),
            "0/1|Init:1/2|2",
        ),
        (
            r#"{"spec":{"containers":[{}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":1,"state":{"terminated":{"exitCode":3}}}]}}"#.into(),
            "0/1|Init:ExitCode:3|1",
        ),
        (
            r#"{"spec":{"containers":[{}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}"#.into(),
            "0/1|Init:ImagePullBackOff|0",
        ),
        (
            r#"{"spec":{"containers":[{}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":0,"state":{"waiting":{"reason":"PodInitializing"}}}]}}"#.into(),
            "0/1|Init:0/1|0",
        ),
        // A sidecar counts among the containers; only its restarts count once the pod is initialized.
        (
            format!(
                r#"{{"spec":{{"containers":[{{}}],"initContainers":[{{"name":"i"}},{{"name":"s","restartPolicy":"Always"}}]}},"status":{{"phase":"Running","initContainerStatuses":[{{"name":"i","restartCount":5,"state":{{"terminated":{{"exitCode":0}}}}}},{{"name":"s","restartCount":1,"ready":true,"started":true,"state":{{"running":{{}}}},"lastState":{{"terminated":{{"finishedAt":"2026-01-01T23:59:00Z"}}}}}}],"containerStatuses":[{running}]}}}}"#
            ),
            "2/2|Running|1 (60s ago)",
        ),
        // Reasons of the pod as a whole.
        (r#"{"status":{"phase":"Failed","reason":"Evicted"}}"#.into(), "0/0|Evicted|0"),
        (
            r#"{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}"#.into(),
            "0/0|SchedulingGated|0",
        ),
        (r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{"phase":"Running"}}"#.into(), "0/0|Terminating|0"),
        (r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{"phase":"Succeeded"}}"#.into(), "0/0|Succeeded|0"),
        (
            r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{"phase":"Running","reason":"NodeLost"}}"#.into(),
            "0/0|Unknown|0",
        ),
    ];
    for (object, expected) in cases {
        let cells = row(definition("", "pods"), &object);
        let cells: Vec<serde_json::Value> = serde_json::from_str(&format!("[{cells}]")).unwrap();
        let cells: Vec<_> = cells[1..4].iter().map(|c| c.as_str().unwrap()).collect();
        assert_eq!(cells.join("|"), expected, "{object}");
    }
    check(
        "",
        "pods",
        &[(
            r#"{"spec":{"containers":[{}],"nodeName":"node","readinessGates":[{"conditionType":"g"},{"conditionType":"h"}]},"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}],"nominatedNodeName":"nn","conditions":[{"type":"g","status":"True"},{"type":"h","status":"False"}]}}"#,
            r#""n", "0/1", "Running", "0", "24h", "10.0.0.1", "node", "nn", "1/2""#,
        )],
    );
    let completed = |phase: &str| compute::pod::completed(&tree!({ "status": tree!({ "phase": phase }) }));
    assert_eq!(completed("Succeeded").unwrap().message, "The pod has completed successfully.");
    assert_eq!(completed("Running"), None);
}

#[test]
fn workloads() {
    let spec = with_template(
        r#"{"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},TEMPLATE},"status":{"replicas":2,"readyReplicas":1,"updatedReplicas":4,"availableReplicas":5}}"#,
    );
    check(
        "apps",
        "deployments",
        &[
            (&spec, r#""n", "1/3", 4, 5, "24h", "c1,c2", "i1,i2", "app=web""#),
            (r#"{"spec":{}}"#, r#""n", "0/0", 0, 0, "24h", "", "", """#),
            (
                r#"{"spec":{"selector":{"matchExpressions":[{"key":"k","operator":"Near"}]}}}"#,
                r#""n", "0/0", 0, 0, "24h", "", "", "<invalid>""#,
            ),
        ],
    );
    check(
        "apps",
        "replicasets",
        &[
            (&spec, r#""n", 3, 2, 1, "24h", "c1,c2", "i1,i2", "app=web""#),
            (
                r#"{"spec":{"selector":{"matchExpressions":[{"key":"k","operator":"In","values":["b","a"]}]}}}"#,
                r#""n", 0, 0, 0, "24h", "", "", "k in (a,b)""#,
            ),
            (r#"{"spec":{"selector":{}}}"#, r#""n", 0, 0, 0, "24h", "", "", "<none>""#),
        ],
    );
    check("apps", "statefulsets", &[(&spec, r#""n", "1/3", "24h", "c1,c2", "i1,i2""#)]);
    check(
        "apps",
        "daemonsets",
        &[(
            &with_template(
                r#"{"spec":{"selector":{"matchLabels":{"app":"d"}},TEMPLATE},"status":{"desiredNumberScheduled":1,"currentNumberScheduled":2,"numberReady":3,"updatedNumberScheduled":4,"numberAvailable":5}}"#,
            ),
            r#""n", 1, 2, 3, 4, 5, "disk=ssd", "24h", "c1,c2", "i1,i2", "app=d""#,
        )],
    );
    check(
        "",
        "replicationcontrollers",
        &[(
            &with_template(
                r#"{"spec":{"replicas":1,"selector":{"b":"2","a":"1"},TEMPLATE},"status":{"replicas":1,"readyReplicas":1}}"#,
            ),
            r#""n", 1, 1, 1, "24h", "c1,c2", "i1,i2", "a=1,b=2""#,
        )],
    );
    check(
        "",
        "podtemplates",
        &[(&with_template(r#"{TEMPLATE}"#), r#""n", "c1,c2", "i1,i2", "a-b=1,a=0,b=2""#)],
    );
    check(
        "batch",
        "jobs",
        &[
            (
                &with_template(
                    r#"{"spec":{"completions":5,TEMPLATE},"status":{"succeeded":2,"startTime":"2026-01-01T23:00:00Z"}}"#,
                ),
                r#""n", "Running", "2/5", "60m", "24h", "c1,c2", "i1,i2", "<none>""#,
            ),
            (
                r#"{"spec":{"parallelism":3},"status":{"succeeded":1,"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:05:05Z","conditions":[{"type":"Complete","status":"True"}]}}"#,
                r#""n", "Complete", "1/1 of 3", "5m5s", "24h", "", "", "<none>""#,
            ),
            (
                r#"{"spec":{"parallelism":1},"status":{"conditions":[{"type":"Complete","status":"False"},{"type":"Failed","status":"True"}]}}"#,
                r#""n", "Failed", "0/1", "", "24h", "", "", "<none>""#,
            ),
            (
                r#"{"spec":{},"status":{"conditions":[{"type":"Suspended","status":"True"}]}}"#,
                r#""n", "Suspended", "0/1", "", "24h", "", "", "<none>""#,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{"conditions":[{"type":"Suspended","status":"True"}]}}"#,
                r#""n", "Terminating", "0/1", "", "24h", "", "", "<none>""#,
            ),
        ],
    );
    check(
        "batch",
        "cronjobs",
        &[
            (
                &format!(
                    r#"{{"spec":{{"schedule":"* * * * *","timeZone":"Etc/UTC","suspend":false,"jobTemplate":{{"spec":{{{TEMPLATE}}}}}}},"status":{{"active":[{{}},{{}}],"lastScheduleTime":"2026-01-01T23:59:50Z"}}}}"#
                ),
                r#""n", "* * * * *", "Etc/UTC", "False", 2, "10s", "24h", "c1,c2", "i1,i2", "<none>""#,
            ),
            (
                r#"{"spec":{"schedule":"@daily","suspend":true}}"#,
                r#""n", "@daily", "<none>", "True", 0, "<none>", "24h", "", "", "<none>""#,
            ),
        ],
    );
    check(
        "apps",
        "controllerrevisions",
        &[
            (
                r#"{"metadata":{"ownerReferences":[{"kind":"X","name":"x"},{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","controller":true}]},"revision":4}"#,
                r#""n", "statefulset.apps/web", 4, "24h""#,
            ),
            (r#"{"revision":1}"#, r#""n", "<none>", 1, "24h""#),
        ],
    );
    check(
        "policy",
        "poddisruptionbudgets",
        &[
            (
                r#"{"spec":{"minAvailable":2},"status":{"disruptionsAllowed":1}}"#,
                r#""n", "2", "N/A", 1, "24h""#,
            ),
            (r#"{"spec":{"maxUnavailable":"50%"}}"#, r#""n", "N/A", "50%", 0, "24h""#),
        ],
    );
    assert_eq!(
        row(scale(), r#"{"metadata":{"name":"n"},"spec":{"replicas":2},"status":{"replicas":1}}"#),
        r#""n", 2, 1, "<unknown>""#
    );
}

#[test]
fn autoscalers() {
    let target = |metrics: &str, current: &str| {
        let object = format!(
            r#"{{"spec":{{"scaleTargetRef":{{"kind":"Deployment","name":"d"}},"minReplicas":1,"maxReplicas":9,"metrics":[{metrics}]}},"status":{{"currentReplicas":3,"currentMetrics":[{current}]}}}}"#
        );
        let cells = row(definition("autoscaling", "horizontalpodautoscalers"), &object);
        let start = r#""", "Deployment/d", ""#;
        let end = r#"", "1", 9, 3, "<unknown>""#;
        cells
            .strip_prefix(start)
            .and_then(|c| c.strip_suffix(end))
            .unwrap_or_else(|| panic!("{cells}"))
            .to_owned()
    };
    let cpu = r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}"#;
    let cpu_now = r#"{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":35,"averageValue":"10m"}}}"#;
    let memory = r#"{"type":"ContainerResource","containerResource":{"name":"memory","container":"c","target":{"type":"AverageValue","averageValue":"1Gi"}}}"#;
    let memory_now = r#"{"type":"ContainerResource","containerResource":{"name":"memory","current":{"averageValue":"512Mi"}}}"#;
    let pods = r#"{"type":"Pods","pods":{"target":{"averageValue":"5"}}}"#;
    let external = r#"{"type":"External","external":{"target":{"value":"30"}}}"#;
    let external_now = r#"{"type":"External","external":{"current":{"value":"12"}}}"#;
    let object = r#"{"type":"Object","object":{"target":{"averageValue":"7"}}}"#;
    assert_eq!(target("", ""), "<none>");
    assert_eq!(target(cpu, ""), "cpu: <unknown>/80%");
    assert_eq!(target(cpu, cpu_now), "cpu: 35%/80%");
    assert_eq!(
        target(&format!("{memory},{cpu}"), &format!("{memory_now},{cpu_now}")),
        "memory: 512Mi/1Gi, cpu: 35%/80%"
    );
    assert_eq!(target(external, external_now), "12/30");
    assert_eq!(target(object, ""), "<unknown>/7 (avg)");
    assert_eq!(
        target(&[pods, object, cpu, memory].join(","), ""),
        "<unknown>/5, <unknown>/7 (avg) + 2 more..."
    );
    assert_eq!(target(r#"{"type":"New"}"#, ""), "<unknown type>");
}

#[test]
fn network_kinds() {
    check(
        "",
        "services",
        &[
            (
                r#"{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":443,"protocol":"TCP"}]}}"#,
                r#""n", "ClusterIP", "10.0.0.1", "<none>", "443/TCP", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"NodePort","clusterIP":"None","externalIPs":["1.1.1.1","2.2.2.2"],"selector":{"a":"b"},"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"},{"port":53,"protocol":"UDP"}]}}"#,
                r#""n", "NodePort", "None", "1.1.1.1,2.2.2.2", "80:30080/TCP,53/UDP", "24h", "a=b""#,
            ),
            (
                r#"{"spec":{"type":"LoadBalancer"}}"#,
                r#""n", "LoadBalancer", "<none>", "<pending>", "<none>", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"LoadBalancer","externalIPs":["9.9.9.9"]},"status":{"loadBalancer":{"ingress":[{"ip":"3.3.3.3"},{"hostname":"a.example"},{"ip":"3.3.3.3"}]}}}"#,
                r#""n", "LoadBalancer", "<none>", "3.3.3.3,a.example,9.9.9.9", "<none>", "24h", "<none>""#,
            ),
            (
                r#"{"spec":{"type":"ExternalName","externalName":"x.example"}}"#,
                r#""n", "ExternalName", "<none>", "x.example", "<none>", "24h", "<none>""#,
            ),
        ],
    );
    check(
        "",
        "endpoints",
        &[
            (r#"{"subsets":[]}"#, r#""n", "<none>", "24h""#),
            (
                r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"ip":"::2"}],"ports":[{"port":80}]}]}"#,
                r#""n", "1.1.1.1:80,[::2]:80", "24h""#,
            ),
            (r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"}]}]}"#, r#""n", "1.1.1.1", "24h""#),
            (
                r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"ip":"2.2.2.2"}],"ports":[{"port":80},{"port":443}]},{"addresses":[{"ip":"3.3.3.3"}]}]}"#,
                r#""n", "1.1.1.1:80,2.2.2.2:80,1.1.1.1:443 + 2 more...", "24h""#,
            ),
        ],
    );
    check(
        "discovery.k8s.io",
        "endpointslices",
        &[
            (r#"{"addressType":"IPv4"}"#, r#""n", "IPv4", "<unset>", "<unset>", "24h""#),
            (
                r#"{"addressType":"IPv4","ports":[{"name":"","port":80},{"name":"web"},{},{"port":1}],"endpoints":[{"addresses":["1.1.1.1","2.2.2.2"]},{"addresses":["3.3.3.3","4.4.4.4"]}]}"#,
                r#""n", "IPv4", "80,web,* + 1 more...", "1.1.1.1,2.2.2.2,3.3.3.3 + 1 more...", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "ingresses",
        &[
            (r#"{"spec":{"rules":[{}]}}"#, r#""n", "<none>", "*", "", "80", "24h""#),
            (
                r#"{"spec":{"ingressClassName":"nginx","tls":[{}],"rules":[{"host":"a"},{},{"host":"b"},{"host":"c"}]},"status":{"loadBalancer":{"ingress":[{"ip":"9.9.9.9"},{"hostname":"lb.example.org"}]}}}"#,
                r#""n", "nginx", "a,b,c", "9.9.9.9,lb.example.org", "80, 443", "24h""#,
            ),
            (
                r#"{"spec":{"rules":[{"host":"a"},{"host":"b"},{"host":"c"},{"host":"d"},{}]}}"#,
                r#""n", "<none>", "a,b,c + 2 more...", "", "80", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "ingressclasses",
        &[
            (
                r#"{"metadata":{"annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}},"spec":{"controller":"c","parameters":{"apiGroup":"g","kind":"K","name":"p"}}}"#,
                r#""n (default)", "c", "K.g/p", "24h""#,
            ),
            (
                r#"{"spec":{"controller":"c","parameters":{"kind":"K","name":"p"}}}"#,
                r#""n", "c", "K/p", "24h""#,
            ),
            (r#"{"spec":{"controller":"c"}}"#, r#""n", "c", "<none>", "24h""#),
        ],
    );
    check(
        "networking.k8s.io",
        "ipaddresses",
        &[
            (
                r#"{"spec":{"parentRef":{"resource":"services","namespace":"default","name":"kubernetes"}}}"#,
                r#""n", "services/default/kubernetes""#,
            ),
            (
                r#"{"spec":{"parentRef":{"group":"G.io","resource":"Gateways","name":"x"}}}"#,
                r#""n", "gateways.g.io/x""#,
            ),
            (r#"{"spec":{}}"#, r#""n", "<none>""#),
        ],
    );
    check(
        "networking.k8s.io",
        "networkpolicies",
        &[
            (r#"{"spec":{"podSelector":{}}}"#, r#""n", "<none>", "24h""#),
            (r#"{"spec":{"podSelector":{"matchLabels":{"b":"2","a":"1"}}}}"#, r#""n", "a=1,b=2", "24h""#),
            (
                r#"{"spec":{"podSelector":{"matchExpressions":[{"key":"k","operator":"In"}]}}}"#,
                r#""n", "<error>", "24h""#,
            ),
        ],
    );
    check(
        "networking.k8s.io",
        "servicecidrs",
        &[(r#"{"spec":{"cidrs":["10.0.0.0/16","fd00::/108"]}}"#, r#""n", "10.0.0.0/16,fd00::/108", "24h""#)],
    );
}

#[test]
fn nodes_namespaces_and_events() {
    check(
        "",
        "nodes",
        &[
            (
                r#"{"metadata":{"labels":{"node-role.kubernetes.io/worker":"","node-role.kubernetes.io/":"","kubernetes.io/role":"master"}},"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"Hostname","address":"h"},{"type":"InternalIP","address":"10.0.0.2"}],"nodeInfo":{"kubeletVersion":"v1.36.0","osImage":"Debian","kernelVersion":"6.1","architecture":"amd64","containerRuntimeVersion":"containerd://2"}}}"#,
                r#""n", "Ready,SchedulingDisabled", "master,worker", "24h", "v1.36.0", "10.0.0.2", "<none>", "Debian", "6.1 (amd64)", "containerd://2""#,
            ),
            (
                r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown"}],"addresses":[{"type":"ExternalIP","address":"9.9.9.9"}]}}"#,
                r#""n", "NotReady", "<none>", "24h", "", "<none>", "9.9.9.9", "<unknown>", "<unknown>", "<unknown>""#,
            ),
        ],
    );
    check("", "namespaces", &[(r#"{"status":{"phase":"Active"}}"#, r#""n", "Active", "24h""#)]);
    let event = r#"{"involvedObject":{"kind":"Pod","name":"p","fieldPath":"f"},"type":"Normal","reason":"R","message":" text\n""#;
    let cases = [
        (
            r#","source":{"component":"kubelet","host":"h"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T23:59:00Z","count":4}"#,
            r#""60s", "Normal", "R", "pod/p", "f", "kubelet, h", "text", "24h", 4, "n""#,
        ),
        (
            r#","reportingComponent":"c","reportingInstance":"i","eventTime":"2026-01-01T23:59:30.500000Z","firstTimestamp":null,"lastTimestamp":null}"#,
            r#""29s", "Normal", "R", "pod/p", "f", "c, i", "text", "29s", 1, "n""#,
        ),
        (
            r#","reportingComponent":"c","eventTime":"2026-01-01T00:00:00.000000Z","series":{"count":7,"lastObservedTime":"2026-01-01T23:59:58.000000Z"}}"#,
            r#""2s", "Normal", "R", "pod/p", "f", "c", "text", "24h", 7, "n""#,
        ),
    ];
    for (rest, expected) in cases {
        check("", "events", &[(&format!("{event}{rest}"), expected)]);
        check("events.k8s.io", "events", &[(&format!("{event}{rest}"), expected)]);
    }
}

#[test]
fn storage_kinds() {
    check(
        "",
        "persistentvolumes",
        &[
            (
                r#"{"spec":{"capacity":{"storage":"5Gi"},"accessModes":["ReadWriteMany","ReadWriteOnce","ReadWriteMany"],"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"d","name":"c"},"storageClassName":"fast","volumeAttributesClassName":"gold","volumeMode":"Block"},"status":{"phase":"Bound","reason":"why"}}"#,
                r#""n", "5Gi", "RWO,RWX", "Retain", "Bound", "d/c", "fast", "gold", "why", "24h", "Block""#,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z","annotations":{"volume.beta.kubernetes.io/storage-class":"old"}},"spec":{"storageClassName":"new"},"status":{"phase":"Released"}}"#,
                r#""n", "0", "", "", "Terminating", "", "old", "<unset>", "", "24h", "<unset>""#,
            ),
        ],
    );
    check(
        "",
        "persistentvolumeclaims",
        &[
            (
                r#"{"spec":{"volumeName":"pv","storageClassName":"fast","volumeMode":"Filesystem"},"status":{"phase":"Bound","capacity":{"storage":"5Gi"},"accessModes":["ReadOnlyMany","ReadWriteOncePod"]}}"#,
                r#""n", "Bound", "pv", "5Gi", "ROX,RWOP", "fast", "<unset>", "24h", "Filesystem""#,
            ),
            (
                r#"{"spec":{"resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Pending","capacity":{"storage":"5Gi"}}}"#,
                r#""n", "Pending", "", "", "", "", "<unset>", "24h", "<unset>""#,
            ),
            (r#"{"spec":{"volumeName":"pv"}}"#, r#""n", "", "pv", "0", "", "", "<unset>", "24h", "<unset>""#),
        ],
    );
    check(
        "storage.k8s.io",
        "storageclasses",
        &[
            (
                r#"{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p","reclaimPolicy":"Retain","volumeBindingMode":"WaitForFirstConsumer","allowVolumeExpansion":true}"#,
                r#""n (default)", "p", "Retain", "WaitForFirstConsumer", true, "24h""#,
            ),
            (r#"{"provisioner":"p"}"#, r#""n", "p", "Delete", "Immediate", false, "24h""#),
        ],
    );
    check(
        "storage.k8s.io",
        "csidrivers",
        &[
            (r#"{"spec":{}}"#, r#""n", true, false, false, "<unset>", false, "<none>", "24h""#),
            (
                r#"{"spec":{"attachRequired":false,"podInfoOnMount":true,"storageCapacity":true,"requiresRepublish":true,"tokenRequests":[{"audience":"a"},{"audience":"b"}],"volumeLifecycleModes":["Persistent","Ephemeral"]}}"#,
                r#""n", false, true, true, "a,b", true, "Persistent,Ephemeral", "24h""#,
            ),
        ],
    );
    check("storage.k8s.io", "csinodes", &[(r#"{"spec":{"drivers":[{},{}]}}"#, r#""n", 2, "24h""#)]);
    check(
        "storage.k8s.io",
        "csistoragecapacities",
        &[(r#"{"capacity":"1Gi"}"#, r#""n", "2026-01-01T00:00:00Z""#)],
    );
    check(
        "storage.k8s.io",
        "volumeattachments",
        &[(
            r#"{"spec":{"attacher":"a","nodeName":"node","source":{"persistentVolumeName":"pv"}},"status":{"attached":true}}"#,
            r#""n", "a", "pv", "node", true, "24h""#,
        )],
    );
    check("storage.k8s.io", "volumeattributesclasses", &[(r#"{"driverName":"d"}"#, r#""n", "d", "24h""#)]);
}

#[test]
fn configuration_and_access() {
    check(
        "",
        "configmaps",
        &[(r#"{"data":{"a":"1","b":"2"},"binaryData":{"c":"eA=="}}"#, r#""n", 3, "24h""#)],
    );
    check("", "secrets", &[(r#"{"type":"Opaque","data":{"a":"eA=="}}"#, r#""n", "Opaque", 1, "24h""#)]);
    check("", "serviceaccounts", &[(r#"{"secrets":[{}]}"#, r#""n", "24h""#)]);
    check("", "limitranges", &[(r#"{"spec":{}}"#, r#""n", "2026-01-01T00:00:00Z""#)]);
    check(
        "",
        "resourcequotas",
        &[(
            r#"{"status":{"hard":{"pods":"5","limits.cpu":"2","requests.cpu":"1","limits.memory":"1Gi"},"used":{"pods":"1","limits.cpu":"500m"}}}"#,
            r#""n", "pods: 1/5, requests.cpu: 0/1", "limits.cpu: 500m/2, limits.memory: 0/1Gi", "24h""#,
        )],
    );
    let binding = r#"{"roleRef":{"kind":"ClusterRole","name":"admin"},"subjects":[{"kind":"User","name":"u"},{"kind":"Group","name":"g"},{"kind":"ServiceAccount","namespace":"s","name":"a"},{"kind":"User","name":"v"}]}"#;
    for resource in ["rolebindings", "clusterrolebindings"] {
        check(
            "rbac.authorization.k8s.io",
            resource,
            &[(binding, r#""n", "ClusterRole/admin", "24h", "u, v", "g", "s/a""#)],
        );
    }
    check("rbac.authorization.k8s.io", "roles", &[(r#"{"rules":[]}"#, r#""n", "2026-01-01T00:00:00Z""#)]);
    check(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[
            (r#"{"spec":{"username":"u"}}"#, r#""n", "24h", "<none>", "u", "<none>", "Pending""#),
            (
                r#"{"spec":{"username":"u","signerName":"s","expirationSeconds":3600},"status":{"certificate":"eA==","conditions":[{"type":"Approved"},{"type":"Failed"}]}}"#,
                r#""n", "24h", "s", "u", "60m", "Approved,Failed,Issued""#,
            ),
            (
                r#"{"spec":{},"status":{"conditions":[{"type":"Approved"},{"type":"Denied"}]}}"#,
                r#""n", "24h", "<none>", "", "<none>", "Denied""#,
            ),
        ],
    );
    check("coordination.k8s.io", "leases", &[(r#"{"spec":{"holderIdentity":"h"}}"#, r#""n", "h", "24h""#)]);
    check("node.k8s.io", "runtimeclasses", &[(r#"{"handler":"runc"}"#, r#""n", "runc", "24h""#)]);
    check(
        "scheduling.k8s.io",
        "priorityclasses",
        &[(
            r#"{"value":2000000000,"preemptionPolicy":"PreemptLowerPriority"}"#,
            r#""n", 2000000000, false, "24h", "PreemptLowerPriority""#,
        )],
    );
}

#[test]
fn server_configuration() {
    check(
        "",
        "componentstatuses",
        &[
            (
                r#"{"conditions":[{"type":"Healthy","status":"True","message":"ok"}]}"#,
                r#""n", "Healthy", "ok", """#,
            ),
            (
                r#"{"conditions":[{"type":"Healthy","status":"False","error":"e"}]}"#,
                r#""n", "Unhealthy", "", "e""#,
            ),
            (r#"{"conditions":[{"type":"Other","status":"True"}]}"#, r#""n", "Unknown", "", """#),
        ],
    );
    check(
        "apiregistration.k8s.io",
        "apiservices",
        &[
            (
                r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}}"#,
                r#""n", "Local", "True", "24h""#,
            ),
            (
                r#"{"spec":{"service":{"namespace":"s","name":"x"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"Missing"}]}}"#,
                r#""n", "s/x", "False (Missing)", "24h""#,
            ),
            (r#"{"spec":{}}"#, r#""n", "Local", "Unknown", "24h""#),
        ],
    );
    for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        check("admissionregistration.k8s.io", resource, &[(r#"{"webhooks":[{},{}]}"#, r#""n", 2, "24h""#)]);
    }
    for (resource, rules) in
        [("validatingadmissionpolicies", "validations"), ("mutatingadmissionpolicies", "mutations")]
    {
        check(
            "admissionregistration.k8s.io",
            resource,
            &[
                (
                    &format!(
                        r#"{{"spec":{{"{rules}":[{{}}],"paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}}}}}}"#
                    ),
                    r#""n", 1, "v1/ConfigMap", "24h""#,
                ),
                (r#"{"spec":{}}"#, r#""n", 0, "<unset>", "24h""#),
            ],
        );
    }
    for resource in ["validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"] {
        check(
            "admissionregistration.k8s.io",
            resource,
            &[
                (r#"{"spec":{"policyName":"p"}}"#, r#""n", "p", "<unset>", "24h""#),
                (r#"{"spec":{"policyName":"p","paramRef":{"name":"x"}}}"#, r#""n", "p", "*/x", "24h""#),
                (
                    r#"{"spec":{"policyName":"p","paramRef":{"name":"x","namespace":"s"}}}"#,
                    r#""n", "p", "s/x", "24h""#,
                ),
                (
                    r#"{"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}}}}"#,
                    r#""n", "p", "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}", "24h""#,
                ),
            ],
        );
    }
    check(
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        &[
            (
                r#"{"spec":{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":1},"status":{"conditions":[{"type":"Dangling","status":"False"}]}}"#,
                r#""n", "exempt", 1, "<none>", "24h", "False""#,
            ),
            (
                r#"{"spec":{"priorityLevelConfiguration":{"name":"x"},"matchingPrecedence":5,"distinguisherMethod":{"type":"ByUser"}}}"#,
                r#""n", "x", 5, "ByUser", "24h", "?""#,
            ),
        ],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        &[
            (
                r#"{"spec":{"type":"Exempt"}}"#,
                r#""n", "Exempt", "<none>", "<none>", "<none>", "<none>", "24h""#,
            ),
            (
                r#"{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":20,"limitResponse":{"type":"Queue","queuing":{"queues":128,"handSize":6,"queueLengthLimit":50}}}}}"#,
                r#""n", "Limited", 20, 128, 6, 50, "24h""#,
            ),
        ],
    );
}

#[test]
fn devices() {
    check("resource.k8s.io", "deviceclasses", &[(r#"{"spec":{}}"#, r#""n", "24h""#)]);
    check("resource.k8s.io", "resourceclaimtemplates", &[(r#"{"spec":{}}"#, r#""n", "24h""#)]);
    let deleted = r#"{"metadata":{"deletionTimestamp":"2026-01-02T00:00:00Z"},"status":{STATUS}}"#;
    let kept = r#"{"status":{STATUS}}"#;
    for (object, status, state) in [
        (kept, "", "pending"),
        (kept, r#""allocation":{}"#, "allocated"),
        (kept, r#""allocation":{},"reservedFor":[{}]"#, "allocated,reserved"),
        (deleted, "", "deleted"),
        (deleted, r#""allocation":{}"#, "deleted,allocated"),
        (deleted, r#""allocation":{},"reservedFor":[{}]"#, "deleted,allocated,reserved"),
    ] {
        check(
            "resource.k8s.io",
            "resourceclaims",
            &[(&object.replace("STATUS", status), &format!(r#""n", "{state}", "24h""#))],
        );
    }
    check(
        "resource.k8s.io",
        "resourceslices",
        &[(
            r#"{"spec":{"nodeName":"node","driver":"d","pool":{"name":"p"}}}"#,
            r#""n", "node", "d", "p", "24h""#,
        )],
    );
}
