use super::*;
use crate::negotiate::MetaVersion;
use crate::tree;
use std::time::{Duration, SystemTime};

mod cluster_rows;
mod rows;

/// 2026-01-02T00:00:00Z
fn now() -> Now {
    Now::from(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_312_000))
}

/// A whole tree.
fn parse(json: &str) -> Value {
    let mut whole = Paths::default();
    whole.insert("");
    whole.read(json.as_bytes()).unwrap_or_else(|e| panic!("{e}: {json}"))
}

#[test]
fn columns_are_those_of_a_running_server() {
    let mut seen = 0;
    for line in include_str!("tests/columns.txt").lines().filter(|l| !l.starts_with('#')) {
        let (resource, expected) = line.split_once(" | ").unwrap();
        let (group, resource) = resource.split_once(' ').unwrap();
        let columns: Vec<String> = definition(group.trim_matches('-'), resource)
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
    assert!(std::ptr::eq(definition("apps", "deployments"), definition("apps", "deployments")));
}

#[test]
fn a_table_of_two_pods() {
    let pods = definition("", "pods");
    let mut out = Vec::new();
    let mut table = Writer::new(pods, MetaVersion::V1Beta1, now());
    let list = ListMeta { resource_version: "7", continue_token: "t\"k", remaining_item_count: Some(3) };
    table.begin(&list, true, &mut out);
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

#[test]
fn tables_without_rows_and_heads() {
    let mut out = Vec::new();
    let mut table = Writer::new(definition("", "secrets"), MetaVersion::V1, now());
    table.begin(&ListMeta::default(), false, &mut out);
    table.end(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":[]}"#
    );
}

#[test]
fn a_damaged_body_appends_nothing() {
    let mut out = Vec::new();
    let mut table = Writer::new(definition("", "secrets"), MetaVersion::V1, now());
    table.begin(&ListMeta::default(), false, &mut out);
    let before = out.len();
    assert!(table.row(b"{\"metadata\":{", "1", RowObject::None, &mut out).is_err());
    assert_eq!(out.len(), before);
    table.row(b"{\"metadata\":{}}", "1", RowObject::None, &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("[,"));
}

#[test]
fn partial_metadata_from_bytes_and_trees() {
    let written = |metadata: &[u8], version: &str| {
        let mut out = Vec::new();
        write_partial_metadata(metadata, version, MetaVersion::V1, &mut out);
        String::from_utf8(out).unwrap()
    };
    let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    assert_eq!(written(br#"{"name":"a"}"#, "5"), format!(r#"{head}{{"resourceVersion":"5","name":"a"}}}}"#));
    assert_eq!(written(b"{}", "5"), format!(r#"{head}{{"resourceVersion":"5"}}}}"#));
    assert_eq!(written(br#"{"name":"a"}"#, ""), format!(r#"{head}{{"name":"a"}}}}"#));

    let object = tree!({ "kind": "Pod", "metadata": tree!({ "name": "a" }), "spec": tree!({}) });
    let expected = tree!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1beta1",
        "metadata": tree!({ "name": "a" }),
    });
    assert_eq!(partial_metadata(&object, MetaVersion::V1Beta1), expected);

    let mut out = Vec::new();
    partial_list_begin(&ListMeta { resource_version: "9", ..ListMeta::default() }, MetaVersion::V1, &mut out);
    write_partial_metadata(br#"{"name":"a"}"#, "5", MetaVersion::V1, &mut out);
    partial_list_end(&mut out);
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["kind"], "PartialObjectMetadataList");
    assert_eq!(json["metadata"]["resourceVersion"], "9");
    assert_eq!(json["items"][0]["metadata"]["name"], "a");
}

#[test]
fn custom_resources_bring_their_columns() {
    let columns = [
        tree!({ "name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "Its color." }),
        tree!({ "name": "Version", "type": "string", "jsonPath": ".metadata.resourceVersion", "priority": 1i64 }),
        tree!({ "name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp", "format": "f" }),
    ];
    let definition = Definition::custom(&columns);
    let heads: Vec<_> =
        definition.columns().iter().map(|c| (c.name.as_str(), c.description.as_str(), c.priority)).collect();
    assert_eq!(
        heads,
        [
            ("Name", "", 0),
            ("Color", "Its color.", 0),
            (
                "Version",
                "Custom resource definition column (in JSONPath format): .metadata.resourceVersion",
                1
            ),
            (
                "Since",
                "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp",
                0
            ),
        ]
    );
    let mut out = Vec::new();
    let mut table = Writer::new(&definition, MetaVersion::V1, now());
    let body =
        br#"{"metadata":{"name":"x","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"color":"red"}}"#;
    table.row(body, "12", RowObject::None, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), r#"{"cells":["x","red","12","24h"],"object":null}"#);

    let plain = Definition::custom(&[]);
    let heads: Vec<_> = plain.columns().iter().map(|c| (c.name.as_str(), c.kind.as_str())).collect();
    assert_eq!(heads, [("Name", "string"), ("Age", "date")]);
}

#[test]
fn include_object() {
    assert_eq!(IncludeObject::parse(None), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse(Some("")), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse(Some("None")), Ok(IncludeObject::None));
    assert_eq!(IncludeObject::parse(Some("Object")), Ok(IncludeObject::Object));
    assert_eq!(
        IncludeObject::parse(Some("Nope")).unwrap_err().to_string(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Nope\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
}
