//! Flow control flags, with upstream's names.

use std::time::Duration;

use clap::Args;

/// Flags of flow control.
#[derive(Clone, Debug, Args)]
pub struct FlowControlOptions {
    /// Maximum number of non-mutating requests in flight; 0 for no limit
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    pub max_requests_inflight: u32,
    /// Maximum number of mutating requests in flight; 0 for no limit
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    pub max_mutating_requests_inflight: u32,
    /// Enable priority and fairness: FlowSchemas and PriorityLevelConfigurations divide the sum of both
    /// limits; otherwise each limit applies on its own
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub enable_priority_and_fairness: bool,
    /// Timeout of requests that are not long-running
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = crate::flags::duration)]
    #[arg(help_heading = "Requests")]
    pub request_timeout: Duration,
}
