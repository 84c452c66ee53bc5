//! The objects that workloads write. Contents follow from the name and the seed, and do not
//! compress well, as real ones do not.

use std::fmt::Write;

use bytes::Bytes;

/// A small generator of pseudo-random numbers (splitmix64): equal seeds, equal runs.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// Appends `length` characters of hexadecimal text.
    pub fn text(&mut self, out: &mut String, length: usize) {
        let end = out.len() + length;
        while out.len() < end {
            let _ = write!(out, "{:016x}", self.next_u64());
        }
        out.truncate(end);
    }
}

fn rng_of(name: &str, seed: u64) -> Rng {
    Rng::new(name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)))
}

/// A ConfigMap with `size` bytes of data.
pub fn config_map(name: &str, size: usize, seed: u64) -> Bytes {
    let mut out = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"payload":""#
    );
    rng_of(name, seed).text(&mut out, size);
    out.push_str(r#""}}"#);
    out.into()
}

/// A ConfigMap whose data begins with the time at which it was sent, for watchers to read.
pub fn stamped_config_map(name: &str, size: usize, seed: u64, stamp: u64) -> Bytes {
    let mut out = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"{STAMP}":"{stamp:020}","payload":""#
    );
    rng_of(name, seed).text(&mut out, size);
    out.push_str(r#""}}"#);
    out.into()
}

/// Key of the time in [`stamped_config_map`]; sorts before `payload`, so it comes first in events.
pub const STAMP: &str = "at";

/// A Lease as a kubelet renews it. `resource_version` empty leaves out the compare-and-swap.
pub fn lease(name: &str, resource_version: &str, renewal: u64) -> Bytes {
    let version = match resource_version {
        "" => String::new(),
        version => format!(r#","resourceVersion":"{version}""#),
    };
    format!(
        concat!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}"{version}}},"#,
            r#""spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"#,
            r#""renewTime":"2026-01-01T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"}}}}"#
        ),
        name = name,
        version = version,
        hour = renewal / 3_600_000_000 % 24,
        minute = renewal / 60_000_000 % 60,
        second = renewal / 1_000_000 % 60,
        micros = renewal % 1_000_000,
    )
    .into()
}

/// A pod of the size that a list of 10,000 in 62 MB has: two containers with environment,
/// resources, probes and mounts, and an annotation that fills it up.
pub fn pod(name: &str, seed: u64) -> Bytes {
    let mut rng = rng_of(name, seed);
    let mut filler = String::new();
    rng.text(&mut filler, POD_FILLER);
    let app = rng.below(50);
    let mut out = format!(
        concat!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","#,
            r#""labels":{{"app":"app-{app}","pod-template-hash":"{hash:08x}","tier":"{tier}"}},"#,
            r#""annotations":{{"bench.plinth/filler":"{filler}"}}}},"spec":{{"#,
            r#""nodeName":"node-{node}","terminationGracePeriodSeconds":30,"containers":["#
        ),
        name = name,
        app = app,
        hash = rng.next_u64() as u32,
        tier = if app.is_multiple_of(2) { "front" } else { "back" },
        filler = filler,
        node = rng.below(100),
    );
    for (index, container) in ["main", "sidecar"].into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(
            out,
            r#"{{"name":"{container}","image":"registry.example/{container}:1.{}","ports":[{{"containerPort":{}}}],"env":["#,
            rng.below(40),
            8080 + index
        );
        for variable in 0..4 {
            if variable > 0 {
                out.push(',');
            }
            let _ = write!(out, r#"{{"name":"VARIABLE_{variable}","value":""#);
            rng.text(&mut out, 24);
            out.push_str(r#""}"#);
        }
        out.push_str(concat!(
            r#"],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"#,
            r#""readinessProbe":{"httpGet":{"path":"/ready","port":8080},"periodSeconds":5},"#,
            r#""livenessProbe":{"httpGet":{"path":"/live","port":8080},"periodSeconds":10},"#,
            r#""volumeMounts":[{"name":"config","mountPath":"/etc/config"},{"name":"cache","mountPath":"/var/cache"}]}"#
        ));
    }
    out.push_str(concat!(
        r#"],"volumes":[{"name":"config","configMap":{"name":"config"}},{"name":"cache","emptyDir":{}}],"#,
        r#""tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}"#
    ));
    out.into()
}

/// Brings a pod, with the fields that the server adds, to about 6.2 kB.
const POD_FILLER: usize = 0;

/// A strategic merge patch of a pod's status, as a kubelet sends it.
pub fn pod_status_patch(step: u64) -> Bytes {
    let ready = if step.is_multiple_of(2) { "True" } else { "False" };
    format!(
        r#"{{"status":{{"phase":"Running","podIP":"10.1.{}.{}","conditions":[{{"type":"Ready","status":"{ready}","reason":"Step{step}"}}]}}}}"#,
        step / 250 % 250,
        step % 250
    )
    .into()
}

/// A strategic merge patch that touches a map and a merged list of a pod's metadata and spec.
pub fn pod_patch(step: u64) -> Bytes {
    format!(
        concat!(
            r#"{{"metadata":{{"labels":{{"step":"s{step}"}}}},"#,
            r#""spec":{{"containers":[{{"name":"main","image":"registry.example/main:2.{step}"}}]}}}}"#
        ),
        step = step
    )
    .into()
}

/// An applied configuration of a ConfigMap, different in each step.
pub fn applied_config_map(name: &str, size: usize, seed: u64, step: u64) -> Bytes {
    let mut out = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"step":"s{step}"}}}},"data":{{"payload":""#
    );
    rng_of(name, seed ^ step).text(&mut out, size);
    out.push_str(r#""}}"#);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_requested_size() {
        let map: serde_json::Value = serde_json::from_slice(&config_map("a", 1024, 1)).unwrap();
        assert_eq!(map["data"]["payload"].as_str().unwrap().len(), 1024);
        for body in [
            pod("p", 1),
            lease("l", "7", 61_000_001),
            pod_patch(3),
            pod_status_patch(300),
            applied_config_map("a", 10, 1, 2),
            stamped_config_map("a", 10, 1, 99),
        ] {
            serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        }
    }

    #[test]
    fn names_differ_in_content() {
        assert_ne!(config_map("a", 64, 1).slice(60..), config_map("b", 64, 1).slice(60..));
    }
}
