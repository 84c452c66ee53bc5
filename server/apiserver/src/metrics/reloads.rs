//! Metrics of configuration files that are reloaded (k8s.io/apiserver `pkg/server/options/*/metrics`).

use std::time::{SystemTime, UNIX_EPOCH};

use plinth_codec::hex;
use prometheus::{GaugeVec, IntCounterVec, Registry};
use sha2::{Digest, Sha256};

use super::families::Families;

/// A configuration that is reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadedConfig {
    /// `--authentication-config`.
    Authentication,
    /// `--authorization-config`.
    Authorization,
}

/// Attempts and times of reloads, by configuration.
pub struct ReloadMetrics {
    id_hash: String,
    families: [(IntCounterVec, GaugeVec); 2],
}

impl ReloadMetrics {
    pub(super) fn new(registry: &Registry) -> Result<ReloadMetrics, prometheus::Error> {
        let (families, labels) = (Families(registry), ["status", "apiserver_id_hash"]);
        let of = |what: &str| {
            let name = |end: &str| format!("apiserver_{what}_config_controller_automatic_reload{end}");
            Ok::<_, prometheus::Error>((
                families.counters(&name("s_total"), "Reloads of a configuration file.", &labels)?,
                families.ratios(
                    &name("_last_timestamp_seconds"),
                    "Last reload of a configuration file in seconds since 1970.",
                    &labels,
                )?,
            ))
        };
        // Upstream hashes the identity of the server, which it makes from the name of its host.
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let hash = Sha256::digest(host.trim_ascii());
        let id_hash = format!("sha256:{}", hex::lower(&hash));
        let families = [of("authentication")?, of("authorization")?];
        Ok(ReloadMetrics { id_hash, families })
    }

    /// Counts a reload.
    pub fn reloaded(&self, config: ReloadedConfig, succeeded: bool) {
        let [authentication, authorization] = &self.families;
        let (total, last) = match config {
            ReloadedConfig::Authentication => authentication,
            ReloadedConfig::Authorization => authorization,
        };
        let labels = [if succeeded { "success" } else { "failure" }, self.id_hash.as_str()];
        total.with_label_values(&labels).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        last.with_label_values(&labels).set(now.as_secs_f64());
    }
}
