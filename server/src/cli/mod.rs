//! The command line of `plinth`.

mod serve;

use clap::{Parser, Subcommand};

pub use serve::{ServeError, ServeOptions};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server did not start, or stopped for a reason.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A benchmark could not be run to its end.
    #[error(transparent)]
    Bench(#[from] plinth_benches::Error),
}

/// A Kubernetes API server without etcd.
#[derive(Debug, Parser)]
#[command(
    name = "plinth",
    version,
    about,
    after_help = "Example:\n  plinth serve --data-dir ./data\n  export KUBECONFIG=./data/admin.kubeconfig\n  kubectl get namespaces"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the Kubernetes API from a data directory
    Serve(Box<ServeOptions>),
    /// Measure a server and draw the figures
    Bench(plinth_benches::Options),
}

/// Runs a command to its end.
///
/// # Errors
/// One error whose text is for people.
pub fn run(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        Command::Serve(options) => Ok(serve::run(*options)?),
        Command::Bench(options) => Ok(plinth_benches::run(options)?),
    }
}
