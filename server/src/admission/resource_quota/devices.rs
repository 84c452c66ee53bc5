//! Names under which the devices of ResourceClaims count, and which of them count with a pod already.
//!
//! A pod can request devices as an extended resource: by the name that a DeviceClass gives itself, or by
//! `deviceclass.resource.kubernetes.io/CLASS`. The scheduler then creates a claim for the pod. Quotas of
//! such a name limit pods and claims together, so that what the pod counts with is subtracted from its claim.
//! Upstream: kubernetes `pkg/quota/v1/evaluator/core/resource_claims.go` and
//! k8s.io/dynamic-resource-allocation `deviceclass/extendedresourcecache`.

use std::collections::{BTreeMap, BTreeSet};

use plinth_api::{metadata_text, ApiError};
use plinth_codec::quantity::Quantity;
use plinth_codec::time::Timestamp;
use plinth_codec::Value;
use plinth_engine::Snapshot;
use plinth_kinds::quantities::is_native;
use plinth_registry::{collection_prefix, object_key, prefix_range, Registry};
use plinth_storage::{decode_object, Header, Store};

use super::super::resource_list::ResourceList;

/// Suffix after the name of a device class.
const DEVICES_OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Prefix of the name of a device class, as requested by containers.
pub(super) const REQUESTS_OF_CLASS: &str = "requests.deviceclass.resource.kubernetes.io/";
const REQUESTS: &str = "requests.";
/// The annotation of claims that the scheduler creates for extended resources.
const OF_EXTENDED_RESOURCE: &str = "resource.kubernetes.io/extended-resource-claim";
const CLASSES: (&str, &str) = ("resource.k8s.io", "deviceclasses");
const CLAIMS: (&str, &str) = ("resource.k8s.io", "resourceclaims");
/// Assumed number of devices of a request for all devices of a class.
const MOST_DEVICES: i64 = 32;

/// The extended resources of device classes, and the pods that stand for claims of a namespace.
#[derive(Debug, Default)]
pub(crate) struct DeviceNames {
    /// The extended resource of each class, if it has one.
    classes: BTreeMap<String, Option<String>>,
    extended: BTreeSet<String>,
    /// Usage of the pods that claims were created for, by the claims' names.
    pods: BTreeMap<String, ResourceList>,
}

/// Whether claims can have usage of this name, depending on the device classes that exist.
pub(crate) fn depends_on_classes(name: &str) -> bool {
    name.starts_with(REQUESTS_OF_CLASS) || name.strip_prefix(REQUESTS).is_some_and(|name| !is_native(name))
}

/// The extended resource that a DeviceClass names.
pub(crate) fn extended_resource(class: &Value) -> Option<&str> {
    class.str_at(&["spec", "extendedResourceName"]).filter(|name| !name.is_empty())
}

/// Whether a pod reports another claim for its extended resources.
pub(super) fn names_other_claim(new: &Value, old: &Value) -> bool {
    reported_claim(new) != reported_claim(old)
}

/// Whether a claim belongs to another pod, or to one at all.
pub(super) fn has_other_pod(new: &Value, old: &Value) -> bool {
    PodClaim::of(new) != PodClaim::of(old)
}

fn reported_claim(pod: &Value) -> Option<&str> {
    pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"])
}

impl DeviceNames {
    /// As of a snapshot. `object` is a claim that is being written; `usage` is that of a pod. Blocks; costs a
    /// scan of the device classes and of the headers of the namespace's claims.
    pub(super) fn load(
        store: &Store,
        snapshot: &Snapshot,
        registry: &Registry,
        namespace: &str,
        object: Option<&Value>,
        usage: impl Fn(&Value) -> ResourceList,
    ) -> Result<DeviceNames, ApiError> {
        let mut names = DeviceNames::default();
        each(store, snapshot, registry, CLASSES, "", |_| true, |class| names.add_class(&class))?;
        let mut claims: Vec<PodClaim> = Vec::new();
        let is_owned = |header: &Header<'_>| header.owners().next().is_some();
        each(store, snapshot, registry, CLAIMS, namespace, is_owned, |claim| {
            claims.extend(PodClaim::of(&claim))
        })?;
        if let Some(object) = object {
            claims.retain(|claim| claim.name != metadata_text(object, "name"));
            claims.extend(PodClaim::of(object));
        }
        let Some(pods) = registry.internal("", "v1", "pods") else { return Ok(names) };
        let Some(form) = &pods.storage else { return Ok(names) };
        let pod_of = |claim: &PodClaim| {
            let record = snapshot.get(&object_key(&form.prefix, namespace, &claim.pod))?;
            let record = record.map(|record| store.fetched(record)).transpose()?;
            record.map(|record| decode_object(pods, &record)).transpose()
        };
        names.add_pods(&claims, pod_of, usage)?;
        Ok(names)
    }

    fn add_class(&mut self, class: &Value) {
        let extended = extended_resource(class).map(str::to_owned);
        self.extended.extend(extended.clone());
        self.classes.insert(metadata_text(class, "name").to_owned(), extended);
    }

    fn add_pods(
        &mut self,
        claims: &[PodClaim],
        pod_of: impl Fn(&PodClaim) -> Result<Option<Value>, ApiError>,
        usage: impl Fn(&Value) -> ResourceList,
    ) -> Result<(), ApiError> {
        // The first claim of each pod.
        let mut first: BTreeMap<&str, &PodClaim> = BTreeMap::new();
        for claim in claims {
            let before = first.entry(&claim.pod_uid).or_insert(claim);
            if claim.order() < before.order() {
                *before = claim;
            }
        }
        for claim in claims {
            let Some(pod) = pod_of(claim)? else { continue };
            let is_its_claim = match reported_claim(&pod) {
                Some(reported) => reported == claim.name,
                None => first.get(claim.pod_uid.as_str()).is_some_and(|first| first.name == claim.name),
            };
            if is_its_claim && metadata_text(&pod, "uid") == claim.pod_uid {
                self.pods.insert(claim.name.clone(), usage(&pod));
            }
        }
        Ok(())
    }

    /// Whether claims can have usage of the name.
    fn is_about(&self, name: &str) -> bool {
        match name.strip_prefix(REQUESTS_OF_CLASS) {
            Some(class) => self.classes.contains_key(class),
            None => name.strip_prefix(REQUESTS).is_some_and(|name| self.extended.contains(name)),
        }
    }

    /// Devices by class under the names of extended resources, without those that the claim's pod counts
    /// with.
    fn extended_usage(&self, claim: &str, devices: &BTreeMap<&str, i64>) -> BTreeMap<String, Quantity> {
        let mut used: BTreeMap<String, i64> = BTreeMap::new();
        for (class, number) in devices {
            let extended = self.classes.get(*class).and_then(Option::as_ref);
            let extended = extended.map(|name| format!("{REQUESTS}{name}"));
            for name in extended.into_iter().chain([format!("{REQUESTS_OF_CLASS}{class}")]) {
                let sum = used.entry(name).or_default();
                *sum = sum.saturating_add(*number);
            }
        }
        let pod = self.pods.get(claim);
        let rest = used.into_iter().map(|(name, number)| {
            let of_pod = pod.and_then(|pod| pod.get(&name));
            let number = Quantity::of_int(number);
            (name, of_pod.map_or(number, |of_pod| number.minus(of_pod)))
        });
        rest.filter(|(_, number)| number.sign() > 0).collect()
    }
}

/// Calls `found` with the objects of a collection whose headers are selected.
fn each(
    store: &Store,
    snapshot: &Snapshot,
    registry: &Registry,
    (group, plural): (&str, &str),
    namespace: &str,
    is_selected: impl Fn(&Header<'_>) -> bool,
    mut found: impl FnMut(Value),
) -> Result<(), ApiError> {
    let Some(resource) = registry.internal(group, "v1", plural) else { return Ok(()) };
    let Some(form) = &resource.storage else { return Ok(()) };
    let range = prefix_range(&collection_prefix(&form.prefix, namespace));
    let mut entries = snapshot.range(&range);
    while let Some(entry) = entries.next()? {
        if is_selected(&Header::parse(entry.value).map_err(ApiError::internal)?) {
            found(decode_object(resource, &store.fetched(entry.to_record())?)?);
        }
    }
    Ok(())
}

/// A claim for the extended resources of a pod.
#[derive(Debug, PartialEq)]
struct PodClaim {
    name: String,
    /// `None` of one that is being created, which is the last.
    created: Option<i64>,
    pod: String,
    pod_uid: String,
}

impl PodClaim {
    fn of(claim: &Value) -> Option<PodClaim> {
        if claim.str_at(&["metadata", "annotations", OF_EXTENDED_RESOURCE]) != Some("true") {
            return None;
        }
        let owners = claim.list_at(&["metadata", "ownerReferences"]);
        let controls = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
        let owner = owners.iter().find(controls)?;
        let text = |key: &str| owner.str_at(&[key]).unwrap_or_default();
        let created = claim.str_at(&["metadata", "creationTimestamp"]);
        ((text("apiVersion"), text("kind")) == ("v1", "Pod")).then(|| PodClaim {
            name: metadata_text(claim, "name").to_owned(),
            created: created.and_then(|time| Timestamp::parse(time).ok()).map(|time| time.seconds),
            pod: text("name").to_owned(),
            pod_uid: text("uid").to_owned(),
        })
    }

    fn order(&self) -> (i64, &str) {
        (self.created.unwrap_or(i64::MAX), &self.name)
    }
}

/// Whether claims can have usage of the name.
pub(super) fn is_about(names: Option<&DeviceNames>, name: &str) -> bool {
    name.ends_with(DEVICES_OF_CLASS) || names.is_some_and(|names| names.is_about(name))
}

/// Devices of a claim by class. Of alternative requests the maximum per class counts.
pub(super) fn of_claim(claim: &Value, names: Option<&DeviceNames>) -> BTreeMap<String, Quantity> {
    let mut devices: BTreeMap<&str, i64> = BTreeMap::new();
    let requests = claim.list_at(&["spec", "devices", "requests"]);
    for request in requests {
        let alternatives = request.list_at(&["firstAvailable"]);
        // A request of v1beta1 has the members of `exactly` itself.
        let itself = || Some(request).filter(|request| request.get("deviceClassName").is_some());
        let exactly = request.get("exactly").or_else(itself);
        let wanted = alternatives.iter().chain(exactly.filter(|_| alternatives.is_empty()));
        let mut dearest: BTreeMap<&str, i64> = BTreeMap::new();
        for wanted in wanted {
            let number = match wanted.str_at(&["allocationMode"]) {
                Some("ExactCount") => wanted.get("count").and_then(Value::as_int).unwrap_or(0),
                Some("All") => MOST_DEVICES,
                _ => 0,
            };
            let class = dearest.entry(wanted.str_at(&["deviceClassName"]).unwrap_or_default()).or_default();
            *class = number.max(*class);
        }
        for (class, number) in dearest {
            let all = devices.entry(class).or_default();
            *all = all.saturating_add(number);
        }
    }
    let extended = names.map(|names| names.extended_usage(metadata_text(claim, "name"), &devices));
    let by_class =
        devices.iter().map(|(class, n)| (format!("{class}{DEVICES_OF_CLASS}"), Quantity::of_int(*n)));
    by_class.chain(extended.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::usage::{self, Counted};
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    /// A claim of two devices of class `gpu` and one of `nic`, for a pod.
    fn claim(name: &str, created: &str, pod: &str, annotation: &str) -> Value {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}","creationTimestamp":"2026-01-02T03:04:{created}Z",
            "annotations":{{"resource.kubernetes.io/extended-resource-claim":"{annotation}"}},
            "ownerReferences":[{{"apiVersion":"v1","kind":"Pod","name":"{pod}","uid":"{pod}-uid","controller":true}}]}},
            "spec":{{"devices":{{"requests":[
            {{"exactly":{{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}}}},
            {{"exactly":{{"deviceClassName":"nic","allocationMode":"ExactCount","count":1}}}}]}}}}}}"#
        ))
    }

    fn pod(uid: &str, request: &str, status: &str) -> Value {
        parse(&format!(
            r#"{{"metadata":{{"name":"p","uid":"{uid}"}},"status":{status},
            "spec":{{"containers":[{{"resources":{{"requests":{{{request}}}}}}}]}}}}"#
        ))
    }

    /// Usage of a claim under the names of extended resources.
    fn used(claim: &Value, others: &[Value], pod: Option<&Value>) -> String {
        let mut names = DeviceNames::default();
        names.add_class(&parse(r#"{"metadata":{"name":"gpu"},"spec":{"extendedResourceName":"x.io/gpu"}}"#));
        names.add_class(&parse(r#"{"metadata":{"name":"nic"},"spec":{}}"#));
        let claims: Vec<PodClaim> = others.iter().chain([claim]).filter_map(PodClaim::of).collect();
        let usage = |pod: &Value| usage::of(Counted::PODS, pod, Timestamp::ZERO);
        names.add_pods(&claims, |_| Ok(pod.cloned()), usage).unwrap();
        let used = of_claim(claim, Some(&names));
        let used = used.iter().filter(|(name, _)| name.starts_with(REQUESTS));
        let used = used.map(|(name, amount)| {
            let name = name.replace(REQUESTS_OF_CLASS, "").replace(REQUESTS, "");
            format!("{name}={}", amount.canonical())
        });
        used.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_claim_counts_without_what_its_pod_counts_with() {
        const ALL: &str = "gpu=2 nic=1 x.io/gpu=2";
        let new = claim("c", "05", "p", "true");
        let explicit = r#""x.io/gpu":"2""#;
        let implicit =
            r#""deviceclass.resource.kubernetes.io/gpu":"1","deviceclass.resource.kubernetes.io/nic":"3""#;
        let reports =
            |name: &str| format!(r#"{{"extendedResourceClaimStatus":{{"resourceClaimName":"{name}"}}}}"#);
        let earlier = [claim("d", "04", "p", "true")];
        // other claims, uid of the pod, its requests and status, usage
        let rows: [(&[Value], &str, &str, &str, &str); 9] = [
            (&[], "p-uid", explicit, "{}", "gpu=2 nic=1"),
            (&[], "p-uid", implicit, "{}", "gpu=1 x.io/gpu=2"),
            (&[], "p-uid", r#""cpu":"1""#, "{}", ALL),
            (&[], "other", explicit, "{}", ALL),
            (&[], "p-uid", explicit, r#"{"phase":"Failed"}"#, ALL),
            (&earlier, "p-uid", explicit, "{}", ALL),
            (&earlier, "p-uid", explicit, &reports("c"), "gpu=2 nic=1"),
            (&earlier, "p-uid", explicit, &reports("d"), ALL),
            (
                &[claim("b", "05", "q", "true"), claim("a", "04", "p", "false")],
                "p-uid",
                explicit,
                "{}",
                "gpu=2 nic=1",
            ),
        ];
        for (others, uid, request, status, expected) in rows {
            assert_eq!(
                used(&new, others, Some(&pod(uid, request, status))),
                expected,
                "{others:?} {request} {status}"
            );
        }
        assert_eq!(used(&new, &[], None), ALL);
        let pod = pod("p-uid", explicit, "{}");
        assert_eq!(used(&claim("c", "05", "p", "false"), &[], Some(&pod)), ALL);
        // Of two of one second the first by name.
        assert_eq!(
            used(&claim("a", "05", "p", "true"), std::slice::from_ref(&new), Some(&pod)),
            "gpu=2 nic=1"
        );
        assert_eq!(used(&claim("e", "05", "p", "true"), &[new], Some(&pod)), ALL);
    }

    #[test]
    fn names_are_those_of_classes_that_exist() {
        let mut names = DeviceNames::default();
        names.add_class(&parse(r#"{"metadata":{"name":"gpu"},"spec":{"extendedResourceName":"x.io/gpu"}}"#));
        let rows = [
            ("requests.x.io/gpu", true, true),
            ("requests.x.io/other", true, false),
            ("requests.deviceclass.resource.kubernetes.io/gpu", true, true),
            ("requests.deviceclass.resource.kubernetes.io/nic", true, false),
            ("gone.deviceclass.resource.k8s.io/devices", false, true),
            ("requests.cpu", false, false),
            ("x.io/gpu", false, false),
        ];
        for (name, depends, expected) in rows {
            assert_eq!(
                (depends_on_classes(name), is_about(Some(&names), name)),
                (depends, expected),
                "{name}"
            );
        }
        assert!(!is_about(None, "requests.x.io/gpu"));
    }
}
