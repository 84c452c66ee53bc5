//! The `plinth` program.

use std::process::ExitCode;

use clap::Parser;
use plinth_apiserver::private_files;
use plinth_server::cli::{self, Cli};

fn main() -> ExitCode {
    private_files::set_umask();
    cli::allocator::configure();
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_logged() {
                eprintln!("error: {error}");
            }
            error.exit_code()
        }
    }
}
