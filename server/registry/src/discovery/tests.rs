//! Discovery documents beside what upstream's documents say.

use plinth_codec::resources::{self, Resource, Subresource};
use plinth_codec::schema::GVK;
use plinth_codec::Value;

use super::*;

fn custom(group: &str, version: &str, plural: &str, kind: &str) -> Resource {
    Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        verbs: vec!["get".into(), "list".into()],
        storage: Some((group.into(), version.into())),
        subresources: vec![
            Subresource {
                name: "scale".into(),
                gvk: GVK::new("autoscaling", "v1", "Scale"),
                verbs: vec!["get".into()],
                text_options: None,
            },
            Subresource {
                name: "status".into(),
                gvk: GVK::new(group, version, kind),
                verbs: vec!["get".into()],
                text_options: None,
            },
        ],
    }
}

fn names<'a>(document: &'a DiscoveryDocument, list: &str, path: &[&str]) -> Vec<&'a str> {
    let items = document.tree.get(list).unwrap().as_array().unwrap();
    items.iter().map(|item| item.str_at(path).unwrap_or("")).collect()
}

#[test]
fn groups_come_by_priority_and_custom_ones_last() {
    let rows = [
        custom("zeta.example.com", "v1", "zetas", "Zeta"),
        custom("alpha.example.com", "v1beta1", "alphas", "Alpha"),
        custom("alpha.example.com", "v1", "alphas", "Alpha"),
    ];
    let catalog = Catalog::new(resources::builtin(), &rows);
    let plain = lists::api_group_list_document(&catalog);
    let order = names(&plain, "groups", &["name"]);
    assert_eq!(order[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    assert_eq!(order[order.len() - 2..], ["alpha.example.com", "zeta.example.com"]);
    assert_eq!(names(&aggregated::aggregated_groups(&catalog), "items", &["metadata", "name"]), order);

    let alpha = lists::api_group_document(&catalog, "alpha.example.com").unwrap();
    assert_eq!(names(&alpha, "versions", &["version"]), ["v1", "v1beta1"]);
    assert_eq!(alpha.tree.str_at(&["preferredVersion", "version"]), Some("v1"));
}

#[test]
fn the_core_group_says_no_api_version_and_no_name() {
    let catalog = Catalog::new(resources::builtin(), []);
    let versions = lists::api_versions_document(&catalog, "127.0.0.1:6443");
    assert_eq!(versions.tree.get("apiVersion"), None);
    assert_eq!(versions.tree.get("versions"), Some(&Value::Array(vec!["v1".into()])));
    let core = lists::api_resource_list_document(&catalog, "", "v1").unwrap();
    assert_eq!(core.tree.get("apiVersion"), None);
    assert_eq!(core.tree.str_at(&["groupVersion"]), Some("v1"));
    let list = aggregated::aggregated_core(&catalog);
    let items = list.tree.get("items").unwrap().as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].at(&["metadata", "name"]), None);
    assert!(lists::api_group_document(&catalog, "").is_none());
}

#[test]
fn only_custom_resources_and_foreign_kinds_name_group_and_version() {
    let rows = [custom("example.com", "v1", "widgets", "Widget")];
    let catalog = Catalog::new(resources::builtin(), &rows);
    let list = aggregated::aggregated_groups(&catalog);
    let kinds_of = |group: &str, resource: &str| -> Vec<String> {
        let item = |list: &'_ Value, of: &[&str], is: &str| -> Value {
            let found = list.as_array().unwrap().iter().find(|i| i.str_at(of) == Some(is));
            found.unwrap().clone()
        };
        let group = item(list.tree.get("items").unwrap(), &["metadata", "name"], group);
        let version = &group.get("versions").unwrap().as_array().unwrap()[0];
        let resource = item(version.get("resources").unwrap(), &["resource"], resource);
        let subresources = resource.get("subresources").unwrap().as_array().unwrap();
        std::iter::once(&resource)
            .chain(subresources)
            .map(|r| {
                let part = |name| r.str_at(&["responseKind", name]).unwrap();
                format!("{}/{} {}", part("group"), part("version"), part("kind"))
            })
            .collect()
    };
    assert_eq!(kinds_of("apps", "deployments"), ["/ Deployment", "autoscaling/v1 Scale", "/ Deployment"]);
    assert_eq!(
        kinds_of("example.com", "widgets"),
        ["example.com/v1 Widget", "autoscaling/v1 Scale", "example.com/v1 Widget"]
    );
}

#[test]
fn a_definition_cannot_add_to_a_built_in_version() {
    let rows = [custom("apps", "v1", "widgets", "Widget"), custom("apps", "v2", "widgets", "Widget")];
    let catalog = Catalog::new(resources::builtin(), &rows);
    let apps = lists::api_resource_list_document(&catalog, "apps", "v1").unwrap();
    assert!(!names(&apps, "resources", &["name"]).contains(&"widgets"));
    let group = lists::api_group_document(&catalog, "apps").unwrap();
    assert_eq!(names(&group, "versions", &["version"]), ["v2", "v1"], "priority 100 over 15");
}

#[test]
fn the_index_lists_versions_and_endpoints_sorted() {
    let catalog = Catalog::new(resources::builtin(), []);
    let index: serde_json::Value =
        serde_json::from_slice(&root::root_paths_document(&catalog, &["/version", "/healthz", "/api"]))
            .unwrap();
    let paths: Vec<&str> = index["paths"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    assert!(paths.is_sorted_by(|a, b| a < b), "sorted, each once");
    for path in ["/api/v1", "/apis/", "/apis/apps", "/apis/autoscaling/v1", "/healthz"] {
        assert!(paths.contains(&path), "{path}");
    }
}

/// Compares every document with the ones that upstream publishes (kubernetes/kubernetes,
/// `api/discovery`) in the folder that `PLINTH_UPSTREAM_DISCOVERY` names. They come from a server with every
/// alpha and beta version on, so only the groups, versions and resources served here are compared.
#[test]
fn published_documents_agree() {
    let Some(folder) = std::env::var_os("PLINTH_UPSTREAM_DISCOVERY") else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let read = |name: &str| -> serde_json::Value {
        let text = std::fs::read(folder.join(name)).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let catalog = Catalog::new(resources::builtin(), []);
    let mut compared = 0;

    let served = |group: &str, version: &str| catalog.version(group, version).is_some();
    let mut published = read("apis.json");
    published["kind"] = "APIGroupList".into();
    retain_served(published["groups"].as_array_mut().unwrap(), |g| g["name"].as_str().unwrap(), served);
    assert_same("apis", &lists::api_group_list_document(&catalog).tree, &published);

    for group in catalog.named_groups() {
        let mut published = vec![read(&format!("apis__{}.json", group.name))];
        retain_served(&mut published, |g| g["name"].as_str().unwrap(), served);
        assert_same(
            group.name,
            &lists::api_group_document(&catalog, group.name).unwrap().tree,
            &published[0],
        );
        for version in &group.versions {
            let published = read(&format!("apis__{}__{}.json", group.name, version.name));
            let ours = lists::api_resource_list_document(&catalog, group.name, version.name).unwrap();
            assert_same(group.name, &ours.tree, &published);
            compared += 1;
        }
    }
    assert_same(
        "api/v1",
        &lists::api_resource_list_document(&catalog, "", "v1").unwrap().tree,
        &read("api__v1.json"),
    );

    let mut published = read("aggregated_v2.json");
    published["metadata"] = serde_json::json!({});
    retain_served(
        published["items"].as_array_mut().unwrap(),
        |g| g["metadata"]["name"].as_str().unwrap(),
        served,
    );
    assert_same("aggregated", &aggregated::aggregated_groups(&catalog).tree, &published);
    println!("{compared} group versions agree");
}

/// Removes versions and groups that are off by default.
fn retain_served(
    groups: &mut Vec<serde_json::Value>,
    name: impl Fn(&serde_json::Value) -> &str,
    served: impl Fn(&str, &str) -> bool,
) {
    for group in groups.iter_mut() {
        let group_name = name(group).to_owned();
        let versions = group["versions"].as_array_mut().unwrap();
        versions.retain(|v| served(&group_name, v["version"].as_str().unwrap()));
    }
    groups.retain(|g| !g["versions"].as_array().unwrap().is_empty());
}

fn assert_same(what: &str, ours: &Value, published: &serde_json::Value) {
    let ours = as_json(ours);
    if &ours != published {
        panic!(
            "{what}: ours\n{}\npublished\n{}",
            serde_json::to_string_pretty(&ours).unwrap(),
            serde_json::to_string_pretty(published).unwrap()
        );
    }
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Int(n) => (*n).into(),
        Value::Float(f) => (*f).into(),
        Value::String(s) => s.as_str().into(),
        Value::Array(items) => items.iter().map(as_json).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.to_string(), as_json(v))).collect(),
        Value::Encoded(encoded) => serde_json::from_str(encoded.text()).unwrap(),
    }
}

#[test]
fn hashes_of_storage_versions_are_upstreams() {
    assert_eq!(lists::storage_version_hash("", "v1", "ConfigMap"), "qFsyl6wFWjQ=");
}
