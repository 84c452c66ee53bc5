//! Aggregated cluster roles: the rules of all cluster roles that match their label selectors.
//!
//! Upstream: kubernetes `pkg/controller/clusterroleaggregation`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_codec::selector::LabelSelector;
use plinth_codec::{json, Value};
use plinth_engine::{Entry, Event, EventKind};
use smol_str::SmolStr;

use super::accounts;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{ApiError, Verb};
use plinth_apiserver::authz::rbac::rules::PolicyRule;
use plinth_apiserver::authz::rbac::GROUP;
use plinth_apiserver::context::Server;
use plinth_apiserver::handlers::internal;
use plinth_registry::{prefix_range, resource_prefix, split_key};
use plinth_storage::Stored;

/// The controller's name, and the field manager of aggregated rules.
pub(super) const NAME: &str = "clusterrole-aggregation-controller";
/// First and longest delay before a role is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The relevant fields of a cluster role.
#[derive(Debug)]
struct Role {
    labels: Vec<(SmolStr, SmolStr)>,
    rules: Vec<PolicyRule>,
    /// The selectors of the aggregated roles; `None` when it has its own rules.
    selectors: Option<Vec<LabelSelector>>,
}

type Roles = BTreeMap<SmolStr, Role>;

/// The controller; its keys are the names of aggregated roles.
pub(super) struct Aggregation {
    server: Arc<Server>,
    prefix: String,
    /// All cluster roles, as of the feed's position.
    roles: Mutex<Roles>,
}

impl Aggregation {
    pub(super) fn new(server: &Arc<Server>) -> Aggregation {
        let prefix = resource_prefix(GROUP, "clusterroles");
        Aggregation { server: server.clone(), prefix, roles: Mutex::default() }
    }
}

impl Reconciler for Aggregation {
    type Key = SmolStr;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<SmolStr>, ApiError> {
        let prefix = self.prefix.clone();
        let pick = move |entry: &Entry<'_>| {
            let (_, name) = split_key(&prefix, false, entry.key)?;
            Some((SmolStr::new(name), entry.to_record()))
        };
        let (values, revision) = self.server.store.scan(prefix_range(self.prefix.as_bytes()), pick).await?;
        let role = |(name, record)| Ok((name, role(&self.server.store.fetched(record)?.value)?));
        let roles = values.into_iter().map(role).collect::<Result<Roles, ApiError>>()?;
        let outdated = outdated(&roles);
        *self.roles.lock() = roles;
        Start::new(outdated).watch(&self.server, &self.prefix, revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<SmolStr>, ApiError> {
        let mut roles = self.roles.lock();
        for event in events {
            let Some((_, name)) = split_key(&self.prefix, false, &event.key) else { continue };
            match &event.kind {
                EventKind::Put { value, .. } => {
                    let value = self.server.store.open(&event.key, value)?;
                    roles.insert(name.into(), role(&value)?)
                }
                EventKind::Delete => roles.remove(name),
            };
        }
        Ok(outdated(&roles))
    }

    async fn reconcile(&self, name: SmolStr) -> Result<Action, ApiError> {
        let rules = desired_rules(&self.roles.lock(), &name);
        if let Some(rules) = rules {
            aggregate(&self.server, &name, rules).await?;
        }
        Ok(Action::AwaitChange)
    }
}

fn role(value: &[u8]) -> Result<Role, ApiError> {
    let stored = Stored::parse(value).map_err(ApiError::internal)?;
    let object = json::parse(stored.body()).map_err(ApiError::internal)?;
    let labels = stored.labels().map(|(key, value)| (key.into(), value.into())).collect();
    Ok(Role { labels, rules: PolicyRule::all_of(&object), selectors: selectors(&object) })
}

/// The selectors of an aggregated role. An invalid one selects nothing; validation rejects it before.
fn selectors(object: &Value) -> Option<Vec<LabelSelector>> {
    let rule = object.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let list = rule.list_at(&["clusterRoleSelectors"]);
    let read = |s: &Value| LabelSelector::from_object(Some(s)).unwrap_or_else(|_| LabelSelector::nothing());
    Some(list.iter().map(read).collect())
}

/// The aggregated roles whose rules are outdated.
fn outdated(roles: &Roles) -> Vec<SmolStr> {
    roles.keys().filter(|name| desired_rules(roles, name).is_some()).cloned().collect()
}

/// The desired rules of an aggregated role, if its rules are outdated.
fn desired_rules(roles: &Roles, name: &str) -> Option<Vec<PolicyRule>> {
    let role = roles.get(name)?;
    let (mut rules, mut seen): (Vec<PolicyRule>, _) = (Vec::new(), HashSet::new());
    for selector in role.selectors.as_ref()? {
        let selects = |other: &Role| {
            selector.matches_sorted(other.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        };
        for (_, other) in roles.iter().filter(|(other, role)| *other != name && selects(role)) {
            for rule in &other.rules {
                if seen.insert(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    (rules != role.rules).then_some(rules)
}

/// Writes the rules of an aggregated role. One that was deleted, or is not aggregated any more, is not
/// changed: the feed delivers its own change.
async fn aggregate(server: &Arc<Server>, name: &str, rules: Vec<PolicyRule>) -> Result<(), ApiError> {
    let mut cx =
        accounts::ROLE_AGGREGATION.request(server, (GROUP, "v1", "clusterroles"), "", name, Verb::Update)?;
    cx.query.field_manager = Some(NAME.into());
    let transform = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let aggregates = new.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if let Some(object) = new.as_object_mut().filter(|_| aggregates) {
            object.insert("rules", rules.iter().map(PolicyRule::to_value).collect::<Vec<_>>());
        }
        Ok(new)
    };
    match internal::update(&cx, &transform).await {
        Err(error) if error.is_not_found() => Ok(()),
        // Deleted concurrently, or owned by another field manager.
        Err(error) if error.is_conflict() => {
            tracing::debug!(name, %error, "aggregated role changed concurrently");
            Ok(())
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, body: &str) -> (SmolStr, Role) {
        let object = json::parse(body.as_bytes()).unwrap();
        let labels = object.at(&["metadata", "labels"]).and_then(Value::as_object);
        let labels = labels.into_iter().flat_map(plinth_codec::Map::iter);
        let labels = labels.map(|(k, v)| (k.clone(), v.as_str().unwrap().into())).collect();
        (name.into(), Role { labels, rules: PolicyRule::all_of(&object), selectors: selectors(&object) })
    }

    #[test]
    fn rules_follow_labels_once_each_and_never_a_roles_own() {
        let pods = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        let secrets = r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}"#;
        let sum = r#""aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to":"sum"}},{"matchLabels":{"also":"y"}}]}"#;
        let mut roles: Roles = [
            made("a", &format!(r#"{{"metadata":{{"labels":{{"to":"sum"}}}},"rules":[{pods},{secrets}]}}"#)),
            made("b", &format!(r#"{{"metadata":{{"labels":{{"also":"y","to":"sum"}}}},"rules":[{pods}]}}"#)),
            made("c", &format!(r#"{{"metadata":{{"labels":{{"to":"other"}}}},"rules":[{secrets}]}}"#)),
            made("sum", &format!(r#"{{"metadata":{{"labels":{{"to":"sum"}}}},{sum}}}"#)),
            made("whole", &format!(r#"{{"metadata":{{}},{sum},"rules":[{pods},{secrets}]}}"#)),
        ]
        .into_iter()
        .collect();
        let wanted = vec![
            PolicyRule::of(&json::parse(pods.as_bytes()).unwrap()),
            PolicyRule::of(&json::parse(secrets.as_bytes()).unwrap()),
        ];
        assert_eq!(outdated(&roles), ["sum"]);
        assert_eq!(desired_rules(&roles, "sum"), Some(wanted));
        roles.remove("a");
        roles.remove("sum");
        let fewer = vec![PolicyRule::of(&json::parse(pods.as_bytes()).unwrap())];
        assert_eq!(outdated(&roles), ["whole"]);
        assert_eq!(desired_rules(&roles, "whole"), Some(fewer));
    }
}
