//! Command-line options of connections.

use clap::Args;

/// How many connections and streams there may be, and when clients are asked to connect anew.
#[derive(Clone, Debug, Args)]
pub struct HttpOptions {
    /// Requests under way on one HTTP/2 connection; 0 stands for 250
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub http2_max_streams_per_connection: u32,
    /// Probability with which a request over HTTP/2 makes its client connect anew, at most 0.02: spreads clients
    /// over several servers
    #[arg(long, default_value_t = 0.0, value_name = "FRACTION", value_parser = goaway_chance)]
    pub goaway_chance: f64,
    /// Most connections at once; more are closed as they come
    #[arg(long, default_value_t = 16384, value_name = "COUNT")]
    pub max_connections: usize,
    /// Most connections of one address at once
    #[arg(long, default_value_t = 12288, value_name = "COUNT")]
    pub max_connections_per_client: usize,
}

/// Upstream's bounds.
fn goaway_chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..=0.02).contains(&chance) => Ok(chance),
        _ => Err("--goaway-chance can not be less than 0 or greater than 0.02".into()),
    }
}
