//! Reads the documents that the servers of remote versions publish. Only what their types have is kept:
//! the documents come from another server.

use std::collections::BTreeMap;

use plinth_codec::{json, Map, Value};

use super::RemoteVersion;

/// The resources of one version in an `APIGroupDiscoveryList`; `None` when it lists another group's versions
/// only.
pub fn parse_aggregated_discovery(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    let groups = document.list_at(&["items"]).iter();
    let mut groups = groups.filter(|item| item.str_at(&["metadata", "name"]) == Some(group));
    let versions = groups.next()?.list_at(&["versions"]);
    let found = versions.iter().find(|item| item.str_at(&["version"]) == Some(version))?;
    Some(found.list_at(&["resources"]).iter().filter_map(resource).collect())
}

/// The resources of an `APIResourceList`. A subresource whose resource is not listed stands below one without
/// verbs; a kind has group and version only where the list names them (k8s.io/apiserver
/// `pkg/endpoints/installer.go`, `ConvertGroupVersionIntoToDiscovery`).
pub fn parse_resource_list(document: &Value) -> Vec<Value> {
    let mut resources: Vec<Map> = Vec::new();
    let rows = document.list_at(&["resources"]);
    let name = |row: &Value| row.str_at(&["name"]).unwrap_or_default().to_owned();
    let scope = |row: &Value| match row.get("namespaced").and_then(Value::as_bool) {
        Some(true) => "Namespaced",
        _ => "Cluster",
    };
    let kind = |row: &Value| {
        let given = |key: &str| row.str_at(&[key]).unwrap_or_default();
        kind_of(given("group"), given("version"), given("kind"))
    };
    for row in rows.iter().filter(|row| !name(row).is_empty() && !name(row).contains('/')) {
        let mut members = Map::new();
        members.insert("resource", name(row));
        members.insert("responseKind", kind(row));
        members.insert("scope", scope(row));
        members.insert("singularResource", row.str_at(&["singularName"]).unwrap_or_default().to_owned());
        members.insert("verbs", strings(row, "verbs"));
        add_names(&mut members, row);
        resources.push(members);
    }
    for row in rows {
        let name = name(row);
        let Some((parent, part)) = name.split_once('/').filter(|(parent, _)| !parent.is_empty()) else {
            continue;
        };
        let is_parent = |members: &Map| members.get("resource").and_then(Value::as_str) == Some(parent);
        let place = resources.iter().position(is_parent).unwrap_or_else(|| {
            let mut members = Map::new();
            members.insert("resource", parent.to_owned());
            members.insert("responseKind", kind_of("", "", ""));
            members.insert("scope", scope(row));
            members.insert("singularResource", "");
            members.insert("verbs", Vec::<Value>::new());
            resources.push(members);
            resources.len() - 1
        });
        let mut members = Map::new();
        members.insert("subresource", part.to_owned());
        members.insert("responseKind", kind(row));
        members.insert("verbs", strings(row, "verbs"));
        let list = resources[place].entry("subresources");
        match list.as_array_mut() {
            Some(list) => list.push(Value::Object(members)),
            None => *list = Value::Array(vec![Value::Object(members)]),
        }
    }
    resources.into_iter().map(Value::Object).collect()
}

/// A resource of aggregated discovery.
fn resource(given: &Value) -> Option<Value> {
    let mut members = Map::new();
    members.insert("resource", given.str_at(&["resource"]).filter(|name| !name.is_empty())?.to_owned());
    members.insert("responseKind", response_kind(given));
    let scope = given.str_at(&["scope"]).filter(|scope| matches!(*scope, "Namespaced" | "Cluster"))?;
    members.insert("scope", scope.to_owned());
    members.insert("singularResource", given.str_at(&["singularResource"]).unwrap_or_default().to_owned());
    members.insert("verbs", strings(given, "verbs"));
    add_names(&mut members, given);
    let subresource = |given: &Value| {
        let mut members = Map::new();
        members.insert("subresource", given.str_at(&["subresource"])?.to_owned());
        members.insert("responseKind", response_kind(given));
        members.insert("verbs", strings(given, "verbs"));
        Some(Value::Object(members))
    };
    let subresources: Vec<Value> = given.list_at(&["subresources"]).iter().filter_map(subresource).collect();
    if !subresources.is_empty() {
        members.insert("subresources", subresources);
    }
    Some(Value::Object(members))
}

fn add_names(members: &mut Map, given: &Value) {
    for key in ["shortNames", "categories"] {
        let names = strings(given, key);
        if !names.is_empty() {
            members.insert(key, names);
        }
    }
}

fn response_kind(given: &Value) -> Value {
    let text = |key: &str| given.str_at(&["responseKind", key]).unwrap_or_default();
    kind_of(text("group"), text("version"), text("kind"))
}

fn kind_of(group: &str, version: &str, kind: &str) -> Value {
    let mut members = Map::new();
    for (key, text) in [("group", group), ("version", version), ("kind", kind)] {
        members.insert(key, text.to_owned());
    }
    Value::Object(members)
}

fn strings(given: &Value, key: &str) -> Vec<Value> {
    given.list_at(&[key]).iter().filter(|item| item.as_str().is_some()).cloned().collect()
}

/// The `serverRelativeURL` of a version in an index of OpenAPI v3 documents. Others' paths are ignored.
pub fn remote_openapi_v3(index: &Value, remote: &RemoteVersion) -> Option<String> {
    let path = remote.path();
    let url = index.get("paths")?.get(path.trim_start_matches('/'))?.str_at(&["serverRelativeURL"])?;
    let own = format!("/openapi/v3{path}");
    let is_own = url.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('?'));
    is_own.then(|| url.to_owned())
}

/// What an OpenAPI v2 document has of a version: its paths, and what they refer to.
pub fn remote_openapi_v2(document: &Value, remote: &RemoteVersion) -> Option<Vec<u8>> {
    let below = format!("{}/", remote.path());
    let paths = document.get("paths")?.as_object()?.iter();
    let mut own = Map::new();
    let mut unread = Vec::new();
    for (path, item) in paths.filter(|(path, _)| path.starts_with(&below)) {
        own.insert(path.clone(), item.clone());
        unread.push(item);
    }
    if own.is_empty() {
        return None;
    }
    let mut used: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    while let Some(value) = unread.pop() {
        match value {
            Value::Object(members) => unread.extend(members.values()),
            Value::Array(items) => unread.extend(items),
            _ => {
                let Some((section, name)) = value.as_str().and_then(reference) else { continue };
                let Some(referred) = document.get(section).and_then(|all| all.get(name)) else { continue };
                if used.insert((section, name), referred).is_none() {
                    unread.push(referred);
                }
            }
        }
    }
    let mut part = Map::new();
    part.insert("paths", own);
    for section in SECTIONS {
        let mut members = Map::new();
        for ((_, name), value) in used.iter().filter(|((of, _), _)| *of == section) {
            members.insert(*name, (*value).clone());
        }
        part.insert(section, members);
    }
    let mut out = Vec::new();
    json::write_untyped(&Value::Object(part), &mut out);
    Some(out)
}

/// What a path of an OpenAPI v2 document can refer to.
const SECTIONS: [&str; 2] = ["definitions", "parameters"];

/// Section and name of a reference: `#/definitions/NAME`.
fn reference(text: &str) -> Option<(&'static str, &str)> {
    let (section, name) = text.strip_prefix("#/")?.split_once('/')?;
    Some((SECTIONS.into_iter().find(|known| *known == section)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn written(value: &Value) -> String {
        let mut out = Vec::new();
        json::write_untyped(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn remote() -> RemoteVersion {
        let object =
            r#"{"spec":{"group":"a.example","version":"v1","service":{"namespace":"n","name":"s"}}}"#;
        RemoteVersion::of(&parse(object)).unwrap()
    }

    #[test]
    fn both_forms_of_discovery_give_the_same_resources() {
        let list = parse(
            r#"{"resources":[
            {"name":"cars","singularName":"car","namespaced":true,"kind":"Car","verbs":["get","list"],"shortNames":["c"]},
            {"name":"cars/status","namespaced":true,"kind":"Car","verbs":["get"]},
            {"name":"pods/requests","namespaced":true,"kind":"Values","group":"b.example","version":"v2","verbs":["get"]}]}"#,
        );
        let document = parse(
            r#"{"items":[{"metadata":{"name":"other"},"versions":[{"version":"v1"}]},
            {"metadata":{"name":"a.example"},"versions":[{"version":"v1","freshness":"Stale","resources":[
            {"resource":"cars","responseKind":{"group":"","version":"","kind":"Car"},"scope":"Namespaced",
             "singularResource":"car","verbs":["get","list"],"shortNames":["c"],"more":"dropped","subresources":[
              {"subresource":"status","responseKind":{"kind":"Car"},"verbs":["get"]}]},
            {"resource":"pods","scope":"Namespaced","subresources":[
              {"subresource":"requests","responseKind":{"group":"b.example","version":"v2","kind":"Values"},"verbs":["get"]}]},
            {"resource":"odd","scope":"Elsewhere"}, 7]}]}]}"#,
        );
        let (plain, aggregated) =
            (parse_resource_list(&list), parse_aggregated_discovery(&document, "a.example", "v1").unwrap());
        assert_eq!(written(&plain.into()), written(&aggregated.into()));
        assert!(parse_aggregated_discovery(&document, "a.example", "v2").is_none());
        assert!(parse_aggregated_discovery(&parse("[]"), "a.example", "v1").is_none());
    }

    #[test]
    fn openapi_documents_are_taken_over_for_the_own_version_only() {
        let index = |url: &str| {
            let text = format!(r#"{{"paths":{{"apis/a.example/v1":{{"serverRelativeURL":"{url}"}}}}}}"#);
            remote_openapi_v3(&parse(&text), &remote())
        };
        let own = "/openapi/v3/apis/a.example/v1?hash=AB";
        assert_eq!(index(own).as_deref(), Some(own));
        for other in ["/openapi/v3/apis/a.example/v10?hash=AB", "https://evil/openapi", "/openapi/v3/api/v1"]
        {
            assert_eq!(index(other), None, "{other}");
        }
        let document = parse(
            r##"{"paths":{"/apis/a.example/v1/cars":{"get":{"$ref":"#/definitions/Car","p":[{"$ref":"#/parameters/p"}]}},
            "/apis/a.example/v10/cars":{},"/version":{}},"parameters":{"p":1,"q":2},
            "definitions":{"Car":{"of":{"$ref":"#/definitions/Wheel"}},"Wheel":{"$ref":"#/definitions/Car"},"Unused":{}}}"##,
        );
        let part = parse(std::str::from_utf8(&remote_openapi_v2(&document, &remote()).unwrap()).unwrap());
        let keys = |section: &str| -> Vec<String> {
            part.get(section).unwrap().as_object().unwrap().keys().map(ToString::to_string).collect()
        };
        assert_eq!(keys("paths"), ["/apis/a.example/v1/cars"]);
        assert_eq!(
            (keys("definitions"), keys("parameters")),
            (vec!["Car".into(), "Wheel".into()], vec!["p".into()])
        );
        assert!(remote_openapi_v2(&parse(r#"{"paths":{"/version":{}}}"#), &remote()).is_none());
    }
}
