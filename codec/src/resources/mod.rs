//! The resource table: group, version and name of every resource.
//!
//! Built-in rows come from `builtin.table`, which also has versions that are off by default; a
//! CustomResourceDefinition makes rows of the same type at run time.

mod model;
mod parse;

use std::sync::OnceLock;

pub use model::{BuiltinResources, Group, Resource, Subresource, Table};
pub use parse::TableError;

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
        known
            .table
            .selected(|row| known.is_on_by_default(&row.group, &row.version) && known.gate(row).is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::GVK;

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
        assert_eq!(
            known.gates().collect::<std::collections::BTreeSet<_>>(),
            ["ClusterTrustBundle", "GenericWorkload", "PodCertificateRequest", "StorageVersionMigrator"]
                .into()
        );
        let without = table.selected(|r| r.group != "apps" && r.plural != "horizontalpodautoscalers");
        assert!(!without.groups.iter().any(|g| g.name == "apps" || g.name == "autoscaling"));
        assert!(without.groups.iter().any(|g| g.name == "batch"));
        for row in &known.table.resources {
            assert!(crate::schema::builtin().kind(&row.gvk()).is_some(), "{}", row.gvk().api_version());
        }
    }
}
