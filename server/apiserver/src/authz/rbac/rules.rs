//! Policy rules: verbs on resources or paths.
//!
//! Upstream: kubernetes `pkg/apis/rbac/v1/evaluation_helpers.go`.

use plinth_codec::error::quoted_list;
use plinth_codec::{Map, Value};
use smol_str::SmolStr;

use crate::authz::{ResourceTarget, Target};

/// The API group of RBAC.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Wildcard for verbs, groups, resources and paths.
pub(super) const ALL: &str = "*";

/// `rbac.authorization.k8s.io/v1` PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<SmolStr>,
    /// API groups; `*` for all, empty text for core.
    pub groups: Vec<SmolStr>,
    /// Resources, `RESOURCE/SUBRESOURCE`, `*/SUBRESOURCE` or `*`.
    pub resources: Vec<SmolStr>,
    /// Names of objects; empty for all.
    pub names: Vec<SmolStr>,
    /// Non-resource paths; a trailing `*` matches any suffix.
    pub paths: Vec<SmolStr>,
}

/// The fields of a rule in the order of upstream's struct.
const MEMBERS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];

impl PolicyRule {
    /// The rules that allow everything.
    pub fn everything() -> [PolicyRule; 2] {
        let all = || vec![ALL.into()];
        let resources = PolicyRule { verbs: all(), groups: all(), resources: all(), ..PolicyRule::default() };
        [resources, PolicyRule { verbs: all(), paths: all(), ..PolicyRule::default() }]
    }

    /// Parses a rule. Values of a wrong type are ignored: the rule then allows less.
    pub fn of(rule: &Value) -> PolicyRule {
        let [verbs, groups, resources, names, paths] = MEMBERS.map(|member| {
            let list = rule.list_at(&[member]);
            list.iter().filter_map(Value::as_str).map(SmolStr::new).collect()
        });
        PolicyRule { verbs, groups, resources, names, paths }
    }

    /// The rules of a role.
    pub fn all_of(role: &Value) -> Vec<PolicyRule> {
        let rules = role.list_at(&["rules"]);
        rules.iter().map(PolicyRule::of).collect()
    }

    fn lists(&self) -> [&[SmolStr]; 5] {
        [&self.verbs, &self.groups, &self.resources, &self.names, &self.paths]
    }

    /// The rule as an object; empty lists are omitted.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (member, list) in MEMBERS.into_iter().zip(self.lists()) {
            if !list.is_empty() {
                map.insert(member, list.iter().cloned().map(Value::from).collect::<Vec<_>>());
            }
        }
        Value::Object(map)
    }

    /// Whether it allows a request. Allocates nothing.
    pub fn allows(&self, verb: &str, target: &Target<'_>) -> bool {
        self.verbs.iter().any(|v| v == ALL || v == verb)
            && match target {
                Target::Resource(resource) => self.allows_resource(resource),
                Target::Path(path) => self.paths.iter().any(|pattern| path_covers(pattern, path)),
            }
    }

    fn allows_resource(&self, target: &ResourceTarget<'_>) -> bool {
        self.groups.iter().any(|g| g == ALL || g == target.group)
            && self.resources.iter().any(|r| resource_matches(r, target.resource, target.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == target.name))
    }

    /// Total number of values in its lists.
    pub(crate) fn len(&self) -> usize {
        self.lists().iter().map(|list| list.len()).sum()
    }

    /// Total bytes of these values.
    pub(super) fn bytes(&self) -> usize {
        self.lists().iter().copied().flatten().map(|value| value.len()).sum()
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`, as in upstream's messages.
    pub fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let nonempty = parts.iter().filter(|(_, list)| !list.is_empty());
        let texts: Vec<String> =
            nonempty.map(|(name, list)| format!("{name}:{}", quoted_list(list))).collect();
        format!("{{{}}}", texts.join(", "))
    }
}

fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    if subresource.is_empty() {
        return pattern == resource;
    }
    pattern
        .strip_suffix(subresource)
        .and_then(|rest| rest.strip_suffix('/'))
        .is_some_and(|of| of == ALL || of == resource)
}

fn path_covers(pattern: &str, path: &str) -> bool {
    pattern == ALL || path_covers_path(pattern, path)
}

pub(super) fn path_covers_path(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// Merges rules that differ only in their verbs (kubernetes
/// `pkg/registry/rbac/validation/policy_compact.go`); for the result of
/// `coverage::uncovered`.
pub fn compacted(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut out: Vec<PolicyRule> = Vec::new();
    let mut positions = std::collections::HashMap::new();
    for rule in rules {
        let is_simple = rule.paths.is_empty()
            && rule.names.len() <= 1
            && rule.groups.len() == 1
            && rule.resources.len() == 1;
        if !is_simple {
            out.push(rule);
            continue;
        }
        let key = (rule.groups.clone(), rule.resources.clone(), rule.names.clone());
        match positions.get(&key).and_then(|at: &usize| out.get_mut(*at)) {
            Some(earlier) => earlier.verbs.extend(rule.verbs),
            None => {
                positions.insert(key, out.len());
                out.push(rule);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verbs groups resources [names]` or `verbs urls paths`, lists with commas; `core` is the core group.
    fn rule(text: &str) -> PolicyRule {
        super::super::bootstrap::rule(text.split_ascii_whitespace())
    }

    #[test]
    fn matching_by_table() {
        // rule, verb, group, resource, subresource, name, whether it is allowed
        let rows = [
            ("get core pods", "get", "", "pods", "", "", true),
            ("get core pods", "get", "", "pods", "", "web", true),
            ("get core pods", "list", "", "pods", "", "", false),
            ("get core pods", "get", "apps", "pods", "", "", false),
            ("get core pods", "get", "", "pods", "log", "web", false),
            ("get core pods/log", "get", "", "pods", "log", "web", true),
            ("get core pods/log", "get", "", "pods", "", "web", false),
            ("get core pods/log", "get", "", "pods/log", "", "web", true),
            ("* * *", "impersonate", "any.group", "things", "status", "x", true),
            ("* core *", "get", "", "pods", "exec", "x", true),
            ("* core *", "get", "apps", "deployments", "", "", false),
            ("update apps */scale", "update", "apps", "deployments", "scale", "x", true),
            ("update apps */scale", "update", "apps", "deployments", "status", "x", false),
            ("update apps */scale", "update", "apps", "deployments", "", "x", false),
            ("update apps */scale", "update", "apps", "deployments", "upscale", "x", false),
            ("update apps x/scale", "update", "apps", "xx", "scale", "x", false),
            ("get core configmaps a,b", "get", "", "configmaps", "", "b", true),
            ("get core configmaps a,b", "get", "", "configmaps", "", "c", false),
            ("list core configmaps a,b", "list", "", "configmaps", "", "", false),
            ("get urls *", "get", "", "pods", "", "", false),
        ];
        for (text, verb, group, resource, subresource, name, allowed) in rows {
            let target = ResourceTarget { group, resource, subresource, name, ..ResourceTarget::default() };
            let found = rule(text).allows(verb, &Target::Resource(target));
            assert_eq!(found, allowed, "{text}: {verb} {group}/{resource}/{subresource} {name:?}");
        }
        let rows = [
            ("get urls /healthz", "get", "/healthz", true),
            ("get urls /healthz", "get", "/healthz/", false),
            ("get urls /healthz", "post", "/healthz", false),
            ("get urls /api/*", "get", "/api/v1", true),
            ("get urls /api/*", "get", "/api/", true),
            ("get urls /api/*", "get", "/api", false),
            ("get urls /api*", "get", "/apis", true),
            ("* urls *", "delete", "/anything", true),
            ("* * *", "get", "/anything", false),
        ];
        for (text, verb, path, allowed) in rows {
            assert_eq!(rule(text).allows(verb, &Target::Path(path)), allowed, "{text}: {verb} {path}");
        }
    }

    #[test]
    fn a_rule_comes_back_from_its_object() {
        for text in ["get,list core,apps pods,deployments a,b", "get urls /healthz,/api/*", "* * *"] {
            assert_eq!(PolicyRule::of(&rule(text).to_value()), rule(text));
        }
    }
}
