//! The roles and bindings that every cluster has: made at the first start, put right at every start.
//!
//! They are rows of `bootstrap.table`. What is missing from a role or binding that is there is added, what somebody added
//! stays (k8s.io/component-helpers `auth/rbac/reconciliation`); an object whose annotation
//! `rbac.authorization.kubernetes.io/autoupdate` is `false` is left alone.

use plinth_codec::{tree, Map, Value};

use super::coverage::{self, Limits};
use super::rules::PolicyRule;
use super::GROUP;

const TABLE: &str = include_str!("bootstrap.table");
/// The label of every bootstrap object.
const LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// Whether an object is put right at start.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// What the table calls the core group.
const CORE: &str = "core";

/// An object that every cluster has.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Plural resource.
    pub plural: &'static str,
    /// Namespace; empty for cluster-scoped ones.
    pub namespace: &'static str,
    /// Name.
    pub name: &'static str,
    /// The object.
    pub object: Value,
}

/// What a live object needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Healed {
    /// Nothing.
    Whole,
    /// To become this.
    Changed(Value),
    /// To be replaced: it binds another role, and that cannot be changed.
    Other,
}

/// What `live` needs to have at least what is expected.
pub fn healed(live: &Value, expected: &Value) -> Healed {
    if live.str_at(&["metadata", "annotations", AUTO_UPDATE]) == Some("false") {
        return Healed::Whole;
    }
    if live.get("roleRef") != expected.get("roleRef") {
        return Healed::Other;
    }
    let mut new = live.clone();
    for member in ["annotations", "labels"] {
        let wanted = expected.at(&["metadata", member]).and_then(Value::as_object);
        let Some(held) = new.object_at_mut(&["metadata", member]) else { continue };
        for (key, value) in
            wanted.into_iter().flat_map(Map::iter).filter(|(key, _)| live_lacks(live, member, key))
        {
            held.insert(key.clone(), value.clone());
        }
    }
    // Without limits it cannot fail.
    let missing = coverage::uncovered(&PolicyRule::all_of(live), &PolicyRule::all_of(expected), Limits::NONE);
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
        true => Healed::Whole,
        false => Healed::Changed(new),
    }
}

fn live_lacks(live: &Value, member: &str, key: &str) -> bool {
    live.at(&["metadata", member, key]).is_none()
}

/// The elements of a list that the live object lacks.
fn lacking(live: &Value, expected: &Value, path: &[&str]) -> Vec<Value> {
    let list = |object: &Value| object.at(path).and_then(Value::as_array).unwrap_or_default().to_vec();
    let held = list(live);
    list(expected).into_iter().filter(|element| !held.contains(element)).collect()
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

/// The rows of the table as objects.
pub fn expected() -> Vec<Expected> {
    let mut out: Vec<Expected> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        if line.starts_with(' ') {
            let rule = rule(words);
            if let Some(role) = out.last_mut() {
                append(&mut role.object, &["rules"], vec![rule.to_value()]);
            }
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
        out.push(Expected { plural, namespace, name, object });
    }
    out
}

fn label(object: &mut Value, (key, value): (&'static str, &'static str)) {
    if let Some(labels) = object.object_at_mut(&["metadata", "labels"]) {
        labels.insert(key, value);
    }
}

/// The rest of a role's row: labels, and what it aggregates.
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

/// The rest of a binding's row: the role and the subjects.
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
        let expected = expected();
        assert_eq!(expected.len(), 133);
        for Expected { plural, name, object, .. } in &expected {
            let strategy = plinth_kinds::of(GROUP, plural);
            assert_eq!(strategy.errors(object), [], "{plural} {name}");
            assert_eq!(healed(object, object), Healed::Whole, "{plural} {name}");
        }
        let bound = expected.iter().filter_map(|e| {
            let role = e.object.str_at(&["roleRef", "name"])?;
            Some((role, if e.namespace.is_empty() { "clusterroles" } else { "roles" }, e.namespace))
        });
        for (role, plural, namespace) in bound {
            let is_it = |e: &Expected| (e.name, e.plural, e.namespace) == (role, plural, namespace);
            assert!(expected.iter().any(is_it), "{plural} {role} is bound and not there");
        }
    }

    #[test]
    fn what_is_missing_is_added_and_the_rest_stays() {
        let find = |name: &str| expected().into_iter().find(|e| e.name == name).unwrap().object;
        let viewer = find("system:public-info-viewer");
        let Value::Object(mut map) = viewer.clone() else { panic!() };
        let own = tree!({ "verbs": tree!(["get"]), "nonResourceURLs": tree!(["/own"]) });
        map.insert("rules", vec![own.clone()]);
        let live = Value::Object(map);
        let Healed::Changed(new) = healed(&live, &viewer) else { panic!("not healed") };
        let rules = PolicyRule::all_of(&new);
        assert!(rules.contains(&PolicyRule::of(&own)));
        let missing = coverage::uncovered(&rules, &PolicyRule::all_of(&viewer), Limits::NONE).unwrap();
        assert!(missing.rules.is_empty());
        // Who says so is left alone.
        let mut kept = live.clone();
        kept.object_at_mut(&["metadata", "annotations"]).unwrap().insert(AUTO_UPDATE, "false");
        assert_eq!(healed(&kept, &viewer), Healed::Whole);

        let binding = expected().into_iter().find(|e| e.plural == "clusterrolebindings").unwrap().object;
        let mut other = binding.clone();
        other.object_at_mut(&["roleRef"]).unwrap().insert("name", "other");
        assert_eq!(healed(&other, &binding), Healed::Other);
        let mut emptied = binding.clone();
        emptied.as_object_mut().unwrap().remove("subjects");
        assert_eq!(healed(&emptied, &binding), Healed::Changed(binding.clone()));

        let admin = find("admin");
        let mut other = admin.clone();
        other.as_object_mut().unwrap().remove("aggregationRule");
        assert_eq!(healed(&other, &admin), Healed::Changed(admin.clone()));
        let cluster_admin = find("cluster-admin");
        let mut other = cluster_admin.clone();
        other
            .as_object_mut()
            .unwrap()
            .insert("aggregationRule", admin.get("aggregationRule").unwrap().clone());
        assert_eq!(healed(&other, &cluster_admin), Healed::Changed(cluster_admin));
    }
}
