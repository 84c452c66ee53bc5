//! Command-line options of audit, under upstream's names.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is recorded, and where.
#[derive(Clone, Debug, Args)]
pub struct AuditOptions {
    /// Policy (audit.k8s.io/v1): what is recorded of which requests. Without one nothing is
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// File that events are appended to, one JSON object a line; - is standard output. Without one nothing is recorded
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Size at which a new log file is begun, in megabytes; 0 stands for 100
    #[arg(long, default_value_t = 0, value_name = "MEGABYTES")]
    pub audit_log_maxsize: u64,
    /// How long old log files are kept, in days; 0 for ever
    #[arg(long, default_value_t = 0, value_name = "DAYS")]
    pub audit_log_maxage: u64,
    /// How many old log files are kept; 0 for all
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub audit_log_maxbackup: usize,
    /// Whether old log files are compressed with gzip
    #[arg(long)]
    pub audit_log_compress: bool,
    /// What happens when events come faster than they are written: blocking makes requests wait, batch drops events
    /// and counts them, blocking-strict also refuses requests whose first event cannot be written
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    pub audit_log_mode: AuditMode,
}

/// `--audit-log-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// Requests wait until there is room for their events.
    Blocking,
    /// Events for which there is no room are dropped and counted.
    Batch,
    /// As blocking; a request whose first event cannot be written is refused.
    BlockingStrict,
}
