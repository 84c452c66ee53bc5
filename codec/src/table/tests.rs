use super::partial::write_partial_metadata;
use super::*;
use crate::negotiate::MetaVersion;
use crate::tree;
use std::time::{Duration, SystemTime};

/// 2026-01-02T00:00:00Z
fn now() -> Now {
    Now::from(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_312_000))
}

/// One column of each source.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Text", "spec.text", "<none>"),
    Column::int("Int", "spec.int"),
    Column::int_or("IntOr", "spec.int", "<unset>").wide(),
    Column::boolean("Bool", "spec.bool", true),
    Column::ratio("Ratio", "spec.int", "spec.other"),
    Column::count("Count", "spec.list").declared("string"),
    Column::list("List", "spec.list", "<none>"),
    Column::each("Each", "spec.items", "name"),
    Column::labels("Labels", "spec.labels"),
    Column::selector("Selector", "spec.selector", "<none>", "<error>"),
    Column::condition("Ready", "status.conditions", "Ready"),
    Column::computed("Computed", &["spec.text"], |object, _| {
        object.str_at(&["spec", "text"]).unwrap_or("?").into()
    }),
    Column::part("Second", PARTS, 1),
    Column::part("First", PARTS, 0),
    Column::AGE,
];

/// The text, the integer, and nothing.
const PARTS: &Parts = &Parts {
    reads: &["spec.text", "spec.int"],
    cells: |object, _| {
        let int = object.at(&["spec", "int"]).and_then(Value::as_int).unwrap_or_default();
        [object.str_at(&["spec", "text"]).unwrap_or("?").into(), int.into(), Cell::Null]
    },
};

const CONDITION: RowConditionSource = RowConditionSource {
    reads: &["status.done"],
    condition: |object| {
        object.at(&["status", "done"]).map(|_| RowCondition {
            kind: "Completed",
            reason: "Done",
            message: "It is done.",
        })
    },
};

#[test]
fn every_source_gives_cells() {
    let definition = TableDefinition::new(COLUMNS, Some(CONDITION));
    let objects = [
        (
            r#"{"metadata":{"name":"n","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"text":"t","int":7,"bool":false,"other":9,
                "list":["a","b"],"items":[{"name":"x"},{"name":"y"}],"labels":{"b":"1","a":"2"},
                "selector":{"matchLabels":{"k":"v"}}},"status":{"done":1,"conditions":[{"type":"Ready","status":"True"}]}}"#,
            r#"{"cells":["n","t",7,7,false,"7/9",2,"a,b","x,y","a=2,b=1","k=v","True","t",7,"t","24h"],"conditions":[{"type":"Completed","status":"True","reason":"Done","message":"It is done."}],"object":null}"#,
        ),
        (
            r#"{"spec":{"selector":{"matchExpressions":[{"key":"k","operator":"Near"}]}}}"#,
            r#"{"cells":["","<none>",0,"<unset>",true,"0/0",0,"<none>","","<none>","<error>","?","?",0,"?","<unknown>"],"object":null}"#,
        ),
    ];
    for (object, row) in objects {
        let mut out = Vec::new();
        let mut table = Writer::new(&definition, MetaVersion::V1, now());
        table.row(object.as_bytes(), "1", RowObject::None, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), row);
    }
}

#[test]
fn tables_without_rows_and_heads() {
    let definition = TableDefinition::new(COLUMNS, None);
    let mut out = Vec::new();
    let mut table = Writer::new(&definition, MetaVersion::V1, now());
    table.begin(Some(&TableMeta::default()), false, &mut out);
    table.end(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":null,"rows":[]}"#
    );
}

#[test]
fn a_damaged_body_appends_nothing() {
    let definition = TableDefinition::new(COLUMNS, None);
    let mut out = Vec::new();
    let mut table = Writer::new(&definition, MetaVersion::V1, now());
    table.begin(Some(&TableMeta::default()), false, &mut out);
    let before = out.len();
    assert!(table.row(b"{\"metadata\":{", "1", RowObject::None, &mut out).is_err());
    assert_eq!(out.len(), before);
    table.row(b"{\"metadata\":{}}", "1", RowObject::None, &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("[,"));
}

#[test]
fn the_metadata_of_a_row_is_copied() {
    let written = |metadata: &[u8], version: &str| {
        let mut out = Vec::new();
        write_partial_metadata(metadata, version, MetaVersion::V1, &mut out);
        String::from_utf8(out).unwrap()
    };
    let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#;
    assert_eq!(written(br#"{"name":"a"}"#, "5"), format!(r#"{head}{{"resourceVersion":"5","name":"a"}}}}"#));
    assert_eq!(written(b"{}", "5"), format!(r#"{head}{{"resourceVersion":"5"}}}}"#));
    assert_eq!(written(br#"{"name":"a"}"#, ""), format!(r#"{head}{{"name":"a"}}}}"#));
}

#[test]
fn custom_resources_bring_their_columns() {
    let columns = [
        tree!({ "name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "Its color." }),
        tree!({ "name": "Version", "type": "string", "jsonPath": ".metadata.resourceVersion", "priority": 1i64 }),
        tree!({ "name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp", "format": "f" }),
    ];
    let definition = TableDefinition::custom(&columns);
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

    let plain = TableDefinition::custom(&[]);
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
