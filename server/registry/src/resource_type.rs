//! One served resource in one version.

use std::sync::Arc;

use bytes::Bytes;
use plinth_codec::resources::Resource;
use plinth_codec::schema::{self, Schema, TypeId};
use plinth_codec::selector::SelectableField;
use plinth_codec::{table, Value};
use plinth_engine::Extension;
use plinth_kinds::Strategy;

use crate::custom::version::CustomVersion;
use crate::key;

/// Where a resource's objects are stored and in which version.
#[derive(Clone, Debug)]
pub struct StorageForm {
    /// Group of the storage version; differs from the resource's own if a kind is served in two groups.
    pub group: String,
    /// The storage version.
    pub version: String,
    /// Prefix of the keys, see [`crate::resource_prefix`] and [`crate::custom_prefix`].
    pub prefix: String,
    /// The type of the storage version.
    pub root: TypeId,
}

/// One resource in one version. Immutable, shared.
#[derive(Debug)]
pub struct ResourceType {
    /// Names, scope, verbs and subresources.
    pub row: Resource,
    /// `apps/v1`, `v1`.
    pub api_version: String,
    /// The schema of built-in kinds.
    pub schema: &'static Schema,
    /// The type of the object in this version; for a custom resource only the fields that all objects have.
    /// See [`ResourceType::types`].
    pub root: TypeId,
    /// Where objects are stored; `None` for virtual resources.
    pub storage: Option<StorageForm>,
    /// The selectable fields whose values are part of the stored header, in its order.
    pub fields: Vec<&'static SelectableField>,
    /// The columns of Tables.
    pub table: table::TableDefinition,
    /// The status that upstream's typed object has initially, like `{"loadBalancer": {}}`.
    pub zero_status: Option<Value>,
    /// The behavior of the kind.
    pub strategy: &'static Strategy,
    /// Its CustomResourceDefinition; `None` for built-in resources.
    pub custom: Option<Arc<CustomVersion>>,
    /// `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"`: the JSON of a single object up to
    /// the revision.
    pub object_start: Bytes,
    /// The same for an item of a list: built-in kinds have no type metadata there.
    pub item_start: Bytes,
    /// What a layer above keeps for each resource: the series of its metrics.
    pub extension: Extension,
}

impl ResourceType {
    pub(crate) fn builtin(row: &Resource) -> Option<ResourceType> {
        let builtin = schema::builtin();
        let root = builtin.kind(&row.gvk())?;
        let strategy = plinth_kinds::of(&row.group, &row.plural);
        let storage = match &row.storage {
            None => None,
            Some((group, version)) => {
                // Storage versions that exist for upstream's history (CustomResourceDefinitions as v1beta1)
                // do not apply: objects without a conversion are stored as they are served.
                let other = strategy.conversion(&row.version, (group, version)).is_some();
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
        // What is stored is in the form of the storage group.
        let stored = storage.as_ref().map_or(strategy, |form| plinth_kinds::of(&form.group, &row.plural));
        let api_version = row.gvk().api_version().to_string();
        let object_start = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"",
            row.kind
        );
        Some(ResourceType {
            row: row.clone(),
            api_version,
            schema: builtin,
            root,
            storage,
            fields: stored.selectable.stored().collect(),
            table: stored.table(),
            zero_status: builtin.zero(root).get("status").cloned(),
            strategy,
            custom: None,
            object_start: Bytes::from(object_start),
            item_start: Bytes::from_static(b"{\"metadata\":{\"resourceVersion\":\""),
            extension: Extension::default(),
        })
    }

    /// API group; empty for core.
    pub fn group(&self) -> &str {
        &self.row.group
    }

    /// Whether it is defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// The type of the object with all its fields, for managed fields. Compiles the schema of a custom
    /// resource on first use.
    pub fn types(&self) -> (&Schema, TypeId) {
        let custom = self.custom.as_ref().and_then(|c| c.compiled().ok().flatten());
        custom.map_or((self.schema, self.root), |compiled| (&compiled.types, compiled.root))
    }

    /// Whether it is equivalent to another row, so that a watch need not end when the registry changes.
    pub fn serves_as(&self, other: &ResourceType) -> bool {
        match (&self.custom, &other.custom) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() == other.is_none(),
        }
    }

    /// Plural name.
    pub fn plural(&self) -> &str {
        &self.row.plural
    }

    /// Whether this version is the storage version.
    pub fn is_storage_version(&self) -> bool {
        self.storage.as_ref().is_some_and(|s| s.version == self.row.version && s.group == self.row.group)
    }
}
