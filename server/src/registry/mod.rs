//! What is served: one [`ResourceType`] for each resource in each version.
//!
//! Built-in rows come from the codec's resource table. Verb handlers are written once against these
//! rows; what differs per kind beyond the rows lies in [`crate::strategy`].

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use plinth_codec::resources::{self, Resource};
use plinth_codec::schema::{self, Schema, TypeId};
use plinth_codec::selector::{self, SelectableField};
use plinth_codec::Value;

use crate::conversion;
use crate::storage::key;
use crate::strategy::{self, Strategy};

/// The schema that a resource's types live in.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// The one of the built-in kinds.
    Builtin(&'static Schema),
    /// One of a CustomResourceDefinition.
    Custom(Arc<Schema>),
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            SchemaRef::Builtin(schema) => schema,
            SchemaRef::Custom(schema) => schema,
        }
    }
}

/// Where a resource's objects lie and in which version their bodies are written.
#[derive(Clone, Debug)]
pub struct StorageForm {
    /// Group of the stored form; differs from the resource's own where a kind has faces in two groups.
    pub group: String,
    /// Version of the stored form.
    pub version: String,
    /// Start of the keys, see [`key::resource_prefix`].
    pub prefix: String,
    /// The type of the stored form.
    pub root: TypeId,
}

/// One resource in one version. Immutable, shared.
#[derive(Debug)]
pub struct ResourceType {
    /// Names, scope, verbs and subresources.
    pub row: Resource,
    /// `apps/v1`, `v1`.
    pub api_version: String,
    /// Where the types live.
    pub schema: SchemaRef,
    /// The type of the object in this version.
    pub root: TypeId,
    /// Where objects are stored; `None` for virtual resources.
    pub storage: Option<StorageForm>,
    /// The selectable fields whose values lie in the stored header, in its order.
    pub fields: Vec<&'static SelectableField>,
    /// What upstream's typed object has as status before anybody has set one, like `{"loadBalancer": {}}`.
    pub zero_status: Option<Value>,
    /// What this resource does that others don't.
    pub strategy: &'static Strategy,
    /// Whether a CustomResourceDefinition made it.
    pub custom: bool,
    /// `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"`: what stands before the revision
    /// in the JSON of a single object.
    pub object_start: Bytes,
    /// The same for an item of a list: built-in kinds have no type metadata there.
    pub item_start: Bytes,
}

impl ResourceType {
    fn builtin(row: &Resource) -> Option<ResourceType> {
        let builtin = schema::builtin();
        let root = builtin.kind(&row.gvk())?;
        let storage = match &row.storage {
            None => None,
            Some((group, version)) => {
                // A form that upstream stores for its own past (CustomResourceDefinitions as v1beta1) is none here:
                // what has no conversion of ours is stored as it is served.
                let own = (row.group.as_str(), row.version.as_str());
                let other = conversion::is_stored_as(&row.kind, (group, version), own);
                let (group, version) = if other { (group, version) } else { (&row.group, &row.version) };
                let gvk = schema::GVK::new(group.clone(), version.clone(), row.kind.clone());
                Some(StorageForm {
                    group: group.to_string(),
                    version: version.to_string(),
                    prefix: key::resource_prefix(group, &row.plural),
                    root: builtin.kind(&gvk)?,
                })
            }
        };
        let api_version = row.gvk().api_version().to_string();
        let object_start = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"",
            row.kind
        );
        Some(ResourceType {
            row: row.clone(),
            api_version,
            schema: SchemaRef::Builtin(builtin),
            root,
            storage,
            fields: selector::stored_fields(&row.group, &row.plural).collect(),
            zero_status: builtin.zero(root).get("status").cloned(),
            strategy: strategy::of(&row.group, &row.plural),
            custom: false,
            object_start: Bytes::from(object_start),
            item_start: Bytes::from_static(b"{\"metadata\":{\"resourceVersion\":\""),
        })
    }

    /// API group; empty for core.
    pub fn group(&self) -> &str {
        &self.row.group
    }

    /// Plural name.
    pub fn plural(&self) -> &str {
        &self.row.plural
    }

    /// Whether stored bodies are already in this version.
    pub fn is_storage_version(&self) -> bool {
        self.storage.as_ref().is_some_and(|s| s.version == self.row.version && s.group == self.row.group)
    }
}

/// All that is served. Immutable; a change makes a new one.
#[derive(Debug, Default)]
pub struct Registry {
    /// In the order of the table: group priority, version, name.
    pub resources: Vec<Arc<ResourceType>>,
    by_name: HashMap<(String, String, String), usize>,
}

impl Registry {
    /// The built-in resources.
    pub fn builtin() -> Registry {
        let rows = resources::builtin().resources.iter();
        let resources: Vec<_> = rows.filter_map(ResourceType::builtin).map(Arc::new).collect();
        let by_name = resources
            .iter()
            .enumerate()
            .map(|(i, r)| ((r.row.group.to_string(), r.row.version.to_string(), r.row.plural.to_string()), i))
            .collect();
        Registry { resources, by_name }
    }

    /// The resource of that group, version and plural name.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        // The map's key owns its strings; at this size a scan of one group costs as much as hashing.
        let key = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.by_name.get(&key).and_then(|&i| self.resources.get(i))
    }

    /// Whether any version of that group is served.
    pub fn serves_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| r.row.group == group)
    }

    /// The resource in its storage version, each stored resource once.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.resources.iter().filter(|r| r.is_storage_version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_has_its_types() {
        assert_eq!(Registry::builtin().resources.len(), resources::builtin().resources.len());
    }
}
