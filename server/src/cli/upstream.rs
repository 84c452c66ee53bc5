//! Flags of kube-apiserver for which there is nothing to set here: a cluster's manifest can be taken over as it is.
//!
//! Each is a row that says what becomes of it. What has nothing to act on is taken without a word; where something of a cluster
//! would be missed without it, a line in the log says so; and a server that was told to do what it cannot do, and that others
//! rely on, does not start. Flags that do something here are options of their own modules.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use self::Outcome::{Nothing, Only, Refused, Told};
use self::Takes::{Switch, Value};

/// A flag of kube-apiserver.
struct Flag {
    name: &'static str,
    takes: Takes,
    outcome: Outcome,
}

/// What stands behind the flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A value.
    Value,
    /// `=true`, `=false` or nothing.
    Switch,
}

/// What becomes of a flag.
#[derive(Clone, Copy)]
enum Outcome {
    /// There is nothing that it could change.
    Nothing,
    /// It is not followed, which somebody may miss.
    Told(&'static str),
    /// It is followed as long as it has one of these values.
    Only(&'static [&'static str], &'static str),
    /// Nothing starts.
    Refused(&'static str),
}

const ETCD: Outcome = Told("there is no etcd: all data are in --data-dir");
const NO_AGGREGATION: Outcome =
    Told("no other API server is proxied to, so this certificate is shown to nobody");
const NO_PEERS: Outcome = Told("there are no peers: one server serves the cluster");
const NO_ABAC: Outcome = Refused("mode ABAC is not there");

/// The rows, by name.
const FLAGS: &[Flag] = &[
    row("admission-control", Value, Refused("give --enable-admission-plugins and --disable-admission-plugins")),
    row("aggregator-reject-forwarding-redirect", Switch, Nothing),
    row("allow-metric-labels", Value, Nothing),
    row("allow-metric-labels-manifest", Value, Nothing),
    row(
        "allow-privileged",
        Switch,
        Only(TRUE, "privileged containers are forbidden by Pod Security: label namespaces with pod-security.kubernetes.io/enforce"),
    ),
    row("authorization-policy-file", Value, NO_ABAC),
    row("cert-dir", Value, Nothing),
    row("contention-profiling", Switch, Nothing),
    row("coordinated-leadership-lease-duration", Value, Nothing),
    row("coordinated-leadership-renew-deadline", Value, Nothing),
    row("coordinated-leadership-retry-period", Value, Nothing),
    row("cors-allowed-origins", Value, Told("pages of other origins may read no answers")),
    row("debug-socket-path", Value, Nothing),
    row("delete-collection-workers", Value, Nothing),
    row("disabled-metrics", Value, Nothing),
    row("egress-selector-config-file", Value, Refused("connections are made directly, never through a proxy")),
    row("emulated-version", Value, Only(VERSION, "v1.36 is served and no other version")),
    row("emulation-forward-compatible", Switch, Nothing),
    row("enable-aggregator-routing", Switch, Nothing),
    row(
        "enable-garbage-collector",
        Switch,
        Only(TRUE, "give --controllers=*,-garbage-collector-controller where another one collects"),
    ),
    row("enable-logs-handler", Switch, Only(FALSE, "files are not served at /logs")),
    row("endpoint-reconciler-type", Value, Only(&["lease", "master-count"], "the Service kubernetes always has its endpoints")),
    row("etcd-cafile", Value, Nothing),
    row("etcd-certfile", Value, Nothing),
    row("etcd-compaction-interval", Value, Told("give --compaction-interval and --history-retention")),
    row("etcd-count-metric-poll-period", Value, Nothing),
    row("etcd-db-metric-poll-interval", Value, Nothing),
    row("etcd-healthcheck-timeout", Value, Nothing),
    row("etcd-keyfile", Value, Nothing),
    row("etcd-prefix", Value, Nothing),
    row("etcd-readycheck-timeout", Value, Nothing),
    row("etcd-servers", Value, ETCD),
    row("etcd-servers-overrides", Value, ETCD),
    row("feature-gates", Value, Told("gates stand as in v1.36 by default, and cannot be switched")),
    row("kubelet-timeout", Value, Nothing),
    row("kubernetes-service-node-port", Value, Only(&["0"], "the Service kubernetes has a cluster address alone")),
    row("lease-reuse-duration-seconds", Value, Nothing),
    row("livez-grace-period", Value, Nothing),
    row("log-flush-frequency", Value, Nothing),
    row("log-json-info-buffer-size", Value, Nothing),
    row("log-json-split-stream", Switch, Nothing),
    row("log-text-info-buffer-size", Value, Nothing),
    row("log-text-split-stream", Switch, Nothing),
    row("max-connection-bytes-per-sec", Value, Only(&["0"], "connections are not slowed down")),
    row("min-compatibility-version", Value, Nothing),
    row("peer-advertise-ip", Value, NO_PEERS),
    row("peer-advertise-port", Value, NO_PEERS),
    row("peer-ca-file", Value, NO_PEERS),
    row("permit-address-sharing", Switch, Only(FALSE, "an address belongs to one server")),
    row("permit-port-sharing", Switch, Only(FALSE, "a port belongs to one server")),
    row("profiling", Switch, Nothing),
    row("proxy-client-cert-file", Value, NO_AGGREGATION),
    row("proxy-client-key-file", Value, Nothing),
    row("runtime-config", Value, Told("every API of the table of resources is served, and none can be switched off")),
    row("runtime-config-emulation-forward-compatible", Switch, Nothing),
    row("service-account-signing-endpoint", Value, Refused("tokens are signed by a key in a file: --service-account-signing-key-file")),
    row("show-hidden-metrics-for-version", Value, Nothing),
    row("shutdown-delay-duration", Value, Told("SIGTERM ends what is under way and stops at once")),
    row("shutdown-send-retry-after", Switch, Nothing),
    row("shutdown-watch-termination-grace-period", Value, Nothing),
    row("storage-backend", Value, Nothing),
    row("storage-initialization-timeout", Value, Nothing),
    row("storage-media-type", Value, Nothing),
    row("strict-transport-security-directives", Value, Told("answers have no Strict-Transport-Security")),
    row("tracing-config-file", Value, Told("no traces are sent")),
    row("vmodule", Value, Nothing),
    row("watch-cache", Switch, Nothing),
    row("watch-cache-sizes", Value, Nothing),
];

const TRUE: &[&str] = &["true"];
const FALSE: &[&str] = &["false"];
const VERSION: &[&str] = &["1.36", "kube=1.36"];

const fn row(name: &'static str, takes: Takes, outcome: Outcome) -> Flag {
    Flag { name, takes, outcome }
}

impl Flag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).hide(true).action(ArgAction::Append);
        match self.takes {
            Value => arg,
            Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        }
    }

    /// What is to be said of a value.
    fn judge(&self, value: &str) -> Result<Option<&'static str>, UpstreamFlagError> {
        let refused = |why| UpstreamFlagError { flag: self.name, value: value.to_owned(), why };
        match self.outcome {
            // As when the flag is not given.
            _ if value.is_empty() => Ok(None),
            Nothing => Ok(None),
            Told(what) => Ok(Some(what)),
            Only(values, _) if values.contains(&value.to_ascii_lowercase().as_str()) => Ok(None),
            Only(_, why) | Refused(why) => Err(refused(why)),
        }
    }
}

/// A flag asks for what cannot be done.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}={value} cannot be followed: {why}")]
pub struct UpstreamFlagError {
    flag: &'static str,
    value: String,
    why: &'static str,
}

/// The flags of [`FLAGS`] that were given.
#[derive(Debug, Default)]
pub struct UpstreamFlags {
    /// Name and value, by the table's order.
    given: Vec<(&'static str, String)>,
}

impl UpstreamFlags {
    /// What is to be said of the flags, each once: name and text.
    ///
    /// # Errors
    /// The first that cannot be followed.
    pub fn remarks(&self) -> Result<Vec<(&'static str, &'static str)>, UpstreamFlagError> {
        let mut remarks: Vec<(&str, &str)> = Vec::new();
        for (name, value) in &self.given {
            let Some(flag) = FLAGS.iter().find(|flag| flag.name == *name) else { continue };
            let remark = flag.judge(value)?.map(|what| (flag.name, what));
            remarks.extend(remark.filter(|remark| !remarks.contains(remark)));
        }
        Ok(remarks)
    }
}

impl FromArgMatches for UpstreamFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<UpstreamFlags, clap::Error> {
        let mut flags = UpstreamFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in FLAGS {
            let values = matches.get_raw(flag.name).into_iter().flatten();
            let values =
                values.map(|value| (flag.name, OsString::from(value).to_string_lossy().into_owned()));
            self.given.extend(values);
        }
        Ok(())
    }
}

impl clap::Args for UpstreamFlags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| command.arg(flag.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        UpstreamFlags::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeOptions;

    /// Every flag of `kube-apiserver --help`, v1.36.2, but for `--help` and `--version`.
    const ALL: &str = include_str!("upstream_flags.txt");

    fn serve(arguments: &[&str]) -> Result<ServeOptions, String> {
        let arguments = ["--data-dir", "d"].iter().chain(arguments);
        ServeOptions::from_arguments(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_upstream_is_known() {
        let command = <ServeOptions as clap::Args>::augment_args(Command::new("serve"));
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let unknown: Vec<&str> = ALL.lines().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let mut sorted: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        assert!(sorted.is_sorted());
        sorted.dedup();
        assert_eq!(sorted.len(), FLAGS.len());
        let invented: Vec<&&str> =
            sorted.iter().filter(|name| !ALL.lines().any(|line| line == **name)).collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    /// Flags that kubeadm v1.36 writes into the manifest of a control plane, and what hardening guides add.
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
            // The last one counts, as for kube-apiserver.
            "--secure-port=8443",
        ]);
        let options = options.unwrap();
        assert_eq!(options.secure_port, 8443);
        let remarks: Vec<&str> =
            options.upstream.remarks().unwrap().into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(remarks, ["etcd-servers", "proxy-client-cert-file"]);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_and_the_rest_is_told() {
        // arguments, flag that is told of; or the error's end
        let rows: &[(&[&str], Result<Option<&str>, &str>)] = &[
            (&["--allow-privileged"], Ok(None)),
            (&["--allow-privileged=false"], Err("pod-security.kubernetes.io/enforce")),
            (&["--authorization-policy-file=x"], Err("mode ABAC is not there")),
            (&["--authorization-policy-file="], Ok(None)),
            (&["--watch-cache=false"], Ok(None)),
            (&["--feature-gates=A=true", "--feature-gates=B=false"], Ok(Some("feature-gates"))),
            (&["--emulated-version=1.36"], Ok(None)),
            (&["--emulated-version=1.33"], Err("no other version")),
            (&["--enable-garbage-collector=false"], Err("where another one collects")),
            (&["--egress-selector-config-file", "x"], Err("never through a proxy")),
            (&["--service-account-signing-endpoint=/run/x"], Err("--service-account-signing-key-file")),
        ];
        for (arguments, expected) in rows {
            let remarks = serve(arguments).unwrap().upstream.remarks();
            match (remarks, expected) {
                (Ok(remarks), Ok(flag)) => {
                    assert_eq!(
                        remarks.iter().map(|(flag, _)| *flag).collect::<Vec<_>>(),
                        Vec::from_iter(*flag)
                    );
                }
                (Err(error), Err(end)) => assert!(error.to_string().ends_with(end), "{error}"),
                (outcome, _) => panic!("{arguments:?}: {outcome:?}"),
            }
        }
        // A value of its own is none of a switch.
        assert!(serve(&["--profiling", "false"]).is_err());
        assert!(serve(&["--no-such-flag"]).is_err());
    }
}
