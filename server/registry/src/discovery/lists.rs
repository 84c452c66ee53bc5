//! The plain discovery documents, one per path: `APIVersions`, `APIGroupList`, `APIGroup`,
//! `APIResourceList` (kinds of meta/v1).

use base64::prelude::{Engine, BASE64_STANDARD};
use plinth_codec::resources::{Resource, Subresource};
use plinth_codec::schema::GVK;
use plinth_codec::{tree, Map, Value};
use sha2::{Digest, Sha256};
use smol_str::{format_smolstr, SmolStr};

use super::{Catalog, DiscoveryDocument, Group};

/// `/api`: the versions of the core group. `server_address` is the `host:port` at which clients reach the
/// server.
pub fn api_versions_document(catalog: &Catalog, server_address: &str) -> DiscoveryDocument {
    let versions: Vec<Value> = match catalog.group("") {
        Some(core) => core.versions.iter().map(|v| v.name.into()).collect(),
        None => Vec::new(),
    };
    let address = tree!({ "clientCIDR": "0.0.0.0/0", "serverAddress": server_address });
    document(
        "APIVersions",
        tree!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": vec![address],
        }),
    )
}

/// `/apis`: all groups but core.
pub fn api_group_list_document(catalog: &Catalog) -> DiscoveryDocument {
    let groups: Vec<Value> = catalog.named_groups().map(|g| Value::Object(group_members(g))).collect();
    document("APIGroupList", tree!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
}

/// `/apis/G`: one group; `None` when it is not served.
pub fn api_group_document(catalog: &Catalog, name: &str) -> Option<DiscoveryDocument> {
    if name.is_empty() {
        return None;
    }
    let mut members = group_members(catalog.group(name)?);
    members.insert("kind", "APIGroup");
    members.insert("apiVersion", "v1");
    Some(document("APIGroup", Value::Object(members)))
}

/// `/api/V` and `/apis/G/V`: the resources and subresources of a version; `None` when it is not served.
pub fn api_resource_list_document(
    catalog: &Catalog,
    group: &str,
    version: &str,
) -> Option<DiscoveryDocument> {
    let entry = catalog.version(group, version)?;
    let mut rows: Vec<Value> = Vec::new();
    for resource in &entry.resources {
        rows.push(resource_row(resource));
        rows.extend(resource.subresources.iter().map(|s| subresource_row(resource, s)));
    }
    let mut members = Map::new();
    members.insert("kind", "APIResourceList");
    if !group.is_empty() {
        members.insert("apiVersion", "v1");
    }
    members.insert("groupVersion", group_version(group, version));
    members.insert("resources", rows);
    Some(document("APIResourceList", Value::Object(members)))
}

/// `storageVersionHash`: clients compare it for equality only, to see whether two resources are stored as the
/// same version of one kind.
pub(crate) fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let hash = Sha256::digest(format!("{group}/{version}/{kind}"));
    BASE64_STANDARD.encode(&hash[..8])
}

fn document(kind: &str, tree: Value) -> DiscoveryDocument {
    DiscoveryDocument { kind: GVK::new("", "v1", kind), tree }
}

fn group_version(group: &str, version: &str) -> SmolStr {
    match group.is_empty() {
        true => version.into(),
        false => format_smolstr!("{group}/{version}"),
    }
}

fn group_members(group: &Group) -> Map {
    let version = |v: &str| tree!({ "groupVersion": group_version(group.name, v), "version": v });
    let versions: Vec<Value> = group.versions.iter().map(|v| version(v.name)).collect();
    let mut members = Map::new();
    members.insert("name", group.name);
    if let Some(preferred) = versions.first() {
        members.insert("preferredVersion", preferred.clone());
    }
    members.insert("versions", versions);
    members
}

fn resource_row(resource: &Resource) -> Value {
    let mut row = Map::new();
    row.insert("name", resource.plural.clone());
    row.insert("singularName", resource.singular.clone());
    row.insert("namespaced", resource.namespaced);
    row.insert("kind", resource.kind.clone());
    row.insert("verbs", strings(&resource.verbs));
    if !resource.short_names.is_empty() {
        row.insert("shortNames", strings(&resource.short_names));
    }
    if !resource.categories.is_empty() {
        row.insert("categories", strings(&resource.categories));
    }
    if let Some((group, version)) = &resource.storage {
        row.insert("storageVersionHash", storage_version_hash(group, version, &resource.kind));
    }
    Value::Object(row)
}

fn subresource_row(resource: &Resource, subresource: &Subresource) -> Value {
    let mut row = Map::new();
    row.insert("name", format_smolstr!("{}/{}", resource.plural, subresource.name));
    row.insert("singularName", "");
    row.insert("namespaced", resource.namespaced);
    row.insert("kind", subresource.gvk.kind.clone());
    row.insert("verbs", strings(&subresource.verbs));
    if !names_own_version(resource, subresource) {
        row.insert("group", subresource.gvk.group.clone());
        row.insert("version", subresource.gvk.version.clone());
    }
    Value::Object(row)
}

/// Whether the subresource's kind is of the resource's own group and version, which are then omitted.
pub(super) fn names_own_version(resource: &Resource, subresource: &Subresource) -> bool {
    (&subresource.gvk.group, &subresource.gvk.version) == (&resource.group, &resource.version)
}

pub(super) fn strings(items: &[SmolStr]) -> Vec<Value> {
    items.iter().cloned().map(Value::String).collect()
}
