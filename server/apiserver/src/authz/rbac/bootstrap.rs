//! Default roles and bindings: created at the first start, reconciled at every start.
//!
//! They are rows of `bootstrap.table`. What an existing role or binding lacks is added, additions
//! are kept (k8s.io/component-helpers `auth/rbac/reconciliation`); an object whose annotation
//! `rbac.authorization.kubernetes.io/autoupdate` is `false` is not changed.

use plinth_codec::{tree, Map, Value};

use super::coverage::{self, CoverageLimits};
use super::rules::PolicyRule;
use super::rules::GROUP;
use crate::feature_gates::FeatureGates;

const TABLE: &str = include_str!("bootstrap.table");
/// The label of every bootstrap object.
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// The annotation that enables reconciliation.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The core group's name in the table.
const CORE: &str = "core";

/// A default role or binding.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapObject {
    /// Plural resource.
    pub plural: &'static str,
    /// Namespace; empty for cluster-scoped ones.
    pub namespace: &'static str,
    /// Name of the role or binding.
    pub name: &'static str,
    /// As it is created, with the label and annotation of the bootstrap policy.
    pub object: Value,
}

/// The result of a reconciliation.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// The live object needs no change.
    Unchanged,
    /// The live object becomes this.
    Changed(Value),
    /// The live binding must be replaced: its roleRef differs, which is immutable.
    Replace,
}

/// Reconciles `live` so that it has at least what is expected.
pub fn reconcile_object(live: &Value, expected: &Value) -> Reconciled {
    if live.str_at(&["metadata", "annotations", AUTO_UPDATE]) == Some("false") {
        return Reconciled::Unchanged;
    }
    if live.get("roleRef") != expected.get("roleRef") {
        return Reconciled::Replace;
    }
    let mut new = live.clone();
    for member in ["annotations", "labels"] {
        let wanted = expected.at(&["metadata", member]).and_then(Value::as_object);
        let Some(existing) = new.object_at_mut(&["metadata", member]) else { continue };
        for (key, value) in
            wanted.into_iter().flat_map(Map::iter).filter(|(key, _)| live_lacks(live, member, key))
        {
            existing.insert(key.clone(), value.clone());
        }
    }
    // Cannot fail without limits.
    let missing =
        coverage::uncovered(&PolicyRule::all_of(live), &PolicyRule::all_of(expected), CoverageLimits::NONE);
    let missing = missing.map(|missing| missing.rules).unwrap_or_default();
    append(&mut new, &["rules"], missing.iter().map(PolicyRule::to_value).collect());
    append(&mut new, &["subjects"], lacking(live, expected, &["subjects"]));
    const SELECTORS: [&str; 2] = ["aggregationRule", "clusterRoleSelectors"];
    match expected.get("aggregationRule") {
        Some(_) => append(&mut new, &SELECTORS, lacking(live, expected, &SELECTORS)),
        None => {
            new.as_object_mut().and_then(|object| object.remove("aggregationRule"));
        }
    }
    match new == *live {
        true => Reconciled::Unchanged,
        false => Reconciled::Changed(new),
    }
}

fn live_lacks(live: &Value, member: &str, key: &str) -> bool {
    live.at(&["metadata", member, key]).is_none()
}

/// The elements of a list that the live object lacks.
fn lacking(live: &Value, expected: &Value, path: &[&str]) -> Vec<Value> {
    let list = |object: &Value| object.list_at(path).to_vec();
    let existing = list(live);
    list(expected).into_iter().filter(|element| !existing.contains(element)).collect()
}

fn append(object: &mut Value, path: &[&str], elements: Vec<Value>) {
    let (false, Some((last, parents))) = (elements.is_empty(), path.split_last()) else { return };
    let Some(parent) = object.object_at_mut(parents) else { return };
    let list = parent.entry(last);
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(elements);
    }
}

/// The objects of the table, with what those gates add.
pub fn objects(gates: &FeatureGates) -> Vec<BootstrapObject> {
    let mut out: Vec<BootstrapObject> = Vec::new();
    // Whether the last row of an object counts.
    let mut counts = true;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        let gate = words.clone().next().and_then(|word| word.strip_prefix('?'));
        let is_on = gate.is_none_or(|gate| gates.is_on(gate));
        if gate.is_some() {
            words.next();
        }
        if line.starts_with(' ') {
            if let Some(role) = out.last_mut().filter(|_| counts && is_on) {
                append(&mut role.object, &["rules"], vec![rule(words).to_value()]);
            }
            continue;
        }
        counts = is_on;
        if !counts {
            continue;
        }
        let mut word = || words.next().unwrap_or_default();
        let kind = word();
        let namespace = if matches!(kind, "role" | "rolebinding") { word() } else { "" };
        let name = word();
        let (plural, kind, role_kind) = match kind {
            "clusterrole" => ("clusterroles", "ClusterRole", None),
            "role" => ("roles", "Role", None),
            "clusterrolebinding" => ("clusterrolebindings", "ClusterRoleBinding", Some("ClusterRole")),
            _ => ("rolebindings", "RoleBinding", Some("Role")),
        };
        let mut object = tree!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": kind,
            "metadata": tree!({ "name": name }),
        });
        if !namespace.is_empty() {
            object.object_at_mut(&["metadata"]).map(|metadata| metadata.insert("namespace", namespace));
        }
        label(&mut object, LABEL);
        if let Some(annotations) = object.object_at_mut(&["metadata", "annotations"]) {
            annotations.insert(AUTO_UPDATE, "true");
        }
        match role_kind {
            Some(role_kind) => bind(&mut object, role_kind, words),
            None => gather(&mut object, words),
        }
        out.push(BootstrapObject { plural, namespace, name, object });
    }
    out
}

fn label(object: &mut Value, (key, value): (&'static str, &'static str)) {
    if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
        labels.insert(key, value);
    }
}

/// Parses the rest of a role's row: labels, and the aggregation rule.
fn gather(object: &mut Value, words: std::str::SplitAsciiWhitespace<'static>) {
    let mut aggregates = false;
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            aggregates = true;
            continue;
        };
        if !aggregates {
            label(object, (key, value));
            continue;
        }
        let labels: Map = [(key.into(), Value::from(value))].into_iter().collect();
        append(object, &["aggregationRule", "clusterRoleSelectors"], vec![tree!({ "matchLabels": labels })]);
    }
}

/// Parses the rest of a binding's row: role and subjects.
fn bind(object: &mut Value, role_kind: &str, mut words: std::str::SplitAsciiWhitespace<'static>) {
    let role = words.next().unwrap_or_default();
    let subjects: Vec<Value> = words.filter_map(subject).collect();
    if let Some(object) = object.as_object_mut() {
        object.insert("roleRef", tree!({ "apiGroup": GROUP, "kind": role_kind, "name": role }));
        if !subjects.is_empty() {
            object.insert("subjects", subjects);
        }
    }
}

fn subject(word: &str) -> Option<Value> {
    let (kind, name) = word.split_once(':')?;
    Some(match kind {
        "user" => tree!({ "apiGroup": GROUP, "kind": "User", "name": name }),
        "group" => tree!({ "apiGroup": GROUP, "kind": "Group", "name": name }),
        _ => {
            let (namespace, name) = name.split_once('/')?;
            tree!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
    })
}

pub(super) fn rule(mut words: std::str::SplitAsciiWhitespace<'_>) -> PolicyRule {
    let mut list = || -> Vec<smol_str::SmolStr> {
        words.next().map(|word| word.split(',').map(Into::into).collect()).unwrap_or_default()
    };
    let (verbs, mut groups, resources, names) = (list(), list(), list(), list());
    if groups.first().is_some_and(|group| group == "urls") {
        return PolicyRule { verbs, paths: resources, ..PolicyRule::default() };
    }
    for group in groups.iter_mut().filter(|group| *group == CORE) {
        *group = smol_str::SmolStr::default();
    }
    PolicyRule { verbs, groups, resources, names, paths: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_valid_object() {
        let expected = objects(&plinth_codec::resources::known().gates().collect());
        assert_eq!((expected.len(), objects(&FeatureGates::default()).len()), (143, 133));
        for BootstrapObject { plural, name, object, .. } in &expected {
            let strategy = plinth_kinds::of(GROUP, plural);
            assert_eq!(strategy.errors(object), [], "{plural} {name}");
            assert_eq!(reconcile_object(object, object), Reconciled::Unchanged, "{plural} {name}");
        }
        let bound = expected.iter().filter_map(|e| {
            let role = e.object.str_at(&["roleRef", "name"])?;
            Some((role, if e.namespace.is_empty() { "clusterroles" } else { "roles" }, e.namespace))
        });
        for (role, plural, namespace) in bound {
            let is_it = |e: &BootstrapObject| (e.name, e.plural, e.namespace) == (role, plural, namespace);
            assert!(expected.iter().any(is_it), "{plural} {role} is bound and not there");
        }
    }

    #[test]
    fn what_is_missing_is_added_and_the_rest_stays() {
        let find = |name: &str| {
            objects(&FeatureGates::default()).into_iter().find(|e| e.name == name).unwrap().object
        };
        let viewer = find("system:public-info-viewer");
        let Value::Object(mut map) = viewer.clone() else { panic!() };
        let own = tree!({ "verbs": tree!(["get"]), "nonResourceURLs": tree!(["/own"]) });
        map.insert("rules", vec![own.clone()]);
        let live = Value::Object(map);
        let Reconciled::Changed(new) = reconcile_object(&live, &viewer) else { panic!("not healed") };
        let rules = PolicyRule::all_of(&new);
        assert!(rules.contains(&PolicyRule::of(&own)));
        let missing =
            coverage::uncovered(&rules, &PolicyRule::all_of(&viewer), CoverageLimits::NONE).unwrap();
        assert!(missing.rules.is_empty());
        // Objects that opt out are not changed.
        let mut kept = live.clone();
        kept.object_at_mut(&["metadata", "annotations"]).unwrap().insert(AUTO_UPDATE, "false");
        assert_eq!(reconcile_object(&kept, &viewer), Reconciled::Unchanged);

        let binding = objects(&FeatureGates::default())
            .into_iter()
            .find(|e| e.plural == "clusterrolebindings")
            .unwrap()
            .object;
        let mut other = binding.clone();
        other.object_at_mut(&["roleRef"]).unwrap().insert("name", "other");
        assert_eq!(reconcile_object(&other, &binding), Reconciled::Replace);
        let mut emptied = binding.clone();
        emptied.as_object_mut().unwrap().remove("subjects");
        assert_eq!(reconcile_object(&emptied, &binding), Reconciled::Changed(binding.clone()));

        let admin = find("admin");
        let mut other = admin.clone();
        other.as_object_mut().unwrap().remove("aggregationRule");
        assert_eq!(reconcile_object(&other, &admin), Reconciled::Changed(admin.clone()));
        let cluster_admin = find("cluster-admin");
        let mut other = cluster_admin.clone();
        other
            .as_object_mut()
            .unwrap()
            .insert("aggregationRule", admin.get("aggregationRule").unwrap().clone());
        assert_eq!(reconcile_object(&other, &cluster_admin), Reconciled::Changed(cluster_admin));
    }
}
