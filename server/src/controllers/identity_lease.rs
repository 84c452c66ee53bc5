//! The Lease that shows that an API server is there, `apiserver-HASH` in `kube-system`, and the removal of
//! those of servers that are gone (kubernetes `pkg/controlplane/apiserver/server.go`,
//! `pkg/controlplane/controller/apiserverleasegc`; feature gate APIServerIdentity, on by default).
//!
//! The hash is upstream's, of the host name. Several replicas may run on one machine, unlike upstream's
//! servers, so that of a replica covers its id, too.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};
use plinth_journal::record::ReplicaId;
use sha2::{Digest, Sha256};

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::{delete, internal};

const LEASES: (&str, &str, &str) = ("coordination.k8s.io", "v1", "leases");
const NAMESPACE: &str = "kube-system";
/// Label of the Leases, and its value.
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// Label with the host name.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// How long a Lease is valid, in seconds (`IdentityLeaseDurationSeconds`).
const DURATION_SECONDS: i64 = 3600;
/// Interval of renewals (`IdentityLeaseRenewIntervalPeriod`).
const RENEW: Duration = Duration::from_secs(10);
/// Interval of removals (`IdentityLeaseGCPeriod`).
const COLLECT: Duration = Duration::from_secs(3600);
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(7));
/// Bytes of the hash in a name.
const HASH_BYTES: usize = 16;

/// The Lease of this server.
#[derive(Clone, Debug)]
pub struct IdentityLease {
    name: String,
    host: String,
    /// Another one for each start.
    holder: String,
}

impl IdentityLease {
    /// The Lease of a server on this machine, and of one replica there.
    pub fn new(host: &str, replica: Option<ReplicaId>) -> IdentityLease {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            hash.update(part);
        };
        add(host.as_bytes());
        add(IDENTITY.1.as_bytes());
        if let Some(replica) = replica {
            add(replica.0.to_string().as_bytes());
        }
        let name = format!("apiserver-{}", base32(&hash.finalize()[..HASH_BYTES]));
        let holder = format!("{name}_{}", uuid::Uuid::new_v4());
        IdentityLease { name, host: host.to_owned(), holder }
    }

    /// Renews the Lease, and removes those of servers that are gone, until the server stops.
    pub fn start(&self, server: &Arc<Server>) {
        reconciler::spawn(server, IdentityLeases { server: server.clone(), lease: self.clone() });
    }

    /// Deletes the Lease: when the server has stopped, and before it holds it as somebody new.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub async fn delete(&self, server: &Arc<Server>) -> Result<(), ApiError> {
        remove(server, &self.name, |_| true).await
    }

    /// The Lease, renewed.
    fn renewed(&self, live: Option<&Value>, now: Timestamp) -> Value {
        let mut lease = live.cloned().unwrap_or_else(|| {
            tree!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": tree!({ "name": self.name.as_str(), "namespace": NAMESPACE, "labels": Map::new() }),
                "spec": tree!({
                    "holderIdentity": self.holder.as_str(),
                    "leaseDurationSeconds": DURATION_SECONDS,
                }),
            })
        });
        if let Some(labels) = lease.object_at_mut(&["metadata", "labels"]) {
            labels.insert(IDENTITY.0, IDENTITY.1);
            labels.insert(HOSTNAME, self.host.as_str());
        }
        if let Some(spec) = lease.object_at_mut(&["spec"]) {
            spec.insert("renewTime", now.to_rfc3339_micro());
        }
        lease
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Task {
    Renew,
    Collect,
}

struct IdentityLeases {
    server: Arc<Server>,
    lease: IdentityLease,
}

impl Reconciler for IdentityLeases {
    type Key = Task;

    fn settings(&self) -> Settings {
        Settings { name: "kube-apiserver-identity-lease", workers: 1, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Task>, ApiError> {
        // What an earlier process has left, so that its holder is not taken for this one.
        self.lease.delete(&self.server).await?;
        Ok(Start::new([Task::Renew, Task::Collect]))
    }

    async fn reconcile(&self, task: Task) -> Result<Action, ApiError> {
        match task {
            Task::Renew => {
                self.renew().await?;
                Ok(Action::RequeueAfter(RENEW))
            }
            Task::Collect => {
                collect(&self.server).await?;
                Ok(Action::RequeueAfter(COLLECT))
            }
        }
    }
}

impl IdentityLeases {
    async fn renew(&self) -> Result<(), ApiError> {
        let (server, lease) = (&self.server, &self.lease);
        let cx = Context::internal(server, LEASES, NAMESPACE, &lease.name, Verb::Update)?;
        let renewed = internal::update(&cx, &|live| Ok(lease.renewed(live, Timestamp::now()))).await;
        match renewed {
            Err(error) if error.is_not_found() => {
                internal::ensure(server, LEASES, NAMESPACE, lease.renewed(None, Timestamp::now())).await
            }
            renewed => renewed,
        }
    }
}

/// Deletes the Leases of servers that have not renewed them in time.
async fn collect(server: &Arc<Server>) -> Result<(), ApiError> {
    let registry = server.registry();
    let resource = registry.internal(LEASES.0, LEASES.1, LEASES.2).ok_or_else(ApiError::no_such_resource)?;
    let now = Timestamp::now();
    for lease in server.store.objects(resource, NAMESPACE).await? {
        let is_identity = lease.str_at(&["metadata", "labels", IDENTITY.0]) == Some(IDENTITY.1);
        if is_identity && is_expired(&lease, now) {
            let name = metadata_text(&lease, "name").to_owned();
            remove(server, &name, |lease| is_expired(lease, now)).await?;
        }
    }
    Ok(())
}

/// Deletes a Lease of which that still holds when it is read again, at that revision.
async fn remove(server: &Arc<Server>, name: &str, applies: impl Fn(&Value) -> bool) -> Result<(), ApiError> {
    let cx = Context::internal(server, LEASES, NAMESPACE, name, Verb::Delete)?;
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(record) = cx.stored(form, NAMESPACE, name).await? else { return Ok(()) };
    let lease = plinth_storage::decode_object(&cx.resource, &record)?;
    if !applies(&lease) {
        return Ok(());
    }
    let uid = metadata_text(&lease, "uid");
    match delete::delete_one(&cx, "Background", uid, Some(record.mod_revision)).await {
        // Somebody else has deleted it, or its server is back.
        Err(error) if error.has_changed() => Ok(()),
        deleted => deleted,
    }
}

/// Upstream's rule: a Lease without a time of renewal or a duration is none.
fn is_expired(lease: &Value, now: Timestamp) -> bool {
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|time| Timestamp::parse_micro(time).ok());
    let duration = lease.at(&["spec", "leaseDurationSeconds"]).and_then(Value::as_int);
    match (renewed, duration) {
        (Some(renewed), Some(duration)) => {
            let end = Timestamp { seconds: renewed.seconds.saturating_add(duration), ..renewed };
            end < now
        }
        _ => true,
    }
}

/// Lowercase base32 of RFC 4648 without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::new();
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(buffer >> bits & 31) as usize]));
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        // RFC 4648, and the name that kube-apiserver gives on a host of this name: base32 of the first half
        // of sha256("\x00\x04test\x00\x0ekube-apiserver").
        for (plain, encoded) in [("f", "my"), ("fo", "mzxq"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(plain.as_bytes()), encoded);
        }
        let hash = Sha256::digest(b"\x00\x04test\x00\x0ekube-apiserver");
        let lease = IdentityLease::new("test", None);
        assert_eq!(lease.name, format!("apiserver-{}", base32(&hash[..16])));
        assert_eq!(lease.name.len(), "apiserver-".len() + 26);
        let [one, other] = [1, 2].map(|id| IdentityLease::new("test", Some(ReplicaId(id))));
        assert!(one.name != other.name && one.name != lease.name);
        assert!(one.holder.starts_with(&format!("{}_", one.name)));
        assert_ne!(one.holder, IdentityLease::new("test", Some(ReplicaId(1))).holder);
    }

    #[test]
    fn a_lease_ends_an_hour_after_its_renewal() {
        let lease = IdentityLease::new("test", None);
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let made = lease.renewed(None, at(1_000_000));
        assert!(!is_expired(&made, at(1_003_600)) && is_expired(&made, at(1_003_601)));
        let later = lease.renewed(Some(&made), at(1_000_010));
        assert!(!is_expired(&later, at(1_003_601)));
        assert_eq!(later.at(&["spec", "holderIdentity"]), made.at(&["spec", "holderIdentity"]));
        for field in ["renewTime", "leaseDurationSeconds"] {
            let mut lease = made.clone();
            lease.object_at_mut(&["spec"]).unwrap().remove(field);
            assert!(is_expired(&lease, at(1_000_001)), "{field}");
        }
    }
}
