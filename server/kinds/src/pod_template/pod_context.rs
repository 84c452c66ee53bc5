//! What of a pod its containers are validated against.

use std::collections::{BTreeSet, HashMap};

use plinth_codec::Value;

use crate::path::{at, int, list, text};

/// What containers are validated against.
pub(crate) struct PodContext<'a> {
    /// The valid volumes, by name.
    pub(super) volumes: HashMap<&'a str, &'a Value>,
    /// Names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'a str>,
    /// `terminationGracePeriodSeconds`.
    pub(super) grace: Option<i64>,
    /// The pod's `restartPolicy`.
    pub(super) restart: &'a str,
    /// Whether the pod runs in the user namespace of the node.
    pub(super) host_users: bool,
    /// `os.name`.
    pub(super) os: Option<&'a str>,
}

impl<'a> PodContext<'a> {
    /// The context of the containers of a spec.
    pub(crate) fn of(spec: &'a Value, volumes: HashMap<&'a str, &'a Value>) -> PodContext<'a> {
        let claims = list(spec, "resourceClaims").iter().map(|claim| text(claim, "name"));
        PodContext {
            volumes,
            claims: claims.filter(|name| !name.is_empty()).collect(),
            grace: int(spec, "terminationGracePeriodSeconds"),
            restart: text(spec, "restartPolicy"),
            host_users: at(spec, "hostUsers").and_then(Value::as_bool) != Some(false),
            os: at(spec, "os").map(|os| text(os, "name")),
        }
    }

    /// The context of ephemeral containers, which are added to a running pod: its volumes have been
    /// validated.
    pub(crate) fn of_running(pod: &'a Value) -> Option<PodContext<'a>> {
        let spec = pod.get("spec")?;
        let volumes = list(spec, "volumes").iter().map(|volume| (text(volume, "name"), volume)).collect();
        Some(PodContext::of(spec, volumes))
    }

    pub(super) fn volume(&self, name: &str) -> Option<&'a Value> {
        self.volumes.get(name).copied()
    }
}
