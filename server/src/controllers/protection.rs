//! Protection of claims, volumes and their classes in use: removes the finalizer that admission adds when
//! they are being deleted and not in use any more.
//!
//! Upstream: kubernetes `pkg/controller/volume/pvcprotection`, `pvprotection` and `vacprotection`. Objects in
//! use are retried after a delay.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_codec::Value;
use plinth_engine::{Entry, Event, EventKind};

use super::accounts::{self, Account};
use crate::admission::resource_quota::attributes_classes;
use crate::admission::storage::PROTECTION;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{finalizers, metadata_mut, metadata_text, ApiError, Verb};
use plinth_apiserver::context::Server;
use plinth_apiserver::handlers::internal;
use plinth_registry::{prefix_range, resource_prefix, split_key};
use plinth_storage::{decode_object, Header};

/// Maximum number of concurrent workers.
const WORKERS: usize = 4;
/// First and longest delay before an object in use is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A kind that is protected while it is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protected {
    /// The controller's name.
    pub name: &'static str,
    /// As whom it writes.
    account: Account,
    /// Group, version and plural.
    resource: (&'static str, &'static str, &'static str),
    /// Kinds of users (group, version, plural), and whether one uses the object.
    users: &'static [User],
    /// Whether the object's own status shows that it is in use.
    in_use: fn(&Value) -> bool,
}

type User = ((&'static str, &'static str, &'static str), fn(user: &Value, name: &str) -> bool);

/// PersistentVolumeClaims, used by pods.
pub(super) const CLAIMS: Protected = Protected {
    name: "persistentvolumeclaim-protection-controller",
    account: accounts::CLAIM_PROTECTION,
    resource: ("", "v1", "persistentvolumeclaims"),
    users: &[(("", "v1", "pods"), pod_uses_claim)],
    in_use: |_| false,
};
/// PersistentVolumes, used while they are bound.
pub(super) const VOLUMES: Protected = Protected {
    name: "persistentvolume-protection-controller",
    account: accounts::VOLUME_PROTECTION,
    resource: ("", "v1", "persistentvolumes"),
    users: &[],
    in_use: |volume| volume.str_at(&["status", "phase"]) == Some("Bound"),
};
/// VolumeAttributesClasses, used by claims and volumes.
pub(super) const CLASSES: Protected = Protected {
    name: "volumeattributesclass-protection-controller",
    account: accounts::CLASS_PROTECTION,
    resource: ("storage.k8s.io", "v1", "volumeattributesclasses"),
    users: &[
        (("", "v1", "persistentvolumeclaims"), |claim, name| attributes_classes(claim).contains(name)),
        (("", "v1", "persistentvolumes"), |volume, name| {
            names(volume, &["spec", "volumeAttributesClassName"], name)
        }),
    ],
    in_use: |_| false,
};

fn names(object: &Value, path: &[&str], name: &str) -> bool {
    object.str_at(path) == Some(name)
}

/// A pod uses a claim from when it is bound to a node until it has terminated.
fn pod_uses_claim(pod: &Value, name: &str) -> bool {
    let bound = pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let own_name = metadata_text(pod, "name");
    let volumes = pod.list_at(&["spec", "volumes"]);
    bound
        && !over
        && volumes.iter().any(|volume| {
            names(volume, &["persistentVolumeClaim", "claimName"], name)
                // The claim of an ephemeral volume is named after pod and volume.
                || (volume.get("ephemeral").is_some()
                    && volume.str_at(&["name"]).is_some_and(|v| format!("{own_name}-{v}") == name))
        })
}

impl Protected {
    /// The controller of the kind.
    pub(super) fn reconciler(self, server: &Arc<Server>) -> Protection {
        let (group, _, plural) = self.resource;
        Protection { server: server.clone(), prefix: resource_prefix(group, plural), protected: self }
    }
}

/// The controller of one kind; its keys are those of objects that are being deleted.
pub(super) struct Protection {
    server: Arc<Server>,
    prefix: String,
    protected: Protected,
}

fn is_deleting(value: &[u8]) -> bool {
    Header::parse(value).is_ok_and(|header| header.deleting())
}

impl Reconciler for Protection {
    type Key = Bytes;

    fn settings(&self) -> Settings {
        Settings { name: self.protected.name, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Bytes>, ApiError> {
        let pick = |entry: &Entry<'_>| is_deleting(entry.value).then(|| Bytes::copy_from_slice(entry.key));
        let (keys, revision) = self.server.store.scan(prefix_range(self.prefix.as_bytes()), pick).await?;
        Start::new(keys).watch(&self.server, &self.prefix, revision)
    }

    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<Bytes>, ApiError> {
        let deleting = events
            .iter()
            .filter(|event| matches!(&event.kind, EventKind::Put { value, .. } if is_deleting(value)));
        Ok(deleting.map(|event| event.key.clone()).collect())
    }

    async fn reconcile(&self, key: Bytes) -> Result<Action, ApiError> {
        reconcile(&self.server, self.protected, &self.prefix, &key).await.map(|()| Action::AwaitChange)
    }
}

/// Removes the finalizer from an object that is being deleted and not in use.
async fn reconcile(
    server: &Arc<Server>,
    protected: Protected,
    prefix: &str,
    object_key: &Bytes,
) -> Result<(), ApiError> {
    let (group, _, plural) = protected.resource;
    let Some((_, finalizer)) = PROTECTION.iter().find(|(resource, _)| *resource == plural) else {
        return Ok(());
    };
    let registry = server.registry();
    let namespaced = registry.of_key(object_key).is_some_and(|r| r.row.namespaced);
    let Some((namespace, name)) = split_key(prefix, namespaced, object_key) else { return Ok(()) };
    let cx = protected.account.request(server, protected.resource, namespace, name, Verb::Update)?;
    let Some(record) = server.store.newest(object_key.to_vec()).await? else { return Ok(()) };
    let live = decode_object(&cx.resource, &record)?;
    if !plinth_api::is_deleting(&live) || !finalizers(&live).contains(finalizer) {
        return Ok(());
    }
    let uid = metadata_text(&live, "uid").to_owned();
    let mut used = (protected.in_use)(&live);
    for ((group, version, plural), uses) in protected.users {
        let users = registry.internal(group, version, plural).ok_or_else(ApiError::no_such_resource)?;
        let (uses, name) = (*uses, name.to_owned());
        let find = move |used: &mut bool, user: Value| {
            *used |= uses(&user, &name);
            if *used {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        used |= server.store.visit(users, namespace, |_| true, false, find).await?;
    }
    if used {
        return Err(ApiError::conflict(group, plural, name, "it is still used"));
    }
    let without = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        // A later object of the same name is not changed.
        if metadata_text(&new, "uid") != uid {
            return Err(ApiError::not_found(group, plural, name));
        }
        let kept = finalizers(&new).into_iter().filter(|f| f != finalizer);
        let kept: Vec<Value> = kept.map(Value::from).collect();
        metadata_mut(&mut new)?.insert("finalizers", kept);
        Ok(new)
    };
    match internal::update(&cx, &without).await {
        Err(error) if error.is_not_found() => Ok(()),
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
