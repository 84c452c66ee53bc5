//! Custom resources: definitions good and bad, and the requests of every kind for what they define.

use serde_json::{json, Value};

use super::kinds::{Resource, Scenario};
use super::script::{Random, Request, Script, JSON_PATCH, MERGE_PATCH, TABLE};
use super::Subject;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "corpus.example.com";

/// The subjects about custom resources.
pub(crate) fn subjects(seed: u64) -> Vec<Subject> {
    let mut subjects = vec![
        Subject { name: "definitions".into(), script: definitions() },
        Subject { name: "objects of custom resources".into(), script: objects() },
    ];
    for (number, (version, kind, plural)) in
        [("v1", "Gadget", "gadgets"), ("v2", "Gadget", "gadgets"), ("v1", "Planet", "planets")]
            .into_iter()
            .enumerate()
    {
        let api_version = format!("{GROUP}/{version}");
        let both = ["get", "patch", "update"].map(str::to_owned).to_vec();
        let resource = Resource {
            api_version: api_version.clone(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced: kind == "Gadget",
            subresources: vec![("scale".into(), both.clone()), ("status".into(), both)],
        };
        let sample = |name: &str| {
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name},
                   "spec": {"size": 3, "color": "red", "selector": "app=x", "ports": [{"name": "a",
                       "port": 80}],
                            "nested": {"list": ["a", "b"], "any": {"x": 1}}, "percent": "5%"}})
        };
        let random = Random(seed ^ (0xC0 + number as u64));
        let mut scenario = Scenario::new(resource, sample("first"), sample("second"), random, number);
        scenario.all();
        subjects.push(Subject { name: format!("{api_version}/{plural}"), script: scenario.finish() });
    }
    subjects.push(Subject { name: "changes of definitions".into(), script: changes() });
    subjects
}

fn schema() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "default": 1},
            "color": {"type": "string", "enum": ["red", "green"], "default": "green"},
            "selector": {"type": "string", "pattern": "^[a-z=]*$", "maxLength": 20},
            "percent": {"x-kubernetes-int-or-string": true},
            "nothing": {"type": "string", "nullable": true},
            "when": {"type": "string", "format": "date-time"},
            "ports": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}, "port": {"type": "integer",
                        "default": 8080}}}},
            "nested": {"type": "object", "properties": {
                "list": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "set",
                         "items": {"type": "string", "maxLength": 30}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
            "x-kubernetes-validations": [
                {"rule": "self.size < 50 || self.color == 'red'", "message": "large gadgets are red"},
                {"rule": "!has(oldSelf.color) || self.color == oldSelf.color || self.size > 1",
                 "messageExpression": "'color of size ' + string(self.size)"}]},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"},
            "selector": {"type": "string"},
            "conditions": {"type": "array", "items": {"type": "object",
                                                      "x-kubernetes-preserve-unknown-fields": true}}}}}})
}

fn definition(kind: &str, scope: &str, versions: &[&str]) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let version = |(index, name): (usize, &&str)| {
        json!({"name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema()},
               "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
               "selectableFields": [{"jsonPath": ".spec.color"}],
               "additionalPrinterColumns": [
                   {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                   {"name": "Ports", "type": "string", "jsonPath": ".spec.ports[*].name", "priority": 1},
                   {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": format!("{plural}.{GROUP}")},
           "spec": {"group": GROUP, "scope": scope, "versions": versions,
                    "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                              "listKind": format!("{kind}List"), "shortNames": [&kind[..2].to_lowercase()],
                              "categories": ["all"]}}})
}

fn definitions() -> Script {
    let mut script = Script::default();
    for definition in
        [definition("Gadget", "Namespaced", &["v1", "v2"]), definition("Planet", "Cluster", &["v1"])]
    {
        let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
        script.push(Request::create(format!("{DEFINITIONS}?dryRun=All"), &definition));
        script.push(Request::create(DEFINITIONS, &definition));
        script.settle(&path);
        for media_type in
            ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", TABLE]
        {
            script.push(Request::get(path.clone()).accept(media_type));
        }
        // Served a moment after it is established.
        script.settle(&format!("/apis/{GROUP}/v1"));
        script.settle(&format!("/openapi/v3/apis/{GROUP}/v1"));
    }
    for path in [
        format!("/apis/{GROUP}"),
        format!("/apis/{GROUP}/v1"),
        format!("/apis/{GROUP}/v2"),
        format!("/apis/{GROUP}/v3"),
        format!("/openapi/v3/apis/{GROUP}/v1"),
        format!("/openapi/v3/apis/{GROUP}/v2"),
    ] {
        script.push(Request::get(path).verb("discovery"));
    }
    for (pointer, value) in bad_parts() {
        let mut bad = definition("Widget", "Namespaced", &["v1"]);
        if let Some(place) = bad.pointer_mut(pointer) {
            *place = value;
            script.push(Request::create(format!("{DEFINITIONS}?dryRun=All"), &bad));
        }
    }
    script
}

/// Places in a definition with values that are refused.
fn bad_parts() -> Vec<(&'static str, Value)> {
    const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";
    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    const RULES: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations";
    const SIZE: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let rule = |rule: &str| json!([{"rule": rule}]);
    let node = |node: Value| json!({"type": "object", "properties": {"spec": node}});
    let mut parts = vec![
        ("/metadata/name", json!("other.example.com")),
        ("/spec/group", json!("Not_A_Group")),
        ("/spec/scope", json!("Nowhere")),
        ("/spec/names/plural", json!("Widgets")),
        ("/spec/names/kind", json!("not a kind")),
        ("/spec/names/shortNames", json!(["A b"])),
        ("/spec/versions", json!([])),
        ("/spec/versions/0/name", json!("V_1")),
        ("/spec/versions/0/storage", json!(false)),
        ("/spec/versions/0/schema", Value::Null),
        ("/spec/versions/0/additionalPrinterColumns/0/type", json!("nothing")),
        ("/spec/versions/0/additionalPrinterColumns/0/jsonPath", json!("{{")),
        ("/spec/versions/0/selectableFields/0/jsonPath", json!(".spec.absent")),
        ("/spec/versions/0/subresources/scale/specReplicasPath", json!("spec")),
        (SCHEMA, json!({"type": "string"})),
        (SPEC, json!({})),
    ];
    parts.extend(
        [
            "self.size <",
            "self.absent == 1",
            "self.size",
            "self.color == 1",
            "self.ports.all(p, p.port > 'x')",
            "self.nested.list.all(a, self.nested.list.all(b, self.nested.list.all(c, a + b != c + a)))",
            "oldSelf.size == self.size",
            "cel.bind(x, self.size, x > y)",
            "quantity(self.percent).isLessThan(quantity('1'))",
        ]
        .map(|text| (RULES, rule(text))),
    );
    parts.extend(
        [
            json!({"type": "object", "additionalProperties": true, "properties": {"a": {"type": "string"}}}),
            json!({"type": "array"}),
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            json!({"type": "nonsense"}),
            json!({"type": "string", "default": 5}),
            json!({"type": "string", "pattern": "("}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            json!({"type": "object", "anyOf": [{"type": "object"}]}),
            json!({"$ref": "#/definitions/x"}),
            json!({"type": "integer", "minimum": 5, "default": 1}),
            json!({"type": "string", "nullable": true, "default": null}),
        ]
        .map(|value| (SCHEMA, node(value))),
    );
    parts.push((SIZE, json!({"type": "integer", "enum": []})));
    parts
}

/// Objects that fit the schema of Gadget, and others that do not.
fn objects() -> Script {
    let mut script = Script::default();
    for version in ["v1", "v2"] {
        let collection = format!("/apis/{GROUP}/{version}/namespaces/corpus/gadgets");
        let specs = [
            json!({}),
            json!(null),
            json!(5),
            json!({"size": 51}),
            json!({"size": 51, "color": "red"}),
            json!({"size": 101, "color": "blue", "selector": "A"}),
            json!({"size": -1, "color": ""}),
            json!({"size": 1.5}),
            json!({"size": "1"}),
            json!({"selector": "abcdefghijklmnopqrstuvwxyz"}),
            json!({"percent": true}),
            json!({"percent": 7, "nothing": null, "when": "2020-01-01T00:00:00Z"}),
            json!({"when": "yesterday"}),
            json!({"ports": [{"name": "a"}, {"name": "a", "port": 1}]}),
            json!({"ports": [{"port": 1}]}),
            json!({"ports": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"},
                {"name": "f"}]}),
            json!({"nested": {"list": ["a", "a"]}}),
            json!({"nested": {"list": ["a", 1], "any": {"deep": [{"x": {}}]}, "unknown": 1}}),
            json!({"unknown": {"a": "b"}, "size": null}),
        ];
        for spec in specs {
            let object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Gadget",
                                "metadata": {"name": "object"}, "spec": spec, "extra": 1});
            for validation in ["Strict", "Warn", "Ignore"] {
                let path = format!("{collection}?fieldValidation={validation}&dryRun=All");
                script.push(Request::create(path, &object));
            }
            script.push(Request::create(format!("{collection}?fieldManager=objects"), &object));
            let path = format!("{collection}/object");
            script.push(Request::get(path.clone()).accept(TABLE));
            script.push(Request::list(format!("{collection}?fieldSelector=spec.color%3Dred")));
            script.push(Request::list(format!("{collection}?fieldSelector=spec.size%3D1")));
            script.push(Request::patch(path.clone(), MERGE_PATCH, r#"{"spec":{"color":"red"}}"#));
            let port = r#"[{"op":"add","path":"/spec/ports","value":[{"name":"p"}]}]"#;
            script.push(Request::patch(path.clone(), JSON_PATCH, port));
            script.push(Request::delete(path));
        }
    }
    script
}

/// Changes of definitions that have been established, and their removal.
fn changes() -> Script {
    let mut script = Script::default();
    let path = format!("{DEFINITIONS}/gadgets.{GROUP}");
    for change in [
        json!({"spec": {"scope": "Cluster"}}),
        json!({"spec": {"group": "other.example.com"}}),
        json!({"spec": {"names": {"kind": "Other"}}}),
        json!({"spec": {"names": {"plural": "others"}}}),
        json!({"spec": {"names": {"shortNames": ["gg"]}}}),
        json!({"spec": {"versions": []}}),
        json!({"spec": {"preserveUnknownFields": true}}),
        json!({"spec": {"conversion": {"strategy": "Webhook"}}}),
        json!({"status": {"storedVersions": []}}),
        json!({"metadata": {"annotations": {"changed": "yes"}}}),
    ] {
        script.push(Request::patch(path.clone(), MERGE_PATCH, &change));
        script.settle(&path);
        script.push(Request::get(path.clone()));
    }
    let status = json!({"status": {"storedVersions": ["v1", "v2"]}});
    script.push(Request::patch(format!("{path}/status"), MERGE_PATCH, &status));
    script.settle(&path);
    script.push(Request::list(DEFINITIONS).accept(TABLE));
    for name in ["gadgets", "planets"] {
        let path = format!("{DEFINITIONS}/{name}.{GROUP}");
        script.push(Request::delete(path.clone()));
        script.settle(&path);
        script.push(Request::get(path));
    }
    script.settle(&format!("/apis/{GROUP}"));
    script.push(Request::get(format!("/apis/{GROUP}/v1/namespaces/corpus/gadgets")));
    script.push(Request::get("/apis").verb("discovery"));
    script
}
