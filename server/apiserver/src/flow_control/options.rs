//! Command-line options of flow control, under upstream's names.

use std::time::Duration;

use clap::Args;

/// How many requests are served at once and how long one may take.
#[derive(Clone, Debug, Args)]
pub struct FlowControlOptions {
    /// Most requests under way that change nothing; 0 for no limit
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    pub max_requests_inflight: u32,
    /// Most requests under way that change something; 0 for no limit
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    pub max_mutating_requests_inflight: u32,
    /// Whether FlowSchemas and PriorityLevelConfigurations share the sum of both limits out; if not, each limit
    /// holds for itself
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub enable_priority_and_fairness: bool,
    /// How long a request may take that is not a watch or the like
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = crate::flags::duration)]
    pub request_timeout: Duration,
}
