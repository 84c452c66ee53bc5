//! The decision about one object, based on the store alone.
//!
//! Upstream: kubernetes `pkg/controller/garbagecollector/garbagecollector.go`, `attemptToDeleteItem`.

use std::sync::Arc;

use plinth_engine::{Error, Snapshot};

use super::references::{self, Finalizer, OwnerReference};
use plinth_registry::{object_key, split_key, Registry, ResourceType};
use plinth_storage::{Store, Stored};

/// The decision about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to do.
    Keep,
    /// The object is being deleted and waits for the collector.
    Finalize { uid: String, finalizer: Finalizer },
    /// Some of its owners remain: the references to the others are removed.
    Unlink { uid: String, owners: Vec<String> },
    /// No owner is left.
    Delete(Deletion),
    /// The existence of owners cannot be determined here: their API is not served, or by another API server.
    Unknown { owners: Vec<OwnerReference> },
}

/// An object to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) uid: String,
    /// The revision that the decision is based on.
    pub(super) revision: plinth_engine::Revision,
    /// Its finalizer, which determines the propagation to its own dependents.
    pub(super) finalizer: Option<Finalizer>,
    /// Whether an owner still exists and waits for its dependents.
    pub(super) owner_waits: bool,
}

/// What is known of the owners that other API servers have.
pub(super) type RemoteOwners = Vec<(OwnerReference, Standing)>;

/// Whether an owner is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Solid,
    Absent,
    /// Being deleted in the foreground.
    Waits,
    /// A namespaced owner of a cluster-scoped object: such a reference is invalid.
    Invalid,
    Unknown,
}

/// The resource of an object's key, its namespace and its name.
pub(super) fn resource_of<'r, 'k>(
    registry: &'r Registry,
    object_key: &'k [u8],
) -> Option<(&'r Arc<ResourceType>, &'k str, &'k str)> {
    let resource = registry.of_key(object_key)?;
    let form = resource.storage.as_ref()?;
    let (namespace, name) = split_key(&form.prefix, resource.row.namespaced, object_key)?;
    Some((resource, namespace, name))
}

/// Decides about the object with the given key. `remote` is what is known of its owners elsewhere.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn decide(
    store: &Store,
    snapshot: &Snapshot,
    registry: &Registry,
    remote: &[(OwnerReference, Standing)],
    object_key: &[u8],
) -> Result<Verdict, Error> {
    let Some((_, namespace, _)) = resource_of(registry, object_key) else { return Ok(Verdict::Keep) };
    let Some(record) = snapshot.get(object_key)? else { return Ok(Verdict::Keep) };
    let Ok(value) = store.open(object_key, &record.value) else { return Ok(Verdict::Keep) };
    let Ok(stored) = Stored::parse(&value) else { return Ok(Verdict::Keep) };
    let uid = stored.uid().to_owned();
    if let Some(finalizer) = references::pending(&stored) {
        return Ok(Verdict::Finalize { uid, finalizer });
    }
    let owners = references::parse(references::raw(&stored));
    // A deletion cannot be undone; it only has to finish.
    if stored.deleting() || owners.is_empty() {
        return Ok(Verdict::Keep);
    }
    let (mut solid, mut absent, mut waiting, mut unknown) = (0, Vec::new(), Vec::new(), Vec::new());
    for owner in owners {
        let known = remote.iter().find(|(known, _)| *known == owner);
        let standing = match known {
            Some((_, standing)) => *standing,
            None => standing(store, snapshot, registry, namespace, &owner)?,
        };
        match standing {
            Standing::Solid => solid += 1,
            Standing::Absent => absent.push(owner.uid),
            Standing::Waits => waiting.push(owner.uid),
            Standing::Invalid => return Ok(Verdict::Keep),
            Standing::Unknown => unknown.push(owner),
        }
    }
    if !unknown.is_empty() {
        return Ok(Verdict::Unknown { owners: unknown });
    }
    let owner_waits = !waiting.is_empty();
    Ok(match (solid, absent.is_empty() && waiting.is_empty()) {
        (0, _) => {
            let finalizer = references::finalizer(&stored);
            Verdict::Delete(Deletion { uid, revision: record.mod_revision, finalizer, owner_waits })
        }
        (_, true) => Verdict::Keep,
        // A reference to a waiting owner would block that one forever.
        (_, false) => Verdict::Unlink { uid, owners: absent.into_iter().chain(waiting).collect() },
    })
}

fn standing(
    store: &Store,
    snapshot: &Snapshot,
    registry: &Registry,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Standing, Error> {
    let (group, version) = owner.group_version();
    // Requests for it go there, whatever is stored here under its name.
    if registry.remote(group, version).is_some() {
        return Ok(Standing::Unknown);
    }
    let is_kind = |r: &&Arc<ResourceType>| r.api_version == owner.api_version && r.row.kind == owner.kind;
    let resource = registry.resources.iter().filter(is_kind).find_map(|r| Some((r, r.storage.as_ref()?)));
    let Some((resource, form)) = resource else { return Ok(Standing::Unknown) };
    let namespace = if resource.row.namespaced { namespace } else { "" };
    if resource.row.namespaced && namespace.is_empty() {
        return Ok(Standing::Invalid);
    }
    let owner_key = object_key(&form.prefix, namespace, &owner.name);
    let Some(record) = snapshot.get(&owner_key)? else { return Ok(Standing::Absent) };
    let Ok(value) = store.open(&owner_key, &record.value) else { return Ok(Standing::Solid) };
    let Ok(stored) = Stored::parse(&value) else { return Ok(Standing::Solid) };
    Ok(match references::pending(&stored) {
        _ if stored.uid() != owner.uid => Standing::Absent,
        Some(Finalizer::Foreground) => Standing::Waits,
        _ => Standing::Solid,
    })
}

#[cfg(test)]
mod tests {
    use plinth_engine::{At, Engine, Options, Transaction};

    use super::super::testing::{deleting, owned_by, plain};
    use super::*;

    /// References by kind, name and UID, and the decision about the ConfigMap `n/x` that has them.
    type Row = (&'static [(&'static str, &'static str, &'static str)], &'static str);

    const ROWS: &[Row] = &[
        (&[], "keep"),
        (&[("ConfigMap", "solid", "solid")], "keep"),
        (&[("ConfigMap", "gone", "gone")], "delete"),
        (&[("ConfigMap", "solid", "earlier")], "delete"),
        (&[("ConfigMap", "elsewhere", "elsewhere")], "delete"),
        (&[("Secret", "solid", "solid")], "delete"),
        (&[("Node", "node", "node")], "keep"),
        (&[("Node", "gone", "gone")], "delete"),
        (&[("ConfigMap", "foreground", "foreground")], "delete, owner waits"),
        (&[("ConfigMap", "orphaning", "orphaning")], "keep"),
        (&[("ConfigMap", "held", "held")], "keep"),
        (&[("ConfigMap", "solid", "solid"), ("ConfigMap", "gone", "gone")], "unlink gone"),
        (&[("ConfigMap", "solid", "solid"), ("ConfigMap", "foreground", "foreground")], "unlink foreground"),
        (&[("ConfigMap", "gone", "gone"), ("ConfigMap", "foreground", "foreground")], "delete, owner waits"),
        (&[("Unheard", "x", "x")], "unknown v1 Unheard"),
    ];

    fn formatted(verdict: Verdict) -> String {
        match verdict {
            Verdict::Keep => "keep".into(),
            Verdict::Finalize { finalizer, .. } => format!("finalize {}", finalizer.name()),
            Verdict::Unlink { owners, .. } => format!("unlink {}", owners.join(" ")),
            Verdict::Delete(Deletion { owner_waits: true, .. }) => "delete, owner waits".into(),
            Verdict::Delete(_) => "delete".into(),
            Verdict::Unknown { owners } => {
                let owners = owners.iter().map(|owner| format!("{} {}", owner.api_version, owner.kind));
                format!("unknown {}", owners.collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn verdicts_by_table() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let put = |key: &str, value: bytes::Bytes| {
            engine.transact(Transaction::new().put(key.to_owned(), value)).wait().unwrap();
        };
        put("core/configmaps/n/solid", plain("solid"));
        put("core/configmaps/m/elsewhere", plain("elsewhere"));
        put("core/nodes/node", plain("node"));
        put("core/configmaps/n/foreground", deleting("foreground", "foregroundDeletion"));
        put("core/configmaps/n/orphaning", deleting("orphaning", "orphan"));
        put("core/configmaps/n/held", deleting("held", "example.com/hold"));
        let registry = Registry::builtin();
        let store = Store::new(engine.clone(), Default::default());
        for (owners, expected) in ROWS {
            put("core/configmaps/n/x", owned_by("x", owners));
            let snapshot = engine.snapshot(At::Latest).unwrap();
            let verdict = decide(&store, &snapshot, &registry, &[], b"core/configmaps/n/x").unwrap();
            assert_eq!(formatted(verdict), *expected, "{owners:?}");
        }
        // A cluster-scoped object cannot have a namespaced owner.
        put("core/nodes/x", owned_by("x", &[("ConfigMap", "gone", "gone")]));
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let verdict =
            |key: &str| formatted(decide(&store, &snapshot, &registry, &[], key.as_bytes()).unwrap());
        assert_eq!(verdict("core/nodes/x"), "keep");
        assert_eq!(verdict("core/configmaps/n/absent"), "keep");
        assert_eq!(verdict("core/configmaps/n/foreground"), "finalize foregroundDeletion");
        assert_eq!(verdict("core/configmaps/n/orphaning"), "finalize orphan");
        assert_eq!(verdict("core/configmaps/n/held"), "keep");
    }
}
