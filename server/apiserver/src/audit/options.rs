//! Command-line options of audit, under upstream's names and with its defaults
//! (k8s.io/apiserver `pkg/server/options/audit.go`).

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::flags::duration;

/// What is recorded, and where.
#[derive(Clone, Debug, Args)]
pub struct AuditOptions {
    /// Policy (audit.k8s.io/v1): what is recorded of which requests. Without one nothing is
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// File that events are appended to, one a line; - is standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Form of the lines: json, or legacy for one line of text each
    #[arg(long, default_value = "json", value_name = "FORM")]
    pub audit_log_format: LogFormat,
    /// Version of the events
    #[arg(long, default_value = "audit.k8s.io/v1", value_name = "VERSION")]
    pub audit_log_version: Version,
    /// Size at which a new log file is begun, in megabytes; 0 stands for 100
    #[arg(long, default_value_t = 100, value_name = "MEGABYTES")]
    pub audit_log_maxsize: u64,
    /// How long old log files are kept, in days; 0 for ever
    #[arg(long, default_value_t = 366, value_name = "DAYS")]
    pub audit_log_maxage: u64,
    /// How many old log files are kept; 0 for all
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub audit_log_maxbackup: usize,
    /// Whether old log files are compressed with gzip
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_compress: bool,
    /// What happens when events come faster than they are written: blocking makes requests wait, batch drops events
    /// and counts them, blocking-strict also refuses requests whose first event cannot be written
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    pub audit_log_mode: AuditMode,
    /// Mode batch: events that may wait
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub audit_log_batch_buffer_size: usize,
    /// Mode batch: events that are written at a time
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub audit_log_batch_max_size: usize,
    /// Mode batch: how long an event waits for others to be written with
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub audit_log_batch_max_wait: Duration,
    /// Mode batch: whether the number of batches is limited
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_batch_throttle_enable: bool,
    /// Mode batch: batches a second
    #[arg(long, default_value_t = 0.0, value_name = "RATE")]
    pub audit_log_batch_throttle_qps: f32,
    /// Mode batch: batches at once after a quiet time
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub audit_log_batch_throttle_burst: u32,
    /// Whether objects are left out of events that are too large
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_truncate_enabled: bool,
    /// Bytes from which on an event is too large
    #[arg(long, default_value_t = 102_400, value_name = "BYTES")]
    pub audit_log_truncate_max_event_size: usize,
    /// Bytes of one batch; nothing here, since a line is an event
    #[arg(long, default_value_t = 10_485_760, value_name = "BYTES")]
    pub audit_log_truncate_max_batch_size: usize,
    /// Kubeconfig of a service that events are sent to
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Version of the events
    #[arg(long, default_value = "audit.k8s.io/v1", value_name = "VERSION")]
    pub audit_webhook_version: Version,
    /// The pause before a failed batch is sent again; each later one is half as long again
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub audit_webhook_initial_backoff: Duration,
    /// batch sends many events at a time and drops and counts what the queue cannot hold, blocking makes requests wait
    /// until their events are delivered, blocking-strict also refuses requests whose first event cannot be
    #[arg(long, default_value = "batch", value_name = "MODE")]
    pub audit_webhook_mode: AuditMode,
    /// Events that may wait
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub audit_webhook_batch_buffer_size: usize,
    /// Events of one batch
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    pub audit_webhook_batch_max_size: usize,
    /// How long an event waits for its batch to be full
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Whether the number of batches is limited
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Batches a second
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    pub audit_webhook_batch_throttle_qps: f32,
    /// Batches at once after a quiet time
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Whether objects are left out of events that are too large
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_webhook_truncate_enabled: bool,
    /// Bytes from which on an event is too large
    #[arg(long, default_value_t = 102_400, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: usize,
    /// Bytes of one batch
    #[arg(long, default_value_t = 10_485_760, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: usize,
}

/// `--audit-log-mode`, `--audit-webhook-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// Requests wait until there is room for their events, or until these are delivered.
    Blocking,
    /// Events for which there is no room are dropped and counted.
    Batch,
    /// As blocking; a request whose first event is lost is refused.
    BlockingStrict,
}

/// `--audit-log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One line of text for each event, without objects.
    Legacy,
}

/// The version of events; there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// `audit.k8s.io/v1`.
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

/// How batches are made and how fast they go.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// Events that may wait or be on their way.
    pub buffer: usize,
    /// Events of one batch.
    pub max_size: usize,
    /// Bytes of one batch; it may go past that by one event.
    pub max_bytes: usize,
    /// How long a batch's first event waits.
    pub max_wait: Duration,
    /// Whether batches are limited.
    pub throttle: bool,
    /// Batches a second.
    pub qps: f32,
    /// Batches at once after a quiet time.
    pub burst: u32,
}

impl Batching {
    /// Batches of three that wait for ever, ten a second after the first two.
    #[cfg(test)]
    pub const SMALL: Batching = Batching {
        buffer: 10,
        max_size: 3,
        max_bytes: 1 << 20,
        max_wait: Duration::from_secs(3600),
        throttle: true,
        qps: 10.0,
        burst: 2,
    };

    /// Everything that is there, at once: what those modes do in which requests wait.
    const AT_ONCE: Batching = Batching {
        // As many lines as may wait need less than this.
        buffer: tokio::sync::Semaphore::MAX_PERMITS,
        max_size: 1_000,
        max_bytes: usize::MAX,
        max_wait: Duration::ZERO,
        throttle: false,
        qps: 0.0,
        burst: 0,
    };

    /// Whether batches can be made so (upstream's `validateBackendBatchOptions`); `of` is what they are made for.
    fn check(&self, of: &'static str) -> Result<(), BadAuditFlag> {
        let bad = |what, value| Err(BadAuditFlag::Batch { of, what, value });
        match self {
            Batching { buffer: 0, .. } => bad("buffer size", 0.0),
            Batching { max_size: 0, .. } => bad("max batch size", 0.0),
            Batching { throttle: true, qps, .. } if *qps <= 0.0 => bad("throttle QPS", *qps),
            Batching { throttle: true, burst: 0, .. } => bad("throttle burst", 0.0),
            _ => Ok(()),
        }
    }
}

/// Flags of audit that make no sense, in upstream's words.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadAuditFlag {
    /// No batch can be made.
    #[error("invalid audit batch {of} {what} {value}, must be a positive number")]
    Batch {
        /// `log` or `webhook`.
        of: &'static str,
        /// Which value.
        what: &'static str,
        /// The value.
        value: f32,
    },
    /// No event is that small.
    #[error("invalid audit truncate {of} max event size {size}, must be a positive number")]
    EventSize {
        /// `log` or `webhook`.
        of: &'static str,
        /// The value.
        size: usize,
    },
    /// A batch holds less than an event.
    #[error(
        "invalid audit truncate {of} max batch size {batch}, must be greater than max event size ({event})"
    )]
    BatchSize {
        /// `log` or `webhook`.
        of: &'static str,
        /// Bytes of a batch.
        batch: usize,
        /// Bytes of an event.
        event: usize,
    },
}

/// Whether large events lose their objects.
#[derive(Clone, Copy, Debug)]
pub struct Truncate {
    /// Whether.
    pub enabled: bool,
    /// From how many bytes on.
    pub max_event_size: usize,
}

impl Truncate {
    /// The largest event; none for no limit.
    pub fn largest(&self) -> Option<usize> {
        self.enabled.then_some(self.max_event_size)
    }

    /// Upstream checks these whether or not anything is truncated.
    fn check(&self, of: &'static str, (event, batch): (usize, usize)) -> Result<(), BadAuditFlag> {
        match (event, batch) {
            (0, _) => Err(BadAuditFlag::EventSize { of, size: 0 }),
            _ if batch < event => Err(BadAuditFlag::BatchSize { of, batch, event }),
            _ => Ok(()),
        }
    }
}

impl AuditOptions {
    /// Whether the flags make sense.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), BadAuditFlag> {
        if self.audit_log_path.is_some() {
            self.log_batching().check("log")?;
            let sizes = (self.audit_log_truncate_max_event_size, self.audit_log_truncate_max_batch_size);
            self.log_truncate().check("log", sizes)?;
        }
        if self.audit_webhook_config_file.is_some() {
            if self.audit_webhook_mode == AuditMode::Batch {
                self.webhook_batching().check("webhook")?;
            }
            let sizes =
                (self.audit_webhook_truncate_max_event_size, self.audit_webhook_truncate_max_batch_size);
            self.webhook_truncate().check("webhook", sizes)?;
        }
        Ok(())
    }

    /// How lines are written together.
    pub fn log_batching(&self) -> Batching {
        match self.audit_log_mode {
            AuditMode::Blocking | AuditMode::BlockingStrict => Batching::AT_ONCE,
            AuditMode::Batch => Batching {
                buffer: self.audit_log_batch_buffer_size,
                max_size: self.audit_log_batch_max_size,
                max_bytes: usize::MAX,
                max_wait: self.audit_log_batch_max_wait,
                throttle: self.audit_log_batch_throttle_enable,
                qps: self.audit_log_batch_throttle_qps,
                burst: self.audit_log_batch_throttle_burst,
            },
        }
    }

    /// How batches for the webhook are made.
    pub fn webhook_batching(&self) -> Batching {
        Batching {
            buffer: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_bytes: match self.audit_webhook_truncate_enabled {
                true => self.audit_webhook_truncate_max_batch_size,
                false => usize::MAX,
            },
            max_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable,
            qps: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        }
    }

    /// Which events the log truncates.
    pub fn log_truncate(&self) -> Truncate {
        Truncate {
            enabled: self.audit_log_truncate_enabled,
            max_event_size: self.audit_log_truncate_max_event_size,
        }
    }

    /// Which events the webhook truncates.
    pub fn webhook_truncate(&self) -> Truncate {
        Truncate {
            enabled: self.audit_webhook_truncate_enabled,
            max_event_size: self.audit_webhook_truncate_max_event_size,
        }
    }
}

#[cfg(test)]
pub(super) fn parsed<S: Into<std::ffi::OsString> + Clone>(
    flags: impl IntoIterator<Item = S>,
) -> AuditOptions {
    use clap::Parser;
    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        audit: AuditOptions,
    }
    let flags = flags.into_iter().map(Into::into);
    Command::parse_from(std::iter::once(std::ffi::OsString::from("plinth")).chain(flags)).audit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_upstreams() {
        let options = parsed::<&str>([]);
        assert_eq!(
            (options.audit_log_maxsize, options.audit_log_maxage, options.audit_log_maxbackup),
            (100, 366, 100)
        );
        assert_eq!(
            (options.audit_log_mode, options.audit_webhook_mode),
            (AuditMode::Blocking, AuditMode::Batch)
        );
        let batching = options.webhook_batching();
        assert_eq!((batching.buffer, batching.max_size, batching.burst), (10_000, 400, 15));
        assert_eq!((batching.max_wait, batching.throttle), (Duration::from_secs(30), true));
        assert_eq!(options.webhook_truncate().largest(), None);
        let off = parsed(["--audit-webhook-batch-throttle-enable=false", "--audit-webhook-truncate-enabled"]);
        assert!(!off.webhook_batching().throttle);
        assert_eq!(
            (off.webhook_truncate().largest(), off.webhook_batching().max_bytes),
            (Some(102_400), 10_485_760)
        );
    }

    #[test]
    fn the_log_has_batches_of_its_own_in_mode_batch_alone() {
        let waits = parsed::<&str>([]).log_batching();
        assert_eq!((waits.max_wait, waits.throttle, waits.max_size > 1), (Duration::ZERO, false, true));
        let batch = parsed(["--audit-log-mode=batch"]).log_batching();
        assert_eq!(
            (batch.buffer, batch.max_size, batch.max_wait, batch.throttle),
            (10_000, 1, Duration::ZERO, false)
        );
        // flags, what is wrong
        let rows: &[(&[&str], Option<&str>)] = &[
            (&[], None),
            (&["--audit-log-batch-max-size=0"], None),
            (&["--audit-log-mode=batch", "--audit-log-compress"], None),
            (
                &["--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"],
                Some("invalid audit batch log buffer size 0, must be a positive number"),
            ),
            (
                &["--audit-log-mode=batch", "--audit-log-batch-max-size=0"],
                Some("invalid audit batch log max batch size 0, must be a positive number"),
            ),
            (
                &["--audit-log-mode=batch", "--audit-log-batch-throttle-enable=true"],
                Some("invalid audit batch log throttle QPS 0, must be a positive number"),
            ),
            (
                &["--audit-log-mode=batch", "--audit-log-batch-throttle-enable", "--audit-log-batch-throttle-qps=0.5"],
                Some("invalid audit batch log throttle burst 0, must be a positive number"),
            ),
            (
                &["--audit-log-truncate-max-batch-size=7"],
                Some("invalid audit truncate log max batch size 7, must be greater than max event size (102400)"),
            ),
            (
                &["--audit-webhook-config-file=w", "--audit-webhook-batch-max-size=0"],
                Some("invalid audit batch webhook max batch size 0, must be a positive number"),
            ),
        ];
        for (flags, error) in rows {
            let flags = ["--audit-log-path=x"].iter().chain(*flags);
            let found = parsed(flags).check().err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), *error);
        }
    }
}
