//! `plinth completion` and `plinth man-pages`: what shells and `man` know about the command line.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::output;

/// Options of `plinth completion`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(plinth completion bash)\n  plinth completion zsh > \"${fpath[1]}/_plinth\""
)]
pub struct CompletionOptions {
    /// Shell to write a script for
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Options of `plinth man-pages`.
#[derive(Debug, Args)]
pub struct ManPagesOptions {
    /// Existing directory to write to
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// A script or a page was not written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum CompletionError {
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("{path}: {source}")]
    Pages { path: PathBuf, source: io::Error },
}

/// Writes a shell's script to standard output.
///
/// # Errors
/// [`CompletionError::Output`].
pub(super) fn completion(options: &CompletionOptions, mut command: Command) -> Result<(), CompletionError> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "plinth", &mut script);
    output::write(&script).map_err(CompletionError::Output)
}

/// Writes a manual page for each command.
///
/// # Errors
/// [`CompletionError::Pages`].
pub(super) fn man_pages(options: ManPagesOptions, command: Command) -> Result<(), CompletionError> {
    clap_mangen::generate_to(command, &options.to)
        .map_err(|source| CompletionError::Pages { path: options.to, source })
}
