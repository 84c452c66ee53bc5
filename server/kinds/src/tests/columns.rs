//! One row per kind and case: the object, and the cells that upstream shows for it.

use std::time::{Duration, SystemTime};

use plinth_codec::negotiate::MetaVersion;
use plinth_codec::table::{Now, RowObject, TableDefinition, TableMeta, Writer};

use super::parse;
use crate::autoscaling::scale;

/// 2026-01-02T00:00:00Z
fn now() -> Now {
    Now::from(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_312_000))
}

/// The cells of a row with a space between them, without the brackets of the list.
fn row(definition: &TableDefinition, object: &str) -> String {
    let mut projected = Vec::new();
    let mut table = Writer::new(definition, MetaVersion::V1, now());
    table.row(object.as_bytes(), "", RowObject::None, &mut projected).unwrap();
    let mut whole = Vec::new();
    let mut table = Writer::new(definition, MetaVersion::V1, now());
    table.row_of(&parse(object), "", RowObject::None, &mut whole);
    assert_eq!(projected, whole, "read in part and as a whole: {object}");
    let row: serde_json::Value = serde_json::from_slice(&projected).unwrap();
    let cells: Vec<String> = row["cells"].as_array().unwrap().iter().map(ToString::to_string).collect();
    cells.join(", ")
}

fn definition(group: &str, resource: &str) -> TableDefinition {
    crate::of(group, resource).table()
}

/// Group and plural of each line of `columns.txt`, and what follows.
fn lines() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    include_str!("columns.txt").lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (resource, columns) = line.split_once(" | ").unwrap();
        let (group, resource) = resource.split_once(' ').unwrap();
        (group.trim_matches('-'), resource, columns)
    })
}

#[test]
fn columns_are_those_of_a_running_server() {
    let mut seen = 0;
    for (group, resource, expected) in lines() {
        let columns: Vec<String> = definition(group, resource)
            .columns()
            .iter()
            .map(|c| {
                let format = if c.format.is_empty() { String::new() } else { format!("/{}", c.format) };
                format!("{}:{}{format}{}", c.name, c.kind, if c.priority == 0 { "" } else { "*" })
            })
            .collect();
        assert_eq!(columns.join("; "), expected, "{group} {resource}");
        seen += 1;
    }
    assert!(seen > 55, "{seen}");
}

/// Kinds whose columns have no line: they are off by default, and were when the server was recorded.
const NOT_RECORDED: [&str; 9] = [
    "clustertrustbundles",
    "podcertificaterequests",
    "leasecandidates",
    "storageversions",
    "devicetaintrules",
    "resourcepoolstatusrequests",
    "podgroups",
    "workloads",
    "storageversionmigrations",
];

#[test]
fn the_columns_of_every_kind_are_compared() {
    let compared: Vec<_> = lines().map(|(group, resource, _)| (group, resource)).collect();
    let mut missing = Vec::new();
    for (group, resource, _) in crate::rows::ROWS {
        let has_its_own =
            definition(group, resource).columns().iter().any(|c| c.name != "Name" && c.name != "Created At");
        if has_its_own && !compared.contains(&(group, resource)) {
            missing.push(*resource);
        }
    }
    assert_eq!(missing, NOT_RECORDED);
}

#[test]
fn a_table_of_two_pods() {
    let pods = definition("", "pods");
    let mut out = Vec::new();
    let mut table = Writer::new(&pods, MetaVersion::V1Beta1, now());
    let list = TableMeta { resource_version: "7", continue_token: "t\"k", remaining_item_count: Some(3) };
    table.begin(Some(&list), true, &mut out);
    let metadata = br#"{"name":"a"}"#;
    let body = br#"{"metadata":{"name":"a"},"status":{"phase":"Failed"}}"#;
    table.row(body, "5", RowObject::Metadata(metadata), &mut out).unwrap();
    let whole: [&[u8]; 2] = [b"{\"kind\":\"Pod\",", b"\"apiVersion\":\"v1\"}"];
    table.row(br#"{"metadata":{"name":"b\n"}}"#, "6", RowObject::Object(&whole), &mut out).unwrap();
    table.end(&mut out);

    let text = String::from_utf8(out).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(
        json["metadata"],
        serde_json::json!({ "resourceVersion": "7", "continue": "t\"k", "remainingItemCount": 3 })
    );
    assert_eq!(
        json["columnDefinitions"][5],
        serde_json::json!({ "name": "IP", "type": "string", "format": "", "description": "", "priority": 1 })
    );
    let first = serde_json::json!({
        "cells": ["a", "0/0", "Failed", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"],
        "conditions": [{
            "type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."
        }],
        "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1beta1",
            "metadata": { "resourceVersion": "5", "name": "a" },
        },
    });
    assert_eq!(json["rows"][0], first);
    assert_eq!(json["rows"][1]["cells"][0], "b\n");
    assert_eq!(json["rows"][1]["object"], serde_json::json!({ "kind": "Pod", "apiVersion": "v1" }));
}

/// Rows of a resource: objects without the name (`n`) and creation time (a day ago), which are added.
pub(super) fn check(group: &str, resource: &str, cases: &[(&str, &str)]) {
    for (object, expected) in cases {
        let metadata = r#""name":"n","creationTimestamp":"2026-01-01T00:00:00Z""#;
        let object = match object.strip_prefix(r#"{"metadata":{"#) {
            Some(rest) => format!(r#"{{"metadata":{{{metadata},{rest}"#),
            None => format!(r#"{{"metadata":{{{metadata}}},{}"#, &object[1..]).replace(",}", "}"),
        };
        assert_eq!(row(&definition(group, resource), &object), *expected, "{resource} {object}");
    }
}

/// The containers that pod templates in these tests have.
const TEMPLATE: &str = r#""template":{"metadata":{"labels":{"b":"2","a-b":"1","a":"0"}},"spec":{"nodeSelector":{"disk":"ssd"},"containers":[{"name":"c1","image":"i1"},{"name":"c2","image":"i2"}]}}"#;

fn with_template(object: &str) -> String {
    object.replace("TEMPLATE", TEMPLATE)
}

#[test]
fn absent_fields_give_cells_too() {
    for (group, resource, _) in lines() {
        let definition = definition(group, resource);
        for object in [
            "{}",
            r#"{"metadata":null,"spec":null,"status":null,"data":null,"subsets":null,"endpoints":null}"#,
            r#"{"metadata":[],"spec":"x","status":5,"data":true,"subsets":{},"ports":"p","conditions":{}}"#,
            r#"{"spec":{"template":5,"metrics":[5,{"type":"Resource"}],"rules":[null]},"status":{"conditions":[1],
                "containerStatuses":[{"state":[]}],"initContainerStatuses":[null],"hard":{"cpu":5}}}"#,
        ] {
            let cells = row(&definition, object);
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
        // The first container takes precedence for the status; the last restart of all counts.
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
        let cells = row(&definition("", "pods"), &object);
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
        row(&scale::TABLE, r#"{"metadata":{"name":"n"},"spec":{"replicas":2},"status":{"replicas":1}}"#),
        r#""n", 2, 1, "<unknown>""#
    );
}

#[test]
fn autoscalers() {
    let target = |metrics: &str, current: &str| {
        let object = format!(
            r#"{{"spec":{{"scaleTargetRef":{{"kind":"Deployment","name":"d"}},"minReplicas":1,"maxReplicas":9,"metrics":[{metrics}]}},"status":{{"currentReplicas":3,"currentMetrics":[{current}]}}}}"#
        );
        let cells = row(&definition("autoscaling", "horizontalpodautoscalers"), &object);
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
