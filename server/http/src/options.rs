//! Command-line options of connections.

use clap::Args;

/// Limits on connections and streams.
#[derive(Clone, Debug, Args)]
pub struct HttpOptions {
    /// Maximum number of concurrent streams per HTTP/2 connection; 0 means 250
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub http2_max_streams_per_connection: u32,
    /// Probability that an HTTP/2 request is answered with GOAWAY, so that its client reconnects, possibly to
    /// another server; at most 0.02
    #[arg(long, default_value_t = 0.0, value_name = "FRACTION", value_parser = goaway_chance)]
    pub goaway_chance: f64,
    /// Maximum number of concurrent connections; further ones are closed when accepted
    #[arg(long, default_value_t = 16384, value_name = "COUNT")]
    pub max_connections: usize,
    /// Maximum number of concurrent connections per client address
    #[arg(long, default_value_t = 12288, value_name = "COUNT")]
    pub max_connections_per_client: usize,
    /// Open files that the server makes its limits of, where the process may have more: the share of one of
    /// several servers in a process
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(256..))]
    pub max_open_files: Option<u64>,
    /// Bytes of answers in memory that clients have not read yet; with more, the connections whose answers
    /// have waited longest are closed. By default an eighth of the memory, 128 MiB to 1 GiB
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 20..))]
    pub max_unread_bytes: Option<u64>,
}

/// Upstream's bounds.
fn goaway_chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..=0.02).contains(&chance) => Ok(chance),
        _ => Err("--goaway-chance can not be less than 0 or greater than 0.02".into()),
    }
}
