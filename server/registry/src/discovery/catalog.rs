//! The snapshot that discovery documents are generated from: groups, versions and resources in listing order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plinth_codec::resources::{Resource, Table};

use super::order::compare_versions;
use crate::remote::RemoteVersion;

/// `groupPriorityMinimum` of the APIServices of custom resources: below every
/// group of its own.
const CUSTOM_GROUP_PRIORITY: u32 = 1000;
/// `versionPriority` of those APIServices: equal, so that the version names determine the order.
const CUSTOM_VERSION_PRIORITY: u32 = 100;

/// A version of a group and its resources, sorted by name.
#[derive(Clone, Debug)]
pub struct Version<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Version within the group.
    pub name: &'a str,
    /// Whether it comes from CustomResourceDefinitions.
    pub custom: bool,
    /// The version of another API server that requests for this one go to.
    pub remote: Option<&'a RemoteVersion>,
    /// Resources of the version, in the order of discovery.
    pub resources: Vec<&'a Resource>,
    /// Rank within the group (`versionPriority`).
    pub priority: u32,
    /// Rank of the group (`groupPriorityMinimum`).
    pub group_priority: u32,
}

/// A group and its versions, the preferred one first.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name; empty for core.
    pub name: &'a str,
    /// Versions in listing order; never empty.
    pub versions: Vec<Version<'a>>,
}

/// Groups in listing order.
#[derive(Clone, Debug, Default)]
pub struct Catalog<'a> {
    groups: Vec<Group<'a>>,
}

impl<'a> Catalog<'a> {
    /// Sorts the built-in rows and those of CustomResourceDefinitions: groups by descending priority, then
    /// name; versions by descending priority, then [`compare_versions`]; resources by name. A custom row of a
    /// built-in group and version is ignored: such a definition is never served. `O(n log n)` in the number
    /// of rows.
    pub fn new(builtin: &'a Table, custom: impl IntoIterator<Item = &'a Resource>) -> Catalog<'a> {
        Catalog::with_remote(builtin, custom, [])
    }

    /// The same with versions of other API servers, each in place of a local one with its name.
    pub fn with_remote(
        builtin: &'a Table,
        custom: impl IntoIterator<Item = &'a Resource>,
        remote: impl IntoIterator<Item = &'a RemoteVersion>,
    ) -> Catalog<'a> {
        let mut by_name: BTreeMap<&str, BTreeMap<&str, Version<'a>>> = BTreeMap::new();
        for group in &builtin.groups {
            let versions = by_name.entry(&group.name).or_default();
            for (version, priority) in &group.versions {
                versions.insert(
                    version,
                    Version {
                        group: &group.name,
                        name: version,
                        custom: false,
                        remote: None,
                        resources: Vec::new(),
                        priority: *priority,
                        group_priority: group.priority,
                    },
                );
            }
        }
        for resource in &builtin.resources {
            if let Some(version) =
                by_name.get_mut(resource.group.as_str()).and_then(|g| g.get_mut(resource.version.as_str()))
            {
                version.resources.push(resource);
            }
        }
        for resource in custom {
            let version =
                by_name.entry(&resource.group).or_default().entry(&resource.version).or_insert_with(|| {
                    Version {
                        group: &resource.group,
                        name: &resource.version,
                        custom: true,
                        remote: None,
                        resources: Vec::new(),
                        priority: CUSTOM_VERSION_PRIORITY,
                        group_priority: CUSTOM_GROUP_PRIORITY,
                    }
                });
            if version.custom {
                version.resources.push(resource);
            }
        }
        for remote in remote {
            let version = Version {
                group: &remote.group,
                name: &remote.version,
                custom: false,
                remote: Some(remote),
                resources: Vec::new(),
                priority: remote.priority,
                group_priority: remote.group_priority,
            };
            by_name.entry(&remote.group).or_default().insert(&remote.version, version);
        }

        // The map yields groups by name, and a stable sort keeps that among equal priorities.
        let mut groups: Vec<Group> = by_name
            .into_iter()
            .map(|(name, versions)| Group { name, versions: versions.into_values().collect() })
            .collect();
        for group in &mut groups {
            group
                .versions
                .sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| compare_versions(b.name, a.name)));
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        groups.sort_by_key(|g| Reverse(g.versions.iter().map(|v| v.group_priority).max()));
        Catalog { groups }
    }

    /// The groups under `/apis`, in order; core is not one of them.
    pub fn named_groups(&self) -> impl Iterator<Item = &Group<'a>> {
        self.groups.iter().filter(|g| !g.name.is_empty())
    }

    /// A group; the empty name is core.
    pub fn group(&self, name: &str) -> Option<&Group<'a>> {
        self.groups.iter().find(|g| g.name == name)
    }

    /// A version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version<'a>> {
        self.group(group)?.versions.iter().find(|v| v.name == version)
    }
}
