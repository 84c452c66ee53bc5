//! The command line of `plinth`.

pub mod allocator;
mod archive_file;
mod client;
mod convert;
mod kubeconfig;
mod repair;
mod serve;
mod store;
mod upstream;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use serve::{runtime, start, Running, ServeError, ServeOptions};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server did not start, or stopped for a reason.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A backup, restore, verification or repair failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// No kubeconfig was made.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
    /// An object could not be converted.
    #[error(transparent)]
    Convert(#[from] convert::ConvertCommandError),
    /// A benchmark could not be run to its end.
    #[error(transparent)]
    Bench(#[from] plinth_benches::Error),
}

/// The exit code of a server whose storage has failed: that of `EX_IOERR` in sysexits.h.
pub(crate) const STORAGE_FAILED: u8 = 74;

impl CliError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Serve(error) if error.is_storage_failure() => ExitCode::from(STORAGE_FAILED),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether the log has it already.
    pub fn is_logged(&self) -> bool {
        matches!(self, CliError::Serve(ServeError::StorageFailed(_)))
    }
}

/// A Kubernetes API server without etcd.
#[derive(Debug, Parser)]
#[command(
    name = "plinth",
    version,
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
    /// Issue a client certificate for a user and print its kubeconfig
    Kubeconfig(kubeconfig::KubeconfigOptions),
    /// Convert an object between JSON, YAML, protobuf and CBOR
    Convert(convert::ConvertOptions),
    /// Write all objects and their history into one archive
    Backup(store::BackupOptions),
    /// Make a data directory of an archive
    Restore(store::RestoreOptions),
    /// Check every record of a data directory
    Verify(store::VerifyOptions),
    /// Make a data directory usable that a start refuses
    Repair(repair::RepairOptions),
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
        Command::Kubeconfig(options) => Ok(kubeconfig::run(options)?),
        Command::Convert(options) => Ok(convert::run(options)?),
        Command::Backup(options) => Ok(store::backup(options)?),
        Command::Restore(options) => Ok(store::restore(options)?),
        Command::Verify(options) => Ok(store::verify(options)?),
        Command::Repair(options) => Ok(repair::repair(options)?),
        Command::Bench(options) => Ok(plinth_benches::run(options)?),
    }
}
