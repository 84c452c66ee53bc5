//! Claims, volumes and their classes stay while they are used: the finalizer that admission gives them is taken off when they
//! are to be deleted and nobody uses them any more.
//!
//! Upstream: kubernetes `pkg/controller/volume/pvcprotection`, `pvprotection` and `vacprotection`. What is still used is looked at
//! again after a pause.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_codec::Value;
use plinth_engine::{EventKind, Feed, Subscribe};

use super::workers::Workers;
use crate::admission::storage::PROTECTION;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::internal;
use plinth_registry::key;
use plinth_storage::object;
use plinth_storage::stored::Head;

/// Objects that are looked at at a time.
const WORKERS: usize = 4;
/// First and longest pause before what is still used is looked at again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Pause before a controller starts again after its feed broke off.
const RESTART: Duration = Duration::from_secs(1);

/// A kind that is protected while it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protected {
    /// The controller's name.
    pub name: &'static str,
    /// Group, version and plural.
    resource: (&'static str, &'static str, &'static str),
    /// Who can use it (group, version, plural), and whether one does.
    users: &'static [User],
    /// Whether it says of itself that it is used.
    in_use: fn(&Value) -> bool,
}

type User = ((&'static str, &'static str, &'static str), fn(user: &Value, name: &str) -> bool);

/// PersistentVolumeClaims, used by pods.
pub(super) const CLAIMS: Protected = Protected {
    name: "persistentvolumeclaim-protection-controller",
    resource: ("", "v1", "persistentvolumeclaims"),
    users: &[(("", "v1", "pods"), pod_uses_claim)],
    in_use: |_| false,
};
/// PersistentVolumes, used while they are bound.
pub(super) const VOLUMES: Protected = Protected {
    name: "persistentvolume-protection-controller",
    resource: ("", "v1", "persistentvolumes"),
    users: &[],
    in_use: |volume| volume.str_at(&["status", "phase"]) == Some("Bound"),
};
/// VolumeAttributesClasses, used by claims and volumes.
pub(super) const CLASSES: Protected = Protected {
    name: "volumeattributesclass-protection-controller",
    resource: ("storage.k8s.io", "v1", "volumeattributesclasses"),
    users: &[
        (("", "v1", "persistentvolumeclaims"), claim_uses_class),
        (("", "v1", "persistentvolumes"), |volume, name| {
            names(volume, &["spec", "volumeAttributesClassName"], name)
        }),
    ],
    in_use: |_| false,
};

fn names(object: &Value, path: &[&str], name: &str) -> bool {
    object.str_at(path) == Some(name)
}

/// A pod uses a claim from when it has a node until it has ended.
fn pod_uses_claim(pod: &Value, name: &str) -> bool {
    let bound = pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let own_name = metadata::text(pod, "name");
    let volumes = pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap_or_default();
    bound
        && !over
        && volumes.iter().any(|volume| {
            names(volume, &["persistentVolumeClaim", "claimName"], name)
                // The claim of an ephemeral volume is named after pod and volume.
                || (volume.get("ephemeral").is_some()
                    && volume.str_at(&["name"]).is_some_and(|v| format!("{own_name}-{v}") == name))
        })
}

fn claim_uses_class(claim: &Value, name: &str) -> bool {
    names(claim, &["spec", "volumeAttributesClassName"], name)
        || names(claim, &["status", "currentVolumeAttributesClassName"], name)
        || names(claim, &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"], name)
}

/// Follows the objects of a kind; starts again from the present state when the feed breaks off.
pub(super) async fn lead(server: Arc<Server>, protected: Protected) {
    super::again(protected.name, RESTART, || follow(&server, protected)).await;
}

async fn follow(server: &Arc<Server>, protected: Protected) -> Result<Infallible, ApiError> {
    let (group, _, plural) = protected.resource;
    let range = key::range(key::resource_prefix(group, plural).as_bytes());
    let mut workers = Workers::new(protected.name, WORKERS, RETRY);
    let (records, revision) = server.store.records(range.clone()).await?;
    let going = |value: &[u8]| Head::parse(value).is_ok_and(|head| head.deleting());
    records.into_iter().filter(|r| going(&r.value)).for_each(|r| workers.add(r.key.clone()));
    let mut feed = server.store.engine().subscribe(Subscribe::new(range).after(revision))?;
    loop {
        tokio::select! {
            changes = feed.next() => {
                let Feed::Events(events) = changes? else { continue };
                for event in events.iter() {
                    if matches!(&event.kind, EventKind::Put { value, .. } if going(value)) {
                        workers.add(event.key.clone());
                    }
                }
            }
            () = workers.advance(|key| look_at(server.clone(), protected, key)) => {}
        }
    }
}

/// Takes the finalizer off an object that is going and that nobody uses.
async fn look_at(server: Arc<Server>, protected: Protected, object_key: Bytes) -> Result<(), ApiError> {
    let (group, _, plural) = protected.resource;
    let Some((_, finalizer)) = PROTECTION.iter().find(|(resource, _)| *resource == plural) else {
        return Ok(());
    };
    let registry = server.registry();
    let namespaced = registry.of_key(&object_key).is_some_and(|r| r.row.namespaced);
    let prefix = key::resource_prefix(group, plural);
    let Some((namespace, name)) = key::split(&prefix, namespaced, &object_key) else { return Ok(()) };
    let cx = Context::internal(&server, protected.resource, namespace, name, Verb::Update)?;
    let Some(record) = server.store.newest(object_key.to_vec()).await? else { return Ok(()) };
    let live = object::to_tree(&cx.resource, &record)?;
    if !metadata::is_deleting(&live) || !metadata::finalizers(&live).contains(finalizer) {
        return Ok(());
    }
    let uid = metadata::text(&live, "uid").to_owned();
    let mut used = (protected.in_use)(&live);
    for ((group, version, plural), uses) in protected.users {
        let users = registry.get(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        let users = server.store.objects(users, namespace).await?;
        used |= users.iter().any(|user| uses(user, name));
    }
    if used {
        return Err(ApiError::conflict(group, plural, name, "it is still used"));
    }
    let without = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        // The one that was looked at, and not a later one of its name.
        if metadata::text(&new, "uid") != uid {
            return Err(ApiError::not_found(group, plural, name));
        }
        let kept = metadata::finalizers(&new).into_iter().filter(|f| f != finalizer);
        let kept: Vec<Value> = kept.map(Value::from).collect();
        metadata::of(&mut new)?.insert("finalizers", kept);
        Ok(new)
    };
    match internal::update(&cx, &without).await {
        Err(error) if error.code == 404 => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn which_pods_use_a_claim() {
        let rows = [
            (r#"{"spec":{"nodeName":"n","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}"#, true),
            (r#"{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}"#, false),
            (
                r#"{"spec":{"nodeName":"n","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]},"status":{"phase":"Failed"}}"#,
                false,
            ),
            (r#"{"spec":{"nodeName":"n","volumes":[{"persistentVolumeClaim":{"claimName":"d"}}]}}"#, false),
        ];
        for (pod, used) in rows {
            assert_eq!(pod_uses_claim(&json::parse(pod.as_bytes()).unwrap(), "c"), used, "{pod}");
        }
        let pod =
            r#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","volumes":[{"name":"v","ephemeral":{}}]}}"#;
        assert!(pod_uses_claim(&json::parse(pod.as_bytes()).unwrap(), "p-v"));
    }

    #[test]
    fn each_protected_kind_has_its_finalizer() {
        for protected in [CLAIMS, VOLUMES, CLASSES] {
            assert!(
                PROTECTION.iter().any(|(plural, _)| *plural == protected.resource.2),
                "{}",
                protected.name
            );
        }
    }
}
