//! The registry rows of a definition.

use std::sync::Arc;

use bytes::Bytes;
use plinth_codec::resources::{Resource, Subresource};
use plinth_codec::schema::{self, GVK};
use plinth_codec::selector::CustomFields;
use plinth_codec::{table, Value};
use plinth_engine::Extension;
use smol_str::{format_smolstr, SmolStr};

use crate::custom::definition::{Definition, DefinitionVersion};
use crate::custom::version::CustomVersion;
use crate::key;
use crate::resource_type::{ResourceType, StorageForm};

/// The verbs in the order of upstream's discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The rows of a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct CustomRows {
    /// One for each served version; empty while the definition is not established.
    pub served: Vec<Arc<ResourceType>>,
    /// The row of the storage version, which need not be served; used by collectors and the namespace
    /// controller.
    pub stored: Arc<ResourceType>,
}

/// Creates the rows; `None` for a definition without a storage version.
pub fn custom_rows(definition: &Arc<Definition>, storage: &str) -> Option<CustomRows> {
    let stored = definition.position(storage)?;
    let rows: Vec<(bool, Arc<ResourceType>)> = (0..definition.versions.len())
        .map(|place| (definition.versions[place].served, Arc::new(row(definition, place, stored))))
        .collect();
    Some(CustomRows {
        served: rows.iter().filter(|(served, _)| *served).map(|(_, row)| row.clone()).collect(),
        stored: rows.get(stored)?.1.clone(),
    })
}

fn row(definition: &Arc<Definition>, place: usize, stored: usize) -> ResourceType {
    let version = &definition.versions[place];
    let storage = definition.versions[stored].name.clone();
    let names = &definition.names;
    let group = definition.group.clone();
    let api_version = format!("{group}/{}", version.name);
    let verbs = |verbs: &[&'static str]| verbs.iter().map(|v| SmolStr::new_static(v)).collect::<Vec<_>>();
    let subresource = |name: &'static str, gvk| Subresource {
        name: name.into(),
        gvk,
        verbs: verbs(&SUBRESOURCE_VERBS),
        text_options: None,
    };
    let mut subresources = Vec::new();
    let gvk = GVK::new(group.clone(), version.name.clone(), names.kind.clone());
    if version.has_status {
        subresources.push(subresource("status", gvk));
    }
    if version.scale.is_some() {
        subresources.push(subresource("scale", GVK::new("autoscaling", "v1", "Scale")));
    }
    let row = Resource {
        group: group.clone(),
        version: version.name.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone(),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        namespaced: definition.namespaced,
        verbs: verbs(&VERBS),
        storage: Some((group.clone(), storage.clone())),
        subresources,
    };
    // The fields that all objects have. The schema proper is the version's, compiled on first use.
    let builtin = schema::builtin();
    let root =
        builtin.kind(&GVK::new("meta.k8s.io", "v1", "PartialObjectMetadata")).unwrap_or(schema::TypeId(0));
    let start = format_smolstr!(
        "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{}\",\"metadata\":{{\"resourceVersion\":\"",
        names.kind
    );
    let start = Bytes::copy_from_slice(start.as_bytes());
    let custom = CustomVersion::new(definition, place, stored);
    ResourceType {
        storage: Some(StorageForm {
            prefix: key::custom_prefix(&group, &names.plural, definition.namespaced),
            group: group.to_string(),
            version: storage.to_string(),
            root,
        }),
        row,
        api_version,
        schema: builtin,
        root,
        fields: Vec::new(),
        table: table::TableDefinition::custom(&version.columns),
        zero_status: None,
        strategy: &plinth_kinds::CUSTOM,
        custom: Some(Arc::new(custom)),
        object_start: start.clone(),
        item_start: start,
        extension: Extension::default(),
    }
}

/// The values of the selectable fields of a version, in their order.
pub fn selected_fields<'a>(version: &DefinitionVersion, tree: &'a Value) -> Vec<std::borrow::Cow<'a, str>> {
    let fields = CustomFields::new(false, version.selectable.iter().map(SmolStr::as_str));
    fields.values(tree).map(|(_, value)| value.into_owned().into()).collect()
}
