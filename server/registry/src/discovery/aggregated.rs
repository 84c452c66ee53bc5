//! Aggregated discovery: all groups, versions and resources in one document
//! (`APIGroupDiscoveryList`, apidiscovery.k8s.io/v2).

use plinth_codec::resources::Resource;
use plinth_codec::schema::GVK;
use plinth_codec::{tree, Map, Value};

use super::lists::{names_own_version, strings};
use super::{Catalog, DiscoveryDocument, Group, Version};

const API_GROUP: &str = "apidiscovery.k8s.io";

/// `/api`: the core group.
pub fn aggregated_core(catalog: &Catalog) -> DiscoveryDocument {
    document(catalog.group("").into_iter())
}

/// `/apis`: all other groups.
pub fn aggregated_groups(catalog: &Catalog) -> DiscoveryDocument {
    document(catalog.named_groups())
}

fn document<'c, 'a: 'c>(groups: impl Iterator<Item = &'c Group<'a>>) -> DiscoveryDocument {
    let items: Vec<Value> = groups.map(group).collect();
    DiscoveryDocument {
        kind: GVK::new(API_GROUP, "v2", "APIGroupDiscoveryList"),
        tree: tree!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": Map::new(),
            "items": items,
        }),
    }
}

fn group(group: &Group) -> Value {
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name", group.name);
    }
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    tree!({ "metadata": metadata, "versions": versions })
}

fn version(version: &Version) -> Value {
    if let Some(remote) = version.remote {
        let mut members = Map::new();
        members.insert("version", version.name);
        if !remote.documents.resources.is_empty() {
            members.insert("resources", remote.documents.resources.to_vec());
        }
        members.insert("freshness", if remote.documents.is_current { "Current" } else { "Stale" });
        return Value::Object(members);
    }
    let resources: Vec<Value> = version.resources.iter().map(|r| resource(version, r)).collect();
    tree!({ "version": version.name, "resources": resources, "freshness": "Current" })
}

fn resource(version: &Version, resource: &Resource) -> Value {
    let mut members = Map::new();
    members.insert("resource", resource.plural.clone());
    members.insert("responseKind", kind(version.custom, resource.gvk()));
    members.insert("scope", if resource.namespaced { "Namespaced" } else { "Cluster" });
    members.insert("singularResource", resource.singular.clone());
    members.insert("verbs", strings(&resource.verbs));
    if !resource.short_names.is_empty() {
        members.insert("shortNames", strings(&resource.short_names));
    }
    if !resource.categories.is_empty() {
        members.insert("categories", strings(&resource.categories));
    }
    if !resource.subresources.is_empty() {
        let subresources: Vec<Value> = resource
            .subresources
            .iter()
            .map(|s| {
                let named = version.custom || !names_own_version(resource, s);
                tree!({
                    "subresource": s.name.clone(),
                    "responseKind": kind(named, s.gvk.clone()),
                    "verbs": strings(&s.verbs),
                })
            })
            .collect();
        members.insert("subresources", subresources);
    }
    Value::Object(members)
}

/// A kind, with group and version `named` or left empty: upstream names those of custom resources, and
/// of built-in ones only what differs from the version it stands in.
fn kind(named: bool, gvk: GVK) -> Value {
    match named {
        true => tree!({ "group": gvk.group, "version": gvk.version, "kind": gvk.kind }),
        false => tree!({ "group": "", "version": "", "kind": gvk.kind }),
    }
}
