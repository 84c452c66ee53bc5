//! The resource table: group, version and name of every resource.
//!
//! Built-in rows come from `builtin.table`, which also has versions that are off by default; a
//! CustomResourceDefinition makes rows of the same type at run time.

mod parse;

use std::collections::HashSet;
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
    off: HashSet<(SmolStr, SmolStr)>,
}

impl BuiltinResources {
    /// Whether a version of the table is served unless it is switched off.
    pub fn is_on_by_default(&self, group: &str, version: &str) -> bool {
        !self.off.iter().any(|(g, v)| g == group && v == version)
    }
}

/// Every resource that a v1.36 server can serve. Parsed once per process, in well under a millisecond.
///
/// # Panics
/// Never in a build whose tests pass: the table is part of the source and a test parses it.
pub fn known() -> &'static BuiltinResources {
    static KNOWN: OnceLock<BuiltinResources> = OnceLock::new();
    KNOWN.get_or_init(|| match parse::table(include_str!("builtin.table")) {
        Ok(known) => known,
        Err(error) => unreachable!("builtin.table: {error}"),
    })
}

/// The resources that it serves by default.
///
/// # Panics
/// As [`known`].
pub fn builtin() -> &'static Table {
    static BUILTIN: OnceLock<Table> = OnceLock::new();
    BUILTIN.get_or_init(|| {
        let known = known();
        known.table.selected(|row| known.is_on_by_default(&row.group, &row.version))
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

    #[test]
    fn versions_that_are_off_by_default_are_known_and_not_served() {
        let (known, table) = (known(), builtin());
        let networking = |table: &Table| {
            let group = table.groups.iter().find(|g| g.name == "networking.k8s.io").unwrap();
            group
                .versions
                .iter()
                .map(|(version, priority)| format!("{version}={priority}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(networking(&known.table), ["v1=15", "v1beta1=9"]);
        assert_eq!(networking(table), ["v1=15"]);
        assert!(table.resources.iter().all(|r| !r.version.contains("alpha") && !r.version.contains("beta")));
        assert!(known.is_on_by_default("networking.k8s.io", "v1"));
        assert!(!known.is_on_by_default("networking.k8s.io", "v1beta1"));
        let without = table.selected(|r| r.group != "apps" && r.plural != "horizontalpodautoscalers");
        assert!(!without.groups.iter().any(|g| g.name == "apps" || g.name == "autoscaling"));
        assert!(without.groups.iter().any(|g| g.name == "batch"));
        for row in &known.table.resources {
            assert!(crate::schema::builtin().kind(&row.gvk()).is_some(), "{}", row.gvk().api_version());
        }
    }
}
