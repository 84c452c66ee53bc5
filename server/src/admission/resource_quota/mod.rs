//! `ResourceQuota`: denies creates that would exceed a namespace's quotas.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/resourcequota`. There, usage is written before the
//! object, and the charge for an object whose create fails stays until the controller recounts. Here the
//! charge is part of the object's own transaction, on the condition that the quota has not changed: it is
//! exact, and nothing is charged for a failed create. [`crate::controllers`] recounts when objects are
//! deleted.

pub(crate) mod usage;

use std::sync::Arc;

use bytes::Bytes;
use plinth_codec::Value;
use plinth_engine::{Condition, Revision};

use super::call::Call;
use super::resource_list::ResourceList;
use plinth_api::{metadata_text, ApiError};
use plinth_apiserver::context::Operation;
use plinth_registry::{object_key, ResourceType};
use plinth_storage::encode_object;
use plinth_storage::ObjectCache;

pub(crate) use usage::{attributes_classes, Counted};

/// Upstream's name of the plugin.
pub(super) const NAME: &str = "ResourceQuota";

/// Checks the object's usage against the namespace's quotas, and charges it.
///
/// # Errors
/// 403.
pub(super) async fn validate(call: &Call<'_>, quotas: &ObjectCache, object: &Value) -> Result<(), ApiError> {
    let resource = &call.cx.resource;
    if !resource.row.namespaced || is_uncounted(resource) || !counts(call, object) {
        return Ok(());
    }
    let server = &call.cx.server;
    let quotas = quotas.objects(&server.store, call.namespace).await?;
    if quotas.is_empty() {
        return Ok(());
    }
    let counted = Counted::new(resource);
    let used = usage::of(counted, object);
    for quota in quotas {
        // What has happened to an object is counted and not refused.
        let is_limit = call.cx.info.subresource != "status";
        let charge = charge(&quota, counted, (object, call.old), &used, is_limit);
        let charge = charge.map_err(|why| call.forbidden(object, &why))?;
        if let (Some(used), false) = (charge, call.dry_run) {
            write(call, &quota, &used)?;
        }
    }
    Ok(())
}

/// Events are exempt from quotas, as upstream; custom resources of that name are not.
pub(crate) fn is_uncounted(resource: &ResourceType) -> bool {
    resource.plural() == "events" && !resource.is_custom()
}

/// Whether the request can change the usage: creates do, and updates of a few kinds.
fn counts(call: &Call<'_>, object: &Value) -> bool {
    if call.operation == Operation::Create {
        return true;
    }
    let subresource = call.cx.info.subresource.as_str();
    let ends = |pod: &Value| pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_int).is_some();
    match (call.cx.resource.group(), call.cx.resource.plural(), subresource) {
        ("", "pods", "resize") | ("", "services", "") | ("", "persistentvolumeclaims", "" | "status") => true,
        ("", "pods", "") => call.old.is_some_and(|old| ends(old) != ends(object)),
        _ => false,
    }
}

/// The quota's usage including the object; `None` if it does not change. Without `is_limit` the quota may be
/// exceeded.
fn charge(
    quota: &Value,
    counted: Counted<'_>,
    (object, old): (&Value, Option<&Value>),
    usage: &ResourceList,
    is_limit: bool,
) -> Result<Option<ResourceList>, String> {
    let name = metadata_text(quota, "name");
    let hard = ResourceList::of(quota.at(&["status", "hard"]));
    let concerned: Vec<&str> =
        hard.0.keys().map(String::as_str).filter(|name| usage::is_about(counted, name)).collect();
    if concerned.is_empty() || !usage::in_scope(quota, counted, object) {
        return Ok(None);
    }
    if counted.builtin() == Some(("", "pods")) {
        if let Some(why) = usage::missing_requests(object, &concerned) {
            return Err(format!("failed quota: {name}: {why}"));
        }
    }
    let mut used = ResourceList::of(quota.at(&["status", "used"]));
    if concerned.iter().any(|name| used.get(name).is_none()) {
        return Err(format!("status unknown for quota: {name}, resources: {}", concerned.join(",")));
    }
    let before = old.filter(|old| usage::in_scope(quota, counted, old));
    let before = before.map(|old| usage::of(counted, old)).unwrap_or_default();
    let mut charged = ResourceList::default();
    for resource in &concerned {
        let Some(amount) = usage.get(resource) else { continue };
        // A decrease of usage is counted by the controller.
        let more = before.get(resource).map_or(amount, |before| amount.minus(before));
        if more.sign() > 0 {
            charged.0.insert((*resource).to_owned(), more);
        }
    }
    if charged.0.is_empty() {
        return Ok(None);
    }
    let before = used.clone();
    used.add(&charged);
    let exceeded = charged.0.keys().filter(|name| used.get(name) > hard.get(name));
    let exceeded: Vec<&str> = exceeded.map(String::as_str).collect();
    if exceeded.is_empty() || !is_limit {
        return Ok(Some(used));
    }
    let shown = |amounts: &ResourceList| {
        let each = exceeded.iter().filter_map(|n| Some(format!("{n}={}", amounts.get(n)?.canonical())));
        each.collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(&charged),
        shown(&before),
        shown(&hard)
    ))
}

/// Adds the new usage to the object's transaction.
fn write(call: &Call<'_>, quota: &Arc<Value>, used: &ResourceList) -> Result<(), ApiError> {
    let quotas =
        call.cx.registry.internal("", "v1", "resourcequotas").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &quotas.storage else { return Ok(()) };
    let revision = metadata_text(quota, "resourceVersion").parse().map_err(ApiError::internal)?;
    let key = Bytes::from(object_key(&form.prefix, call.namespace, metadata_text(quota, "name")));
    let mut changed = Value::clone(quota);
    set_used(&mut changed, used);
    let value = call.cx.server.store.seal(&key, encode_object(quotas, changed)?)?;
    call.write(Condition::ModRevision { key: key.clone(), revision: Revision::new(revision) }, key, value);
    Ok(())
}

/// Whether an update changes the usage of an object, or the scopes that it matches.
pub(crate) fn differ(counted: Counted<'_>, new: &Value, old: &Value) -> bool {
    let ends = |pod: &Value| pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_int).is_some();
    let is_claim = counted.builtin() == Some(("", "persistentvolumeclaims"));
    usage::of(counted, new) != usage::of(counted, old)
        || ends(new) != ends(old)
        || is_claim && usage::attributes_classes(new) != usage::attributes_classes(old)
}

/// Sets `status.used`.
pub(crate) fn set_used(quota: &mut Value, used: &ResourceList) {
    if let Some(status) = quota.object_at_mut(&["status"]) {
        status.insert("used", used.to_value());
    }
}

/// Counts the usage of a namespace's objects by a quota.
pub(crate) struct Count {
    used: ResourceList,
    quota: Value,
}

impl Count {
    /// Zero usage of the resources that the quota's spec limits.
    pub(crate) fn new(quota: Value) -> Count {
        let hard = ResourceList::of(quota.at(&["spec", "hard"]));
        let zero = plinth_codec::quantity::Quantity::ZERO;
        Count { used: ResourceList(hard.0.into_keys().map(|name| (name, zero)).collect()), quota }
    }

    /// Whether objects of a resource can have usage that the quota limits.
    pub(crate) fn is_about(&self, counted: Counted<'_>) -> bool {
        self.used.0.keys().any(|name| usage::is_about(counted, name))
    }

    /// Counts an object.
    pub(crate) fn add(&mut self, counted: Counted<'_>, object: &Value) {
        if !usage::in_scope(&self.quota, counted, object) {
            return;
        }
        for (name, amount) in usage::of(counted, object).0 {
            if let Some(sum) = self.used.0.get_mut(&name) {
                *sum = sum.plus(amount);
            }
        }
    }

    /// The quota with the counted usage.
    pub(crate) fn finish(self) -> Value {
        let mut quota = self.quota;
        let hard = quota.at(&["spec", "hard"]).cloned();
        if let (Some(hard), Some(status)) = (hard, quota.object_at_mut(&["status"])) {
            status.insert("hard", hard);
        }
        set_used(&mut quota, &self.used);
        quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::{json, Map};

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn quota(hard: &str, used: &str) -> Value {
        parse(&format!(
            r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{hard}}},"status":{{"hard":{hard},"used":{used}}}}}"#
        ))
    }

    #[test]
    fn a_charge_fits_or_says_why_not() {
        const POD: &str = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}"#;
        // hard, used, pod, usage afterwards or refusal
        let rows = [
            (r#"{"cpu":"3","pods":"5"}"#, r#"{"cpu":"1","pods":"1"}"#, POD, Ok(Some("cpu=3,pods=2"))),
            (
                r#"{"cpu":"3","pods":"1"}"#,
                r#"{"cpu":"2","pods":"1"}"#,
                POD,
                Err("exceeded quota: q, requested: cpu=2,pods=1, used: cpu=2,pods=1, limited: cpu=3,pods=1"),
            ),
            (
                r#"{"memory":"1Gi"}"#,
                r#"{"memory":"0"}"#,
                POD,
                Err("failed quota: q: must specify memory for: c"),
            ),
            (r#"{"pods":"1"}"#, "{}", POD, Err("status unknown for quota: q, resources: pods")),
            (r#"{"services":"1"}"#, r#"{"services":"1"}"#, POD, Ok(None)),
        ];
        for (hard, used, pod, expected) in rows {
            let (pods, pod) = (Counted::of_builtin("", "pods"), parse(pod));
            let outcome = charge(&quota(hard, used), pods, (&pod, None), &usage::of(pods, &pod), true);
            let shown = outcome.map(|used| {
                used.map(|used| {
                    let all = used.0.iter().map(|(name, amount)| format!("{name}={}", amount.canonical()));
                    all.collect::<Vec<_>>().join(",")
                })
            });
            assert_eq!(shown.as_ref().map(|o| o.as_deref()).map_err(String::as_str), expected, "{hard}");
        }
    }

    #[test]
    fn a_change_is_charged_its_difference() {
        let claim = |size: &str| {
            parse(&format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#))
        };
        let quota = quota(r#"{"requests.storage":"3Gi"}"#, r#"{"requests.storage":"2Gi"}"#);
        let about = Counted::of_builtin("", "persistentvolumeclaims");
        let change = |new: &str, old: &str, is_limit| {
            let new = claim(new);
            charge(&quota, about, (&new, Some(&claim(old))), &usage::of(about, &new), is_limit)
        };
        assert!(change("3Gi", "2Gi", true).unwrap().is_some());
        assert!(change("4Gi", "2Gi", true).is_err());
        assert!(change("4Gi", "2Gi", false).unwrap().is_some());
        assert!(change("1Gi", "2Gi", true).unwrap().is_none());
    }

    #[test]
    fn a_count_starts_from_nothing() {
        let of = |plural| Counted::of_builtin("", plural);
        let mut count = Count::new(quota(r#"{"pods":"5","count/secrets":"1"}"#, r#"{"pods":"9"}"#));
        assert!(
            count.is_about(of("pods")) && count.is_about(of("secrets")) && !count.is_about(of("services"))
        );
        count.add(of("pods"), &parse("{}"));
        count.add(of("pods"), &parse(r#"{"status":{"phase":"Failed"}}"#));
        let quota = count.finish();
        assert_eq!(quota.at(&["status", "used"]), Some(&parse(r#"{"count/secrets":"0","pods":"1"}"#)));
        assert_eq!(quota.at(&["status", "hard"]).and_then(Value::as_object).map(Map::len), Some(2));
    }
}
