//! Reads `builtin.table`; its header describes the format.

use std::collections::{HashMap, HashSet};

use smol_str::SmolStr;

use super::model::{BuiltinResources, Group, Resource, Subresource, Table};
use crate::schema::GVK;

/// A line of the table that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TableError {
    line: usize,
    what: &'static str,
}

pub(super) fn table(text: &str) -> Result<BuiltinResources, TableError> {
    let (mut table, mut off, mut gates) = (Table::default(), HashSet::new(), HashMap::new());
    for (number, line) in text.lines().enumerate() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let error = |what| TableError { line: number + 1, what };
        match columns.as_slice() {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["group", name, priority, versions, _preferred] => {
                let (group, optional) = group(name, priority, versions).ok_or(error("bad group"))?;
                off.extend(optional.into_iter().map(|version| (group.name.clone(), version)));
                table.groups.push(group);
            }
            columns => {
                let (columns, gate) = gate(columns);
                let resource = resource(columns).ok_or(error("bad resource"))?;
                if let Some(gate) = gate {
                    gates.insert(resource.gvk(), SmolStr::new(gate));
                }
                table.resources.push(resource);
            }
        }
    }
    Ok(BuiltinResources { table, off, gates })
}

/// The columns of a resource, and the gate that the last one may name.
fn gate<'c, 't>(columns: &'c [&'t str]) -> (&'c [&'t str], Option<&'t str>) {
    match columns.split_last() {
        Some((last, columns)) if last.starts_with('?') => (columns, last.strip_prefix('?')),
        _ => (columns, None),
    }
}

/// The group, and which of its versions are off by default.
fn group(name: &str, priority: &str, versions: &str) -> Option<(Group, Vec<SmolStr>)> {
    let mut optional = Vec::new();
    let mut version = |text: &str| {
        let (version, priority) = text.split_once('=')?;
        if priority.ends_with('?') {
            optional.push(SmolStr::new(version));
        }
        Some((SmolStr::new(version), priority.trim_end_matches('?').parse().ok()?))
    };
    let versions = versions.split(',').map(&mut version).collect::<Option<_>>()?;
    Some((Group { name: dash_is_empty(name), priority: priority.parse().ok()?, versions }, optional))
}

fn resource(columns: &[&str]) -> Option<Resource> {
    let [group, version, plural, singular, kind, short, categories, scope, verb_list, storage, rest @ ..] =
        columns
    else {
        return None;
    };
    let (group, version) = (dash_is_empty(group), SmolStr::new(version));
    let verbs = verbs(verb_list);
    let storage = match *storage {
        "-" => None,
        "=" => Some((group.clone(), version.clone())),
        other => {
            let (group, version) = other.split_once('/')?;
            let group = if group == "core" { "" } else { group };
            Some((group.into(), version.into()))
        }
    };
    let subresources = rest
        .iter()
        .filter(|s| **s != "-")
        .map(|s| subresource(s, &group, &version))
        .collect::<Option<_>>()?;
    let list_kind = match verbs.iter().any(|v| v == "list") {
        true => smol_str::format_smolstr!("{kind}List"),
        false => SmolStr::default(),
    };
    Some(Resource {
        group,
        version,
        plural: (*plural).into(),
        singular: (*singular).into(),
        kind: (*kind).into(),
        list_kind,
        short_names: list(short),
        categories: list(categories),
        namespaced: *scope == "Namespaced",
        verbs,
        storage,
        subresources,
    })
}

fn subresource(text: &str, group: &str, version: &str) -> Option<Subresource> {
    let mut parts = text.splitn(4, ':');
    let (name, kind, verb_list) = (parts.next()?, parts.next()?, parts.next()?);
    let gvk = |kind: &str| match kind.split_once('@') {
        None => GVK::new(group, version, kind),
        Some((kind, api_version)) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            GVK::new(group, version, kind)
        }
    };
    let text_options = parts.next().map(gvk);
    Some(Subresource { name: name.into(), gvk: gvk(kind), verbs: verbs(verb_list), text_options })
}

fn verbs(text: &str) -> Vec<SmolStr> {
    match text {
        "all8" => list("create,delete,deletecollection,get,list,patch,update,watch"),
        "gpu" => list("get,patch,update"),
        text => list(text),
    }
}

fn list(text: &str) -> Vec<SmolStr> {
    match text {
        "-" => Vec::new(),
        text => text.split(',').map(SmolStr::new).collect(),
    }
}

fn dash_is_empty(text: &str) -> SmolStr {
    match text {
        "-" => SmolStr::default(),
        text => SmolStr::new(text),
    }
}
