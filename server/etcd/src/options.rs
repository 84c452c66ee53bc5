//! Flags, by etcd's names and with etcd's defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::auth::{AuthOptions, JwtOptions, TokenKind};
use crate::keepalive::Keepalive;

/// The options of a server.
#[derive(Debug, Clone, Args)]
pub struct EtcdOptions {
    /// Data directory
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Name of the member
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub name: String,
    /// URLs to serve clients on: http(s)://HOST:PORT, or unix(s)://PATH for a socket in the file system
    #[arg(long, value_name = "URLS", value_delimiter = ',', default_value = "http://localhost:2379")]
    pub listen_client_urls: Vec<String>,
    /// URLs that clients learn from the member list; those of --listen-client-urls if there are none
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub advertise_client_urls: Vec<String>,
    /// URLs to serve /metrics, /health, /livez and /readyz on, beside those for clients; with http nobody
    /// needs a certificate
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub listen_metrics_urls: Vec<String>,
    /// Detail of metrics: extensive for a histogram of how long each call of gRPC takes, too
    #[arg(long, value_name = "LEVEL", default_value = "basic")]
    pub metrics: String,
    /// Members of the cluster, as NAME=URL: this one alone, by its --name
    #[arg(long, value_name = "MEMBERS", value_delimiter = ',')]
    pub initial_cluster: Vec<String>,
    /// URLs for peers that clients learn from the member list; there are no peers, and nothing listens there
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub initial_advertise_peer_urls: Vec<String>,
    /// File with the serving certificate, PEM, for https URLs
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// File with the private key of --cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// File with the authorities of client certificates, PEM; clients must have a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Require client certificates, whose common names are users where authentication is enabled; needs
    /// --trusted-ca-file
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true, requires = "trusted_ca_file")]
    pub client_cert_auth: bool,
    /// File with a list of revoked client certificates (CRL), DER, or with several, PEM; reloaded when it has
    /// changed
    #[arg(long, value_name = "FILE")]
    pub client_crl_file: Option<PathBuf>,
    /// Serve https with a certificate that the server makes itself, in fixtures/client of the data directory;
    /// ignored with --cert-file
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub auto_tls: bool,
    /// Years that the certificate of --auto-tls is valid
    #[arg(long, value_name = "YEARS", default_value_t = 1)]
    pub self_signed_cert_validity: u32,
    /// Cipher suites of TLS 1.2, by Go's names; known ones that are unsupported are ignored. Those of TLS 1.3
    /// are not configurable
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub cipher_suites: Vec<String>,
    /// Minimum TLS version
    #[arg(long, value_name = "VERSION", default_value = "TLS1.2")]
    pub tls_min_version: TlsVersion,
    /// Maximum TLS version
    #[arg(long, value_name = "VERSION", default_value = "TLS1.3")]
    pub tls_max_version: TlsVersion,
    /// What --auto-compaction-retention is: a time, or a number of revisions
    #[arg(long, value_name = "MODE", default_value = "periodic")]
    pub auto_compaction_mode: CompactionMode,
    /// History to keep: hours or a duration such as 30m, or a number of revisions; 0 for all
    #[arg(long, value_name = "LENGTH", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Largest request in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_572_864)]
    pub max_request_bytes: usize,
    /// Most bytes of keys and values in responses that are being made or sent; requests for more are refused
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 30)]
    pub max_inflight_response_bytes: usize,
    /// Most operations of a transaction
    #[arg(long, value_name = "NUMBER", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// Bytes of the store above which it takes no more keys and raises the alarm NOSPACE; 0 for 2 GiB,
    /// negative for no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true)]
    pub quota_backend_bytes: i64,
    /// Kind of the tokens that users get: simple, or jwt with options, as
    /// jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m
    #[arg(long, value_name = "KIND", default_value = "simple")]
    pub auth_token: String,
    /// Seconds that a simple token lives after its last use
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub auth_token_ttl: u64,
    /// Cost of the hashes of passwords by bcrypt, a power of two from 4 to 31
    #[arg(long, value_name = "COST", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=31))]
    pub bcrypt_cost: u32,
    /// Shortest time between two pings of a client; one that pings more often is disconnected
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub grpc_keepalive_min_time: Duration,
    /// Time without a sign of a client after which it is pinged; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = duration)]
    pub grpc_keepalive_interval: Duration,
    /// Time that a client has to answer a ping before its connection is closed; 0 for no pings
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub grpc_keepalive_timeout: Duration,
    /// Most streams that a client may have open at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 16_384)]
    pub max_concurrent_streams: u32,
    /// Interval of progress notifications to watches that want them, at least 100ms; 0 for 10 minutes
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration,
        alias = "experimental-watch-progress-notify-interval")]
    pub watch_progress_notify_interval: Duration,
}

/// `--tls-min-version` and `--tls-max-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "TLS1.2")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "TLS1.3")]
    Tls13,
}

/// `--auto-compaction-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompactionMode {
    /// History is kept for a time.
    Periodic,
    /// A number of revisions is kept.
    Revision,
}

/// What history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    /// History is kept until a client compacts it.
    All,
    /// That of so long.
    Time(Duration),
    /// So many revisions.
    Revisions(i64),
}

/// The value of `--metrics` for all of them; etcd takes any other for less.
pub(crate) const EXTENSIVE_METRICS: &str = "extensive";
/// Interval of progress notifications where none is given.
const DEFAULT_PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
/// Shortest interval of progress notifications.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Seconds that a token lives where none are given, and at most: thirty years.
const DEFAULT_TOKEN_TTL: u64 = 300;
const LONGEST_TOKEN_TTL: u64 = 1 << 30;
/// The time between pings where zero is given, which is gRPC's own (grpc-go `defaultKeepalivePolicyMinTime`).
const DEFAULT_PING_MIN_TIME: Duration = Duration::from_secs(300);
/// etcd's quota where none is given.
const DEFAULT_QUOTA: i64 = 2 << 30;

impl EtcdOptions {
    /// The retention of history, or what is wrong with it.
    pub(crate) fn retention(&self) -> Result<Retention, String> {
        let text = self.auto_compaction_retention.as_str();
        let number = text.parse::<u32>().ok();
        match (self.auto_compaction_mode, number) {
            (_, Some(0)) => Ok(Retention::All),
            (CompactionMode::Revision, Some(revisions)) => Ok(Retention::Revisions(revisions.into())),
            (CompactionMode::Revision, None) => Err(format!("{text:?} is not a number of revisions")),
            (CompactionMode::Periodic, Some(hours)) => {
                Ok(Retention::Time(Duration::from_secs(u64::from(hours) * 3600)))
            }
            (CompactionMode::Periodic, None) => match duration(text)? {
                Duration::ZERO => Ok(Retention::All),
                time => Ok(Retention::Time(time)),
            },
        }
    }

    /// How users show who they are, or what is wrong with it. Reads the files of keys.
    pub(crate) fn auth(&self) -> Result<AuthOptions, String> {
        let tokens = match self.auth_token.split(',').next() {
            Some("simple") => {
                // etcd takes its default for zero, too.
                let seconds = if self.auth_token_ttl == 0 { DEFAULT_TOKEN_TTL } else { self.auth_token_ttl };
                TokenKind::Simple(Duration::from_secs(seconds.min(LONGEST_TOKEN_TTL)))
            }
            Some("jwt") => TokenKind::Jwt(JwtOptions::read(&self.auth_token, duration)?),
            _ => {
                return Err(format!("auth: invalid auth options: {:?} is no kind of token", self.auth_token))
            }
        };
        let (bcrypt_cost, uses_certificates) = (self.bcrypt_cost, self.client_cert_auth);
        Ok(AuthOptions { tokens, bcrypt_cost, uses_certificates })
    }

    /// How connections are kept.
    pub(crate) fn keepalive(&self) -> Keepalive {
        let (interval, timeout) = (self.grpc_keepalive_interval, self.grpc_keepalive_timeout);
        let min_time = match self.grpc_keepalive_min_time {
            Duration::ZERO => DEFAULT_PING_MIN_TIME,
            time => time,
        };
        Keepalive {
            min_time,
            ping: (!interval.is_zero() && !timeout.is_zero()).then_some((interval, timeout)),
            streams: self.max_concurrent_streams,
        }
    }

    /// The quota in bytes; zero for none.
    pub(crate) fn quota(&self) -> i64 {
        match self.quota_backend_bytes {
            0 => DEFAULT_QUOTA,
            bytes => bytes.max(0),
        }
    }

    /// The interval of progress notifications.
    pub(crate) fn progress_interval(&self) -> Duration {
        match self.watch_progress_notify_interval {
            Duration::ZERO => DEFAULT_PROGRESS_INTERVAL,
            interval => interval.max(MIN_PROGRESS_INTERVAL),
        }
    }
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration such as 1h30m or 500ms");
    let mut total = Duration::ZERO;
    let mut rest = if text == "0" { "" } else { text };
    if text.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (number, behind) = rest.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let fraction: f64 = format!("0.{fraction}").parse().map_err(|_| invalid())?;
        let unit_len = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_len);
        let unit = match unit {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            "us" | "µs" | "μs" => Duration::from_micros(1),
            "ns" => Duration::from_nanos(1),
            _ => return Err(invalid()),
        };
        if number.is_empty() || number == "." {
            return Err(invalid());
        }
        total = total.saturating_add(unit.saturating_mul(whole)).saturating_add(unit.mul_f64(fraction));
        rest = behind;
    }
    Ok(total)
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: EtcdOptions,
    }

    /// The options of a command line.
    pub(crate) fn options(flags: &[&str]) -> EtcdOptions {
        let flags = ["program", "--data-dir", "d"].into_iter().chain(flags.iter().copied());
        Program::try_parse_from(flags).map_err(|error| error.to_string()).unwrap().options
    }

    #[test]
    fn retention_is_read_as_etcd_reads_it() {
        let retention = |mode, length| {
            options(&["--auto-compaction-mode", mode, "--auto-compaction-retention", length]).retention()
        };
        let seconds = |seconds| Ok(Retention::Time(Duration::from_secs(seconds)));
        assert_eq!(options(&[]).retention(), Ok(Retention::All));
        assert_eq!(retention("periodic", "2"), seconds(7200));
        assert_eq!(retention("periodic", "1h30m"), seconds(5400));
        assert_eq!(retention("periodic", "0s"), Ok(Retention::All));
        assert_eq!(retention("revision", "1000"), Ok(Retention::Revisions(1000)));
        assert!(retention("revision", "1h").is_err());
        assert!(retention("periodic", "often").is_err());
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5ms", Some(500_000)),
            ("7us", Some(7_000)),
            ("1m1ns", Some(60_000_000_001)),
            ("", None),
            ("5", None),
            (".s", None),
            ("1.2.3s", None),
            ("-1s", None),
            ("1d", None),
        ] {
            assert_eq!(duration(text).ok().map(|time| time.as_nanos()), nanos, "{text}");
        }
    }

    #[test]
    fn no_interval_of_progress_is_etcds_default() {
        let interval = |flags: &[&str]| options(flags).progress_interval();
        assert_eq!(interval(&[]), Duration::from_secs(600));
        assert_eq!(interval(&["--watch-progress-notify-interval=0s"]), Duration::from_secs(600));
        assert_eq!(interval(&["--watch-progress-notify-interval=1ms"]), Duration::from_millis(100));
        assert_eq!(interval(&["--watch-progress-notify-interval=5s"]), Duration::from_secs(5));
    }

    #[test]
    fn zero_is_etcds_quota_and_less_is_none() {
        assert_eq!(options(&[]).quota(), 2 << 30);
        assert_eq!(options(&["--quota-backend-bytes", "-1"]).quota(), 0);
        assert_eq!(options(&["--quota-backend-bytes", "4096"]).quota(), 4096);
    }
}
