//! The flags of kube-apiserver that have no effect here.

use plinth_apiserver::flags::duration;
use plinth_codec::time::format_duration;

use super::super::go_bool::parse_bool;
use super::Outcome::{self, Ignored, Only, Refused, Warned};
use super::Takes::{Switch, Value};
use super::{row, Flag, FlagTable, FALSE, NO_PROFILES, TRUE};

/// kube-apiserver, whose place `plinth serve` takes.
#[derive(Debug, Default)]
pub struct KubeApiserver;

impl FlagTable for KubeApiserver {
    const FLAGS: &'static [Flag] = FLAGS;
}

const ETCD: Outcome = Warned("there is no etcd: all data are in --data-dir");
const NO_PEERS: Outcome = Warned("there are no peers: one server serves the cluster");
const NO_ABAC: Outcome = Refused("mode ABAC does not exist");

/// Every flag of `kube-apiserver --help`, v1.36.2, but for `--help` and `--version`: name, Go type, and the
/// value without the flag here, which is upstream's default wherever this server has the same or no use for
/// it.
const ALL: &str = include_str!("kube_apiserver.txt");

/// A value of a flag as kube-apiserver prints it; without one, that of a start without the flag. `None` for a
/// flag that kube-apiserver does not have.
pub(in crate::cli) fn value_of(name: &str, given: Option<&[String]>) -> Option<String> {
    let mut columns = ALL.lines().map(|line| line.splitn(3, ' ')).find_map(|mut columns| {
        let is_named = columns.next() == Some(name);
        is_named.then_some(columns)
    })?;
    let kind = columns.next().unwrap_or_default();
    let Some(values) = given else { return Some(columns.next().unwrap_or_default().to_owned()) };
    let last = values.last().map(String::as_str).unwrap_or_default();
    Some(match kind {
        "strings" | "stringArray" | "int32Slice" | "stringToString" => format!("[{}]", values.join(",")),
        "namedCertKey" => format!("[{}]", values.join(";")),
        "mapStringString" | "colonSeparatedMultimapStringString" => values.join(","),
        "duration" => duration(last).map_or(last.to_owned(), |duration| {
            format_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
        }),
        "bool" => parse_bool(last).map_or(last.to_owned(), |value| value.to_string()),
        // Of one that is repeated the last; all of it where a comma separates values.
        _ if FLAGS.iter().any(|flag| flag.name == name) => last.to_owned(),
        _ => values.join(","),
    })
}

/// The rows, by name.
const FLAGS: &[Flag] = &[
    row("admission-control", Value, Refused("use --enable-admission-plugins and --disable-admission-plugins")),
    row("allow-metric-labels", Value, Ignored),
    row("allow-metric-labels-manifest", Value, Ignored),
    row(
        "allow-privileged",
        Switch,
        Only(TRUE, "privileged containers are forbidden by Pod Security: label namespaces with pod-security.kubernetes.io/enforce"),
    ),
    row("authorization-policy-file", Value, NO_ABAC),
    row("cert-dir", Value, Ignored),
    row("contention-profiling", Switch, Only(FALSE, NO_PROFILES)),
    row("coordinated-leadership-lease-duration", Value, Ignored),
    row("coordinated-leadership-renew-deadline", Value, Ignored),
    row("coordinated-leadership-retry-period", Value, Ignored),
    row("cors-allowed-origins", Value, Warned("pages of other origins cannot read responses")),
    row("debug-socket-path", Value, Ignored),
    row("delete-collection-workers", Value, Ignored),
    row("disabled-metrics", Value, Ignored),
    row("egress-selector-config-file", Value, Refused("connections are direct, never through a proxy")),
    row("emulation-forward-compatible", Switch, Ignored),
    row(
        "enable-garbage-collector",
        Switch,
        Only(TRUE, "use --controllers=*,-garbage-collector-controller if another garbage collector runs"),
    ),
    row("enable-logs-handler", Switch, Only(FALSE, "files are not served at /logs")),
    row("endpoint-reconciler-type", Value, Only(&["lease", "master-count"], "the endpoints of the Service kubernetes are always reconciled")),
    row("etcd-cafile", Value, Ignored),
    row("etcd-certfile", Value, Ignored),
    row("etcd-compaction-interval", Value, Warned("use --compaction-interval and --history-retention")),
    row("etcd-count-metric-poll-period", Value, Ignored),
    row("etcd-db-metric-poll-interval", Value, Ignored),
    row("etcd-healthcheck-timeout", Value, Ignored),
    row("etcd-keyfile", Value, Ignored),
    row("etcd-prefix", Value, Ignored),
    row("etcd-readycheck-timeout", Value, Ignored),
    row("etcd-servers", Value, ETCD),
    row("etcd-servers-overrides", Value, ETCD),
    row("kubelet-timeout", Value, Ignored),
    row("kubernetes-service-node-port", Value, Only(&["0"], "the Service kubernetes has a cluster address only")),
    row("lease-reuse-duration-seconds", Value, Ignored),
    row("livez-grace-period", Value, Ignored),
    row("log-flush-frequency", Value, Ignored),
    row("log-json-info-buffer-size", Value, Ignored),
    row("log-json-split-stream", Switch, Ignored),
    row("log-text-info-buffer-size", Value, Ignored),
    row("log-text-split-stream", Switch, Ignored),
    row("max-connection-bytes-per-sec", Value, Only(&["0"], "the bandwidth of connections cannot be limited")),
    row("peer-advertise-ip", Value, NO_PEERS),
    row("peer-advertise-port", Value, NO_PEERS),
    row("peer-ca-file", Value, NO_PEERS),
    row("permit-address-sharing", Switch, Only(FALSE, "an address belongs to one server")),
    row("permit-port-sharing", Switch, Only(FALSE, "a port belongs to one server")),
    row("profiling", Switch, Only(FALSE, NO_PROFILES)),
    row("runtime-config-emulation-forward-compatible", Switch, Ignored),
    row("service-account-signing-endpoint", Value, Refused("tokens are signed by a key in a file: --service-account-signing-key-file")),
    row("show-hidden-metrics-for-version", Value, Ignored),
    row("shutdown-send-retry-after", Switch, Ignored),
    row("shutdown-watch-termination-grace-period", Value, Ignored),
    row("storage-backend", Value, Ignored),
    row("storage-initialization-timeout", Value, Ignored),
    row("storage-media-type", Value, Ignored),
    row("strict-transport-security-directives", Value, Warned("responses have no Strict-Transport-Security header")),
    row("vmodule", Value, Ignored),
    row("watch-cache", Switch, Ignored),
    row("watch-cache-sizes", Value, Ignored),
];

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;
    use crate::cli::ServeOptions;

    fn serve(arguments: &[&str]) -> Result<ServeOptions, String> {
        let arguments = ["--data-dir", "d"].iter().chain(arguments);
        ServeOptions::from_arguments(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_upstream_is_known() {
        let command = <ServeOptions as clap::Args>::augment_args(Command::new("serve"));
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let all: Vec<&str> = ALL.lines().filter_map(|line| line.split(' ').next()).collect();
        let unknown: Vec<&&str> = all.iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let mut sorted: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        assert!(sorted.is_sorted());
        sorted.dedup();
        assert_eq!(sorted.len(), FLAGS.len());
        let invented: Vec<&&str> = sorted.iter().filter(|name| !all.contains(name)).collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    /// Flags that kubeadm v1.36 writes into the manifest of a control plane, and those that hardening guides
    /// add.
    #[test]
    fn the_flags_of_a_manifest_are_taken() {
        let options = serve(&[
            "--advertise-address=192.0.2.7",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth=true",
            "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
            "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
            "--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key",
            "--etcd-servers=https://127.0.0.1:2379",
            "--kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt",
            "--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
            "--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            "--secure-port=6443",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-account-key-file=/etc/kubernetes/pki/sa.pub",
            "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
            "--service-cluster-ip-range=10.96.0.0/12",
            "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt",
            "--tls-private-key-file=/etc/kubernetes/pki/apiserver.key",
            "--profiling=false",
            "--audit-log-path=/var/log/audit.log",
            "--audit-log-maxage=30",
            "--audit-log-compress=true",
            "--service-account-lookup=true",
            "--tls-min-version=VersionTLS12",
            "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "--encryption-provider-config=/etc/kubernetes/enc.yaml",
            "--encryption-provider-config-automatic-reload=true",
            "--request-timeout=300s",
            "--v=2",
            // The last value is used, as by kube-apiserver.
            "--secure-port=8443",
        ]);
        let options = options.unwrap();
        assert_eq!(options.secure_port, 8443);
        let warnings: Vec<&str> =
            options.upstream.warnings().unwrap().into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(warnings, ["etcd-servers"]);
    }

    #[test]
    fn unsupported_flags_are_rejected_or_warned_of() {
        // arguments, flag that is warned of; or the error's end
        let rows: &[(&[&str], Result<Option<&str>, &str>)] = &[
            (&["--allow-privileged"], Ok(None)),
            (&["--allow-privileged=false"], Err("pod-security.kubernetes.io/enforce")),
            (&["--authorization-policy-file=x"], Err("mode ABAC does not exist")),
            (&["--authorization-policy-file="], Ok(None)),
            (&["--watch-cache=false"], Ok(None)),
            (&["--etcd-servers=a", "--etcd-servers=b"], Ok(Some("etcd-servers"))),
            (&["--enable-garbage-collector=false"], Err("if another garbage collector runs")),
            (&["--egress-selector-config-file", "x"], Err("never through a proxy")),
            (&["--service-account-signing-endpoint=/run/x"], Err("--service-account-signing-key-file")),
        ];
        for (arguments, expected) in rows {
            let warnings = serve(arguments).unwrap().upstream.warnings();
            match (warnings, expected) {
                (Ok(warnings), Ok(flag)) => {
                    assert_eq!(
                        warnings.iter().map(|(flag, _)| *flag).collect::<Vec<_>>(),
                        Vec::from_iter(*flag)
                    );
                }
                (Err(error), Err(end)) => assert!(error.to_string().ends_with(end), "{error}"),
                (outcome, _) => panic!("{arguments:?}: {outcome:?}"),
            }
        }
        // A switch takes no separate value.
        assert!(serve(&["--profiling", "false"]).is_err());
        assert!(serve(&["--no-such-flag"]).is_err());
    }
}
