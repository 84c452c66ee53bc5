//! `ResourceQuota`: denies creates that would exceed a namespace's quotas.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/resourcequota`. There, usage is written before the
//! object, and the charge for an object whose create fails stays until the controller recounts. Here the
//! charge is part of the object's own transaction, on the condition that the quota has not changed: it is
//! exact, and nothing is charged for a failed create. [`crate::controllers`] recounts when objects are
//! deleted.

mod change;
mod devices;
mod limited;
pub(crate) mod usage;

use std::sync::Arc;

use bytes::Bytes;
use plinth_codec::time::Timestamp;
use plinth_codec::{Map, Value};
use plinth_engine::{At, Condition, Engine, Revision, Snapshot};
use smol_str::SmolStr;

use super::call::Call;
use super::resource_list::ResourceList;
use plinth_api::{metadata_text, ApiError, Reason};
use plinth_apiserver::context::Operation;
use plinth_registry::{object_key, Registry, ResourceType};
use plinth_storage::encode_object;
use plinth_storage::{ObjectCache, Store};

use change::Change;
use devices::DeviceNames;
pub(crate) use devices::{depends_on_classes, extended_resource};
pub(super) use limited::LimitedResources;
pub(crate) use usage::{attributes_classes, Counted};

/// Upstream's name of the plugin.
pub(super) const NAME: &str = "ResourceQuota";

/// Checks the object's usage against the namespace's quotas, and charges it.
///
/// # Errors
/// 403; 500 where a scope needs a quota and has none, as upstream.
pub(super) async fn validate(
    call: &Call<'_>,
    quotas: &ObjectCache,
    limited: &LimitedResources,
    object: &Value,
) -> Result<(), ApiError> {
    let resource = &call.cx.resource;
    if !resource.row.namespaced || is_uncounted(resource) || !counts(call, object) {
        return Ok(());
    }
    let quotas = quotas.objects(&call.cx.server.store, call.namespace).await?;
    if quotas.is_empty() && limited.is_empty() {
        return Ok(());
    }
    let devices = device_names(call, &quotas, object).await?;
    let change = Change::new(Counted::new(resource).with_devices(devices.as_ref()), object, call.old);
    let forbidden = |why: String| call.forbidden(object, &why);
    let mut concerned = Vec::new();
    for quota in &quotas {
        let names = concerned_names(quota, &change).map_err(forbidden)?;
        if !names.is_empty() {
            concerned.push((quota, names));
        }
    }
    if !limited.is_empty() && change.adds(concerned.iter().map(|(quota, _)| &***quota)) {
        let covering = concerned.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        if let Some(why) = limited.uncovered_names(&change, &covering) {
            return Err(forbidden(why));
        }
        if let Some(why) = limited.uncovered_scopes(&change, &quotas) {
            return Err(ApiError::new(500, Reason::Unknown, why));
        }
    }
    // What has happened to an object is counted and not refused.
    let is_limit = call.cx.info.subresource != "status";
    for (quota, names) in concerned {
        let charge = charge(quota, &names, &change, is_limit).map_err(forbidden)?;
        if let (Some(used), false) = (charge, call.dry_run) {
            write(call, quota, &used)?;
        }
    }
    Ok(())
}

/// The names under which the devices of a claim count; `None` where no quota has such a limit.
async fn device_names(
    call: &Call<'_>,
    quotas: &[Arc<Value>],
    object: &Value,
) -> Result<Option<DeviceNames>, ApiError> {
    let hard = |quota: &Arc<Value>| {
        let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
        hard.is_some_and(|hard| hard.keys().any(|name| depends_on_classes(name)))
    };
    if !Counted::new(&call.cx.resource).is_device_claims() || !quotas.iter().any(hard) {
        return Ok(None);
    }
    let (registry, store) = (call.cx.registry.clone(), call.cx.server.store.clone());
    let (namespace, object) = (call.namespace.to_owned(), object.clone());
    let load = move |engine: &Engine| {
        let snapshot = engine.snapshot(At::Latest)?;
        let now = Timestamp::now();
        Ok(load_device_names(&store, &snapshot, &registry, &namespace, Some(&object), now))
    };
    call.cx.server.store.read(load).await?.map(Some)
}

/// The names under which the devices of a namespace's claims count, as of a snapshot. `object` is a claim
/// that is being written. Blocks; costs a scan of the device classes and of the headers of the claims.
pub(crate) fn load_device_names(
    store: &Store,
    snapshot: &Snapshot,
    registry: &Registry,
    namespace: &str,
    object: Option<&Value>,
    now: Timestamp,
) -> Result<DeviceNames, ApiError> {
    let of_pod = |pod: &Value| usage::of(Counted::PODS, pod, now);
    DeviceNames::load(store, snapshot, registry, namespace, object, of_pod)
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
        ("resource.k8s.io", "resourceclaims", "") => true,
        _ => false,
    }
}

/// The names of a quota's limits that the object is subject to; none where it is out of its scopes.
///
/// # Errors
/// Why the quota cannot be applied to the object.
fn concerned_names<'q>(quota: &'q Value, change: &Change<'_>) -> Result<Vec<&'q str>, String> {
    let name = metadata_text(quota, "name");
    let status = |part: &str| quota.at(&["status", part]).and_then(Value::as_object);
    let hard = status("hard").into_iter().flat_map(Map::keys).map(SmolStr::as_str);
    let mut concerned: Vec<&str> = hard.filter(|name| usage::is_about(change.counted, name)).collect();
    concerned.sort_unstable();
    if concerned.is_empty() || !usage::in_scope(quota, change.counted, change.object) {
        return Ok(Vec::new());
    }
    if change.counted.builtin() == Some(("", "pods")) {
        if let Some(why) = usage::missing_requests(change.object, &concerned) {
            return Err(format!("failed quota: {name}: {why}"));
        }
    }
    let used = status("used");
    if concerned.iter().any(|name| used.is_none_or(|used| used.get(name).is_none())) {
        return Err(format!("status unknown for quota: {name}, resources: {}", concerned.join(",")));
    }
    Ok(concerned)
}

/// The quota's usage including the object; `None` if it does not change. Without `is_limit` the quota may be
/// exceeded.
fn charge(
    quota: &Value,
    concerned: &[&str],
    change: &Change<'_>,
    is_limit: bool,
) -> Result<Option<ResourceList>, String> {
    let amounts = |part: &str| ResourceList::of(quota.at(&["status", part]));
    let (hard, before) = (amounts("hard"), amounts("used"));
    let mut charged = change.increase_in(quota);
    charged.0.retain(|name, _| concerned.contains(&name.as_str()));
    if charged.0.is_empty() {
        return Ok(None);
    }
    let mut used = before.clone();
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
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        metadata_text(quota, "name"),
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

/// Whether an update changes the usage of an object, when that ends, or the scopes that it matches.
pub(crate) fn differ(counted: Counted<'_>, new: &Value, old: &Value, now: Timestamp) -> bool {
    let ends = |pod: &Value| pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_int).is_some();
    let is_claim = counted.builtin() == Some(("", "persistentvolumeclaims"));
    let is_pod = counted.builtin() == Some(("", "pods"));
    if is_pod && devices::names_other_claim(new, old) {
        return true;
    }
    if counted.is_device_claims() && devices::has_other_pod(new, old) {
        return true;
    }
    usage::of(counted, new, now) != usage::of(counted, old, now)
        || ends(new) != ends(old)
        || is_pod && usage::overdue_after(new) != usage::overdue_after(old)
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
    now: Timestamp,
    /// When the usage next decreases by itself.
    until: Option<Timestamp>,
}

impl Count {
    /// Zero usage of the resources that the quota's spec limits.
    pub(crate) fn new(quota: Value, now: Timestamp) -> Count {
        let hard = ResourceList::of(quota.at(&["spec", "hard"]));
        let zero = plinth_codec::quantity::Quantity::ZERO;
        let used = ResourceList(hard.0.into_keys().map(|name| (name, zero)).collect());
        Count { used, quota, now, until: None }
    }

    /// Whether its limits of claims depend on device classes.
    pub(crate) fn depends_on_classes(&self) -> bool {
        self.used.0.keys().any(|name| depends_on_classes(name))
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
        if counted.builtin() == Some(("", "pods")) {
            let ends = usage::overdue_after(object).filter(|end| self.now <= *end);
            self.until = [self.until, ends].into_iter().flatten().min();
        }
        for (name, amount) in usage::of(counted, object, self.now).0 {
            if let Some(sum) = self.used.0.get_mut(&name) {
                *sum = sum.plus(amount);
            }
        }
    }

    /// The time after which the usage has decreased by itself, if there is one.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
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
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn quota(hard: &str, used: &str) -> Value {
        parse(&format!(
            r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{hard}}},"status":{{"hard":{hard},"used":{used}}}}}"#
        ))
    }

    fn apply(quota: &Value, change: &Change<'_>, is_limit: bool) -> Result<Option<ResourceList>, String> {
        charge(quota, &concerned_names(quota, change)?, change, is_limit)
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
            let outcome = apply(&quota(hard, used), &Change::new(pods, &pod, None), true);
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
            apply(&quota, &Change::new(about, &claim(new), Some(&claim(old))), is_limit)
        };
        assert!(change("3Gi", "2Gi", true).unwrap().is_some());
        assert!(change("4Gi", "2Gi", true).is_err());
        assert!(change("4Gi", "2Gi", false).unwrap().is_some());
        assert!(change("1Gi", "2Gi", true).unwrap().is_none());
    }

    #[test]
    fn a_count_starts_from_nothing() {
        let of = |plural| Counted::of_builtin("", plural);
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        let mut count = Count::new(quota(r#"{"pods":"5","count/secrets":"1"}"#, r#"{"pods":"9"}"#), now);
        assert!(
            count.is_about(of("pods")) && count.is_about(of("secrets")) && !count.is_about(of("services"))
        );
        count.add(of("pods"), &parse("{}"));
        count.add(of("pods"), &parse(r#"{"status":{"phase":"Failed"}}"#));
        for (deletion, until) in [("03:03:59", None), ("03:04:04", Some(9)), ("03:04:02", Some(7))] {
            let metadata =
                format!(r#"{{"deletionTimestamp":"2026-01-02T{deletion}Z","deletionGracePeriodSeconds":5}}"#);
            count.add(of("pods"), &parse(&format!(r#"{{"metadata":{metadata}}}"#)));
            assert_eq!(count.until().map(|until| until.seconds % 60), until);
        }
        let quota = count.finish();
        assert_eq!(quota.at(&["status", "used"]), Some(&parse(r#"{"count/secrets":"0","pods":"3"}"#)));
        assert_eq!(quota.at(&["status", "hard"]).and_then(Value::as_object).map(Map::len), Some(2));
    }
}
