//! `plinth up`: `plinth serve` with a context in the user's own kubeconfig.

use std::path::PathBuf;

use clap::Args;

use super::output;
use super::serve::{self, ServeError, ServeOptions};
use super::user_kubeconfig::{self, Entry, UserKubeconfigError};

/// Options of `plinth up`: those of `plinth serve` and these.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct UpOptions {
    /// Add a context for this server to the user's kubeconfig, and make it the current one
    #[arg(long, help_heading = "Kubeconfig")]
    pub merge_kubeconfig: bool,
    /// File for --merge-kubeconfig (default: the first of KUBECONFIG, otherwise ~/.kube/config)
    #[arg(long, value_name = "FILE", help_heading = "Kubeconfig", requires = "merge_kubeconfig")]
    pub user_kubeconfig: Option<PathBuf>,
    /// Name of the context and its cluster; the user is NAME-admin
    #[arg(long, value_name = "NAME", default_value = "plinth", help_heading = "Kubeconfig")]
    pub context: String,
    /// Every option of `plinth serve`.
    #[command(flatten)]
    pub serve: ServeOptions,
}

/// The server did not start, or its context was not added.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The server did not start, or failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The user's kubeconfig was not changed; the server does not run.
    #[error("--merge-kubeconfig: {0}")]
    Kubeconfig(#[from] UserKubeconfigError),
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or its context cannot be added.
pub(super) fn run(options: UpOptions) -> Result<(), UpError> {
    let UpOptions { merge_kubeconfig, user_kubeconfig, context, serve } = options;
    if !merge_kubeconfig {
        return serve::run(serve, |_| Ok(()));
    }
    let file = user_kubeconfig.or_else(|| user_kubeconfig::default_path(|name| std::env::var_os(name)));
    let file = file.ok_or(UserKubeconfigError::NoFile)?;
    serve::run(serve, |running| {
        let entry = Entry { name: &context, admin_kubeconfig: running.kubeconfig() };
        user_kubeconfig::merge(&file, &entry)?;
        output::line(format_args!("  kubectl --context {context} (in {})", file.display()));
        Ok(())
    })
}
