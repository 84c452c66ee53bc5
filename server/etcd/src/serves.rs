//! Two kinds of listeners.

/// What is served to the connections of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// All services and paths of etcd's API.
    Clients,
    /// Metrics and the checks of probes.
    Metrics,
}

impl Serves {
    /// The flag that names the addresses.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Serves::Clients => "--listen-client-urls",
            Serves::Metrics => "--listen-metrics-urls",
        }
    }
}
