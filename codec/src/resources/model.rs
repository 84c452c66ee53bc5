//! What the table holds.

use std::collections::{HashMap, HashSet};

use smol_str::SmolStr;

use crate::schema::GVK;

/// A served API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name; empty for core.
    pub name: SmolStr,
    /// `groupPriorityMinimum` of the group's APIService objects: the order in which clients resolve names.
    pub priority: u32,
    /// Versions with their `versionPriority`, the preferred one first.
    pub versions: Vec<(SmolStr, u32)>,
}

/// A served resource in one version: one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: SmolStr,
    /// Version within the group.
    pub version: SmolStr,
    /// Name in paths, like `pods`.
    pub plural: SmolStr,
    /// `pod`.
    pub singular: SmolStr,
    /// `Pod`.
    pub kind: SmolStr,
    /// `PodList`; empty for what cannot be listed.
    pub list_kind: SmolStr,
    /// `po`.
    pub short_names: Vec<SmolStr>,
    /// `all`.
    pub categories: Vec<SmolStr>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs in alphabetical order.
    pub verbs: Vec<SmolStr>,
    /// Group and version that objects are stored in; `None` for kinds that are never stored. Two rows with
    /// the same storage and kind are two representations of the same objects.
    pub storage: Option<(SmolStr, SmolStr)>,
    /// Subresources in alphabetical order.
    pub subresources: Vec<Subresource>,
}

/// A subresource of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// `status`.
    pub name: SmolStr,
    /// Group, version and kind of its body.
    pub gvk: GVK,
    /// Verbs in alphabetical order.
    pub verbs: Vec<SmolStr>,
    /// Where a read returns text: the kind of the options in its query.
    pub text_options: Option<GVK>,
}

impl Resource {
    /// The kind with its group and version.
    pub fn gvk(&self) -> GVK {
        GVK::new(self.group.clone(), self.version.clone(), self.kind.clone())
    }

    /// Whether the verb is served on the resource itself.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// The parsed table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Groups in the order of `/apis`, core first.
    pub groups: Vec<Group>,
    /// Resources in the order of their group, then version, then name.
    pub resources: Vec<Resource>,
}

impl Table {
    /// The part whose resources `is_selected` accepts; without versions and groups that have none left.
    pub fn selected(&self, is_selected: impl Fn(&Resource) -> bool) -> Table {
        let resources: Vec<Resource> = self.resources.iter().filter(|r| is_selected(r)).cloned().collect();
        let has = |group: &SmolStr, version: &SmolStr| {
            resources.iter().any(|r| r.group == *group && r.version == *version)
        };
        let left = |group: &Group| {
            let versions = group.versions.iter().filter(|(version, _)| has(&group.name, version));
            let versions: Vec<_> = versions.cloned().collect();
            (!versions.is_empty()).then(|| Group { versions, ..group.clone() })
        };
        let groups = self.groups.iter().filter_map(left).collect();
        Table { groups, resources }
    }
}

/// Every built-in resource, also of the versions that are off by default.
#[derive(Debug)]
pub struct BuiltinResources {
    /// All rows.
    pub table: Table,
    /// Group and version of those that are off by default.
    pub(super) off: HashSet<(SmolStr, SmolStr)>,
    /// The feature gates of those that have one, by kind.
    pub(super) gates: HashMap<GVK, SmolStr>,
}

impl BuiltinResources {
    /// Whether a version of the table is served unless it is switched off.
    pub fn is_on_by_default(&self, group: &str, version: &str) -> bool {
        !self.off.iter().any(|(g, v)| g == group && v == version)
    }

    /// The feature gate without which a resource is not served.
    pub fn gate(&self, resource: &Resource) -> Option<&str> {
        self.gates.get(&resource.gvk()).map(SmolStr::as_str)
    }

    /// The feature gates without which something is not served.
    pub fn gates(&self) -> impl Iterator<Item = &str> {
        self.gates.values().map(SmolStr::as_str)
    }
}
