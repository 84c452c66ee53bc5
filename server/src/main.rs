//! The `plinth` program.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: cli::output")]

use std::process::ExitCode;

use clap::Parser;
use plinth_apiserver::private_files;
use plinth_registry::VERSION_INFO;
use plinth_server::cli::{self, output, Arguments, Cli, Invocation};

/// Serves the whole process, RocksDB too. Why this one, with figures: `docs/dependencies.md`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let missing = cli::processor::missing();
    if !missing.is_empty() {
        output::error_line(format_args!(
            "error: this processor lacks instructions that plinth is compiled with: {}",
            missing.join(", ")
        ));
        output::error_line(format_args!(
            "A virtual machine has them with a newer CPU model, for example x86-64-v2 or host"
        ));
        return ExitCode::FAILURE;
    }
    private_files::set_umask();
    let environment = |name: &str| std::env::var_os(name);
    let arguments = match Invocation::of(std::env::args_os().collect(), environment) {
        Ok(Invocation::Command(arguments)) => arguments,
        Ok(Invocation::UpstreamVersion) => {
            output::line(format_args!("Kubernetes {}", VERSION_INFO.git_version));
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::EtcdVersion) => {
            output::line(format_args!("etcd Version: {}", plinth_etcd::VERSION));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            output::error_line(format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let Arguments { words, origins } = arguments;
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => match origins.explain(&error) {
            Some(text) => {
                output::error_line(format_args!("{}", text.trim_end_matches('\n')));
                return ExitCode::from(2);
            }
            None => error.exit(),
        },
    };
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_logged() {
                let message = error.message();
                output::error_line(format_args!("error: {message}{}", origins.notes(&message)));
            }
            error.exit_code()
        }
    }
}
