//! The registry: one [`ResourceType`] for each served resource in each version.
//!
//! Built-in rows come from the codec's resource table. Verb handlers are generic over these rows; the
//! behavior of individual kinds is in [`plinth_kinds`].
//!
//! A [`Registry`] is immutable and has a generation. A change of the CustomResourceDefinitions, or of the
//! versions that other API servers serve (`remote`), creates a new one, which is published through
//! [`Current`]; unchanged rows are the same `Arc`s in both, so that a watch can tell whether its resource has
//! changed. Documents derived from a registry (discovery, OpenAPI) are
//! cached by generation: that of the registry, or that in which a group version last changed
//! ([`Registry::version_generation`]).
//!
//! ```
//! use plinth_registry::{object_key, Registry};
//!
//! let registry = Registry::builtin();
//! let deployments = registry.get("apps", "v1", "deployments").expect("a built-in resource");
//! assert_eq!(deployments.api_version, "apps/v1");
//! let form = deployments.storage.as_ref().expect("it is stored");
//! assert_eq!(&*object_key(&form.prefix, "default", "web"), b"apps/deployments/default/web");
//! ```

#![cfg_attr(not(test), warn(unreachable_pub))]

mod conversion;
mod current;
mod custom;
mod custom_rows;
mod custom_validation;
mod discovery;
mod key;
mod object_meta;
mod remote;
mod resource_type;

use std::collections::HashMap;
use std::sync::Arc;

use plinth_codec::resources::{self, Resource, Table};

pub use conversion::{convert_between, convert_stored, convert_to_storage};
pub use current::Current;
pub use custom::approval::{definition_approval, is_protected_group, Approval};
pub use custom::definition::{
    definition_fingerprint, definition_spec_digest, take_schemas, ConversionStrategy, ConversionWebhook,
    Definition, DefinitionNames, DefinitionVersion, JsonPath, ScalePaths, DEFINITION_RESOURCE,
};
pub use custom::naming::{accept_names, NameConflict, TakenNames};
pub use custom::schema::{Compiled, SchemaText, VersionSchema};
pub use custom::version::CustomVersion;
pub use custom_rows::{custom_rows, selected_fields, CustomRows};
pub use custom_validation::{definition_errors, definition_stays, finalizer_warnings};
pub use discovery::aggregated::{aggregated_core, aggregated_groups};
pub use discovery::etag::{etag_matches, etag_of};
pub use discovery::lists::{
    api_group_document, api_group_list_document, api_resource_list_document, api_versions_document,
};
pub use discovery::root::{root_paths_document, version_document, VersionInfo, VERSION_INFO};
pub use discovery::{compare_versions, Catalog, DiscoveryDocument};
pub use key::{
    collection_prefix, custom_prefix, is_custom_key, key_prefix, key_without_start, object_key, prefix_range,
    resource_prefix, split_key,
};
pub use object_meta::{count_generation, match_namespace, prepare_metadata_create, validate_metadata};
pub use remote::documents::{
    parse_aggregated_discovery, parse_resource_list, remote_openapi_v2, remote_openapi_v3,
};
pub use remote::{RemoteDocuments, RemoteResource, RemoteVersion, RemoteVersions, ServicePort};
pub use resource_type::{ResourceType, StorageForm};

/// All served resources. Immutable; a change creates a new registry.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Built-in ones in the order of the table: group priority, version, name. Then those of
    /// CustomResourceDefinitions.
    pub resources: Vec<Arc<ResourceType>>,
    /// Increases by one with each registry; that of the built-in resources alone is 0.
    pub generation: u64,
    by_name: HashMap<(String, String, String), usize>,
    /// The built-in rows that are served.
    table: Arc<Table>,
    /// Built-in resources that are switched off: the server itself reads and writes their objects.
    unserved: Arc<Vec<Arc<ResourceType>>>,
    /// One resource for each prefix of keys.
    stored: Vec<Arc<ResourceType>>,
    /// Indexes into `stored`.
    by_prefix: HashMap<Vec<u8>, usize>,
    /// The generation in which a version with custom resources last changed.
    versions: HashMap<(String, String), u64>,
    /// Versions that other API servers serve.
    remote: Arc<RemoteVersions>,
}

impl Registry {
    /// The built-in resources that are served by default.
    pub fn builtin() -> Registry {
        Registry::of_table(resources::builtin().clone())
    }

    /// These built-in resources. The others are known to the server alone: requests do not find them, and
    /// [`Registry::internal`] does. So objects of a version that was served before are deleted with their
    /// namespace.
    pub fn of_table(table: Table) -> Registry {
        let made = |rows: &[Resource]| rows.iter().filter_map(ResourceType::builtin).map(Arc::new).collect();
        let resources: Vec<Arc<ResourceType>> = made(&table.resources);
        let off = resources::known().table.selected(|row| !table.resources.contains(row));
        let unserved: Vec<Arc<ResourceType>> = made(&off.resources);
        let all = resources.iter().chain(&unserved);
        let stored = all.filter(|r| r.is_storage_version()).cloned().collect();
        Registry {
            table: Arc::new(table),
            unserved: Arc::new(unserved),
            ..Registry::index(resources, stored)
        }
    }

    /// The built-in rows that are served.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The next registry: the built-in rows and those of the definitions, in this order. A row of a built-in
    /// group and version is ignored: upstream never serves such a definition either.
    ///
    /// Costs a few map entries per row; `Arc`s are shared.
    pub fn with_custom(&self, definitions: &[CustomRows]) -> Registry {
        let builtin = |r: &&Arc<ResourceType>| !r.is_custom();
        let mut resources: Vec<_> = self.resources.iter().filter(builtin).cloned().collect();
        let mut stored: Vec<_> = self.stored.iter().filter(builtin).cloned().collect();
        let taken: std::collections::HashSet<_> =
            resources.iter().map(|r| (r.row.group.clone(), r.row.version.clone())).collect();
        for definition in definitions {
            let free =
                |r: &&Arc<ResourceType>| !taken.contains(&(r.row.group.clone(), r.row.version.clone()));
            resources.extend(definition.served.iter().filter(free).cloned());
            stored.push(definition.stored.clone());
        }
        let mut next = Registry::index(resources, stored);
        next.generation = self.generation + 1;
        next.versions = next.version_generations(self);
        next.remote = self.remote.clone();
        (next.table, next.unserved) = (self.table.clone(), self.unserved.clone());
        next
    }

    /// The next registry: the same resources, and these versions of other API servers.
    pub fn with_remote(&self, remote: RemoteVersions) -> Registry {
        Registry { generation: self.generation + 1, remote: Arc::new(remote), ..self.clone() }
    }

    /// The versions that other API servers serve.
    pub fn remote_versions(&self) -> &RemoteVersions {
        &self.remote
    }

    /// The version of a group that another API server serves, whatever is served here under its name.
    pub fn remote(&self, group: &str, version: &str) -> Option<&Arc<RemoteVersion>> {
        if self.remote.is_empty() {
            return None;
        }
        self.remote.get(&(group.to_owned(), version.to_owned()))
    }

    fn index(resources: Vec<Arc<ResourceType>>, stored: Vec<Arc<ResourceType>>) -> Registry {
        let names =
            |r: &ResourceType| (r.row.group.to_string(), r.row.version.to_string(), r.row.plural.to_string());
        let by_name = resources.iter().enumerate().map(|(i, r)| (names(r), i)).collect();
        let prefix = |r: &ResourceType| r.storage.as_ref().map(|s| s.prefix.clone().into_bytes());
        let by_prefix = stored.iter().enumerate().filter_map(|(i, r)| Some((prefix(r)?, i))).collect();
        let (table, unserved, versions, remote) = Default::default();
        Registry { resources, generation: 0, by_name, table, unserved, stored, by_prefix, versions, remote }
    }

    /// For each version with custom resources the generation in which its rows last changed.
    fn version_generations(&self, before: &Registry) -> HashMap<(String, String), u64> {
        let (old, new) = (before.custom_by_version(), self.custom_by_version());
        let same = |old: &[&Arc<ResourceType>], new: &[&Arc<ResourceType>]| {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| Arc::ptr_eq(old, new))
        };
        let generation = |version: &(String, String), new: &[&Arc<ResourceType>]| {
            let unchanged = old.get(version).is_some_and(|old| same(old, new));
            let kept = before.versions.get(version).filter(|_| unchanged);
            kept.copied().unwrap_or(self.generation)
        };
        new.iter().map(|(version, rows)| (version.clone(), generation(version, rows))).collect()
    }

    fn custom_by_version(&self) -> HashMap<(String, String), Vec<&Arc<ResourceType>>> {
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        for resource in self.resources.iter().filter(|r| r.is_custom()) {
            let version = (resource.row.group.to_string(), resource.row.version.to_string());
            found.entry(version).or_default().push(resource);
        }
        found
    }

    /// The same for the server's own reads and writes: also a built-in resource that is not served, whose
    /// version a CustomResourceDefinition may have taken.
    pub fn internal(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        let is_it = |r: &&Arc<ResourceType>| {
            r.row.plural == plural && r.row.group == group && r.row.version == version
        };
        self.unserved.iter().find(is_it).or_else(|| self.get(group, version, plural))
    }

    /// The served resources, and the built-in ones that are not served.
    pub fn known(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.resources.iter().chain(self.unserved.iter())
    }

    /// Whether no client can reach the objects of a built-in resource: none of its versions is served.
    pub fn is_switched_off(&self, resource: &ResourceType) -> bool {
        let Some(own) = resource.storage.as_ref().filter(|_| !resource.is_custom()) else { return false };
        let has_them =
            |r: &Arc<ResourceType>| r.storage.as_ref().is_some_and(|form| form.prefix == own.prefix);
        !self.resources.iter().any(has_them)
    }

    /// The served resource of that group, version and plural name.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        // The map's key owns its strings; at this size a scan of one group costs as much as hashing.
        let key = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.by_name.get(&key).and_then(|&i| self.resources.get(i))
    }

    /// The resources whose objects have that kind.
    pub fn of_kind<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ResourceType>> {
        self.resources.iter().filter(move |resource| {
            let row = &resource.row;
            row.kind == kind && row.group == group && row.version == version
        })
    }

    /// Whether any version of a group is served.
    pub fn serves_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.row.group == group)
            || self.remote.values().any(|version| version.group == group)
    }

    /// Whether any version of a group is built in.
    pub fn has_builtin_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.row.group == group && !r.is_custom())
    }

    /// The resource in its storage version, each stored resource once.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.stored.iter()
    }

    /// The resource, in its storage version, of a key.
    pub fn of_key(&self, object_key: &[u8]) -> Option<&Arc<ResourceType>> {
        let place = self.by_prefix.get(key::key_prefix(object_key)?)?;
        self.stored.get(*place)
    }

    /// The generation in which a version of a group last changed; 0 for built-in ones, `None` if it is not
    /// served.
    pub fn version_generation(&self, group: &str, version: &str) -> Option<u64> {
        match self.versions.get(&(group.to_owned(), version.to_owned())) {
            Some(generation) => Some(*generation),
            None => {
                self.resources.iter().any(|r| r.row.group == group && r.row.version == version).then_some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::definition::{take_schemas, Definition, DefinitionNames};

    fn custom(group: &str, plural: &str) -> CustomRows {
        let definition = format!(
            r#"{{"metadata":{{"name":"{plural}.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":
            {{"plural":"{plural}","singular":"x","kind":"X","listKind":"XList"}},"versions":[{{"name":"v1","served":true,
            "storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}}}}"#
        );
        let mut tree = plinth_codec::json::parse(definition.as_bytes()).unwrap();
        let names = DefinitionNames::of(tree.at(&["spec", "names"]));
        let schemas = take_schemas(&mut tree);
        custom_rows(&Arc::new(Definition::new(&tree, &schemas, names)), "v1").unwrap()
    }

    #[test]
    fn a_registry_follows_another_and_knows_which_versions_changed() {
        let builtin = Registry::builtin();
        let (cars, boats, hidden) =
            (custom("a.example", "cars"), custom("b.example", "boats"), custom("apps", "hidden"));
        let first = builtin.with_custom(&[cars.clone(), hidden]);
        assert!(first.get("a.example", "v1", "cars").is_some());
        assert!(first.get("apps", "v1", "hidden").is_none(), "a built-in version takes no more rows");
        assert_eq!(first.of_key(b"_custom/namespaced/a.example/cars/n/x").map(|r| r.plural()), Some("cars"));
        assert_eq!(first.of_key(b"core/pods/n/x").map(|r| r.plural()), Some("pods"));
        assert!(first.of_key(b"core").is_none() && first.of_key(b"_custom/namespaced/core").is_none());
        assert!(first.of_key(b"a.example/cars/n/x").is_none());

        let second = first.with_custom(&[cars, boats]);
        assert_eq!((first.generation, second.generation), (1, 2));
        let changed = |group: &str| second.version_generation(group, "v1");
        assert_eq!((changed("a.example"), changed("b.example")), (Some(1), Some(2)));
        assert_eq!((changed("apps"), changed("c.example")), (Some(0), None));
        let third = second.with_custom(&[]);
        assert_eq!(third.resources.len(), builtin.resources.len());
    }

    #[test]
    fn every_row_of_the_table_has_its_types() {
        assert_eq!(Registry::builtin().resources.len(), resources::builtin().resources.len());
        let all = &resources::known().table;
        let registry = Registry::of_table(all.clone());
        assert_eq!(registry.resources.len(), all.resources.len());
        // A version that is off by default has the objects of the other one.
        let beta = registry.get("networking.k8s.io", "v1beta1", "servicecidrs").unwrap();
        let stored = registry.of_key(b"networking.k8s.io/servicecidrs/x").unwrap();
        assert!(!beta.is_storage_version());
        assert_eq!(stored.api_version, "networking.k8s.io/v1");
        assert_eq!(beta.storage.as_ref().map(|form| form.version.as_str()), Some("v1"));
    }

    #[test]
    fn what_is_switched_off_is_found_by_the_server_alone() {
        let table = resources::builtin().selected(|row| row.group != "apps");
        let registry = Registry::of_table(table).with_custom(&[]);
        assert!(registry.get("apps", "v1", "deployments").is_none() && !registry.has_builtin_group("apps"));
        assert!(registry.internal("apps", "v1", "deployments").is_some());
        assert_eq!(
            registry.of_key(b"coordination.k8s.io/leasecandidates/n/x").map(|r| r.plural()),
            Some("leasecandidates")
        );
        let stored = registry.of_key(b"apps/deployments/n/x").unwrap();
        assert_eq!(stored.plural(), "deployments");
        assert!(registry.is_switched_off(stored));
        assert!(!registry.is_switched_off(registry.get("batch", "v1", "jobs").unwrap()));
        assert!(registry.table().groups.iter().all(|group| group.name != "apps"));
        assert!(registry.version_generation("apps", "v1").is_none());
        let known = |version: &str| registry.known().any(|r| r.api_version == version);
        assert!(known("apps/v1") && known("networking.k8s.io/v1beta1") && !known("apps/v2"));
    }

    #[test]
    fn a_definition_is_not_taken_for_what_is_switched_off() {
        let table = resources::builtin().selected(|row| row.group != "policy");
        let registry = Registry::of_table(table).with_custom(&[custom("policy", "poddisruptionbudgets")]);
        let of = |resource: Option<&Arc<ResourceType>>| resource.unwrap().is_custom();
        assert!(of(registry.get("policy", "v1", "poddisruptionbudgets")));
        assert!(!of(registry.internal("policy", "v1", "poddisruptionbudgets")));
        let stored = registry.internal("policy", "v1", "poddisruptionbudgets").unwrap();
        assert!(registry.is_switched_off(stored));
    }

    #[test]
    fn objects_of_a_version_that_is_off_are_reached_in_another() {
        let table =
            resources::known().table.selected(|row| row.plural != "servicecidrs" || row.version != "v1");
        let registry = Registry::of_table(table);
        let stored = registry.of_key(b"networking.k8s.io/servicecidrs/x").unwrap();
        assert_eq!(stored.api_version, "networking.k8s.io/v1");
        assert!(!registry.is_switched_off(stored));
    }
}
