//! Options of `plinth serve`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, FromArgMatches, ValueEnum};
use ipnet::IpNet;
use rcgen::SanType;

use super::super::feature_gates::FeatureGateOptions;
use super::super::given_flags::GivenFlags;
use super::super::runtime_config::ApiEnablementOptions;
use super::super::upstream::{KubeApiserver, UpstreamFlags, VersionFlags};
use super::backups::BackupScheduleOptions;
use super::ServeError;
use crate::admission::AdmissionOptions;
use crate::controllers::Controllers;
use crate::replica::checkpoint_dir::CheckpointOptions;
use crate::replica::journal::JournalOptions;
use plinth_apiserver::audit::AuditOptions;
use plinth_apiserver::authn::AuthenticationOptions;
use plinth_apiserver::authz::AuthorizationOptions;
use plinth_apiserver::egress::kubelets::KubeletOptions;
use plinth_apiserver::egress::remote::AggregatorOptions;
use plinth_apiserver::flags::duration;
use plinth_apiserver::flow_control::FlowControlOptions;
use plinth_apiserver::traces::TracesOptions;
use plinth_http::{HttpOptions, TlsOptions};
use plinth_storage::EncryptionOptions;

/// Options of `plinth serve`. Flags that kube-apiserver also has keep its names and meanings.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  plinth serve --data-dir ./data\n  plinth serve --data-dir /var/lib/plinth --bind-address 0.0.0.0 --history-retention 1h\n\nThe first start creates certificates, keys and DATA_DIR/admin.kubeconfig. SIGTERM stops the server cleanly.\nOther flags of kube-apiserver are accepted without effect, or rejected with a reason."
)]
pub struct ServeOptions {
    /// All flags, for `/flagz`. The first one, as those after it take theirs out of the matches.
    #[command(flatten)]
    pub flags: GivenFlags,
    /// Data directory; created if it does not exist (default: /var/lib/plinth for root, otherwise
    /// ~/.local/state/plinth)
    #[arg(long, value_name = "DIR", default_value_os_t = default_data_dir(), hide_default_value = true)]
    #[arg(help_heading = "Storage")]
    pub data_dir: PathBuf,
    /// YAML file of flags and their values, like "secure-port: 6443". Flags of the command line take
    /// precedence, and so do variables of the environment, like PLINTH_SECURE_PORT
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "General")]
    pub config: Option<PathBuf>,
    /// A listening socket in the place of --bind-address and --secure-port, such as one of a service manager.
    #[arg(skip)]
    pub listener: Option<std::net::TcpListener>,
    /// Address to listen on (default: 127.0.0.1, or all addresses with --advertise-address)
    #[arg(long, value_name = "IP")]
    #[arg(help_heading = "Serving")]
    pub bind_address: Option<IpAddr>,
    /// Port to listen on; 0 selects a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    #[arg(help_heading = "Serving")]
    pub secure_port: u16,
    /// Duration for which history can be read and watched
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Storage")]
    pub history_retention: Duration,
    /// Interval at which history older than --history-retention is compacted
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Storage")]
    pub compaction_interval: Duration,
    /// Time to live of Events
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Storage")]
    pub event_ttl: Duration,
    /// Address at which clients reach this server: used in the endpoints of the Service kubernetes and in the
    /// serving certificate
    #[arg(long, value_name = "IP")]
    #[arg(help_heading = "Serving")]
    pub advertise_address: Option<IpAddr>,
    /// Hostname in URLs of this server, for example in discovery documents, and in the certificate that the
    /// server makes for itself (default: the advertised address)
    #[arg(long, value_name = "HOST")]
    #[arg(help_heading = "Serving")]
    pub external_hostname: Option<String>,
    /// Further DNS names and addresses in the certificate that the server makes for itself
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = certificate_name)]
    #[arg(help_heading = "TLS")]
    pub tls_san: Vec<String>,
    /// TLS. Every flag has its group, by `next_help_heading` or `help_heading`: the heading of a flattened
    /// struct goes on to the fields after it.
    #[command(flatten, next_help_heading = "TLS")]
    pub tls: TlsOptions,
    /// CIDR of cluster IP addresses; two CIDRs, one per family, for dual stack
    #[arg(long, default_value = "10.0.0.0/24", value_name = "CIDR", value_delimiter = ',', num_args = 1..=2)]
    #[arg(help_heading = "Services")]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// Range of ports for Services of type NodePort
    #[arg(long, default_value = "30000-32767", value_name = "FIRST-LAST", value_parser = port_range)]
    #[arg(help_heading = "Services")]
    pub service_node_port_range: RangeInclusive<u16>,
    /// Minimum duration of a watch without timeoutSeconds, in seconds
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    #[arg(help_heading = "Requests")]
    pub min_request_timeout: u64,
    /// Duration for which the server serves on after SIGTERM while /readyz fails already, so that load
    /// balancers take it out
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Serving")]
    pub shutdown_delay_duration: Duration,
    /// Limits on concurrent requests.
    #[command(flatten, next_help_heading = "Flow control")]
    pub flow_control: FlowControlOptions,
    /// Limits on connections and streams.
    #[command(flatten, next_help_heading = "Connections")]
    pub http: HttpOptions,
    /// Audit logging.
    #[command(flatten, next_help_heading = "Audit")]
    pub audit: AuditOptions,
    /// Flags of traces.
    #[command(flatten, next_help_heading = "Traces")]
    pub traces: TracesOptions,
    /// Encryption at rest.
    #[command(flatten, next_help_heading = "Encryption at rest")]
    pub encryption: EncryptionOptions,
    /// Controllers to run, as in kube-controller-manager: * enables all, name enables and -name disables one.
    /// Disable those that another process runs
    #[arg(long, default_value = "*", value_name = "LIST", allow_hyphen_values = true)]
    #[arg(help_heading = "Controllers")]
    pub controllers: Controllers,
    /// Connections to kubelets
    #[command(flatten, next_help_heading = "Kubelets")]
    pub kubelets: KubeletOptions,
    /// Remote APIs
    #[command(flatten, next_help_heading = "API aggregation")]
    pub aggregator: AggregatorOptions,
    /// Built-in APIs
    #[command(flatten, next_help_heading = "Built-in APIs")]
    pub apis: ApiEnablementOptions,
    /// Feature gates
    #[command(flatten, next_help_heading = "Built-in APIs")]
    pub gates: FeatureGateOptions,
    /// Admission plugins
    #[command(flatten, next_help_heading = "Admission")]
    pub admission: AdmissionOptions,
    /// File with the authority that signs CertificateSigningRequests, PEM (default: the server's own)
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    #[arg(help_heading = "Controllers")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// File with the private key of --cluster-signing-cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    #[arg(help_heading = "Controllers")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// Maximum validity of the certificates that it signs
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Controllers")]
    pub cluster_signing_duration: Duration,
    /// Duration after which unused legacy tokens in Secrets are marked as invalid, and after as long again
    /// deleted
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "Controllers")]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// Flags of authentication.
    #[command(flatten, next_help_heading = "Authentication")]
    pub authentication: AuthenticationOptions,
    /// Flags of authorization.
    #[command(flatten, next_help_heading = "Authorization")]
    pub authorization: AuthorizationOptions,
    /// Several servers over one journal.
    #[command(flatten, next_help_heading = "Replicas")]
    pub replica: JournalOptions,
    /// Checkpoints for other replicas.
    #[command(flatten, next_help_heading = "Replicas")]
    pub checkpoints: CheckpointOptions,
    /// Backups into a directory.
    #[command(flatten, next_help_heading = "Backups")]
    pub backups: BackupScheduleOptions,
    /// Format of the logs on standard error
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    #[arg(help_heading = "Logging")]
    pub logging_format: LoggingFormat,
    /// Flags of kube-apiserver that have no effect.
    #[command(flatten, next_help_heading = "Compatibility")]
    pub upstream: UpstreamFlags<KubeApiserver>,
    /// Versions of the API.
    #[command(flatten)]
    pub versions: VersionFlags,
    /// Log verbosity: 0 warnings, 1 information, 2 debug, 3 a line per request, 6 and more traces
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    #[arg(help_heading = "Logging")]
    pub verbosity: u8,
}

/// `--logging-format`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LoggingFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Where data is without `--data-dir`: the state directory of the system, or of the user.
pub(in crate::cli) fn default_data_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/plinth");
    }
    variable("XDG_STATE_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("plinth")
}

/// A DNS name, also with a wildcard as its first label, or an IP address.
fn certificate_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let name = text.strip_prefix("*.").unwrap_or(text);
    if text.parse::<IpAddr>().is_ok() || (name.len() <= 253 && name.split('.').all(is_label)) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is neither a DNS name nor an IP address"))
}

/// `30000-32767`, as in kube-apiserver's flag.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err(format!("{text:?} is not a range of ports like 30000-32767")),
    }
}

impl ServeOptions {
    /// Parses command-line arguments, without the program's name.
    ///
    /// # Errors
    /// When an argument is unknown, missing or invalid; the error text is for users.
    pub fn from_arguments<I, T>(arguments: I) -> Result<ServeOptions, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let command = ServeOptions::augment_args(clap::Command::new("plinth serve").no_binary_name(true));
        ServeOptions::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    /// Every flag with its value; empty where there is none.
    pub(crate) fn flag_values(&self) -> BTreeMap<String, String> {
        let mut values = self.flags.values(&ServeOptions::augment_args(clap::Command::new("serve")));
        values.insert("bind-address".to_owned(), self.bind_address().to_string());
        values
    }

    /// The names besides the usual ones that the server's own certificate covers.
    pub(super) fn certificate_names(&self, bind_address: IpAddr) -> Vec<SanType> {
        let addresses = [bind_address].into_iter().chain(self.advertise_address).map(SanType::IpAddress);
        let names = self.external_hostname.iter().chain(&self.tls_san);
        let named = names.filter_map(|name| match name.trim_matches(['[', ']']).parse() {
            Ok(address) => Some(SanType::IpAddress(address)),
            // A host that is no name is refused by nobody, but cannot be in a certificate.
            Err(_) => name.as_str().try_into().ok().map(SanType::DnsName),
        });
        addresses.chain(named).collect()
    }

    /// Checks the families of the ranges of Services, as kube-apiserver does: the Service `kubernetes` has
    /// one family, and its endpoints are of that one.
    pub(super) fn check_families(&self) -> Result<(), ServeError> {
        let [first, rest @ ..] = self.service_cluster_ip_range.as_slice() else { return Ok(()) };
        let is_ipv6 = first.addr().is_ipv6();
        if rest.len() > 1 {
            return Err(ServeError::TooManyRanges);
        }
        if rest.iter().any(|range| range.addr().is_ipv6() == is_ipv6) {
            return Err(ServeError::RangesOfOneFamily);
        }
        let bound = self.bind_address.filter(|address| !address.is_loopback() && !address.is_unspecified());
        match self.advertise_address.or(bound) {
            Some(address) if address.is_ipv6() != is_ipv6 => {
                Err(ServeError::Families { range: *first, address })
            }
            _ => Ok(()),
        }
    }

    /// The bind address. Only local clients can connect unless flag sets another.
    pub(super) fn bind_address(&self) -> IpAddr {
        self.bind_address.unwrap_or(match self.advertise_address {
            None => IpAddr::from(Ipv4Addr::LOCALHOST),
            Some(IpAddr::V4(_)) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        })
    }
}
