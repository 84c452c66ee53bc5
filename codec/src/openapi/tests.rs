//! Whole documents: complete, and compared with upstream's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::*;
use crate::{resources, schema};

fn builtin(group: &str, version: &str) -> Vec<PublishedResource<'static>> {
    let rows = resources::builtin().resources.iter();
    rows.filter(|r| r.group == group && r.version == version).map(PublishedResource::builtin).collect()
}

fn version(group: &str, version: &str) -> Json {
    let json = v3::version(schema::builtin(), group, version, &builtin(group, version), &NoDescriptions);
    serde_json::from_slice(&json).unwrap()
}

fn swagger() -> Json {
    let all: Vec<PublishedResource> =
        resources::builtin().resources.iter().map(PublishedResource::builtin).collect();
    serde_json::from_slice(&v2::document(schema::builtin(), &all, &NoDescriptions)).unwrap()
}

/// Calls `visit` for every object in a document.
fn for_each_object<'a>(json: &'a Json, visit: &mut dyn FnMut(&'a serde_json::Map<String, Json>)) {
    match json {
        Json::Object(map) => {
            visit(map);
            map.values().for_each(|v| for_each_object(v, visit));
        }
        Json::Array(items) => items.iter().for_each(|v| for_each_object(v, visit)),
        _ => {}
    }
}

fn unresolved(document: &Json) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    for_each_object(document, &mut |object| {
        if let Some(target) = object.get("$ref").and_then(Json::as_str) {
            let pointer = target.strip_prefix('#').unwrap();
            if document.pointer(pointer).is_none() {
                missing.insert(target.to_owned());
            }
        }
    });
    missing
}

fn operation_ids(document: &Json) -> Vec<&str> {
    let mut ids = Vec::new();
    for_each_object(document, &mut |object| ids.extend(object.get("operationId").and_then(Json::as_str)));
    ids
}

#[test]
fn every_document_is_complete_and_its_ids_are_unique() {
    let table = resources::builtin();
    let mut documents = vec![("v2".to_owned(), swagger())];
    for group in &table.groups {
        for (v, _) in &group.versions {
            documents.push((format!("{} {v}", group.name), version(&group.name, v)));
        }
        let root = v3::group(schema::builtin(), &group.name, &NoDescriptions);
        documents.push((group.name.to_string(), serde_json::from_slice(&root).unwrap()));
    }
    for root in ["api", "apis", "version"] {
        let json = v3::root(schema::builtin(), root, &NoDescriptions).unwrap();
        documents.push((root.to_owned(), serde_json::from_slice(&json).unwrap()));
    }
    for (name, document) in &documents {
        assert!(unresolved(document).is_empty(), "{name}: {:?}", unresolved(document));
        let ids = operation_ids(document);
        assert!(!ids.is_empty(), "{name}");
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{name}: an id twice");
    }
    assert!(v3::root(schema::builtin(), "healthz", &NoDescriptions).is_none());
}

#[test]
fn kubectl_finds_what_it_looks_for() {
    let apps = version("apps", "v1");
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&Json> = patch["parameters"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let schemas = &apps["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        serde_json::json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    let pull = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
    assert_eq!(pull["enum"], serde_json::json!(["Always", "IfNotPresent", "Never"]));
    let replicas = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"];
    assert_eq!(replicas["format"], "int32");
}

/// A union's members and the options of what is read as text come from the tables.
#[test]
fn unions_and_options_of_text_are_documented() {
    let core = version("", "v1");
    let profile = &core["components"]["schemas"]["io.k8s.api.core.v1.SeccompProfile"];
    assert_eq!(
        profile["x-kubernetes-unions"],
        serde_json::json!([
            {"discriminator": "type", "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"}}
        ])
    );
    let group = &core["components"]["schemas"]["io.k8s.api.core.v1.PodSchedulingGroup"];
    assert_eq!(
        group["x-kubernetes-unions"],
        serde_json::json!([{"fields-to-discriminateBy": {"podGroupName": "PodGroupName"}}])
    );

    let log = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/log"];
    let parameters = log["parameters"].as_array().into_iter().chain(log["get"]["parameters"].as_array());
    let names: BTreeSet<&str> = parameters.flatten().map(|p| p["name"].as_str().unwrap()).collect();
    for name in ["container", "follow", "sinceSeconds", "tailLines"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(log["get"]["responses"]["200"]["content"]["text/plain"].is_object());
}

/// Compares every document with those that upstream publishes (kubernetes/kubernetes,
/// `api/openapi-spec`) in the folder that `PLINTH_UPSTREAM_OPENAPI` names, descriptions apart.
#[test]
fn published_documents_agree() {
    let Some(folder) = std::env::var_os("PLINTH_UPSTREAM_OPENAPI").map(PathBuf::from) else {
        return;
    };
    let mut differences = Vec::new();
    let table = resources::builtin();
    for group in &table.groups {
        for (v, _) in &group.versions {
            let file = match group.name.is_empty() {
                true => format!("v3/api__{v}_openapi.json"),
                false => format!("v3/apis__{}__{v}_openapi.json", group.name),
            };
            let mut ours = version(&group.name, v);
            let mut theirs = read(&folder, &file);
            reduce(&mut ours);
            reduce(&mut theirs);
            compare(&file, &ours, &theirs, &mut differences);
        }
        if !group.name.is_empty() {
            let file = format!("v3/apis__{}_openapi.json", group.name);
            let json = v3::group(schema::builtin(), &group.name, &NoDescriptions);
            compare_reduced(&folder, &file, &json, &mut differences);
        }
    }
    for root in ["api", "apis", "version"] {
        let json = v3::root(schema::builtin(), root, &NoDescriptions).unwrap();
        compare_reduced(&folder, &format!("v3/{root}_openapi.json"), &json, &mut differences);
    }

    let (mut ours, mut theirs) = (swagger(), read(&folder, "swagger.json"));
    inline_parameters(&mut ours);
    inline_parameters(&mut theirs);
    reduce(&mut ours);
    reduce(&mut theirs);
    // Upstream's has the alpha and beta versions too, and these kinds name all of them.
    for name in ["DeleteOptions", "WatchEvent"] {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
        let kinds = ours["definitions"][&name]["x-kubernetes-group-version-kind"].take();
        let all = theirs["definitions"][&name]["x-kubernetes-group-version-kind"].take();
        for kind in kinds.as_array().unwrap() {
            assert!(all.as_array().unwrap().contains(kind), "{kind}");
        }
    }
    for part in ["paths", "definitions"] {
        let served: BTreeSet<String> = ours[part].as_object().unwrap().keys().cloned().collect();
        theirs[part].as_object_mut().unwrap().retain(|key, _| served.contains(key));
    }
    compare("v2", &ours, &theirs, &mut differences);

    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for difference in &differences {
        *kinds.entry(difference.clone()).or_default() += 1;
    }
    let list: Vec<String> = kinds.iter().map(|(what, n)| format!("{n} x {what}")).collect();
    assert!(list.is_empty(), "{} differences:\n{}", differences.len(), list.join("\n"));
}

fn read(folder: &Path, file: &str) -> Json {
    serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}")))
        .unwrap()
}

fn compare_reduced(folder: &Path, file: &str, ours: &[u8], differences: &mut Vec<String>) {
    let mut ours: Json = serde_json::from_slice(ours).unwrap();
    let mut theirs = read(folder, file);
    reduce(&mut ours);
    reduce(&mut theirs);
    compare(file, &ours, &theirs, differences);
}

/// Removes what is not compared: descriptions; enums, which upstream switches off for the published
/// documents; the version that the document is of; the order of lists of media types and kinds.
fn reduce(json: &mut Json) {
    match json {
        Json::Object(map) => {
            map.retain(|key, value| !(key == "description" && value.is_string()));
            map.retain(|key, value| !(key == "enum" && value.is_array()));
            for key in ["consumes", "produces"] {
                if let Some(Json::Array(types)) = map.get_mut(key) {
                    types.sort_by_key(|t| t.to_string());
                }
            }
            // The default for maps, spelled out at two fields; and a list type on what is no list.
            map.retain(|key, value| !(key == "x-kubernetes-map-type" && value == "granular"));
            if map.get("type").is_some_and(|t| t == "string") {
                map.remove("x-kubernetes-list-type");
            }
            // A reference with a description beside it takes this form.
            if let (1, Some(Json::Array(all))) = (map.len(), map.get("allOf")) {
                let reference = all[0].clone();
                return *json = reference;
            }
            if let Some(Json::Object(info)) = map.get_mut("info") {
                info.remove("version");
            }
            map.values_mut().for_each(reduce);
        }
        Json::Array(items) => items.iter_mut().for_each(reduce),
        _ => {}
    }
}

/// Puts the parameters of the second edition where they are referred to, in one order.
fn inline_parameters(document: &mut Json) {
    let shared = document.as_object_mut().unwrap().remove("parameters").unwrap();
    fn inline(json: &mut Json, shared: &Json) {
        match json {
            Json::Object(map) => {
                if let Some(target) = map.get("$ref").and_then(Json::as_str) {
                    if let Some(name) = target.strip_prefix("#/parameters/") {
                        *json = shared[name].clone();
                        return;
                    }
                }
                map.values_mut().for_each(|v| inline(v, shared));
                if let Some(Json::Array(items)) = map.get_mut("parameters") {
                    items.sort_by_key(|p| (p["name"].to_string(), p["in"].to_string()));
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|v| inline(v, shared)),
            _ => {}
        }
    }
    inline(document, &shared);
}

fn compare(at: &str, ours: &Json, theirs: &Json, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Json::Object(a), Json::Object(b)) => {
            for (key, value) in a {
                let at = format!("{at} {key}");
                match b.get(key) {
                    Some(other) => compare(&at, value, other, differences),
                    None => differences.push(format!("{at}: only ours: {}", short(value))),
                }
            }
            for (key, value) in b {
                if !a.contains_key(key) {
                    differences.push(format!("{at} {key}: only theirs: {}", short(value)));
                }
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}[{i}]"), a, b, differences);
            }
        }
        _ if ours == theirs => {}
        _ => differences.push(format!("{at}: ours {}, theirs {}", short(ours), short(theirs))),
    }
}

fn short(json: &Json) -> String {
    json.to_string().chars().take(160).collect()
}

#[test]
fn custom_resources_join_with_metadata_and_expanded_extensions() {
    let schema: Json = serde_json::json!({
        "type": "object",
        "description": "A tab.",
        "properties": {
            "metadata": { "type": "object", "properties": { "name": { "type": "string", "maxLength": 8 } } },
            "spec": {
                "type": "object",
                "required": ["port", "note"],
                "properties": {
                    "port": { "x-kubernetes-int-or-string": true },
                    "size": {
                        "x-kubernetes-int-or-string": true,
                        "anyOf": [{ "type": "integer" }, { "type": "string" }],
                        "default": 1,
                    },
                    "note": { "type": "string", "nullable": true },
                    "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "template": { "type": "object", "x-kubernetes-embedded-resource": true },
                },
            },
        },
    });
    let schema = from_json(&schema);
    let resource = Resource {
        group: "stable.example.com".into(),
        version: "v1".into(),
        plural: "crontabs".into(),
        singular: "crontab".into(),
        kind: "CronTab".into(),
        list_kind: "CronTabList".into(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(SmolStr::from)
            .to_vec(),
        storage: None,
        subresources: vec![resources::Subresource {
            name: "scale".into(),
            gvk: schema::GVK::new("autoscaling", "v1", "Scale"),
            verbs: vec!["get".into()],
            text_options: None,
        }],
    };
    let fields = [SmolStr::from(".spec.note")];
    let custom =
        CustomSchema { schema: Some(&schema), preserve_unknown_fields: false, selectable_fields: &fields };
    let published = [PublishedResource::custom(&resource, custom)];

    let json = v3::version(schema::builtin(), "stable.example.com", "v1", &published, &NoDescriptions);
    let document: Json = serde_json::from_slice(&json).unwrap();
    assert!(unresolved(&document).is_empty(), "{:?}", unresolved(&document));
    let path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(patch["operationId"], "patchStableExampleComV1NamespacedCronTab");
    assert!(patch["requestBody"]["content"]["application/apply-patch+yaml"].is_object());
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());
    let definition = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    let properties = &definition["properties"];
    let object_meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(properties["metadata"], serde_json::json!({ "$ref": object_meta }));
    assert_eq!(definition["description"], "A tab.");
    assert_eq!(definition["x-kubernetes-group-version-kind"][0]["kind"], "CronTab");
    assert_eq!(definition["x-kubernetes-selectable-fields"][0]["fieldPath"], "spec.note");
    let spec = &properties["spec"]["properties"];
    assert_eq!(spec["port"]["anyOf"], serde_json::json!([{ "type": "integer" }, { "type": "string" }]));
    assert!(spec["size"].get("allOf").is_none(), "no second reference");
    assert_eq!(spec["template"]["required"], serde_json::json!(["kind", "apiVersion"]));
    assert_eq!(spec["template"]["properties"]["metadata"]["$ref"], object_meta);

    let json = v2::document(schema::builtin(), &published, &NoDescriptions);
    let document: Json = serde_json::from_slice(&json).unwrap();
    assert!(unresolved(&document).is_empty(), "{:?}", unresolved(&document));
    let spec = &document["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"];
    assert_eq!(spec["required"], serde_json::json!(["port"]), "what may be null cannot be required");
    let spec = &spec["properties"];
    assert_eq!(spec["note"], serde_json::json!({}));
    assert_eq!(spec["open"], serde_json::json!({ "x-kubernetes-preserve-unknown-fields": true }));
    assert!(spec["size"].get("anyOf").is_none() && spec["size"].get("default").is_none());
}

fn from_json(json: &Json) -> crate::Value {
    match json {
        Json::Null => crate::Value::Null,
        Json::Bool(b) => (*b).into(),
        Json::Number(n) => n.as_i64().map_or_else(|| crate::Value::Float(n.as_f64().unwrap()), Into::into),
        Json::String(s) => s.as_str().into(),
        Json::Array(items) => crate::Value::Array(items.iter().map(from_json).collect()),
        Json::Object(map) => {
            crate::Value::Object(map.iter().map(|(k, v)| (k.as_str().into(), from_json(v))).collect())
        }
    }
}

/// The fields of a protobuf message: number and content; numbers and booleans as eight bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let content = match tag & 7 {
            0 => varint(&mut message).to_le_bytes().to_vec(),
            1 => message.split_off(..8).unwrap().to_vec(),
            2 => {
                let length = varint(&mut message) as usize;
                message.split_off(..length).unwrap().to_vec()
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, content));
    }
    found
}

/// All values at a path of field numbers.
fn all_at(message: &[u8], path: &[u64]) -> Vec<Vec<u8>> {
    match path {
        [] => vec![message.to_vec()],
        [number, rest @ ..] => {
            let here = fields(message).into_iter().filter(|(n, _)| n == number);
            here.flat_map(|(_, content)| all_at(&content, rest)).collect()
        }
    }
}

#[test]
fn protobuf_has_what_older_clients_read_of_it() {
    let all: Vec<PublishedResource> =
        resources::builtin().resources.iter().map(PublishedResource::builtin).collect();
    let json = v2::document(schema::builtin(), &all, &NoDescriptions);
    let document = gnostic::v2(&json).unwrap();
    assert_eq!(all_at(&document, &[1]), [b"2.0"]);
    // paths.path.value.patch.parameters.parameter.non_body_parameter.query_parameter_sub_schema.name
    let names = all_at(&document, &[8, 2, 2, 8, 8, 1, 2, 3, 4]);
    // The others are connections through a proxy.
    let ids = all_at(&document, &[8, 2, 2, 8, 5]);
    let patches = ids.iter().filter(|id| id.starts_with(b"patch")).count();
    assert_eq!(names.iter().filter(|name| *name == b"fieldValidation").count(), patches);
    assert!(patches > 50);

    let definitions = all_at(&document, &[9, 1]);
    let count = serde_json::from_slice::<Json>(&json).unwrap()["definitions"].as_object().unwrap().len();
    assert_eq!(definitions.len(), count);
    let spec = definitions.iter().find(|d| all_at(d, &[1]) == [b"io.k8s.api.core.v1.PodSpec"]).unwrap();
    let containers = all_at(spec, &[2, 25, 1]);
    let containers = containers.iter().find(|p| all_at(p, &[1]) == [b"containers"]).unwrap();
    assert_eq!(all_at(containers, &[2, 22, 1]), [b"array"]);
    let extensions = all_at(containers, &[2, 31]);
    let merge_key = extensions.iter().find(|e| all_at(e, &[1]) == [b"x-kubernetes-patch-merge-key"]).unwrap();
    assert_eq!(all_at(merge_key, &[2, 2]), [b"\"name\"\n"]);
}

#[test]
fn edition_3_in_protobuf_keeps_schemas_and_operations() {
    let json = v3::version(schema::builtin(), "apps", "v1", &builtin("apps", "v1"), &NoDescriptions);
    let document = gnostic::v3(&json).unwrap();
    let parsed: Json = serde_json::from_slice(&json).unwrap();
    assert_eq!(all_at(&document, &[4, 1]).len(), parsed["paths"].as_object().unwrap().len());
    let schemas = all_at(&document, &[5, 1, 1]);
    assert_eq!(schemas.len(), parsed["components"]["schemas"].as_object().unwrap().len());
    let quantity = schemas.iter().find(|s| all_at(s, &[1])[0].ends_with(b"resource.Quantity")).unwrap();
    assert_eq!(all_at(quantity, &[2, 1, 27, 1, 25]), [&b"string"[..], b"number"]);
}
