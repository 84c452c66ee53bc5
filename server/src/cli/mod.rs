//! The command line of `plinth`.

#[cfg(feature = "bench")]
mod bench;
mod completion;
mod config_file;
mod convert;
mod etcd;
mod etcd_configuration;
mod exit_code;
mod export;
mod feature_gates;
mod flag_origins;
mod given_flags;
mod go_bool;
mod hidden_token;
mod history;
mod import;
mod join;
mod kubeconfig;
pub mod output;
pub mod processor;
mod program_name;
#[cfg(test)]
mod reference_tests;
mod repair;
mod replicas;
mod replicate;
mod runtime_config;
mod serve;
mod service_manager;
mod status;
mod store;
mod token;
mod up;
mod upstream;
mod user_kubeconfig;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::client::ClientError;

pub use config_file::FlagFileError;
use exit_code::STORAGE_FAILED;
pub use flag_origins::{Arguments, FlagOrigins};
pub use hidden_token::HiddenToken;
pub use join::{join, JoinError, JoinOptions};
pub use program_name::Invocation;
pub use replicas::{replicas, ReplicasError, ReplicasOptions};
pub use replicate::{replicate, undo as undo_replication, ReplicateError, ReplicateOptions};
pub use serve::{runtime, runtime_for, start, start_on, Running, ServeError, ServeOptions};
pub use store::{restore, RestoreOptions};
pub use token::{create as create_token, CreateOptions as CreateTokenOptions, TokenCommandError};

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server did not start, or failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The server did not start, or failed, or its context was not added.
    #[error(transparent)]
    Up(#[from] up::UpError),
    /// No archive was written.
    #[error("cannot write the backup: {0}")]
    Backup(#[source] store::StoreError),
    /// No data directory was restored.
    #[error("cannot restore: {0}")]
    Restore(#[source] store::StoreError),
    /// A store was not verified to its end.
    #[error("cannot verify the store: {0}")]
    Verify(#[source] store::StoreError),
    /// A store could not be repaired.
    #[error("cannot repair the store: {0}")]
    Repair(#[source] store::StoreError),
    /// A store has damage or needs a repair.
    #[error(transparent)]
    Damage(store::StoreError),
    /// The data directory of a replica was not made.
    #[error("cannot join: {0}")]
    Join(#[from] join::JoinError),
    /// A data directory was not made that of a replica.
    #[error("cannot convert the data directory: {0}")]
    Replicate(#[from] replicate::ReplicateError),
    /// A token for joining was not created, listed or deleted.
    #[error("cannot use the cluster's join tokens: {0}")]
    Token(#[from] token::TokenCommandError),
    /// The replicas were not listed.
    #[error("cannot list or change the replicas: {0}")]
    Replicas(#[from] replicas::ReplicasError),
    /// The server's status could not be fetched.
    #[error("cannot show the server's status: {0}")]
    Status(#[source] ClientError),
    /// The history of an object was not shown.
    #[error("cannot show the history: {0}")]
    History(#[from] history::HistoryError),
    /// The kubeconfig was not created.
    #[error("cannot make the kubeconfig: {0}")]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
    /// A completion script or manual page was not written.
    #[error("cannot write: {0}")]
    Completion(#[from] completion::CompletionError),
    /// An object could not be converted.
    #[error("cannot convert: {0}")]
    Convert(#[from] convert::ConvertCommandError),
    /// The etcd server did not start, or failed.
    #[error(transparent)]
    Etcd(#[from] etcd::EtcdError),
    /// Nothing was imported.
    #[error("cannot import: {0}")]
    Import(#[from] import::ImportCommandError),
    /// Nothing was exported.
    #[error("cannot export: {0}")]
    Export(#[from] export::ExportCommandError),
    /// A benchmark failed.
    #[cfg(feature = "bench")]
    #[error(transparent)]
    Bench(#[from] plinth_benches::Error),
}

impl CliError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Serve(error) | CliError::Up(up::UpError::Serve(error))
                if error.is_storage_failure() =>
            {
                ExitCode::from(STORAGE_FAILED)
            }
            CliError::Etcd(error) if error.is_storage_failure() => ExitCode::from(STORAGE_FAILED),
            _ => ExitCode::FAILURE,
        }
    }

    /// What is printed: the error, and a line that says what to do.
    pub fn message(&self) -> String {
        let text = self.to_string();
        match self.advice() {
            // Some have that by themselves, on a line of their own or behind a semicolon.
            Some(advice) if !text.contains(['\n', ';']) => format!("{text}\n{advice}"),
            _ => text,
        }
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match self {
            CliError::Backup(_) => {
                "No archive is left. Check --to, and --data-dir (of a stopped server) or --kubeconfig (of a running one), then run plinth backup again"
            }
            CliError::Restore(_) => "Check --from and --data-dir, then run plinth restore again",
            CliError::Verify(_) => "Give --data-dir the data directory of a stopped server",
            CliError::Repair(_) => "Nothing was changed. Give --data-dir the data directory of a stopped server",
            CliError::Damage(_) => {
                "Restore a backup into another directory, or see with plinth repair what can be kept"
            }
            CliError::Import(_) => {
                "No data directory was created. Check the source and the flags that are named, then run plinth import again"
            }
            CliError::Export(_) => "Check what is named, then run plinth export again",
            CliError::Replicate(_) => {
                "Give --data-dir the data directory of a stopped server; docs/replication.md has the steps"
            }
            CliError::Join(_) => "Check what is named, then run plinth join again; docs/replication.md has the steps",
            CliError::Token(_) | CliError::Replicas(_) | CliError::Status(_) | CliError::History(_) => {
                match self.client() {
                    Some(ClientError::Kubeconfig(_)) => "Check the kubeconfig (--kubeconfig)",
                    Some(ClientError::Refused(status, _)) if matches!(status.as_u16(), 401 | 403) => {
                        "Check the user of the kubeconfig (--kubeconfig)"
                    }
                    Some(ClientError::Refused(..)) | None => return None,
                    Some(ClientError::Write(_) | ClientError::Output(_)) => return None,
                    Some(ClientError::OtherServer(_)) => "Give the kubeconfig of a server of plinth (--kubeconfig)",
                    Some(_) => "Check the kubeconfig (--kubeconfig), and that the server runs",
                }
            }
            CliError::Kubeconfig(_) => "Check --data-dir and the other flags, then run plinth kubeconfig again",
            CliError::Completion(_) => "Check the path that is named",
            CliError::Convert(_) => "Check the object on standard input, and its encoding",
            // A refused start is one line, which says what to do where that can be known.
            CliError::Serve(_) | CliError::Up(_) | CliError::Etcd(_) => return None,
            #[cfg(feature = "bench")]
            CliError::Bench(_) => return None,
        })
    }

    /// Why a server could not be asked, or what it refused.
    fn client(&self) -> Option<&ClientError> {
        match self {
            CliError::Token(token::TokenCommandError::Client(error))
            | CliError::Replicas(replicas::ReplicasError::Client(error))
            | CliError::Status(error)
            | CliError::History(history::HistoryError::Client(error)) => Some(error),
            _ => None,
        }
    }

    fn of_repair(error: store::StoreError) -> CliError {
        match error {
            error @ store::StoreError::RepairNeeded(_) => CliError::Damage(error),
            error => CliError::Repair(error),
        }
    }

    fn of_verification(error: store::StoreError) -> CliError {
        match error {
            error @ store::StoreError::Damaged(_) => CliError::Damage(error),
            error => CliError::Verify(error),
        }
    }

    /// Whether the error was logged already.
    pub fn is_logged(&self) -> bool {
        matches!(
            self,
            CliError::Serve(ServeError::StorageFailed(_))
                | CliError::Up(up::UpError::Serve(ServeError::StorageFailed(_)))
                | CliError::Etcd(etcd::EtcdError::Serve(ServeError::StorageFailed(_)))
        )
    }
}

/// A Kubernetes API server without etcd.
#[derive(Debug, Parser)]
#[command(
    name = "plinth",
    version,
    after_help = "Example:\n  plinth serve --data-dir ./data\n  export KUBECONFIG=./data/admin.kubeconfig\n  kubectl get namespaces\n\nExit codes:\n  0   done\n  1   failed; the reason is on standard error\n  2   unknown command or flag, or an invalid value\n  74  the storage of a server failed while it ran (serve, up, etcd)"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of `plinth`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the Kubernetes API from a data directory
    Serve(Box<ServeOptions>),
    /// Serve the Kubernetes API, with a context in your own kubeconfig
    #[command(
        after_help = "Examples:\n  plinth up\n  plinth up --merge-kubeconfig\n  kubectl --context plinth get namespaces\n\nAll other flags are those of plinth serve."
    )]
    Up(Box<up::UpOptions>),
    /// Serve etcd's v3 API from a data directory of its own
    Etcd(Box<etcd::EtcdCommandOptions>),
    /// Issue a client certificate for a user and print its kubeconfig
    Kubeconfig(kubeconfig::KubeconfigOptions),
    /// Convert an object between JSON, YAML, protobuf and CBOR
    Convert(convert::ConvertOptions),
    /// Write all objects and their history into one archive
    Backup(store::BackupOptions),
    /// Create a data directory from an archive
    Restore(store::RestoreOptions),
    /// Create a data directory from the objects in a kube-apiserver's etcd
    Import(import::ImportCommand),
    /// Write the objects of a data directory for a kube-apiserver's etcd
    Export(export::ExportCommand),
    /// Check every record of a data directory
    Verify(store::VerifyOptions),
    /// Repair a data directory that the server refuses to start with
    Repair(repair::RepairOptions),
    /// Make the data directory of another replica
    Join(join::JoinOptions),
    /// Make the data directory of a single server that of a cluster's first replica
    Replicate(replicate::ReplicateOptions),
    /// List the replicas of a cluster
    Replicas(replicas::ReplicasOptions),
    /// Create, list and delete tokens with which replicas join
    Token(token::TokenOptions),
    /// Show what a running server is doing
    Status(status::StatusOptions),
    /// Show the versions of an object and what changed from one to the next
    History(history::HistoryOptions),
    /// Write a completion script for a shell to standard output
    Completion(completion::CompletionOptions),
    /// Write the manual pages
    #[command(hide = true)]
    ManPages(completion::ManPagesOptions),
    /// Measure a server and draw plots
    #[cfg(feature = "bench")]
    Bench(plinth_benches::Options),
}

/// Runs a command.
///
/// # Errors
/// An error whose text is meant for users.
pub fn run(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        Command::Serve(options) => Ok(serve::run(*options, |_| Ok::<_, ServeError>(()))?),
        Command::Up(options) => Ok(up::run(*options)?),
        Command::Etcd(options) => Ok(etcd::run(*options)?),
        Command::Kubeconfig(options) => Ok(kubeconfig::run(options)?),
        Command::Convert(options) => Ok(convert::run(options)?),
        Command::Backup(options) => store::backup(options).map_err(CliError::Backup),
        Command::Restore(options) => store::restore(options).map_err(CliError::Restore),
        Command::Import(command) => Ok(import::run(command)?),
        Command::Export(command) => Ok(export::run(command)?),
        Command::Verify(options) => store::verify(options).map_err(CliError::of_verification),
        Command::Repair(options) => repair::repair(options).map_err(CliError::of_repair),
        Command::Join(options) => Ok(join::join(options)?),
        Command::Replicate(options) => Ok(replicate::replicate(options)?),
        Command::Replicas(options) => Ok(replicas::replicas(options)?),
        Command::Token(options) => Ok(token::token(options)?),
        Command::Status(options) => status::status(&options).map_err(CliError::Status),
        Command::History(options) => Ok(history::history(&options)?),
        Command::Completion(options) => Ok(completion::completion(&options, Cli::command())?),
        Command::ManPages(options) => Ok(completion::man_pages(options, Cli::command())?),
        #[cfg(feature = "bench")]
        Command::Bench(options) => Ok(bench::bench(options)?),
    }
}
