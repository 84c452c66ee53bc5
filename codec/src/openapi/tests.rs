//! Documents as a whole: complete, and beside what upstream publishes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::*;
use crate::{resources, schema};

fn builtin(group: &str, version: &str) -> Vec<Published<'static>> {
    let rows = resources::builtin().resources.iter();
    rows.filter(|r| r.group == group && r.version == version).map(Published::builtin).collect()
}

fn version(group: &str, version: &str) -> Json {
    let json = v3::version(schema::builtin(), group, version, &builtin(group, version), &NoDescriptions);
    serde_json::from_slice(&json).unwrap()
}

fn swagger() -> Json {
    let all: Vec<Published> = resources::builtin().resources.iter().map(Published::builtin).collect();
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

/// Takes out what is not compared: descriptions; enums, which upstream switches off for the published
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
