//! The command line of `plinth`.

mod serve;

use clap::{Parser, Subcommand};

pub use serve::{ServeError, ServeOptions};

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
}

/// Runs a command to its end.
///
/// # Errors
/// One error whose text is for people.
pub fn run(cli: Cli) -> Result<(), ServeError> {
    match cli.command {
        Command::Serve(options) => serve::run(*options),
    }
}
