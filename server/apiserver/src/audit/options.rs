//! Audit flags, with upstream's names and defaults (k8s.io/apiserver `pkg/server/options/audit.go`).

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::flags::duration;

/// Flags of audit logging.
#[derive(Clone, Debug, Args)]
pub struct AuditOptions {
    /// File with the audit policy (audit.k8s.io/v1); without one nothing is recorded
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Log file that events are appended to, one per line; - means standard output
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Format of saved audits: json, or legacy for one line of text per event
    #[arg(long, default_value = "json", value_name = "FORM")]
    pub audit_log_format: LogFormat,
    /// API version of events in the log
    #[arg(long, default_value = "audit.k8s.io/v1", value_name = "VERSION")]
    pub audit_log_version: Version,
    /// Maximum size of a log file before it is rotated, in megabytes; 0 means 100
    #[arg(long, default_value_t = 100, value_name = "MEGABYTES")]
    pub audit_log_maxsize: u64,
    /// Maximum number of days to retain rotated log files; 0 for no limit
    #[arg(long, default_value_t = 366, value_name = "DAYS")]
    pub audit_log_maxage: u64,
    /// Maximum number of rotated log files to retain; 0 for no limit
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub audit_log_maxbackup: usize,
    /// Compress rotated log files with gzip
    #[arg(long, default_value_t = false, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_compress: bool,
    /// Strategy for writing events: blocking makes requests wait, batch buffers events and drops those that
    /// do not fit, blocking-strict also refuses requests whose first event cannot be written
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    pub audit_log_mode: AuditMode,
    /// Size of the buffer in events; batch mode only
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub audit_log_batch_buffer_size: usize,
    /// Maximum number of events in a batch; batch mode only
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub audit_log_batch_max_size: usize,
    /// Time to wait before writing a batch that is not full; batch mode only
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub audit_log_batch_max_wait: Duration,
    /// Enable throttling of batches; batch mode only
    #[arg(long, default_value_t = false, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_batch_throttle_enable: bool,
    /// Maximum average number of batches per second; batch mode only
    #[arg(long, default_value_t = 0.0, value_name = "RATE")]
    pub audit_log_batch_throttle_qps: f32,
    /// Maximum number of batches written at the same moment if throttling was not used before; batch mode
    /// only
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub audit_log_batch_throttle_burst: u32,
    /// Truncate events that are too large by omitting objects
    #[arg(long, default_value_t = false, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_log_truncate_enabled: bool,
    /// Maximum size of an event, in bytes; larger ones are truncated
    #[arg(long, default_value_t = 102_400, value_name = "BYTES")]
    pub audit_log_truncate_max_event_size: usize,
    /// Maximum size of a batch, in bytes; without effect here, since each event is a line of its own
    #[arg(long, default_value_t = 10_485_760, value_name = "BYTES")]
    pub audit_log_truncate_max_batch_size: usize,
    /// Kubeconfig of the audit webhook
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// API version of events sent to the webhook
    #[arg(long, default_value = "audit.k8s.io/v1", value_name = "VERSION")]
    pub audit_webhook_version: Version,
    /// Time to wait before retrying the first failed request; each later pause is half as long again
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub audit_webhook_initial_backoff: Duration,
    /// Strategy for sending events: batch buffers events and drops those that do not fit, blocking makes
    /// requests wait until their events are delivered, blocking-strict also refuses requests whose first
    /// event cannot be delivered
    #[arg(long, default_value = "batch", value_name = "MODE")]
    pub audit_webhook_mode: AuditMode,
    /// Size of the buffer in events; batch mode only
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub audit_webhook_batch_buffer_size: usize,
    /// Maximum number of events in a batch; batch mode only
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    pub audit_webhook_batch_max_size: usize,
    /// Time to wait before sending a batch that is not full; batch mode only
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Enable throttling of batches; batch mode only
    #[arg(long, default_value_t = true, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Maximum average number of batches per second; batch mode only
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    pub audit_webhook_batch_throttle_qps: f32,
    /// Maximum number of batches sent at the same moment if throttling was not used before; batch mode only
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Truncate events that are too large by omitting objects
    #[arg(long, default_value_t = false, action = ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub audit_webhook_truncate_enabled: bool,
    /// Maximum size of an event, in bytes; larger ones are truncated
    #[arg(long, default_value_t = 102_400, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: usize,
    /// Maximum size of a batch, in bytes
    #[arg(long, default_value_t = 10_485_760, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: usize,
}

/// `--audit-log-mode`, `--audit-webhook-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// Requests wait until their events are queued, or delivered.
    Blocking,
    /// Events that do not fit into the queue are dropped and counted.
    Batch,
    /// Like blocking; a request whose first event is lost is refused.
    BlockingStrict,
}

/// `--audit-log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// One line of text per event, without objects.
    Legacy,
}

/// API version of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// `audit.k8s.io/v1`.
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

/// Size and rate of batches.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// Events queued or in flight.
    pub buffer: usize,
    /// Events of one batch.
    pub max_size: usize,
    /// Bytes of one batch; may be exceeded by one event.
    pub max_bytes: usize,
    /// How long the first event of a batch waits.
    pub max_wait: Duration,
    /// Whether the rate of batches is limited.
    pub throttle: bool,
    /// Batches per second.
    pub qps: f32,
    /// Burst of batches after idle time.
    pub burst: u32,
}

impl Batching {
    /// For tests: batches of three without timeout, ten per second after a burst of two.
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

    /// Everything that is queued, at once: for the blocking modes.
    const UNBATCHED: Batching = Batching {
        // More than the number of lines that can be queued.
        buffer: tokio::sync::Semaphore::MAX_PERMITS,
        max_size: 1_000,
        max_bytes: usize::MAX,
        max_wait: Duration::ZERO,
        throttle: false,
        qps: 0.0,
        burst: 0,
    };

    /// Validates the values (upstream's `validateBackendBatchOptions`); `of` is the sink.
    fn check(&self, of: &'static str) -> Result<(), AuditFlagError> {
        let bad = |what, value| Err(AuditFlagError::Batch { of, what, value });
        match self {
            Batching { buffer: 0, .. } => bad("buffer size", 0.0),
            Batching { max_size: 0, .. } => bad("max batch size", 0.0),
            Batching { throttle: true, qps, .. } if *qps <= 0.0 => bad("throttle QPS", *qps),
            Batching { throttle: true, burst: 0, .. } => bad("throttle burst", 0.0),
            _ => Ok(()),
        }
    }
}

/// Invalid audit flags, with upstream's messages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum AuditFlagError {
    /// A batch option is not positive.
    #[error("invalid audit batch {of} {what} {value}, must be a positive number")]
    Batch {
        /// `log` or `webhook`.
        of: &'static str,
        what: &'static str,
        value: f32,
    },
    /// The maximum event size is not positive.
    #[error("invalid audit truncate {of} max event size {size}, must be a positive number")]
    EventSize {
        /// `log` or `webhook`.
        of: &'static str,
        size: usize,
    },
    /// The maximum batch size is smaller than that of an event.
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

/// Truncation of large events.
#[derive(Clone, Copy, Debug)]
pub struct Truncate {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Size above which events are truncated, in bytes.
    pub max_event_size: usize,
}

impl Truncate {
    /// The largest event; `None` for no limit.
    pub fn largest(&self) -> Option<usize> {
        self.enabled.then_some(self.max_event_size)
    }

    /// Upstream validates these even if truncation is disabled.
    fn check(&self, of: &'static str, (event, batch): (usize, usize)) -> Result<(), AuditFlagError> {
        match (event, batch) {
            (0, _) => Err(AuditFlagError::EventSize { of, size: 0 }),
            _ if batch < event => Err(AuditFlagError::BatchSize { of, batch, event }),
            _ => Ok(()),
        }
    }
}

impl AuditOptions {
    /// Validates the flags.
    ///
    /// # Errors
    /// The first invalid flag.
    pub fn check(&self) -> Result<(), AuditFlagError> {
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

    /// Batching of the log.
    pub(crate) fn log_batching(&self) -> Batching {
        match self.audit_log_mode {
            AuditMode::Blocking | AuditMode::BlockingStrict => Batching::UNBATCHED,
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

    /// Batching of the webhook.
    pub(crate) fn webhook_batching(&self) -> Batching {
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

    /// Truncation of the log.
    pub(crate) fn log_truncate(&self) -> Truncate {
        Truncate {
            enabled: self.audit_log_truncate_enabled,
            max_event_size: self.audit_log_truncate_max_event_size,
        }
    }

    /// Truncation of the webhook.
    pub(crate) fn webhook_truncate(&self) -> Truncate {
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
        // flags, error
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
