//! Cluster roles that are made of others: the rules of every cluster role that a label selector finds.
//!
//! Upstream: kubernetes `pkg/controller/clusterroleaggregation`.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::selector::LabelSelector;
use plinth_codec::{json, Value};
use plinth_engine::{Entry, EventKind, Feed, Revision, Subscribe};
use smol_str::SmolStr;

use plinth_api::api_error::ApiError;
use plinth_api::request_info::Verb;
use plinth_apiserver::authz::rbac::rules::PolicyRule;
use plinth_apiserver::authz::rbac::GROUP;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::key;
use plinth_storage::stored::Stored;

/// The manager of the rules that this controller writes.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// Pause before everything is looked at again after a error.
const RETRY: Duration = Duration::from_secs(5);

/// A cluster role, as far as it matters here.
#[derive(Debug)]
struct Role {
    labels: Vec<(SmolStr, SmolStr)>,
    rules: Vec<PolicyRule>,
    /// What it is made of; `None` when it has rules of its own.
    selectors: Option<Vec<LabelSelector>>,
}

type Roles = BTreeMap<SmolStr, Role>;

/// Keeps aggregated roles up to date; starts again from the present state when the feed breaks off.
pub(super) async fn lead(server: Arc<Server>) {
    super::again("clusterrole-aggregation-controller", RETRY, || follow(&server)).await;
}

async fn follow(server: &Arc<Server>) -> Result<Infallible, ApiError> {
    let prefix = key::resource_prefix(GROUP, "clusterroles");
    let (mut roles, revision) = read(server, &prefix).await?;
    let range = key::range(prefix.as_bytes());
    let mut feed = server.store.engine().subscribe(Subscribe::new(range).after(revision))?;
    loop {
        for (name, rules) in outdated(&roles) {
            aggregate(server, &name, rules).await?;
        }
        let Feed::Events(events) = feed.next().await? else { continue };
        for event in events.iter() {
            let Some((_, name)) = key::split(&prefix, false, &event.key) else { continue };
            match &event.kind {
                EventKind::Put { value, .. } => {
                    roles.insert(name.into(), role(&server.store.open(&event.key, value)?)?)
                }
                EventKind::Delete => roles.remove(name),
            };
        }
    }
}

async fn read(server: &Server, prefix: &str) -> Result<(Roles, Revision), ApiError> {
    let (range, prefix) = (key::range(prefix.as_bytes()), prefix.to_owned());
    let pick = move |entry: &Entry<'_>| {
        let (_, name) = key::split(&prefix, false, entry.key)?;
        Some((SmolStr::new(name), entry.to_record()))
    };
    let (values, revision) = server.store.survey(range, pick).await?;
    let roles =
        values.into_iter().map(|(name, record)| Ok((name, role(&server.store.fetched(record)?.value)?)));
    Ok((roles.collect::<Result<_, ApiError>>()?, revision))
}

fn role(value: &[u8]) -> Result<Role, ApiError> {
    let stored = Stored::parse(value).map_err(ApiError::internal)?;
    let object = json::parse(stored.body()).map_err(ApiError::internal)?;
    let labels = stored.labels().map(|(key, value)| (key.into(), value.into())).collect();
    Ok(Role { labels, rules: PolicyRule::all_of(&object), selectors: selectors(&object) })
}

/// The selectors of an aggregated role. One that cannot be read selects nothing; validation refuses it before.
fn selectors(object: &Value) -> Option<Vec<LabelSelector>> {
    let rule = object.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let list = rule.get("clusterRoleSelectors").and_then(Value::as_array).unwrap_or_default();
    let read = |s: &Value| LabelSelector::from_object(Some(s)).unwrap_or_else(|_| LabelSelector::nothing());
    Some(list.iter().map(read).collect())
}

/// The aggregated roles whose rules are not what they are made of, with the rules that they should have.
fn outdated(roles: &Roles) -> Vec<(SmolStr, Vec<PolicyRule>)> {
    let mut out = Vec::new();
    for (name, role) in roles {
        let Some(selectors) = &role.selectors else { continue };
        let (mut rules, mut seen): (Vec<PolicyRule>, _) = (Vec::new(), HashSet::new());
        for selector in selectors {
            let labels = |other: &Role| {
                selector.matches_sorted(other.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            };
            for (_, other) in roles.iter().filter(|(other, role)| *other != name && labels(role)) {
                for rule in &other.rules {
                    if seen.insert(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
        }
        if rules != role.rules {
            out.push((name.clone(), rules));
        }
    }
    out
}

/// Writes the rules of an aggregated role. One that has gone, or changed so that it aggregates no more, stays as it is:
/// its own change comes by.
async fn aggregate(server: &Arc<Server>, name: &str, rules: Vec<PolicyRule>) -> Result<(), ApiError> {
    let mut cx = Context::internal(server, (GROUP, "v1", "clusterroles"), "", name, Verb::Update)?;
    cx.query.field_manager = Some(MANAGER.into());
    let transform = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let aggregates = new.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if let Some(object) = new.as_object_mut().filter(|_| aggregates) {
            object.insert("rules", rules.iter().map(PolicyRule::to_value).collect::<Vec<_>>());
        }
        Ok(new)
    };
    match internal::update(&cx, &transform).await {
        Err(error) if error.code == 404 => Ok(()),
        // Somebody deletes it, or it is not ours to change any more.
        Err(error) if error.code == 409 => {
            tracing::debug!(name, %error, "an aggregated role changed meanwhile");
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
        assert_eq!(outdated(&roles), [("sum".into(), wanted)]);
        roles.remove("a");
        roles.remove("sum");
        let fewer = vec![PolicyRule::of(&json::parse(pods.as_bytes()).unwrap())];
        assert_eq!(outdated(&roles), [("whole".into(), fewer)]);
    }
}
