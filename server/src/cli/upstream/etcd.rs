//! The flags of etcd that have no effect here: of etcd 3.7, and the experimental ones of 3.5 and 3.6.

use super::Outcome::{self, Ignored, Only, Refused, Warned};
use super::Takes::{Switch, Value};
use super::{row, Flag, FlagTable, FALSE, NO_PROFILES, TRUE};

/// etcd, whose place `plinth etcd` takes.
#[derive(Debug, Default)]
pub struct Etcd;

impl FlagTable for Etcd {
    const FLAGS: &'static [Flag] = FLAGS;
}

const NO_DISCOVERY: Outcome = Refused("a cluster of one member is not discovered");
const NO_CLIENT_RULES: Outcome = Refused("any certificate of --trusted-ca-file is taken");
const LOGS: &str = "logs go to standard error";
const NO_TRACES: &str = "no traces are exported";

/// The rows, by name.
const FLAGS: &[Flag] = &[
    row("backend-batch-interval", Value, Ignored),
    row("backend-batch-limit", Value, Ignored),
    row("backend-bbolt-freelist-type", Value, Ignored),
    row("bootstrap-defrag-threshold-megabytes", Value, Ignored),
    row("client-cert-allowed-hostname", Value, NO_CLIENT_RULES),
    row("client-cert-file", Value, Ignored),
    row("client-key-file", Value, Ignored),
    row("compact-hash-check-time", Value, Ignored),
    row("compaction-batch-limit", Value, Ignored),
    row("compaction-sleep-interval", Value, Ignored),
    row("corrupt-check-time", Value, Ignored),
    row("cors", Value, Warned("pages of other origins cannot read responses")),
    row("discovery-cacert", Value, Ignored),
    row("discovery-cert", Value, Ignored),
    row("discovery-dial-timeout", Value, Ignored),
    row("discovery-endpoints", Value, NO_DISCOVERY),
    row("discovery-fallback", Value, Ignored),
    row("discovery-insecure-skip-tls-verify", Switch, Ignored),
    row("discovery-insecure-transport", Switch, Ignored),
    row("discovery-keepalive-time", Value, Ignored),
    row("discovery-keepalive-timeout", Value, Ignored),
    row("discovery-key", Value, Ignored),
    row("discovery-password", Value, Ignored),
    row("discovery-request-timeout", Value, Ignored),
    row("discovery-srv", Value, NO_DISCOVERY),
    row("discovery-srv-name", Value, NO_DISCOVERY),
    row("discovery-token", Value, NO_DISCOVERY),
    row("discovery-user", Value, Ignored),
    row("distributed-tracing-address", Value, Ignored),
    row("distributed-tracing-instance-id", Value, Ignored),
    row("distributed-tracing-sampling-rate", Value, Ignored),
    row("distributed-tracing-service-name", Value, Ignored),
    row("downgrade-check-time", Value, Ignored),
    row("election-timeout", Value, Ignored),
    row("enable-distributed-tracing", Switch, Warned(NO_TRACES)),
    row("enable-grpc-gateway", Switch, Only(TRUE, "the gateway is always served")),
    row("enable-log-rotation", Switch, Warned(LOGS)),
    row("enable-pprof", Switch, Warned(NO_PROFILES)),
    row("experimental-bootstrap-defrag-threshold-megabytes", Value, Ignored),
    row("experimental-compact-hash-check-enabled", Switch, Ignored),
    row("experimental-compact-hash-check-time", Value, Ignored),
    row("experimental-compaction-batch-limit", Value, Ignored),
    row("experimental-compaction-sleep-interval", Value, Ignored),
    row("experimental-corrupt-check-time", Value, Ignored),
    row("experimental-distributed-tracing-address", Value, Ignored),
    row("experimental-distributed-tracing-instance-id", Value, Ignored),
    row("experimental-distributed-tracing-sampling-rate", Value, Ignored),
    row("experimental-distributed-tracing-service-name", Value, Ignored),
    row("experimental-downgrade-check-time", Value, Ignored),
    row("experimental-enable-distributed-tracing", Switch, Warned(NO_TRACES)),
    row("experimental-enable-lease-checkpoint", Switch, Ignored),
    row("experimental-enable-lease-checkpoint-persist", Switch, Ignored),
    row("experimental-initial-corrupt-check", Switch, Ignored),
    row("experimental-max-learners", Value, Ignored),
    row("experimental-memory-mlock", Switch, Ignored),
    row("experimental-peer-skip-client-san-verification", Switch, Ignored),
    row("experimental-snapshot-catchup-entries", Value, Ignored),
    row("experimental-stop-grpc-service-on-defrag", Switch, Ignored),
    row("experimental-txn-mode-write-with-shared-buffer", Switch, Ignored),
    row("experimental-wait-cluster-ready-timeout", Value, Ignored),
    row("experimental-warning-apply-duration", Value, Ignored),
    row("experimental-warning-unary-request-duration", Value, Ignored),
    row("feature-gates", Value, Ignored),
    row("force-new-cluster", Switch, Ignored),
    row("heartbeat-interval", Value, Ignored),
    row("host-whitelist", Value, Only(&["*"], "requests for any host are served")),
    row("initial-cluster-state", Value, Only(&["new", "existing"], "it is new or existing")),
    row("initial-cluster-token", Value, Ignored),
    row("initial-election-tick-advance", Switch, Ignored),
    row("listen-client-http-urls", Value, Refused("HTTP and gRPC are served on --listen-client-urls")),
    row("listen-peer-urls", Value, Ignored),
    row("log-format", Value, Warned("use --logging-format")),
    row("log-level", Value, Warned("use --v")),
    row("log-outputs", Value, Warned(LOGS)),
    row("log-rotation-config-json", Value, Ignored),
    row("logger", Value, Ignored),
    row("max-learners", Value, Ignored),
    row("max-snapshots", Value, Ignored),
    row("max-wals", Value, Ignored),
    row("memory-mlock", Switch, Ignored),
    row("peer-auto-tls", Switch, Ignored),
    row("peer-cert-allowed-cn", Value, Ignored),
    row("peer-cert-allowed-hostname", Value, Ignored),
    row("peer-cert-file", Value, Ignored),
    row("peer-client-cert-auth", Switch, Ignored),
    row("peer-client-cert-file", Value, Ignored),
    row("peer-client-key-file", Value, Ignored),
    row("peer-crl-file", Value, Ignored),
    row("peer-key-file", Value, Ignored),
    row("peer-skip-client-san-verification", Switch, Ignored),
    row("peer-trusted-ca-file", Value, Ignored),
    row("pre-vote", Switch, Ignored),
    row("raft-read-timeout", Value, Ignored),
    row("raft-write-timeout", Value, Ignored),
    row("snapshot-catchup-entries", Value, Ignored),
    row("snapshot-count", Value, Ignored),
    row("socket-reuse-address", Switch, Ignored),
    row("socket-reuse-port", Switch, Only(FALSE, "an address is that of one process")),
    row("strict-reconfig-check", Switch, Ignored),
    row("unsafe-no-fsync", Switch, Warned("every write is synced")),
    row("v2-deprecation", Value, Ignored),
    row("wal-dir", Value, Warned("all data are in --data-dir")),
    row("warning-apply-duration", Value, Ignored),
    row("warning-unary-request-duration", Value, Ignored),
];

#[cfg(test)]
mod tests {
    use clap::{Arg, Args, Command, FromArgMatches};

    use super::*;
    use crate::cli::etcd::EtcdCommandOptions;

    /// Every flag of `etcd --help`, 3.7.3, but for `--help` and `--version`.
    const ALL: &str = include_str!("etcd.txt");

    fn options(arguments: &[&str]) -> EtcdCommandOptions {
        let command = EtcdCommandOptions::augment_args(Command::new("etcd"));
        let words = ["etcd", "--data-dir", "d"].into_iter().chain(arguments.iter().copied());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string()).unwrap();
        EtcdCommandOptions::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn every_flag_of_etcd_is_known() {
        let command = EtcdCommandOptions::augment_args(Command::new("etcd"));
        let known: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        let unknown: Vec<&str> = ALL.lines().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        assert!(names.is_sorted_by(|one, other| one < other));
        let old = |name: &str| name.starts_with("experimental-");
        let invented: Vec<&str> =
            names.into_iter().filter(|name| !old(name) && !ALL.lines().any(|line| line == *name)).collect();
        assert!(invented.is_empty(), "{invented:?}");
    }

    #[test]
    fn unsupported_flags_are_rejected_or_warned_of() {
        let rows: &[(&[&str], Result<Option<&str>, &str>)] = &[
            (&["--snapshot-count=10000", "--peer-client-cert-auth=true", "--pre-vote"], Ok(None)),
            (&["--experimental-initial-corrupt-check=true"], Ok(None)),
            (&["--wal-dir=/wal"], Ok(Some("wal-dir"))),
            (&["--log-level=info"], Ok(Some("log-level"))),
            (&["--peer-auto-tls", "--initial-cluster-state=existing"], Ok(None)),
            (&["--initial-cluster-state=old"], Err("it is new or existing")),
            (&["--discovery-srv=example.com"], Err("is not discovered")),
            (&["--client-cert-allowed-hostname=a"], Err("is taken")),
            (&["--host-whitelist=*"], Ok(None)),
            (&["--host-whitelist=example.com"], Err("requests for any host are served")),
        ];
        for (arguments, expected) in rows {
            match (options(arguments).upstream.warnings(), expected) {
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
    }
}
