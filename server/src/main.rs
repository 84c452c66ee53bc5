//! The `plinth` program.

use std::process::ExitCode;

use clap::Parser;
use plinth_apiserver::private_files;
use plinth_registry::VERSION_INFO;
use plinth_server::cli::{self, Arguments, Cli, Invocation};

/// Serves the whole process, RocksDB too. Why this one, with figures: `docs/dependencies.md`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let missing = cli::processor::missing();
    if !missing.is_empty() {
        eprintln!(
            "error: this processor lacks instructions that plinth is compiled with: {}",
            missing.join(", ")
        );
        eprintln!("A virtual machine has them with a newer CPU model, for example x86-64-v2 or host");
        return ExitCode::FAILURE;
    }
    private_files::set_umask();
    let environment = |name: &str| std::env::var_os(name);
    let arguments = match Invocation::of(std::env::args_os().collect(), environment) {
        Ok(Invocation::Command(arguments)) => arguments,
        Ok(Invocation::UpstreamVersion) => {
            println!("Kubernetes {}", VERSION_INFO.git_version);
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::EtcdVersion) => {
            println!("etcd Version: {}", plinth_etcd::VERSION);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Arguments { words, origins } = arguments;
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => match origins.explain(&error) {
            Some(text) => {
                eprint!("{text}");
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
                eprintln!("error: {message}{}", origins.notes(&message));
            }
            error.exit_code()
        }
    }
}
