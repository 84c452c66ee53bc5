//! The resource table: group, version and name of every resource.
//!
//! Built-in rows come from `builtin.table`; a CustomResourceDefinition makes rows of the same type at
//! run time.

mod parse;

use std::sync::OnceLock;

use smol_str::SmolStr;

use crate::schema::GVK;

pub use parse::TableError;

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

/// The resources that a v1.36 server serves by default. Parsed once per process, in well under a millisecond.
///
/// # Panics
/// Never in a build whose tests pass: the table is part of the source and a test parses it.
pub fn builtin() -> &'static Table {
    static BUILTIN: OnceLock<Table> = OnceLock::new();
    BUILTIN.get_or_init(|| match parse::table(include_str!("builtin.table")) {
        Ok(table) => table,
        Err(error) => unreachable!("builtin.table: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_table_matches_discovery() {
        let table = builtin();
        let find = |group: &str, version: &str, plural: &str| {
            table
                .resources
                .iter()
                .find(|r| r.group == group && r.version == version && r.plural == plural)
                .unwrap_or_else(|| panic!("{group}/{version} {plural} is missing"))
        };
        let pods = find("", "v1", "pods");
        assert_eq!((pods.kind.as_str(), pods.list_kind.as_str()), ("Pod", "PodList"));
        assert!(pods.namespaced && pods.has_verb("deletecollection"));
        assert_eq!(pods.subresource("eviction").unwrap().gvk, GVK::new("policy", "v1", "Eviction"));
        assert_eq!(pods.storage, Some(("".into(), "v1".into())));
        let events = find("events.k8s.io", "v1", "events");
        assert_eq!(events.storage, Some(("".into(), "v1".into())), "stored as core events");
        assert_eq!(find("autoscaling", "v1", "horizontalpodautoscalers").storage.as_ref().unwrap().1, "v2");
        assert_eq!(find("", "v1", "bindings").storage, None);
        assert_eq!(table.groups[0].name, "");
        assert_eq!(table.groups[1].name, "apiregistration.k8s.io");
        assert!(table.resources.iter().all(|r| table.groups.iter().any(|g| g.name == r.group)));
    }
}
